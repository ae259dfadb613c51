-- Sets the end of a hold that has no guard any more. Waiters sleep until the end that they know, and must see the new one.
-- KEYS: the lock. ARGV: owner, the ms until then, channel. Returns 1, or 0 if the owner does not hold the lock.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
publish(ARGV[3], '0')
return 1
