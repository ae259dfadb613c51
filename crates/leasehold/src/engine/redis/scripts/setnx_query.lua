-- Returns the holder of a lock that is a string. KEYS: the lock. Returns nil or {ms left or -1, owner, count}.
-- Of a value that is too long for an owner, the beginning is returned.
local owner = redis.call('get', KEYS[1])
if not owner then
    return nil
end
return { redis.call('pttl', KEYS[1]), string.sub(owner, 1, 100), '1' }
