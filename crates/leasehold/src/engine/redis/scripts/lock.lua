-- What the scripts of plain and fair locks share. The lock is a hash with one field, its owner, which counts the entries.

-- How many ms the lock has left, -1 for no limit, -2 if it is free; and how often the owner holds it.
local function look(key, owner)
    local left = redis.call('pttl', key)
    return left, left ~= -2 and tonumber(redis.call('hget', key, owner) or 0) or 0
end

-- Counts an entry.
local function enter(key, owner, lease)
    redis.call('hincrby', key, owner, 1)
    redis.call('pexpire', key, lease)
end

-- Takes back one of so many counts; a lock still held lasts at least the lease. Returns the counts left, or -1 when the
-- owner does not have so many.
local function leave(key, owner, count, lease)
    if redis.call('hget', key, owner) ~= count then
        return -1
    end
    if count == '1' then
        redis.call('del', key)
        return 0
    end
    -- A full server lets a script go on that has begun with what takes no memory.
    redis.call('pexpire', key, math.max(redis.call('pttl', key), tonumber(lease)))
    return redis.call('hincrby', key, owner, -1)
end

-- Sees to it that the owner has at most so many counts, and tells whether it had more.
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
            -- Nothing changes, but a full server lets a script go on that has begun like this.
            redis.call('pexpire', key, left)
        end
        redis.call('hset', key, owner, most)
    end
    return true
end

