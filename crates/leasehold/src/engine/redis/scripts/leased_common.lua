-- The common part of the scripts of permits with a lease. The last key is a sorted set of the taken permits: their ids as
-- 16 bytes, and as scores the epoch ms at which their leases end.
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
-- The ids of a hold: each is the half that its client chose and one of consecutive numbers.
local function ids_of(client, first, count)
    local ids, half = {}, bytes(client)
    for number = tonumber(first), tonumber(first) + tonumber(count) - 1 do
        ids[#ids + 1] = half .. struct.pack('>I8', number)
    end
    return ids
end
-- Calls `call` with at most 1000 elements at a time: the number of arguments of a call is limited.
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
local function add(ids, ends)
    local list = {}
    for _, id in ipairs(ids) do
        list[#list + 1] = whole(ends)
        list[#list + 1] = id
    end
    in_parts(list, function(...)
        return redis.call('zadd', permits, ...)
    end)
end
-- Changes the end of the lease of taken permits. There is no permit with an empty id, but a server over its maxmemory
-- continues a script that began with a write that frees memory.
local function change_end(ids, ends)
    redis.call('zrem', permits, '')
    add(ids, ends)
end
-- How many of these permits are taken and have a lease that is not over. In a key of another type there are none.
local function count_held(ids)
    local count = 0
    for _, id in ipairs(ids) do
        local ends = redis.pcall('zscore', permits, id)
        if type(ends) == 'string' and tonumber(ends) > now then
            count = count + 1
        end
    end
    return count
end
-- When the first lease of a taken permit ends.
local function first_end()
    local first = redis.call('zrangebyscore', permits, '-inf', '+inf', 'withscores', 'limit', 0, 1)
    return tonumber(first[2] or PERMANENT)
end
-- Adds a number of permits to the semaphore that they were taken from, and returns the result of `publish_permits`. If the
-- semaphore is deleted, no permit is returned, and the set of taken permits is deleted, too: it does not belong to the next
-- semaphore of that name.
local function return_permits(channel, count)
    if redis.call('exists', KEYS[1]) == 0 then
        redis.call('del', permits)
        return nil
    end
    return publish_permits(channel, redis.call('incrby', KEYS[1], count))
end
-- Returns the permits whose lease is over to the semaphore, all or at most a given number.
local function reclaim(channel, most)
    local expired = redis.call('zrangebyscore', permits, 0, whole(now), 'limit', 0, most or -1)
    if #expired > 0 then
        remove(expired)
        return_permits(channel, #expired)
    end
end
