-- Sets the end of a hold of one half that has no guard any more; the lock itself lasts as long as its longest hold. Waiters
-- sleep until the end that they know, and must see the new one.
-- KEYS: the lock. ARGV: tag, owner, `read` or `write`, the ms until then, channel.
-- Returns 1, or 0 if the owner does not hold that half.
local key, tag, owner, rest = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local field = ARGV[3] == 'write' and owner .. ':write' or owner
local count = tonumber(redis.call('hget', key, field) or 0)
local reads = read_left(tag, owner, tonumber(redis.call('hget', key, owner) or 0))
if count == 0 or ARGV[3] == 'read' and reads < 1 then
    return 0
end
local longest = 0
if ARGV[3] == 'read' then
    for n = 1, count do
        redis.call('pexpire', hold_prefix(tag, owner) .. n, rest)
    end
    -- A writer that reads, too, keeps the lock as long as it writes.
    longest = writer_of(key) and redis.call('pttl', key) or 0
elseif reads < 1 then
    longest = rest
else
    -- The lock lasts as long as its owner reads, and would be written as long: it is left to the readers.
    redis.call('hdel', key, field)
    redis.call('hset', key, 'mode', 'read')
end
each_reader(key, function(reader, holds)
    longest = math.max(longest, read_left(tag, reader, holds))
end)
redis.call('pexpire', key, longest)
publish(ARGV[5], '1')
return 1
