-- Gives back what an owner has, once. Harmless to repeat.
-- KEYS: the semaphore, the record. ARGV: owner, channel. Returns 0, or -1 when it has nothing.
local permits = redis.call('hget', KEYS[2], ARGV[1])
if not permits then
    return -1
end
-- In this order: a full server lets a script go on that has begun with what frees memory.
redis.call('hdel', KEYS[2], ARGV[1])
tell(ARGV[2], redis.call('incrby', KEYS[1], permits))
return 0
