-- Changes a semaphore whose permits have a lease.
-- KEYS: the semaphore, the requests, its permits.
-- ARGV: request, ms that it is noted, channel, what to do, and with how many or with which.
local semaphore, channel, what = KEYS[1], ARGV[3], ARGV[4]
if what == 'delete' then
    local existed = redis.call('del', semaphore)
    redis.call('del', permits)
    return done(existed)
end
if redis.call('exists', semaphore) == 0 and redis.call('exists', permits) == 1 then
    -- Of one that is gone.
    redis.call('del', permits)
end
reclaim(channel)
if what == 'set' or what == 'reset' then
    local free = redis.call('get', semaphore)
    if not free then
        redis.call('set', semaphore, ARGV[5])
        tell(channel, tonumber(ARGV[5]))
        return done(1)
    end
    local more = tonumber(ARGV[5]) - tonumber(free) - redis.call('zcard', permits)
    if what == 'reset' and more ~= 0 then
        tell(channel, redis.call('incrby', semaphore, whole(more)))
    end
    return done(0)
elseif what == 'add' then
    local free = redis.call('incrby', semaphore, ARGV[5])
    -- As Redisson does, which sets the sum anew.
    redis.call('persist', semaphore)
    redis.call('persist', permits)
    if tonumber(ARGV[5]) > 0 then
        tell(channel, free)
    end
    return done(free)
end
if what == 'lease' then
    local id, lease = { bytes(ARGV[5]) }, tonumber(ARGV[6])
    if alive(id) == 0 then
        return done(0)
    end
    local ends, first = lease == -1 and PERMANENT or now + lease, first_end()
    move(id, ends)
    if ends < first then
        -- Whoever waits sleeps until the end that was the first, and has to look again.
        tell(channel, 1)
    end
    return done(1)
end
-- What is left is to give back all of these or none.
local ids = {}
for i = 5, #ARGV do
    ids[#ids + 1] = bytes(ARGV[i])
end
if alive(ids) < #ids then
    return done(0)
end
give(channel, remove(ids))
return done(#ids)
