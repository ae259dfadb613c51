-- Changes the number of free permits of a semaphore.
-- KEYS: the semaphore, the request records, the permit record. ARGV: request, ms for which its record is kept, and the
-- permit record of a semaphore without a time to live, channel, the operation, and its number of permits.
local semaphore, record, channel, operation, permits = KEYS[1], KEYS[3], ARGV[3], ARGV[4], ARGV[5]
-- An owner of permits of a deleted semaphore has none of the next semaphore of that name.
local is_new = redis.call('exists', semaphore) == 0
if operation == 'set' then
    if not is_new then
        return done(0)
    end
    if ARGV[6] then
        redis.call('set', semaphore, permits, 'px', ARGV[6])
    else
        redis.call('set', semaphore, permits)
    end
    redis.call('del', record)
    publish_permits(channel, tonumber(permits))
    return done(1)
elseif operation == 'give' or operation == 'give to one that exists' then
    if is_new then
        if operation ~= 'give' then
            return done(0)
        end
        redis.call('del', record)
    end
    -- A server over its maxmemory continues a script that began with a write that frees memory, even if it frees none.
    redis.call('hdel', KEYS[2], ARGV[1])
    publish_permits(channel, redis.call('incrby', semaphore, permits))
    return done(1)
elseif operation == 'add' then
    local free = redis.call('incrby', semaphore, permits)
    -- Redisson removes the time to live as well: it sets the sum anew.
    redis.call('persist', semaphore)
    if is_new then
        redis.call('del', record)
    else
        redis.call('pexpire', record, ARGV[2])
    end
    publish_permits(channel, free)
    return done(free)
elseif operation == 'drain' then
    local free = redis.call('get', semaphore)
    if free then
        redis.call('set', semaphore, 0)
        redis.call('pexpire', record, ARGV[2])
    end
    return done(tonumber(free or 0))
end
-- The remaining operation is to delete the semaphore with its permit record.
local existed = redis.call('del', semaphore)
redis.call('del', record)
return done(existed)
