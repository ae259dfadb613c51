-- Removes the waiting-writer flag of a writer that no longer waits, so that readers can acquire. KEYS: the flag. ARGV:
-- owner, channel. Returns 1 if the flag was that of this owner, else 0.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
publish(ARGV[2], '1')
return redis.call('del', KEYS[1])
