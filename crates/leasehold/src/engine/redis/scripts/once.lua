-- Before every change of a counter: a request that was carried out already is only answered again.
-- KEYS: the counter, the requests. ARGV: request, ms that it is noted, …
do
    local told = redis.call('hget', KEYS[2], ARGV[1])
    if told then
        return tonumber(told)
    end
end
local function done(result)
    redis.call('hset', KEYS[2], ARGV[1], string.format('%.0f', result))
    redis.call('pexpire', KEYS[2], ARGV[2])
    return result
end
