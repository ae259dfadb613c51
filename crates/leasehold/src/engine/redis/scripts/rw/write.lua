-- Acquires or re-enters the write half.
-- KEYS: the lock, the waiting-writer flag if it is to be set, and the tokens if a token is to be minted.
-- ARGV: tag, owner, lease in ms, the count of write holds that the owner expects to have, `steal` to take the lock over
-- from its holders or `upgrade` for an owner that is the only reader, the ms for which the flag is set if the lock is busy,
-- or 0, the ms for which tokens are kept or nothing.
-- Returns the token, or 1, if the half is granted; 0 if the owner has another count than expected; -1 if it is a reader and
-- does not upgrade, or upgrades and is no reader; else {ms left or -1, a holder}.
local key, tag, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local flag = ARGV[6] ~= '0' and KEYS[2]
local tokens = KEYS[flag and 3 or 2]
local mode = mode_of(key)
if tonumber(redis.call('hget', key, owner .. ':write') or 0) ~= held then
    return 0
end
local take_over = false
if held == 0 then
    local reads = tonumber(redis.call('hget', key, owner) or 0)
    local upgrade = ARGV[5] == 'upgrade'
    if (read_left(tag, owner, reads) > 0) ~= upgrade then
        return -1
    end
    local other
    if upgrade then
        other = each_reader(key, function(reader, count)
            if reader ~= owner and read_left(tag, reader, count) > 0 then
                return reader
            end
        end)
    elseif mode then
        for _, field in ipairs(redis.call('hkeys', key)) do
            -- The read holds of this owner have expired.
            if field ~= 'mode' and field ~= owner then
                other = writer_in(field) or field
                break
            end
        end
    end
    take_over = other and ARGV[5] == 'steal'
    if other and not take_over then
        if flag then
            redis.call('set', flag, owner, 'px', ARGV[6])
        end
        return { redis.call('pttl', key), other }
    end
end
local token = mint(tokens, ARGV[7])
if take_over then
    delete(key, tag)
end
redis.call('hset', key, 'mode', 'write')
redis.call('hset', key, owner .. ':write', held + 1)
raise_ttl(key, lease)
if flag and redis.call('get', flag) == owner then
    redis.call('del', flag)
end
return token
