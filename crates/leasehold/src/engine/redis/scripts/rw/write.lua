-- Takes or re-enters the write half.
-- KEYS: the lock, the mark of writers that wait if it is to be left, and the tokens if one is to be minted.
-- ARGV: tag, owner, lease in ms, how often the owner writes now, `steal` to take it from whoever has it or `upgrade` for
-- an owner that reads and nobody else does, for how many ms to leave the mark if it is busy, or 0.
-- Returns the token, or 1, when it is ours; 0 when the owner does not write as often as it says; -1 when it reads and does
-- not want to upgrade, or the other way round; else {ms left or -1, somebody who holds it}.
local key, tag, owner, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mark = ARGV[6] ~= '0' and KEYS[2]
local tokens = KEYS[mark and 3 or 2]
local mode = mode_of(key)
if tonumber(redis.call('hget', key, owner .. ':write') or 0) ~= held then
    return 0
end
local rob = false
if held == 0 then
    local reads = tonumber(redis.call('hget', key, owner) or 0)
    local upgrade = ARGV[5] == 'upgrade'
    if (left(tag, owner, reads) > 0) ~= upgrade then
        return -1
    end
    local other
    if upgrade then
        other = each_reader(key, function(reader, count)
            if reader ~= owner and left(tag, reader, count) > 0 then
                return reader
            end
        end)
    elseif mode then
        for _, field in ipairs(redis.call('hkeys', key)) do
            -- What this owner has read has run out.
            if field ~= 'mode' and field ~= owner then
                other = writer(field) or field
                break
            end
        end
    end
    rob = other and ARGV[5] == 'steal'
    if other and not rob then
        if mark then
            redis.call('set', mark, owner, 'px', ARGV[6])
        end
        return { redis.call('pttl', key), other }
    end
end
local token = mint(tokens)
if rob then
    delete(key, tag)
end
redis.call('hset', key, 'mode', 'write')
redis.call('hset', key, owner .. ':write', held + 1)
raise(key, lease)
if mark and redis.call('get', mark) == owner then
    redis.call('del', mark)
end
return token
