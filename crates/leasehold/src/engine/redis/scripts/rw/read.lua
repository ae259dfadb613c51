-- Takes or re-enters the read half.
-- KEYS: the lock, and the mark of writers that wait if it bars us.
-- ARGV: tag, owner, lease in ms, how often the owner reads now, the channel to take it from a writer or nothing. Then
-- others can read, too, and all are told.
-- Returns 1 when it is ours; 0 when the owner does not read as often as it says; else {ms left or -1, who writes}.
local key, tag, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mode = mode_of(key)
local count = tonumber(redis.call('hget', key, owner) or 0)
-- A hold that has run out is none.
if count > 0 and left(tag, owner, count) < 1 then
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
    announce(ARGV[5], '1')
elseif mode ~= 'write' and held == 0 and KEYS[2] and ARGV[5] == '' then
    local barred = redis.call('pttl', KEYS[2])
    if barred ~= -2 then
        return { barred }
    end
end
if not mode then
    redis.call('hset', key, 'mode', 'read')
end
redis.call('hset', key, owner, held + 1)
raise_holds(tag, owner, held + 1, lease)
raise(key, lease)
return 1
