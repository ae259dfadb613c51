-- Sees to it that an owner has at most a given count of a fair lock, and that it does not wait for it. Harmless to repeat.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: owner, count, channel. Returns 0 if nothing changed, 1 if something did,
-- and if a head was told that the lock is free, -2 and one less for each who listens.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local left_queue = dequeue(queue, scores, marks, waits, ARGV[1])
local lowered = lower(key, ARGV[1], tonumber(ARGV[2]))
local head = evict(queue, scores, marks, waits)
if left_queue or lowered then
    return tell(key, head, ARGV[3]) or 1
end
return 0
