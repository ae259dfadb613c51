-- Renews or checks many holds at once. A lease is never shortened, and what is over is not revived.
-- KEYS: the groups. ARGV: for each its owner, the lease in ms, 0 to check only, how many fields, and these.
-- Returns for each: 1 held, 0 gone, 2 somebody else's.
local held, at = {}, 1
for i, key in ipairs(KEYS) do
    local owner, lease, fields = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local ends = {}
    held[i] = is_hash(key) and 1 or 2 * redis.call('exists', key)
    if held[i] == 1 then
        for n = 1, fields do
            local by, till = holder(key, ARGV[at + 2 + n])
            ends[n] = till
            if by ~= owner and held[i] ~= 2 then
                held[i] = by and 2 or 0
            end
        end
    end
    if held[i] == 1 and lease > 0 then
        go_on_when_full(key)
        for n = 1, fields do
            keep(key, ARGV[at + 2 + n], owner, ends[n], lease)
        end
        raise(key, lease)
    end
    at = at + 3 + fields
end
return held
