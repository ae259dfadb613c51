-- Changes the number of free permits of a semaphore.
-- KEYS: the semaphore, the record. ARGV: request, ms that the record is kept, channel, what to do, and with how many.
local semaphore, channel, what, permits = KEYS[1], ARGV[3], ARGV[4], ARGV[5]
if what == 'set' then
    if redis.call('exists', semaphore) == 1 then
        return done(0)
    end
    if ARGV[6] then
        redis.call('set', semaphore, permits, 'px', ARGV[6])
    else
        redis.call('set', semaphore, permits)
    end
    tell(channel, tonumber(permits))
    return done(1)
elseif what == 'give' or what == 'give to one that exists' then
    if what ~= 'give' and redis.call('exists', semaphore) == 0 then
        return done(0)
    end
    -- A full server lets a script go on that has begun with what frees memory, be it nothing.
    redis.call('hdel', KEYS[2], ARGV[1])
    tell(channel, redis.call('incrby', semaphore, permits))
    return done(1)
elseif what == 'add' then
    local free = redis.call('incrby', semaphore, permits)
    -- As Redisson does, which sets the sum anew.
    redis.call('persist', semaphore)
    tell(channel, free)
    return done(free)
elseif what == 'drain' then
    local free = redis.call('get', semaphore)
    if free then
        redis.call('set', semaphore, 0)
    end
    return done(tonumber(free or 0))
end
-- What is left is to delete it, with the record of who has permits of it.
local existed = redis.call('del', semaphore)
redis.call('del', KEYS[2])
return done(existed)
