package leasehold.interop;

import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayList;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/**
 * Threads that take turns in a critical section that detects two owners inside: they read a value, and write one more.
 *
 * <p>The state is in keys that begin with a topic: {@code :value}, the owner that was {@code :inside} last, a
 * {@code :log} with a line for each turn, how many {@code :readers} are inside, and {@code :violations}, which stays
 * empty.
 */
final class Loop {
    private final Client client;
    private final String kind;
    private final String name;
    private final String topic;

    Loop(Client client, String kind, String name, String topic) {
        this.client = client;
        this.kind = kind;
        this.name = name;
        this.topic = topic;
    }

    /** Runs this many turns of each of this many threads, or turns until {@code :stop} exists. Returns their number. */
    int run(int threads, int turns) throws Exception {
        var pool = Executors.newFixedThreadPool(threads);
        var running = new ArrayList<Future<Integer>>();
        for (int thread = 0; thread < threads; thread++) {
            running.add(pool.submit(() -> taking(turns)));
        }
        int taken = 0;
        for (var thread : running) {
            taken += thread.get();
        }
        pool.shutdown();
        return taken;
    }

    private int taking(int turns) throws Exception {
        String me = client.owner();
        Callable<Runnable> enter = door();
        int taken = 0;
        while (turns < 0 ? !text("stop").isExists() : taken < turns) {
            Runnable leave = enter.call();
            long entered = System.nanoTime();
            if (kind.equals("read")) {
                read(me);
            } else {
                write(me);
            }
            try {
                leave.run();
            } catch (IllegalMonitorStateException lost) {
                long held = (System.nanoTime() - entered) / 1_000_000;
                throw new IllegalStateException("lost within " + held + " ms after " + taken + " turns", lost);
            }
            taken++;
        }
        return taken;
    }

    /** Enters the critical section when it is called, and returns the function that leaves it. */
    private Callable<Runnable> door() {
        switch (kind) {
            case "semaphore" -> {
                RSemaphore semaphore = client.redisson.getSemaphore(name);
                return () -> {
                    semaphore.acquire();
                    return semaphore::release;
                };
            }
            case "permits" -> {
                RPermitExpirableSemaphore semaphore = client.redisson.getPermitExpirableSemaphore(name);
                return () -> {
                    String id = semaphore.acquire(60, SECONDS);
                    return () -> semaphore.release(id);
                };
            }
            default -> {
                RLock lock = client.lock(kind, name);
                return () -> {
                    lock.lock();
                    return lock::unlock;
                };
            }
        }
    }

    private void write(String me) {
        RBucket<String> value = text("value");
        RBucket<String> inside = text("inside");
        inside.set(me);
        String seen = value.get();
        long next = seen == null ? 1 : Long.parseLong(seen) + 1;
        value.set(Long.toString(next));
        client.redisson.getList(topic + ":log").add("java " + me + " " + (next - 1));
        String last = inside.get();
        if (!me.equals(last)) {
            violated(me + " writes, and " + last + " is inside");
        }
        long readers = client.redisson.getAtomicLong(topic + ":readers").get();
        if (readers != 0) {
            violated(me + " writes, and " + readers + " read");
        }
    }

    private void read(String me) {
        var readers = client.redisson.getAtomicLong(topic + ":readers");
        readers.incrementAndGet();
        String first = text("value").get();
        client.redisson.getList(topic + ":reads").add("java " + me);
        String second = text("value").get();
        readers.decrementAndGet();
        if (first == null ? second != null : !first.equals(second)) {
            violated(me + " reads " + first + " and then " + second);
        }
    }

    private RBucket<String> text(String what) {
        return client.redisson.getBucket(topic + ":" + what);
    }

    private void violated(String how) {
        client.redisson.getList(topic + ":violations").add(how);
    }
}
