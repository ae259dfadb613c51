-- The common part of the scripts of a read-write lock. The lock is a hash. Its field `mode` is `read` or `write`, the field
-- of an owner has the count of its read holds, and the field of an owner and `:write` the count of its write holds. Each
-- read hold has a key of its own, TAG:OWNER:rwlock_timeout:1 and so on, with the time to live of the hold.

-- The prefix of the keys of an owner's read holds.
local function hold_prefix(tag, owner)
    return tag .. ':' .. owner .. ':rwlock_timeout:'
end

-- The owner in the name of a field of a writer; nil for other fields.
local function writer_in(field)
    return string.match(field, '^(.*):write$')
end

-- The writer that holds a lock, and its field; nil if there is none.
local function writer_of(key)
    for _, field in ipairs(redis.call('hkeys', key)) do
        if writer_in(field) then
            return writer_in(field), field
        end
    end
end

-- The ms that are left of the longest of an owner's read holds; less than one if all of them have expired.
local function read_left(tag, owner, count)
    local most = 0
    for n = 1, count do
        most = math.max(most, redis.call('pttl', hold_prefix(tag, owner) .. n))
    end
    return most
end

-- Raises the time to live of a key to at least this long, if the key exists.
local function raise_ttl(key, lease)
    if redis.call('pttl', key) < lease then
        return redis.call('pexpire', key, lease)
    end
    return 1
end

-- Extends the read holds of an owner to at least this long.
local function extend_holds(tag, owner, count, lease)
    for n = 1, count do
        local hold = hold_prefix(tag, owner) .. n
        if raise_ttl(hold, lease) == 0 then
            redis.call('set', hold, '1', 'px', lease)
        end
    end
end

-- The mode, or false if the lock is free.
local function mode_of(key)
    -- A hash without a mode is another lock. Reading it as a string fails with WRONGTYPE, as for any key of another type.
    return redis.call('hget', key, 'mode') or redis.call('get', key) and nil
end

-- Calls `callback` with every reader and its count, until it returns a value; returns that value.
local function each_reader(key, callback)
    local fields = redis.call('hgetall', key)
    for i = 1, #fields, 2 do
        local count = tonumber(fields[i + 1])
        if count and not writer_in(fields[i]) then
            local result = callback(fields[i], count)
            if result then
                return result
            end
        end
    end
end

-- Deletes the lock and all read holds.
local function delete(key, tag)
    each_reader(key, function(owner, count)
        for n = 1, count do
            redis.call('del', hold_prefix(tag, owner) .. n)
        end
    end)
    redis.call('del', key)
end

