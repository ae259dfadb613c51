-- What the scripts of a read-write lock share. The lock is a hash. Its field `mode` is `read` or `write`, that of an
-- owner counts its read holds, and that of an owner and `:write` its write holds. Each read hold has a key of its own,
-- TAG:OWNER:rwlock_timeout:1 and so on, which lives as long as the hold does.

-- What the keys of an owner's read holds begin with.
local function holds(tag, owner)
    return tag .. ':' .. owner .. ':rwlock_timeout:'
end

-- The owner who writes, if this is its field.
local function writer(field)
    return string.match(field, '^(.*):write$')
end

-- The owner who writes a lock, if any, and its field.
local function writer_of(key)
    for _, field in ipairs(redis.call('hkeys', key)) do
        if writer(field) then
            return writer(field), field
        end
    end
end

-- How many ms the longest of an owner's read holds has left; less than one when it is dead.
local function left(tag, owner, count)
    local most = 0
    for n = 1, count do
        most = math.max(most, redis.call('pttl', holds(tag, owner) .. n))
    end
    return most
end

-- Makes a key last at least this long, if it is there.
local function raise(key, lease)
    if redis.call('pttl', key) < lease then
        return redis.call('pexpire', key, lease)
    end
    return 1
end

-- Makes the read holds of an owner last at least this long.
local function raise_holds(tag, owner, count, lease)
    for n = 1, count do
        local hold = holds(tag, owner) .. n
        if raise(hold, lease) == 0 then
            redis.call('set', hold, '1', 'px', lease)
        end
    end
end

-- The mode, or false if nobody holds the lock.
local function mode_of(key)
    -- What has no mode is another lock. Reading it as a string fails as for any key of another type.
    return redis.call('hget', key, 'mode') or redis.call('get', key) and nil
end

-- Calls `tell` with every owner that reads, and its count, until it returns something.
local function each_reader(key, tell)
    local fields = redis.call('hgetall', key)
    for i = 1, #fields, 2 do
        local count = tonumber(fields[i + 1])
        if count and not writer(fields[i]) then
            local told = tell(fields[i], count)
            if told then
                return told
            end
        end
    end
end

-- Deletes the lock and all read holds.
local function delete(key, tag)
    each_reader(key, function(owner, count)
        for n = 1, count do
            redis.call('del', holds(tag, owner) .. n)
        end
    end)
    redis.call('del', key)
end

