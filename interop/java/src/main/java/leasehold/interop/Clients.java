package leasehold.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** The clients of one server, or of one primary, each with a watchdog time of its own, created on first use. */
final class Clients {
    private final int port;
    private final Sentinels sentinels;
    private final Map<Long, Client> clients = new ConcurrentHashMap<>();

    /**
     * @param port of the server
     * @param sentinels of the primary that has the locks; the server has only data then. Null if the server has both.
     */
    Clients(int port, Sentinels sentinels) {
        this.port = port;
        this.sentinels = sentinels;
    }

    Client of(long watchdog) {
        return clients.computeIfAbsent(watchdog, this::connect);
    }

    private Client connect(long watchdog) {
        var server = config(watchdog);
        single(server);
        var data = Redisson.create(server);
        if (sentinels == null) {
            return new Client(data, data);
        }
        var primary = config(watchdog);
        sentinels.configure(primary);
        return new Client(Redisson.create(primary), data);
    }

    private static Config config(long watchdog) {
        var config = new Config();
        // Small, because several such programs share a machine with the tests.
        config.setThreads(4);
        config.setNettyThreads(4);
        config.setLockWatchdogTimeout(watchdog);
        // The only codec with which a value of a group has the same field as in Leasehold.
        config.setCodec(StringCodec.INSTANCE);
        return config;
    }

    private void single(Config config) {
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1)
                // A machine that is busy with other tests is slow, not broken.
                .setTimeout(30_000);
    }
}
