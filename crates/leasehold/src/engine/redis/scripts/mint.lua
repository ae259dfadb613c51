-- Mints a token, if there is where to count them; else it is 1. Before anything is changed: it fails where something else
-- has the name of the tokens.
local function mint(tokens)
    if not tokens then
        return 1
    end
    local token = redis.call('incr', tokens)
    if token < 1 then
        -- No token of ours. The answer of an acquire would be read as another one.
        redis.pcall('decr', tokens)
        error('the tokens of this lock are counted from less than zero')
    end
    -- A token that is forgotten comes again. Whoever put a time on it did not mean that.
    redis.call('persist', tokens)
    return token
end

