package leasehold.interop;

import java.util.ArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RStream;
import org.redisson.api.stream.StreamAddArgs;
import org.redisson.client.RedisException;

/**
 * Threads that take turns at a plain lock until there is {@code :stop}, across failovers: they read a value and write one
 * more, on a server that has no failover.
 *
 * <p>The state is in keys that begin with a topic: {@code :value}, and the stream {@code :turns} with an entry for each
 * turn, {@code java THREAD SEEN}.
 */
final class Turns {
    /** So that one language does not take all turns. */
    private static final long PAUSE = 5;
    /** Before the next attempt when there is no primary. */
    private static final long BACK_OFF = 50;
    /** In nanoseconds. After a longer time Redisson may have sent a command again, or this process may have stood still. */
    private static final long SLOW = 500_000_000;

    private final Client client;
    private final String name;
    private final RBucket<String> value;
    private final RBucket<String> stop;
    private final RStream<String, String> turns;

    Turns(Client client, String name, String topic) {
        this.client = client;
        this.name = name;
        value = client.data.getBucket(topic + ":value");
        stop = client.data.getBucket(topic + ":stop");
        turns = client.data.getStream(topic + ":turns");
    }

    /** Runs so many threads. Returns how many turns they took, and which failures they met. */
    String run(int threads) throws Exception {
        var pool = Executors.newFixedThreadPool(threads);
        var running = new ArrayList<Future<Count>>();
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            running.add(pool.submit(() -> taking(number)));
        }
        var sum = new Count();
        for (var thread : running) {
            sum.add(thread.get());
        }
        pool.shutdown();
        return sum.toString();
    }

    private Count taking(int thread) throws InterruptedException {
        RLock lock = client.lock("plain", name);
        var count = new Count();
        while (!stop.isExists()) {
            long begun = System.nanoTime();
            try {
                lock.lock();
            } catch (RedisException failure) {
                count.failed++;
                // The lock may be held all the same: a second lock() would enter it once more.
                leave(lock);
                Thread.sleep(BACK_OFF);
                continue;
            }
            String before = value.get();
            long seen = before == null ? 0 : Long.parseLong(before);
            boolean slow = System.nanoTime() - begun > SLOW;
            if (slow && !lock.isHeldByCurrentThread()) {
                count.skipped++;
            } else {
                value.set(Long.toString(seen + 1));
                turns.add(StreamAddArgs.entry("turn", "java " + thread + " " + seen));
                count.taken++;
            }
            if (!leave(lock)) {
                count.lost++;
            } else if (slow) {
                // A command sent again after a failover has entered the lock twice if the first one was replicated. Then one
                // unlock() is not enough, and this thread would keep the lock for ever.
                while (leave(lock)) {
                    count.twice++;
                }
            }
            Thread.sleep(PAUSE);
        }
        return count;
    }

    /** Releases the lock, whatever becomes of the servers meanwhile. Returns whether this thread held it. */
    private static boolean leave(RLock lock) throws InterruptedException {
        while (true) {
            try {
                lock.unlock();
                return true;
            } catch (IllegalMonitorStateException notHeld) {
                return false;
            } catch (RedisException failure) {
                Thread.sleep(BACK_OFF);
            }
        }
    }

    /** What became of the turns of a thread. */
    private static final class Count {
        private int taken;
        private int skipped;
        private int failed;
        private int lost;
        private int twice;

        void add(Count other) {
            taken += other.taken;
            skipped += other.skipped;
            failed += other.failed;
            lost += other.lost;
            twice += other.twice;
        }

        @Override
        public String toString() {
            return taken + " turns, " + skipped + " not written without the lock, " + failed
                    + " failed attempts, " + lost + " not held at their end, " + twice + " entered twice";
        }
    }
}
