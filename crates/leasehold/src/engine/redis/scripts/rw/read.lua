-- Acquires or re-enters the read half.
-- KEYS: the lock, and the waiting-writer flag if it blocks this reader.
-- ARGV: tag, owner, lease in ms, the count of read holds that the owner expects to have, the channel to take the lock over
-- from a writer or an empty string. After a take-over other readers are notified, too.
-- Returns 1 if the half is granted; 0 if the owner has another count than expected; else {ms left or -1, the writer}.
local key, tag, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mode = mode_of(key)
local count = tonumber(redis.call('hget', key, owner) or 0)
-- A hold that has expired does not count.
if count > 0 and read_left(tag, owner, count) < 1 then
    count = 0
end
if count ~= held then
    return 0
end
if mode == 'write' and redis.call('hexists', key, owner .. ':write') == 0 then
    if ARGV[5] == '' then
        return { redis.call('pttl', key), (writer_of(key)) }
    end
    delete(key, tag)
    mode = false
    publish(ARGV[5], '1')
elseif mode ~= 'write' and held == 0 and KEYS[2] and ARGV[5] == '' then
    local flag_left = redis.call('pttl', KEYS[2])
    if flag_left ~= -2 then
        return { flag_left }
    end
end
if not mode then
    redis.call('hset', key, 'mode', 'read')
end
redis.call('hset', key, owner, held + 1)
extend_holds(tag, owner, held + 1, lease)
raise_ttl(key, lease)
return 1
