import io.lettuce.core.RedisClient;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The drivers of Redisson and of the spin lock with Lettuce. The protocol with the harness and the jobs are described in
 * drivers/src/lib.rs and drivers/src/jobs.rs. A task is a thread, because both locks are made for threads.
 */
public final class Bench {
    private static final Map<String, String> ARGS = new HashMap<>();
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    /** A lock library, connected to its server. */
    interface Contender {
        void acquire(String name) throws Exception;

        void release(String name) throws Exception;

        /** Waits without a thread, and releases the lock; returns when it was granted. */
        CompletableFuture<Long> visit(String name, long who);
    }

    /** Redisson with its defaults for pools, threads and codec; the watchdog renews the lock. */
    static final class RedissonLocks implements Contender {
        private final RedissonClient client;

        RedissonLocks() {
            Config config = new Config();
            config.setLockWatchdogTimeout(lease());
            var server = config.useSingleServer().setAddress(ARGS.get("url"));
            if (ARGS.get("job").equals("wake")) {
                // By default there are at most 250 subscriptions; its documentation recommends a larger pool for more.
                server.setSubscriptionsPerConnection(1000);
            }
            client = Redisson.create(config);
        }

        @Override
        public void acquire(String name) {
            client.getLock(name).lock();
        }

        @Override
        public void release(String name) {
            client.getLock(name).unlock();
        }

        @Override
        public CompletableFuture<Long> visit(String name, long who) {
            RLock lock = client.getLock(name);
            return lock.lockAsync(who).toCompletableFuture().thenCompose(held -> {
                long granted = unixNanos();
                return lock.unlockAsync(who).toCompletableFuture().thenApply(gone -> granted);
            });
        }
    }

    /** The lock of the tutorials: SET with NX and PX, a pause of 100 ms, and DEL. One connection for all threads. */
    static final class SpinLock implements Contender {
        private final RedisCommands<String, String> commands = RedisClient.create(ARGS.get("url")).connect().sync();
        private final SetArgs taking = SetArgs.Builder.nx().px(lease());

        @Override
        public void acquire(String name) throws InterruptedException {
            while (!"OK".equals(commands.set(name, "lock", taking))) {
                Thread.sleep(100);
            }
        }

        @Override
        public void release(String name) {
            commands.del(name);
        }

        @Override
        public CompletableFuture<Long> visit(String name, long who) {
            throw new UnsupportedOperationException("it needs a thread for each waiter");
        }
    }

    /** Nanoseconds in the buckets of drivers/src/histogram.rs. */
    static final class Histogram {
        private final TreeMap<Integer, Long> counts = new TreeMap<>();
        private long sum;
        private long max;

        void record(long nanos) {
            nanos = Math.max(nanos, 0);
            int shift = Math.max(64 - Long.numberOfLeadingZeros(nanos) - 7, 0);
            counts.merge(shift * 64 + (int) (nanos >> shift), 1L, Long::sum);
            sum += nanos;
            max = Math.max(max, nanos);
        }

        void merge(Histogram other) {
            other.counts.forEach((bucket, count) -> counts.merge(bucket, count, Long::sum));
            sum += other.sum;
            max = Math.max(max, other.max);
        }

        String json() {
            List<String> buckets = new ArrayList<>();
            counts.forEach((bucket, count) -> buckets.add("[" + bucket + "," + count + "]"));
            return "{\"buckets\":[" + String.join(",", buckets) + "],\"sum\":" + sum + ",\"max\":" + max + "}";
        }
    }

    /** The contribution of one task to the outcome. */
    static final class Part {
        private final Histogram latency = new Histogram();
        private final Histogram handover = new Histogram();
        private long counted;
        private long all;
        private long violations;
        private long errors;
        private String error;

        void fail(Exception exception) {
            errors++;
            if (error == null) {
                error = exception.toString();
            }
        }
    }

    private static String json(List<Part> parts, long elapsed) {
        Part sum = new Part();
        List<String> tasks = new ArrayList<>();
        for (Part part : parts) {
            tasks.add(Long.toString(part.counted));
            sum.all += part.all;
            sum.violations += part.violations;
            sum.errors += part.errors;
            sum.error = sum.error == null ? part.error : sum.error;
            sum.latency.merge(part.latency);
            sum.handover.merge(part.handover);
        }
        String error = sum.error == null ? "null" : "\"" + sum.error.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
        return "{\"elapsed_ns\":" + elapsed + ",\"tasks\":[" + String.join(",", tasks) + "],\"grants\":" + sum.all
                + ",\"latency\":" + sum.latency.json() + ",\"handover\":" + sum.handover.json() + ",\"violations\":"
                + sum.violations + ",\"errors\":" + sum.errors + ",\"error\":" + error + "}";
    }

    private static int number(String key) {
        return Integer.parseInt(ARGS.getOrDefault(key, "0"));
    }

    private static long lease() {
        int lease = number("lease_ms");
        return lease > 0 ? lease : 30_000;
    }

    private static long unixNanos() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    private static void say(String word) throws IOException {
        System.out.println(word);
        System.out.flush();
        if (INPUT.readLine() == null) {
            System.exit(0);
        }
    }

    private static void end(String outcome) throws IOException {
        System.out.println(outcome);
        System.out.flush();
        INPUT.readLine();
        System.exit(0);
    }

    /** Runs a task on each of this many threads, with a common start, and returns the time of the start. */
    private static long threads(int count, IntConsumer task) throws InterruptedException {
        CountDownLatch start = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            int number = index;
            Thread thread = new Thread(() -> {
                try {
                    start.await();
                    task.accept(number);
                } catch (InterruptedException exception) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.start();
            threads.add(thread);
        }
        began = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        return began;
    }

    private static volatile long began;

    private static List<Part> parts(int tasks) {
        List<Part> parts = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            parts.add(new Part());
        }
        return parts;
    }

