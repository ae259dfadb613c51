-- Changes the count of a latch.
-- KEYS: the latch, the request records. ARGV: request, ms for which its record is kept, channel, the operation, and the
-- count to set.
local latch, channel, operation = KEYS[1], ARGV[3], ARGV[4]
if operation == 'set' then
    if redis.call('exists', latch) == 1 then
        return done(0)
    end
    redis.call('set', latch, ARGV[5])
    publish(channel, '1')
    return done(1)
elseif operation == 'count down' then
    -- A server over its maxmemory continues a script that began with a write that frees memory, even if it frees none.
    redis.call('hdel', KEYS[2], ARGV[1])
    local left = redis.call('decr', latch)
    if left <= 0 then
        redis.call('del', latch)
    end
    if left == 0 then
        publish(channel, '0')
    end
    return done(math.max(left, 0))
end
-- The remaining operation is to delete the latch.
local existed = redis.call('del', latch)
if existed == 1 then
    publish(channel, '1')
end
return done(existed)
