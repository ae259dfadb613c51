-- What all scripts of permits with a lease have in common. The last key holds the taken permits: their ids as 16 bytes,
-- and as scores the ms when they end.
local PERMANENT = 922337203685477
local permits = KEYS[#KEYS]
local now
do
    local time = redis.call('time')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function whole(number)
    return string.format('%.0f', number)
end
local function bytes(hex)
    return (string.gsub(hex, '%x%x', function(pair)
        return string.char(tonumber(pair, 16))
    end))
end
-- The ids of a hold: the half that its client gives, and one number after the other.
local function ids_of(client, first, count)
    local ids, half = {}, bytes(client)
    for number = tonumber(first), tonumber(first) + tonumber(count) - 1 do
        ids[#ids + 1] = half .. struct.pack('>I8', number)
    end
    return ids
end
-- A call takes only so many arguments.
local function in_parts(list, call)
    local sum = 0
    for from = 1, #list, 1000 do
        sum = sum + call(unpack(list, from, math.min(from + 999, #list)))
    end
    return sum
end
local function remove(ids)
    return in_parts(ids, function(...)
        return redis.call('zrem', permits, ...)
    end)
end
local function put(ids, ends)
    local list = {}
    for _, id in ipairs(ids) do
        list[#list + 1] = whole(ends)
        list[#list + 1] = id
    end
    in_parts(list, function(...)
        return redis.call('zadd', permits, ...)
    end)
end
-- Lets permits that are taken end at another time. There is none without a name, but a full server lets a script go on
-- that has begun with what frees memory.
local function move(ids, ends)
    redis.call('zrem', permits, '')
    put(ids, ends)
end
-- How many of these are taken, and their lease is not over. A key of another type has none.
local function alive(ids)
    local count = 0
    for _, id in ipairs(ids) do
        local ends = redis.pcall('zscore', permits, id)
        if type(ends) == 'string' and tonumber(ends) > now then
            count = count + 1
        end
    end
    return count
end
-- When the first of them ends.
local function first_end()
    local first = redis.call('zrangebyscore', permits, '-inf', '+inf', 'withscores', 'limit', 0, 1)
    return tonumber(first[2] or PERMANENT)
end
-- Gives so many back to the semaphore that they were taken from, and returns what telling it does. One that is gone gets
-- none, and the rest of its permits goes, too: they are none of the next semaphore of that name.
local function give(channel, count)
    if redis.call('exists', KEYS[1]) == 0 then
        redis.call('del', permits)
        return nil
    end
    return tell(channel, redis.call('incrby', KEYS[1], count))
end
-- Gives back so many of those whose lease is over, or all.
local function reclaim(channel, most)
    local lapsed = redis.call('zrangebyscore', permits, 0, whole(now), 'limit', 0, most or -1)
    if #lapsed > 0 then
        remove(lapsed)
        give(channel, #lapsed)
    end
end
