-- Deletes a lock that has this owner, and tells one waiter. Harmless to repeat.
-- Where the server has DELEX or DELIFEQ, that and a PUBLISH take its place.
-- KEYS: the lock. ARGV: owner, channel. Returns 0, or if it was deleted -2 and one less for each who listens.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1])
return -2 - announce(ARGV[2], '0')
