-- Changes a semaphore whose permits have a lease.
-- KEYS: the semaphore, the request records, its permits.
-- ARGV: request, ms for which its record is kept, channel, the operation, and its number of permits or their ids.
local semaphore, channel, operation = KEYS[1], ARGV[3], ARGV[4]
if operation == 'delete' then
    local existed = redis.call('del', semaphore)
    redis.call('del', permits)
    return done(existed)
end
if redis.call('exists', semaphore) == 0 and redis.call('exists', permits) == 1 then
    -- These permits belong to an earlier semaphore of this name.
    redis.call('del', permits)
end
reclaim(channel)
if operation == 'set' or operation == 'reset' then
    local free = redis.call('get', semaphore)
    if not free then
        redis.call('set', semaphore, ARGV[5])
        publish_permits(channel, tonumber(ARGV[5]))
        return done(1)
    end
    local more = tonumber(ARGV[5]) - tonumber(free) - redis.call('zcard', permits)
    if operation == 'reset' and more ~= 0 then
        publish_permits(channel, redis.call('incrby', semaphore, whole(more)))
    end
    return done(0)
elseif operation == 'add' then
    local free = redis.call('incrby', semaphore, ARGV[5])
    -- Redisson removes the time to live as well: it sets the sum anew.
    redis.call('persist', semaphore)
    redis.call('persist', permits)
    if tonumber(ARGV[5]) > 0 then
        publish_permits(channel, free)
    end
    return done(free)
end
if operation == 'lease' then
    local id, lease = { bytes(ARGV[5]) }, tonumber(ARGV[6])
    if count_held(id) == 0 then
        return done(0)
    end
    local ends, first = lease == -1 and PERMANENT or now + lease, first_end()
    change_end(id, ends)
    if ends < first then
        -- Waiters sleep until the end that was the first before, and must retry earlier.
        publish_permits(channel, 1)
    end
    return done(1)
end
-- The remaining operation is to release all permits with these ids, or none.
local ids = {}
for i = 5, #ARGV do
    ids[#ids + 1] = bytes(ARGV[i])
end
if count_held(ids) < #ids then
    return done(0)
end
return_permits(channel, remove(ids))
return done(#ids)
