-- Gives back one count of an owner of a fair lock. Freeing it tells the head of the queue.
-- KEYS: the lock, queue, scores, marks, waits.
-- ARGV: owner, the count it has, lease in ms that a lock still held gets at least, channel.
-- Returns the counts left, or -1 when the owner does not have that count.
local key, owner = KEYS[1], ARGV[1]
local head = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local count = redis.call('hget', key, owner)
if count ~= ARGV[2] then
    return -1
end
if count == '1' then
    redis.call('del', key)
    tell(key, head, ARGV[4])
    return 0
end
if redis.call('pttl', key) < tonumber(ARGV[3]) then
    redis.call('pexpire', key, ARGV[3])
end
return redis.call('hincrby', key, owner, -1)
