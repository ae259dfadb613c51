-- Sets the end of a hold of one half that has no guard any more; the lock itself lasts as long as its longest hold. Waiters
-- sleep until the end that they know, and must see the new one.
-- KEYS: the lock. ARGV: tag, owner, `read` or `write`, the ms until then, channel.
-- Returns 1, or 0 if the owner does not hold that half.
local key, tag, owner, rest = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local count = tonumber(redis.call('hget', key, ARGV[3] == 'write' and owner .. ':write' or owner) or 0)
local longest = 0
if ARGV[3] == 'write' then
    longest = rest
elseif count > 0 and read_left(tag, owner, count) < 1 then
    count = 0
end
if count == 0 then
    return 0
end
if ARGV[3] == 'read' then
    for n = 1, count do
        redis.call('pexpire', hold_prefix(tag, owner) .. n, rest)
    end
    -- A writer that reads, too, keeps the lock as long as it writes.
    longest = writer_of(key) and redis.call('pttl', key) or 0
end
each_reader(key, function(reader, holds)
    longest = math.max(longest, read_left(tag, reader, holds))
end)
redis.call('pexpire', key, longest)
publish(ARGV[5], '1')
return 1