    private static String pairs(Contender contender, String prefix, int tasks, long millis) throws Exception {
        List<Part> parts = parts(tasks);
        long since = threads(tasks, task -> {
            Part part = parts.get(task);
            String name = prefix + ":" + task;
            do {
                long start = System.nanoTime();
                try {
                    contender.acquire(name);
                    contender.release(name);
                    part.latency.record(System.nanoTime() - start);
                    part.counted++;
                    part.all++;
                } catch (Exception exception) {
                    part.fail(exception);
                }
            } while (System.nanoTime() - began < millis * 1_000_000);
        });
        return json(parts, System.nanoTime() - since);
    }

    private static String contend(Contender contender) throws Exception {
        int process = number("process");
        int tasks = number("tasks");
        int turns = number("turns");
        int names = number("names");
        long run = number("run_ms") * 1_000_000L;
        byte[] draws = ARGS.containsKey("draws") ? Files.readAllBytes(Path.of(ARGS.get("draws"))) : new byte[0];
        FileChannel witness = FileChannel.open(
                Path.of(ARGS.get("witness")), StandardOpenOption.READ, StandardOpenOption.WRITE);
        List<Part> parts = parts(tasks);
        long since = threads(tasks, task -> {
            Part part = parts.get(task);
            long who = ((long) process << 32) + task + 1;
            ByteBuffer record = ByteBuffer.allocateDirect(32).order(ByteOrder.LITTLE_ENDIAN);
            while (turns > 0 ? part.all < turns : System.nanoTime() - began < run) {
                int index = 0;
                if (draws.length > 0) {
                    int at = (int) (2 * (((process * 1024L + task) * 257 + part.all) % (draws.length / 2)));
                    index = ((draws[at] & 255) | (draws[at + 1] & 255) << 8) % names;
                }
                String name = ARGS.get("prefix") + ":" + index;
                long place = index * 32L;
                try {
                    long start = System.nanoTime();
                    long asked = unixNanos();
                    contender.acquire(name);
                    long wait = System.nanoTime() - start;
                    long now = unixNanos();
                    witness.read(record.clear(), place);
                    long inside = record.getLong(0);
                    long left = record.getLong(16);
                    long by = record.getLong(24);
                    record.clear().putLong(0, who).limit(8);
                    witness.write(record, place);
                    part.violations += inside != 0 ? 1 : 0;
                    if (by != 0 && by != process + 1 && left >= asked && left <= now) {
                        part.handover.record(now - left);
                    }
                    part.latency.record(wait);
                    part.all++;
                    part.counted += turns > 0 || System.nanoTime() - began < run ? 1 : 0;
                    nap(number("work_us"));
                    witness.read(record.clear(), place);
                    part.violations += record.getLong(0) != who ? 1 : 0;
                    record.putLong(0, 0).putLong(8, record.getLong(8) + 1).putLong(16, unixNanos());
                    record.putLong(24, process + 1).clear();
                    witness.write(record, place);
                    contender.release(name);
                    nap(number("pause_us"));
                } catch (Exception exception) {
                    part.fail(exception);
                }
            }
        });
        return json(parts, turns > 0 ? System.nanoTime() - since : run);
    }

    private static void nap(int micros) throws InterruptedException {
        if (micros > 0) {
            Thread.sleep(micros / 1000, micros % 1000 * 1000);
        }
    }

    /** A lock belongs to the thread that acquired it, and is renewed even after that thread has ended. */
    private static String hold(Contender contender, String prefix, int count) throws Exception {
        List<Part> parts = parts(64);
        threads(parts.size(), task -> {
            for (int name = task; name < count; name += parts.size()) {
                try {
                    contender.acquire(prefix + ":" + name);
                    parts.get(task).all++;
                } catch (Exception exception) {
                    parts.get(task).fail(exception);
                }
            }
        });
        return json(parts, 0);
    }

    private static String wake(Contender contender, String prefix, int count) throws Exception {
        List<CompletableFuture<Long>> waiters = new ArrayList<>();
        for (int name = 0; name < count; name++) {
            waiters.add(contender.visit(prefix + ":" + name, name + 1_000_000L));
        }
        say("held");
        AtomicLong last = new AtomicLong();
        for (CompletableFuture<Long> waiter : waiters) {
            last.accumulateAndGet(waiter.get(), Math::max);
        }
        return "{\"grants\":" + count + ",\"last_ns\":" + last + "}";
    }

    public static void main(String[] words) throws Exception {
        for (String word : words) {
            String[] pair = word.split("=", 2);
            ARGS.put(pair[0], pair[1]);
        }
        Contender contender = ARGS.get("contender").equals("redisson") ? new RedissonLocks() : new SpinLock();
        String prefix = ARGS.get("prefix");
        int tasks = number("tasks");
        switch (ARGS.get("job")) {
            case "pairs" -> {
                pairs(contender, prefix + ":warm", tasks, number("warm_ms"));
                say("ready");
                end(pairs(contender, prefix, tasks, number("run_ms")));
            }
            case "contend" -> {
                pairs(contender, prefix + ":warm" + number("process"), Math.min(tasks, 8), number("warm_ms"));
                say("ready");
                end(contend(contender));
            }
            case "hold" -> {
                pairs(contender, prefix + ":warm", 1, 0);
                say("ready");
                String outcome = hold(contender, prefix, tasks);
                say("held");
                end(outcome);
            }
            case "wake" -> {
                pairs(contender, prefix + ":warm", 1, 0);
                say("ready");
                end(wake(contender, prefix, tasks));
            }
            default -> throw new IllegalArgumentException(ARGS.get("job"));
        }
    }
}
