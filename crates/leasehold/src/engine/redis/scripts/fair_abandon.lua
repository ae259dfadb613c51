-- Sets the end of a hold of a fair lock that has no guard any more. The front waiter sleeps until the end that it knows, and
-- must see the new one.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: owner, the ms until then, channel.
-- Returns 1, or 0 if the owner does not hold the lock.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
local front = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if front then
    publish(ARGV[3] .. ':' .. front, '0')
end
return 1
