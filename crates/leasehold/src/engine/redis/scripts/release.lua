-- Gives back one count of an owner.
-- KEYS: the lock. ARGV: owner, the count it has, lease in ms that a lock still held gets at least, channel or nothing.
-- Returns the counts left, or -1 when the owner does not have that count. Freeing the lock tells one waiter.
local key, owner = KEYS[1], ARGV[1]
local count = redis.call('hget', key, owner)
if count ~= ARGV[2] then
    return -1
end
if count == '1' then
    redis.call('del', key)
    if ARGV[4] ~= '' then
        redis.call('publish', ARGV[4], '0')
    end
    return 0
end
if redis.call('pttl', key) < tonumber(ARGV[3]) then
    redis.call('pexpire', key, ARGV[3])
end
return redis.call('hincrby', key, owner, -1)
