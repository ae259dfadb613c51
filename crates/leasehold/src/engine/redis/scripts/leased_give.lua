-- Gives back what is left of a hold. Each permit counts once, so it is harmless to repeat.
-- KEYS: the semaphore, its permits. ARGV: channel, half of the ids, first number, how many.
-- Returns 0, or -1 when not all of them were there.
local ids = ids_of(ARGV[2], ARGV[3], ARGV[4])
local held = alive(ids)
local given = remove(ids)
if given > 0 then
    tell(ARGV[1], redis.call('incrby', KEYS[1], given))
end
return held == #ids and 0 or -1
