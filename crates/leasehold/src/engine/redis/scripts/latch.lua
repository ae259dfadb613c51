-- Changes the count of a latch.
-- KEYS: the latch, the requests. ARGV: request, ms that it is noted, channel, what to do, and the count to set.
local latch, channel, what = KEYS[1], ARGV[3], ARGV[4]
if what == 'set' then
    if redis.call('exists', latch) == 1 then
        return done(0)
    end
    redis.call('set', latch, ARGV[5])
    announce(channel, '1')
    return done(1)
elseif what == 'count down' then
    -- A full server lets a script go on that has begun with what frees memory, be it nothing.
    redis.call('hdel', KEYS[2], ARGV[1])
    local left = redis.call('decr', latch)
    if left <= 0 then
        redis.call('del', latch)
    end
    if left == 0 then
        announce(channel, '0')
    end
    return done(math.max(left, 0))
end
-- What is left is to delete it.
local existed = redis.call('del', latch)
if existed == 1 then
    announce(channel, '1')
end
return done(existed)
