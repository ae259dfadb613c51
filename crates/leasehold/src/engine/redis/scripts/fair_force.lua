-- Frees a fair lock, for any holder, and notifies the front waiter. The queue stays as it is.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: channel. Returns 0 if the lock was free, else 1, or if the front
-- waiter was notified, -2 minus the number of subscribers that received it.
local front = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local freed = redis.call('del', KEYS[1])
return freed == 1 and notify_front(KEYS[1], front, ARGV[1]) or freed
