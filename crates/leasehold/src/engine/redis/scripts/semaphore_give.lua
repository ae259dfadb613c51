-- Gives back what an owner has, once. Harmless to repeat.
-- KEYS: the semaphore, the record. ARGV: owner, channel.
-- Returns -1 when it has nothing, else 0, or if it was announced -2 and one less for each who listens.
local permits = redis.call('hget', KEYS[2], ARGV[1])
if not permits then
    return -1
end
if redis.call('exists', KEYS[1]) == 0 then
    -- There is nothing to give back to, for nobody in this record.
    redis.call('del', KEYS[2])
    return -1
end
-- In this order: a full server lets a script go on that has begun with what frees memory.
redis.call('hdel', KEYS[2], ARGV[1])
return tell(ARGV[2], redis.call('incrby', KEYS[1], permits))
