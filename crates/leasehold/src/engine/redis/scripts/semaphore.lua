-- Changes the number of free permits of a semaphore.
-- KEYS: the semaphore, the requests, the record. ARGV: request, ms that it is noted, and that the record is kept of a
-- semaphore without a time to live, channel, what to do, and with how many.
local semaphore, record, channel, what, permits = KEYS[1], KEYS[3], ARGV[3], ARGV[4], ARGV[5]
-- Whoever has permits of a semaphore that is gone has none of the one that takes its place.
local is_new = redis.call('exists', semaphore) == 0
if what == 'set' then
    if not is_new then
        return done(0)
    end
    if ARGV[6] then
        redis.call('set', semaphore, permits, 'px', ARGV[6])
    else
        redis.call('set', semaphore, permits)
    end
    redis.call('del', record)
    tell(channel, tonumber(permits))
    return done(1)
elseif what == 'give' or what == 'give to one that exists' then
    if is_new then
        if what ~= 'give' then
            return done(0)
        end
        redis.call('del', record)
    end
    -- A full server lets a script go on that has begun with what frees memory, be it nothing.
    redis.call('hdel', KEYS[2], ARGV[1])
    tell(channel, redis.call('incrby', semaphore, permits))
    return done(1)
elseif what == 'add' then
    local free = redis.call('incrby', semaphore, permits)
    -- As Redisson does, which sets the sum anew.
    redis.call('persist', semaphore)
    if is_new then
        redis.call('del', record)
    else
        redis.call('pexpire', record, ARGV[2])
    end
    tell(channel, free)
    return done(free)
elseif what == 'drain' then
    local free = redis.call('get', semaphore)
    if free then
        redis.call('set', semaphore, 0)
        redis.call('pexpire', record, ARGV[2])
    end
    return done(tonumber(free or 0))
end
-- What is left is to delete it, with the record of who has permits of it.
local existed = redis.call('del', semaphore)
redis.call('del', record)
return done(existed)
