-- Takes or re-enters a lock.
-- KEYS: the lock. ARGV: owner, lease in ms, how often the owner holds it now, 1 to take it from whoever has it.
-- Returns 1 when it is ours, 0 when the owner does not hold it as often as it says, else {ms left or -1, who holds
-- it}. Nothing is changed unless it returns 1.
local key, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local left = redis.call('pttl', key)
if left == -2 then
    if held > 0 then
        return 0
    end
    redis.call('hset', key, owner, 1)
    redis.call('pexpire', key, lease)
    return 1
end
local count = tonumber(redis.call('hget', key, owner) or 0)
if count ~= held then
    return 0
end
if held == 0 then
    if ARGV[4] ~= '1' then
        return { left, redis.call('hkeys', key)[1] }
    end
    redis.call('del', key)
end
redis.call('hincrby', key, owner, 1)
redis.call('pexpire', key, lease)
return 1
