-- Returns the value of a counter, 0 if there is none. KEYS: the counter.
local count = tonumber(redis.call('get', KEYS[1]) or 0)
return count or redis.error_reply('WRONGTYPE not a number')
