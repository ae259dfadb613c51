-- Sets a value, unless a greater token than this has written it. The mark stays when the value goes.
-- KEYS: the value, its fence. ARGV: token, value. Returns nil when it is written, else the greatest token seen.
local token, seen = ARGV[1], redis.call('get', KEYS[2])
if seen then
    if not string.match(seen, '^%d+$') then
        return redis.error_reply('ERR the fence of this key is not a number')
    end
    -- By their digits: as numbers of Lua, great ones would be rounded.
    if #token < #seen or (#token == #seen and token < seen) then
        return seen
    end
end
redis.call('set', KEYS[2], token)
redis.call('set', KEYS[1], ARGV[2])
return nil
