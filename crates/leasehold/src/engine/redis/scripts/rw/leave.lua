-- Lowers the count of an owner: by one for a release, to at most a given one for an undo, which is idempotent.
-- KEYS: the lock. ARGV: tag, owner, `read` or `write`, its count or an empty string for any, the count afterwards, the
-- least lease in ms of a half that is still held, channel.
-- Returns the count, or -1 if there was nothing to lower. While the lock is held for writing, its time to live stays; then
-- it is that of the longest read hold, and the lock is deleted with the last reader. The release of a writer publishes 1,
-- for all waiters, that of the last reader 0, for one: then the return value is -2 minus the number of subscribers that
-- received the message.
local key, tag, owner, half, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local field = half == 'write' and owner .. ':write' or owner
local found = redis.pcall('hget', key, field)
local count = type(found) == 'string' and tonumber(found) or 0
local matches = ARGV[4] == '' or ARGV[4] == found
-- A read hold that has expired cannot be released; its remaining keys are removed.
local expired = half == 'read' and matches and count > 0 and read_left(tag, owner, count) < 1
if expired then
    most = 0
end
if half == 'read' and (matches or count == 0) then
    -- If the lock itself was deleted by another client, the keys of its read holds are removed as well.
    local n = most + 1
    while redis.call('del', hold_prefix(tag, owner) .. n) == 1 or n < count do
        n = n + 1
    end
end
if count <= most or not matches then
    return -1
end
if most > 0 then
    -- There is no such field, but a server over its maxmemory continues a script that began with a write that frees memory.
    redis.call('hdel', key, '')
    raise_ttl(key, tonumber(ARGV[6]))
    if half == 'read' then
        extend_holds(tag, owner, most, tonumber(ARGV[6]))
    end
    redis.call('hset', key, field, most)
    return most
end
redis.call('hdel', key, field)
if half == 'write' then
    redis.call('hset', key, 'mode', 'read')
elseif redis.call('hget', key, 'mode') == 'write' then
    return expired and -1 or 0
end
local longest = 0
each_reader(key, function(reader, holds)
    local ms = read_left(tag, reader, holds)
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
local result = 0
if half == 'write' or longest == 0 then
    result = -2 - publish(ARGV[7], half == 'write' and '1' or '0')
end
return expired and -1 or result
