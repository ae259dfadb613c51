-- Mints a token, if the key of the tokens is given; else returns 1. To be called before anything is changed: it fails if
-- the key has another type.
local function mint(tokens)
    if not tokens then
        return 1
    end
    local token = redis.call('incr', tokens)
    if token < 1 then
        -- This count was not written by Leasehold. As the reply to an acquire, 0 and -1 have another meaning.
        redis.pcall('decr', tokens)
        error('the tokens of this lock are counted from less than zero')
    end
    -- If the count expired, old tokens would be issued again. So a time to live set by another client is removed.
    redis.call('persist', tokens)
    return token
end

