-- Renews or checks many holds at once. A lease is never shortened.
-- KEYS: their permits. ARGV: for each the client's half of the ids, first number, number of permits, lease in ms or 0 to
-- check only.
-- Returns for each: 1 all of its permits are held, 0 not.
local held = {}
for i, key in ipairs(KEYS) do
    permits = key
    local ids = ids_of(ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1])
    local ends, shorter = now + tonumber(ARGV[4 * i]), {}
    held[i] = count_held(ids) == #ids and 1 or 0
    for _, id in ipairs(held[i] == 1 and ids or {}) do
        if tonumber(redis.call('zscore', permits, id)) < ends then
            shorter[#shorter + 1] = id
        end
    end
    if #shorter > 0 then
        change_end(shorter, ends)
    end
end
return held
