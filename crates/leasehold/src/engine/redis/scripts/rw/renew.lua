-- Renews or checks many holds of one half at once. A lease is never shortened.
-- KEYS: the locks. ARGV: `read` or `write`; for each lock its tag, the owner, and the lease in ms, 0 to check only.
-- Returns for each: 1 held, 0 gone, 2 held by another owner.
local held = {}
for i, key in ipairs(KEYS) do
    local tag, owner, lease = ARGV[3 * i - 1], ARGV[3 * i], tonumber(ARGV[3 * i + 1])
    local found = redis.pcall('hget', key, ARGV[1] == 'write' and owner .. ':write' or owner)
    local count = type(found) == 'string' and tonumber(found)
    -- A read hold that has expired does not count, and is not revived.
    if count and (ARGV[1] == 'write' or read_left(tag, owner, count) > 0) then
        if lease > 0 then
            raise_ttl(key, lease)
            if ARGV[1] == 'read' then
                extend_holds(tag, owner, count, lease)
            end
        end
        held[i] = 1
    elseif ARGV[1] == 'write' then
        held[i] = 2 * redis.call('exists', key)
    else
        -- Other readers do not exclude this one; a writer does.
        held[i] = redis.pcall('hget', key, 'mode') == 'write' and 2 or 0
    end
end
return held
