-- Sets the end of the leases of permits that have no guard any more.
-- KEYS: the semaphore, its permits. ARGV: channel, the client's half of the ids, first number, number of permits, the ms until
-- then. Returns 1, or 0 if one of the permits is not taken.
local ids, ends, first = ids_of(ARGV[2], ARGV[3], ARGV[4]), now + tonumber(ARGV[5]), first_end()
if count_held(ids) < #ids then
    return 0
end
change_end(ids, ends)
if ends < first then
    -- Waiters sleep until the end that was the first before, and must retry earlier.
    publish_permits(ARGV[1], 1)
end
return 1
