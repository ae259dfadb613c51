-- Renews or checks many holds at once. A lease is never shortened, and a hold whose lease is over is not revived.
-- KEYS: the groups. ARGV: for each its owner, the lease in ms or 0 to check only, the number of fields, and the fields.
-- Returns for each: 1 held, 0 gone, 2 held by another owner.
local held, at = {}, 1
for i, key in ipairs(KEYS) do
    local owner, lease, fields = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local ends = {}
    held[i] = is_hash(key) and 1 or 2 * redis.call('exists', key)
    if held[i] == 1 then
        for n = 1, fields do
            local holder, expires = holder_of(key, ARGV[at + 2 + n])
            ends[n] = expires
            if holder ~= owner and held[i] ~= 2 then
                held[i] = holder and 2 or 0
            end
        end
    end
    if held[i] == 1 and lease > 0 then
        pass_memory_check(key)
        for n = 1, fields do
            extend(key, ARGV[at + 2 + n], owner, ends[n], lease)
        end
        raise_ttl(key, lease)
    end
    at = at + 3 + fields
end
return held
