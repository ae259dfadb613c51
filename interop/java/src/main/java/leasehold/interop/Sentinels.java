package leasehold.interop;

import java.util.Arrays;
import org.redisson.config.Config;

/** A primary that is found by its sentinels. Servers and sentinels have passwords, not the same ones. */
record Sentinels(String name, String password, String sentinelPassword, String[] ports) {
    /** Parses {@code NAME PASSWORD SENTINEL_PASSWORD PORT…} after the first argument; null if there is nothing. */
    static Sentinels after(String[] arguments) {
        if (arguments.length == 1) {
            return null;
        }
        String[] ports = Arrays.copyOfRange(arguments, 4, arguments.length);
        return new Sentinels(arguments[1], arguments[2], arguments[3], ports);
    }

    void configure(Config config) {
        var servers = config.useSentinelServers()
                .setMasterName(name)
                .setPassword(password)
                .setSentinelPassword(sentinelPassword)
                .setCheckSentinelsList(true)
                .setMasterConnectionMinimumIdleSize(2)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1)
                // A machine that is busy with other tests is slow, not broken. But Redisson waits for so long, too, for
                // the reply to a command whose connection is gone with its server.
                .setTimeout(5000);
        for (String port : ports) {
            servers.addSentinelAddress("redis://127.0.0.1:" + port);
        }
    }
}
