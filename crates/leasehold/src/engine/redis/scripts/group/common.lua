-- What the scripts of a group share. The group is a hash. Each value that is held has three fields in it: its own, F, says
-- by whom; F:OWNER:expire_time until when, in epoch ms of the server; F:OWNER:lock_count how often.
local now
do
    local time = redis.call('time')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function till_of(field, owner)
    return field .. ':' .. owner .. ':expire_time'
end

local function count_of(field, owner)
    return field .. ':' .. owner .. ':lock_count'
end

-- Whether there is a hash of this name.
local function is_hash(key)
    local fields = redis.pcall('hlen', key)
    return type(fields) == 'number' and fields > 0
end

-- Fails where the name belongs to another lock: one field is a plain lock, and `mode` a read-write lock.
local function check(key)
    if redis.call('hlen', key) == 1 or redis.call('hexists', key, 'mode') == 1 then
        -- Reading it as a string fails as for any key of another type.
        redis.call('get', key)
    end
end

-- Who holds a value, until when, and how often; nothing if nobody does, or its time is over.
local function holder(key, field)
    local owner = redis.call('hget', key, field)
    local till = owner and tonumber(redis.call('hget', key, till_of(field, owner)) or 0) or 0
    if till > now then
        return owner, till, tonumber(redis.call('hget', key, count_of(field, owner)) or 0) or 0
    end
end

-- Takes a value from whoever stands there, alive or dead.
local function clear(key, field)
    local owner = redis.call('hget', key, field)
    if owner then
        redis.call('hdel', key, field, till_of(field, owner), count_of(field, owner))
    end
end

-- Before the counts and times of what is held are changed. There is no such field, but a full server lets a script go on
-- that has begun with what frees memory.
local function go_on_when_full(key)
    redis.call('hdel', key, '')
end

-- Makes a hold of a value last at least this long.
local function keep(key, field, owner, till, lease)
    redis.call('hset', key, till_of(field, owner), string.format('%.0f', math.max(till, now + lease)))
end

-- Makes the hash last at least this long, and a second more than the values in it. Redisson leaves a time to live alone
-- that it finds at zero: whoever took a value in the millisecond in which all ends would lose it with the hash.
local function raise(key, lease)
    if redis.call('pttl', key) < lease + 1000 then
        redis.call('pexpire', key, lease + 1000)
    end
end

