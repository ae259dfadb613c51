-- Sees to it that an owner has at most a given count. Harmless to repeat.
-- KEYS: the lock. ARGV: owner, count, channel or nothing. Returns 1 if something changed.
local most = tonumber(ARGV[2])
local lowered = lower(KEYS[1], ARGV[1], most)
if lowered and most == 0 and ARGV[3] ~= '' then
    redis.call('publish', ARGV[3], '0')
end
return lowered and 1 or 0
