-- Frees a fair lock, for any holder, and notifies the front waiter. The queue stays as it is. If it is empty, the waiters
-- of the plain lock of that name, which is the same lock, are notified.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: channel. Returns 0 if the lock was free, else -2 minus the number of
-- subscribers that received the message.
local front = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
return notify_front(KEYS[1], front, ARGV[1]) or -2 - publish(ARGV[1], '0')
