-- Sees to it that an owner has at most a given count of a fair lock, and that it does not wait for it. Harmless to repeat.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: owner, count, channel. Returns 1 if something changed.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, most = ARGV[1], tonumber(ARGV[2])
local changed = dequeue(queue, scores, marks, waits, owner)
local count = redis.pcall('hget', key, owner)
if type(count) == 'string' and tonumber(count) > most then
    if most == 0 then
        redis.call('del', key)
    else
        redis.call('hset', key, owner, most)
    end
    changed = true
end
local head = evict(queue, scores, marks, waits)
if changed then
    tell(key, head, ARGV[3])
end
return changed and 1 or 0
