-- Takes permits, all or none, and notes who has them, so that they can be given back exactly once.
-- KEYS: the semaphore, the record. ARGV: owner, ms that the record is kept, permits.
-- Returns 1 when they are ours, 0 when this owner has some already, else {-1}.
local permits = tonumber(ARGV[3])
local free = tonumber(redis.call('get', KEYS[1]) or 0)
if not free then
    return redis.error_reply('WRONGTYPE not a number')
end
if redis.call('hexists', KEYS[2], ARGV[1]) == 1 then
    return 0
end
if free < permits then
    return { -1 }
end
redis.call('decrby', KEYS[1], ARGV[3])
redis.call('hset', KEYS[2], ARGV[1], ARGV[3])
keep(KEYS[1], KEYS[2], ARGV[2])
return 1
