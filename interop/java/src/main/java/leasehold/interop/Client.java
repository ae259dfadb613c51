package leasehold.interop;

import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * A client and its locks. Each thread has its own lock objects and keeps them: an object stores the last lease, and clears
 * it at the reply to an unlock by any thread, so two threads with one object would have a race.
 */
final class Client {
    final RedissonClient redisson;
    /** Of the server that has the data: the same one, unless the locks are behind sentinels. */
    final RedissonClient data;
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    Client(RedissonClient redisson, RedissonClient data) {
        this.redisson = redisson;
        this.data = data;
    }

    /** The name under which this thread holds locks on the server. */
    String owner() {
        return redisson.getId() + ":" + Thread.currentThread().getId();
    }

    RFencedLock fenced(String name) {
        return (RFencedLock) lock("fenced", name);
    }

    /**
     * @param name of the lock; of all locks of a multi lock, with commas between them; of a group, a slash, and its
     *     values with commas
     */
    RLock lock(String kind, String name) {
        String own = Thread.currentThread().getId() + " " + kind + " " + name;
        return locks.computeIfAbsent(own, any -> make(kind, name));
    }

    private RLock make(String kind, String name) {
        return switch (kind) {
            case "plain" -> redisson.getLock(name);
            case "spin" -> redisson.getSpinLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "fenced" -> redisson.getFencedLock(name);
            case "once" -> named("getNonReentrantLock", name);
            case "once-fair" -> named("getNonReentrantFairLock", name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "multi" -> redisson.getMultiLock(
                    List.of(name.split(",")).stream().map(redisson::getLock).toArray(RLock[]::new));
            case "group" -> {
                String[] parts = name.split("/");
                yield redisson.getMultiLock(parts[0], List.<Object>of((Object[]) parts[1].split(",")));
            }
            default -> throw new IllegalStateException("no such kind of lock: " + kind);
        };
    }

    /** By reflection, because older versions do not have the method. */
    private RLock named(String method, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(redisson, name);
        } catch (NoSuchMethodException missing) {
            throw new Unsupported(method);
        } catch (IllegalAccessException | InvocationTargetException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
