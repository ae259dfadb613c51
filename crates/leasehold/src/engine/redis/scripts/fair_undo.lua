-- Lowers the count of an owner of a fair lock to at most a given one, and removes the owner from the queue. Idempotent.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: owner, count, channel. Returns 0 if nothing changed, 1 if something
-- did, and if the front waiter was notified that the lock is free, -2 minus the number of subscribers that received it.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dequeued = dequeue(queue, scores, marks, waits, ARGV[1])
local lowered = lower(key, ARGV[1], tonumber(ARGV[2]))
local front = evict(queue, scores, marks, waits)
if dequeued or lowered then
    return notify_front(key, front, ARGV[3]) or 1
end
return 0
