-- Sees to it that an owner has at most a given count. Harmless to repeat.
-- KEYS: the lock. ARGV: owner, count, channel or nothing.
-- Returns 0 if nothing changed, 1 if it is still held, and -2 and one less for each who listens if it was freed.
local most = tonumber(ARGV[2])
if not lower(KEYS[1], ARGV[1], most) then
    return 0
end
return most > 0 and 1 or -2 - (ARGV[3] ~= '' and announce(ARGV[3], '0') or 0)
