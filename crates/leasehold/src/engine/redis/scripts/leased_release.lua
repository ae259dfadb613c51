-- Releases the permits of a hold that are still taken. Each permit is returned once, so the request is idempotent.
-- KEYS: the semaphore, its permits. ARGV: channel, the client's half of the ids, first number, number of permits.
-- Returns -1 if one of the permits was not taken any more, its lease was over, or the semaphore is gone; else 0, or if a
-- message was published, -2 minus the number of subscribers that received it.
local ids = ids_of(ARGV[2], ARGV[3], ARGV[4])
local held = count_held(ids)
local removed = remove(ids)
local published = removed > 0 and return_permits(ARGV[1], removed)
return held == #ids and published or -1
