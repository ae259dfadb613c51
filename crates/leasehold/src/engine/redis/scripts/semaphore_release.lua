-- Releases the permits of an owner, once. Idempotent.
-- KEYS: the semaphore, the permit record. ARGV: owner, channel.
-- Returns -1 if the owner has no permits, else 0, or if a message was published, -2 minus the number of subscribers that
-- received it.
local permits = redis.call('hget', KEYS[2], ARGV[1])
if not permits then
    return -1
end
if redis.call('exists', KEYS[1]) == 0 then
    -- The semaphore of this record is deleted, so no owner in the record can release permits to it.
    redis.call('del', KEYS[2])
    return -1
end
-- In this order: a server over its maxmemory continues a script that began with a write that frees memory.
redis.call('hdel', KEYS[2], ARGV[1])
return publish_permits(ARGV[2], redis.call('incrby', KEYS[1], permits))
