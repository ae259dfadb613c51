-- Sets a value, unless it was written with a greater token. The fence stays when the value is deleted.
-- KEYS: the value, its fence. ARGV: token, value. Returns nil if the value is written, else the greatest token seen.
local token, seen = ARGV[1], redis.call('get', KEYS[2])
if seen then
    if not string.match(seen, '^%d+$') then
        return redis.error_reply('ERR the fence of this key is not a number')
    end
    -- Compared by their digits: Lua rounds numbers above 2^53.
    if #token < #seen or (#token == #seen and token < seen) then
        return seen
    end
end
redis.call('set', KEYS[2], token)
redis.call('set', KEYS[1], ARGV[2])
return nil
