-- The value of a counter. KEYS: the counter. Returns 0 if there is none.
local count = tonumber(redis.call('get', KEYS[1]) or 0)
return count or redis.error_reply('WRONGTYPE not a number')
