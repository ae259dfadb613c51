-- Releases one count of an owner.
-- KEYS: the lock. ARGV: owner, its count, the least lease in ms of a lock that is still held, channel or an empty string.
-- Returns the counts left, or -1 if the owner has another count. If the lock is freed, a message is published, and the
-- return value is -2 minus the number of subscribers that received it.
local left = leave(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if left ~= 0 then
    return left
end
return -2 - (ARGV[4] ~= '' and publish(ARGV[4], '0') or 0)
