-- Lowers the count of an owner to at most a given one. Idempotent.
-- KEYS: the lock. ARGV: owner, count, channel or an empty string.
-- Returns 0 if nothing changed, 1 if the owner still holds the lock, and if the lock was freed, -2 minus the number of
-- subscribers that received the message.
local most = tonumber(ARGV[2])
if not lower(KEYS[1], ARGV[1], most) then
    return 0
end
return most > 0 and 1 or -2 - (ARGV[3] ~= '' and publish(ARGV[3], '0') or 0)
