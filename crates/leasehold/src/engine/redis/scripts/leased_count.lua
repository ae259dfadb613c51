-- Returns a number of a semaphore: the free, taken or total permits, or the ms left of the lease of one permit.
-- KEYS: the semaphore, its permits. ARGV: channel, which number, id.
local number_of = ARGV[2]
reclaim(ARGV[1])
if number_of == 'lease' then
    local ends = tonumber(redis.call('zscore', permits, bytes(ARGV[3])) or -2)
    if ends == PERMANENT then
        return -1
    end
    return ends < 0 and ends or ends - now
end
local free = redis.call('get', KEYS[1])
local taken = redis.call('zcard', permits)
if number_of == 'taken' then
    return taken
end
local number = tonumber(free or 0)
if not number then
    return redis.error_reply('WRONGTYPE not a number')
end
return (number_of == 'total' and free) and number + taken or number
