-- Tells a number about a semaphore. KEYS: the semaphore, its permits. ARGV: channel, what, id.
local what = ARGV[2]
reclaim(ARGV[1])
if what == 'lease' then
    local ends = tonumber(redis.call('zscore', permits, bytes(ARGV[3])) or -2)
    if ends == PERMANENT then
        return -1
    end
    return ends < 0 and ends or ends - now
end
local free = redis.call('get', KEYS[1])
local taken = redis.call('zcard', permits)
if what == 'taken' then
    return taken
end
local number = tonumber(free or 0)
if not number then
    return redis.error_reply('WRONGTYPE not a number')
end
return (what == 'total' and free) and number + taken or number
