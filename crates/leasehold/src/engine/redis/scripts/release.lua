-- Gives back one count of an owner.
-- KEYS: the lock. ARGV: owner, the count it has, lease in ms that a lock still held gets at least, channel or nothing.
-- Returns the counts left, or -1 when the owner does not have that count. Freeing the lock tells those who wait, and
-- returns -2 and one less for each who listens.
local left = leave(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if left ~= 0 then
    return left
end
return -2 - (ARGV[4] ~= '' and announce(ARGV[4], '0') or 0)
