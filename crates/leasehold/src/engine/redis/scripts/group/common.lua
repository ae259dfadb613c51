-- The common part of the scripts of a group. The group is a hash. Each value that is held has three fields in it: its own,
-- F, has the holder; F:OWNER:expire_time the end of the lease, in epoch ms of the server; F:OWNER:lock_count the count.
local now
do
    local time = redis.call('time')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function expiry_of(field, owner)
    return field .. ':' .. owner .. ':expire_time'
end

local function count_of(field, owner)
    return field .. ':' .. owner .. ':lock_count'
end

-- Whether the key is a hash.
local function is_hash(key)
    local fields = redis.pcall('hlen', key)
    return type(fields) == 'number' and fields > 0
end

-- Fails if the key is another lock: a hash with one field is a plain lock, and one with `mode` a read-write lock.
local function check_type(key)
    if redis.call('hlen', key) == 1 or redis.call('hexists', key, 'mode') == 1 then
        -- Reading a hash as a string fails with WRONGTYPE, as for any key of another type.
        redis.call('get', key)
    end
end

-- The holder of a value, the end of its lease, and its count; nil if the value is free or the lease is over.
local function holder_of(key, field)
    local owner = redis.call('hget', key, field)
    local expires = owner and tonumber(redis.call('hget', key, expiry_of(field, owner)) or 0) or 0
    if expires > now then
        return owner, expires, tonumber(redis.call('hget', key, count_of(field, owner)) or 0) or 0
    end
end

-- Removes the fields of a value, for any holder and also after the end of its lease.
local function clear(key, field)
    local owner = redis.call('hget', key, field)
    if owner then
        redis.call('hdel', key, field, expiry_of(field, owner), count_of(field, owner))
    end
end

-- To be called before a count or a lease of a hold is changed. There is no such field, but a server over its maxmemory
-- continues a script that began with a write that frees memory.
local function pass_memory_check(key)
    redis.call('hdel', key, '')
end

-- Extends the lease of a value to at least this long.
local function extend(key, field, owner, expires, lease)
    redis.call('hset', key, expiry_of(field, owner), string.format('%.0f', math.max(expires, now + lease)))
end

-- Raises the time to live of the hash to at least the lease and a second, so that the hash outlives the values in it.
-- Redisson does not change a time to live of zero: an owner that acquires a value in the last millisecond of the hash would
-- lose the value with it.
local function raise_ttl(key, lease)
    if redis.call('pttl', key) < lease + 1000 then
        redis.call('pexpire', key, lease + 1000)
    end
end

