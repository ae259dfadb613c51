-- Returns the holder of a lock. KEYS: the lock. Returns nil or {ms left or -1, owner, count}.
local hold = redis.call('hgetall', KEYS[1])
if #hold == 0 then
    return nil
end
return { redis.call('pttl', KEYS[1]), hold[1], hold[2] }
