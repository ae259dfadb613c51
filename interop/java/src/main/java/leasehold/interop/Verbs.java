package leasehold.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** The commands of a thread. Times are milliseconds; -1 is none. */
final class Verbs {
    private final Client client;

    Verbs(Client client) {
        this.client = client;
    }

    Object run(List<String> words) throws Exception {
        String verb = words.get(0);
        return switch (verb) {
            case "owner" -> client.owner();
            case "version" -> org.redisson.Version.class.getPackage().getImplementationVersion();
            case "sleep" -> {
                Thread.sleep(Long.parseLong(words.get(1)));
                yield "slept";
            }
            case "loop" -> new Loop(client, words.get(1), words.get(2), words.get(3)).run(
                    Integer.parseInt(words.get(4)), Integer.parseInt(words.get(5)));
            case "turns" -> new Turns(client, words.get(1), words.get(2)).run(Integer.parseInt(words.get(3)));
            default -> {
                var rest = new Words(words.subList(3, words.size()));
                yield switch (words.get(1)) {
                    case "semaphore" -> semaphore(verb, client.redisson.getSemaphore(words.get(2)), rest);
                    case "permits" -> permits(
                            verb, client.redisson.getPermitExpirableSemaphore(words.get(2)), rest);
                    case "latch" -> latch(verb, client.redisson.getCountDownLatch(words.get(2)), rest);
                    default -> lock(verb, words.get(1), words.get(2), rest);
                };
            }
        };
    }

    private Object lock(String verb, String kind, String name, Words words) throws Exception {
        RLock lock = client.lock(kind, name);
        return switch (verb) {
            case "lock" -> {
                lock.lock();
                yield "held";
            }
            case "lease" -> {
                lock.lock(words.number(0), MILLISECONDS);
                yield "held";
            }
            case "try" -> lock.tryLock();
            case "wait" -> lock.tryLock(words.number(0), words.number(1), MILLISECONDS);
            case "unlock" -> {
                lock.unlock();
                yield "released";
            }
            case "force" -> lock.forceUnlock();
            case "locked" -> lock.isLocked();
            case "held" -> lock.isHeldByCurrentThread();
            case "count" -> lock.getHoldCount();
            case "ttl" -> lock.remainTimeToLive();
            case "token" -> client.fenced(name).lockAndGetToken();
            case "wait-token" -> client.fenced(name).tryLockAndGetToken(
                    words.number(0), words.number(1), MILLISECONDS);
            case "last-token" -> client.fenced(name).getToken();
            default -> throw new IllegalStateException("no such verb for a lock: " + verb);
        };
    }

    private static Object semaphore(String verb, RSemaphore semaphore, Words words) throws Exception {
        return switch (verb) {
            case "set" -> semaphore.trySetPermits(words.count(0));
            case "add" -> {
                semaphore.addPermits(words.count(0));
                yield "added";
            }
            case "acquire" -> {
                semaphore.acquire(words.count(0));
                yield "held";
            }
            case "try" -> semaphore.tryAcquire(words.count(0));
            case "wait" -> semaphore.tryAcquire(words.count(0), Duration.ofMillis(words.number(1)));
            case "release" -> {
                semaphore.release(words.count(0));
                yield "released";
            }
            case "drain" -> semaphore.drainPermits();
            case "available" -> semaphore.availablePermits();
            case "delete" -> semaphore.delete();
            default -> throw new IllegalStateException("no such verb for a semaphore: " + verb);
        };
    }

    private static Object permits(String verb, RPermitExpirableSemaphore semaphore, Words words)
            throws Exception {
        return switch (verb) {
            case "set" -> semaphore.trySetPermits(words.count(0));
            case "resize" -> {
                semaphore.setPermits(words.count(0));
                yield "set";
            }
            case "add" -> {
                semaphore.addPermits(words.count(0));
                yield "added";
            }
            case "acquire" -> ids(semaphore.acquire(words.count(0), words.number(1), MILLISECONDS));
            case "wait" -> ids(
                    semaphore.tryAcquire(words.count(0), words.number(1), words.number(2), MILLISECONDS));
            case "release" -> {
                semaphore.release(words.list(0));
                yield "released";
            }
            case "release-one" -> {
                semaphore.release(words.text(0));
                yield "released";
            }
            case "lease" -> semaphore.getLeaseTime(words.text(0));
            case "update" -> semaphore.updateLeaseTime(words.text(0), words.number(1), MILLISECONDS);
            case "available" -> semaphore.availablePermits();
            case "acquired" -> semaphore.acquiredPermits();
            case "permits" -> semaphore.getPermits();
            case "delete" -> semaphore.delete();
            default -> throw new IllegalStateException("no such verb for permits: " + verb);
        };
    }

    private static String ids(List<String> ids) {
        return ids.isEmpty() ? "none" : ids.stream().collect(Collectors.joining(","));
    }

    private static Object latch(String verb, RCountDownLatch latch, Words words) throws Exception {
        return switch (verb) {
            case "set" -> latch.trySetCount(words.number(0));
            case "down" -> {
                latch.countDown();
                yield "counted";
            }
            case "count" -> latch.getCount();
            case "await" -> {
                latch.await();
                yield "open";
            }
            case "wait" -> latch.await(words.number(0), MILLISECONDS);
            case "delete" -> latch.delete();
            default -> throw new IllegalStateException("no such verb for a latch: " + verb);
        };
    }

    /** The words after a verb and a name. */
    private record Words(List<String> words) {
        String text(int index) {
            return words.get(index);
        }

        List<String> list(int index) {
            return List.of(words.get(index).split(","));
        }

        long number(int index) {
            return Long.parseLong(words.get(index));
        }

        int count(int index) {
            return Integer.parseInt(words.get(index));
        }
    }
}
