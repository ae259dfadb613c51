-- Brings the count of an owner down: by one for a release, to at most a given one for an undo, which is harmless to repeat.
-- KEYS: the lock. ARGV: tag, owner, `read` or `write`, the count it has or nothing for any, the count it is to have, lease
-- in ms that a half still held gets at least, channel.
-- Returns the count, or -1 when there was nothing to bring down. While somebody writes, the lock keeps its time; then it
-- lasts as long as its longest reader, and goes with the last. A writer that leaves tells everybody, the last reader one:
-- then it returns -2 and one less for each who listens.
local key, tag, owner, half, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local field = half == 'write' and owner .. ':write' or owner
local found = redis.pcall('hget', key, field)
local count = type(found) == 'string' and tonumber(found) or 0
local told = ARGV[4] == '' or ARGV[4] == found
-- What has run out cannot be released any more; what is left of it goes.
local lapsed = half == 'read' and told and count > 0 and left(tag, owner, count) < 1
if lapsed then
    most = 0
end
if half == 'read' and (told or count == 0) then
    -- Those of a lock that was deleted under us go as well.
    local n = most + 1
    while redis.call('del', holds(tag, owner) .. n) == 1 or n < count do
        n = n + 1
    end
end
if count <= most or not told then
    return -1
end
if most > 0 then
    -- There is no such field, but a full server lets a script go on that has begun with what frees memory.
    redis.call('hdel', key, '')
    raise(key, tonumber(ARGV[6]))
    if half == 'read' then
        raise_holds(tag, owner, most, tonumber(ARGV[6]))
    end
    redis.call('hset', key, field, most)
    return most
end
redis.call('hdel', key, field)
if half == 'write' then
    redis.call('hset', key, 'mode', 'read')
elseif redis.call('hget', key, 'mode') == 'write' then
    return lapsed and -1 or 0
end
local longest = 0
each_reader(key, function(reader, readings)
    local ms = left(tag, reader, readings)
    if ms > 0 then
        longest = math.max(longest, ms)
    else
        redis.call('hdel', key, reader)
    end
end)
if longest > 0 then
    redis.call('pexpire', key, longest)
else
    redis.call('del', key)
end
local heard = 0
if half == 'write' or longest == 0 then
    heard = -2 - announce(ARGV[7], half == 'write' and '1' or '0')
end
return lapsed and -1 or heard
