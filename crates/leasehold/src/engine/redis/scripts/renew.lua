-- Renews or checks many holds at once. A lease is never shortened.
-- KEYS: the locks. ARGV: for each its owner and the lease in ms, 0 to check only.
-- Returns for each: 1 held, 0 gone, 2 held by another owner.
local held = {}
for i, key in ipairs(KEYS) do
    local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
    if redis.pcall('hexists', key, owner) == 1 then
        if lease > 0 and redis.call('pttl', key) < lease then
            redis.call('pexpire', key, lease)
        end
        held[i] = 1
    else
        held[i] = 2 * redis.call('exists', key)
    end
end
return held
