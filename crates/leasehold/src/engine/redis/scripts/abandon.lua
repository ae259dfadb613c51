-- Sees to it that an owner has at most a given count. Harmless to repeat.
-- KEYS: the lock. ARGV: owner, count, channel or nothing. Returns 1 if something changed.
local key, owner, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count = redis.pcall('hget', key, owner)
if type(count) ~= 'string' or tonumber(count) <= most then
    return 0
end
if most == 0 then
    redis.call('del', key)
    if ARGV[3] ~= '' then
        redis.call('publish', ARGV[3], '0')
    end
else
    redis.call('hset', key, owner, most)
end
return 1
