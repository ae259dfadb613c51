-- Sees to it that an owner has at most a given count of a fair lock, and that it does not wait for it. Harmless to repeat.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: owner, count, channel. Returns 1 if something changed.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local left_queue = dequeue(queue, scores, marks, waits, ARGV[1])
local lowered = lower(key, ARGV[1], tonumber(ARGV[2]))
local head = evict(queue, scores, marks, waits)
if left_queue or lowered then
    tell(key, head, ARGV[3])
    return 1
end
return 0
