-- Acquires permits, all or none, and records their owner, so that they can be released exactly once.
-- KEYS: the semaphore, the permit record. ARGV: owner, ms for which the record is kept, number of permits.
-- Returns 1 if the permits are granted, 0 if this owner already has permits, else {-1}.
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
renew_record(KEYS[1], KEYS[2], ARGV[2])
return 1
