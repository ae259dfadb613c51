-- The common part of the scripts of plain and fair locks. The lock is a hash with one field: the owner, and its count.

-- The ms that are left of the lease, -1 for no time to live, -2 if the lock is free; and the count of the owner.
local function read_state(key, owner)
    local left = redis.call('pttl', key)
    return left, left ~= -2 and tonumber(redis.call('hget', key, owner) or 0) or 0
end

-- Raises the count of the owner by one, and begins the lease anew.
local function enter(key, owner, lease)
    redis.call('hincrby', key, owner, 1)
    redis.call('pexpire', key, lease)
end

-- Lowers the given count of the owner by one; a lock that is still held keeps at least the lease. Returns the counts left,
-- or -1 if the owner has another count.
local function leave(key, owner, count, lease)
    if redis.call('hget', key, owner) ~= count then
        return -1
    end
    if count == '1' then
        redis.call('del', key)
        return 0
    end
    -- A server over its maxmemory continues a script that began with a write that needs no memory.
    redis.call('pexpire', key, math.max(redis.call('pttl', key), tonumber(lease)))
    return redis.call('hincrby', key, owner, -1)
end

-- Lowers the count of the owner to at most the given one, and returns whether it was greater.
local function lower(key, owner, most)
    local count = redis.pcall('hget', key, owner)
    if type(count) ~= 'string' or tonumber(count) <= most then
        return false
    end
    if most == 0 then
        redis.call('del', key)
    else
        local left = redis.call('pttl', key)
        if left > 0 then
            -- This changes nothing, but a server over its maxmemory continues a script that began with such a write.
            redis.call('pexpire', key, left)
        end
        redis.call('hset', key, owner, most)
    end
    return true
end

