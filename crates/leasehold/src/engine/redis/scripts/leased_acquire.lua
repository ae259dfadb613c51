-- Acquires permits, all or none.
-- KEYS: the semaphore, its permits. ARGV: channel, the client's half of the ids, first number, number of permits, lease in
-- ms or -1 for none.
-- Returns 1 if the permits are granted, else {ms until the next lease is over, or -1}.
local count = tonumber(ARGV[4])
reclaim(ARGV[1], count)
local free = tonumber(redis.call('get', KEYS[1]) or 0)
if not free then
    return redis.error_reply('WRONGTYPE not a number')
end
if free < count then
    local next = first_end()
    return { next < PERMANENT and math.max(next - now, 0) or -1 }
end
local lease = tonumber(ARGV[5])
redis.call('decrby', KEYS[1], ARGV[4])
add(ids_of(ARGV[2], ARGV[3], ARGV[4]), lease == -1 and PERMANENT or now + lease)
local left = redis.call('pttl', KEYS[1])
if left > 0 then
    redis.call('pexpire', permits, left)
end
return 1
