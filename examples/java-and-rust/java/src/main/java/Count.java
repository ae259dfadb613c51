import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** The Java half: counts a number in Redis up, under the lock that the Rust half uses. See README.md. */
final class Count {
    private Count() {
    }

    public static void main(String[] arguments) {
        int turns = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1000;
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv().getOrDefault("LEASEHOLD_URL", "redis://127.0.0.1:6379"));
        RedissonClient redisson = Redisson.create(config);
        try {
            RLock lock = redisson.getLock("count-lock");
            // Plain text, as the Rust half writes it.
            RBucket<String> count = redisson.getBucket("count", StringCodec.INSTANCE);
            for (int turn = 0; turn < turns; turn++) {
                lock.lock();
                try {
                    String seen = count.get();
                    count.set(String.valueOf(seen == null ? 1 : Long.parseLong(seen) + 1));
                } finally {
                    lock.unlock();
                }
            }
            System.out.println("Java: " + turns + " turns are done");
        } finally {
            redisson.shutdown();
        }
    }
}
