-- Precedes every change of a counter: a request that was carried out before is not repeated; its recorded result is
-- returned.
-- KEYS: the counter, the request records. ARGV: request, ms for which its record is kept, …
do
    local recorded = redis.call('hget', KEYS[2], ARGV[1])
    if recorded then
        return tonumber(recorded)
    end
end
local function done(result)
    redis.call('hset', KEYS[2], ARGV[1], string.format('%.0f', result))
    redis.call('pexpire', KEYS[2], ARGV[2])
    return result
end
