-- Gives back what is left of a hold. Each permit counts once, so it is harmless to repeat.
-- KEYS: the semaphore, its permits. ARGV: channel, half of the ids, first number, how many.
-- Returns -1 when not all of them were there, else 0, or if it was announced -2 and one less for each who listens.
local ids = ids_of(ARGV[2], ARGV[3], ARGV[4])
local held = alive(ids)
local given = remove(ids)
local told = given > 0 and give(ARGV[1], given)
return held == #ids and told or -1
