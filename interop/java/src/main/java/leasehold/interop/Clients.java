package leasehold.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** The clients of one server, each with a watchdog time of its own, created on first use. */
final class Clients {
    private final int port;
    private final Map<Long, Client> clients = new ConcurrentHashMap<>();

    Clients(int port) {
        this.port = port;
    }

    Client of(long watchdog) {
        return clients.computeIfAbsent(watchdog, this::connect);
    }

    private Client connect(long watchdog) {
        var config = new Config();
        // Small, because several such programs share a machine with the tests.
        config.setThreads(4);
        config.setNettyThreads(4);
        config.setLockWatchdogTimeout(watchdog);
        // The only codec with which a value of a group has the same field as in Leasehold.
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1)
                // A machine that is busy with other tests is slow, not broken.
                .setTimeout(30_000);
        return new Client(Redisson.create(config));
    }
}
