-- Takes or re-enters a lock.
-- KEYS: the lock, and its tokens if one is to be minted.
-- ARGV: owner, lease in ms, how often the owner holds it now, 1 to take it from whoever has it.
-- Returns the token, or 1, when it is ours; 0 when the owner does not hold it as often as it says; else {ms left or
-- -1, who holds it}. Nothing is changed unless it is ours.
local key, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local left = redis.call('pttl', key)
local count = 0
if left ~= -2 then
    count = tonumber(redis.call('hget', key, owner) or 0)
end
if count ~= held then
    return 0
end
if left ~= -2 and held == 0 then
    if ARGV[4] ~= '1' then
        return { left, redis.call('hkeys', key)[1] }
    end
end
-- Before anything is changed: it fails where something else has the name of the tokens.
local token = 1
if KEYS[2] then
    token = redis.call('incr', KEYS[2])
    -- A token that is forgotten comes again. Whoever put a time on it did not mean that.
    redis.call('persist', KEYS[2])
end
if left ~= -2 and held == 0 then
    redis.call('del', key)
end
redis.call('hincrby', key, owner, 1)
redis.call('pexpire', key, lease)
return token
