-- Mints a token, if the key of the tokens is given; else returns 1. To be called before anything is changed: it fails if
-- the key has another type. `retention` is the ms after which the count may expire, or nil to keep it for good.
local function mint(tokens, retention)
    if not tokens then
        return 1
    end
    if retention and redis.call('exists', tokens) == 0 then
        -- A count that has expired begins with the microseconds of the clock, above all tokens that it had before: an
        -- owner mints less than one in each microsecond.
        local now = redis.call('time')
        redis.call('set', tokens, string.format('%d%06d', now[1], now[2]))
    end
    local token = redis.call('incr', tokens)
    if token < 1 then
        -- This count was not written by Leasehold. As the reply to an acquire, 0 and -1 have another meaning.
        redis.pcall('decr', tokens)
        error('the tokens of this lock are counted from less than zero')
    end
    if retention then
        redis.call('pexpire', tokens, retention)
    else
        -- If the count expired, old tokens would be issued again. So a time to live set by another client is removed.
        redis.call('persist', tokens)
    end
    return token
end

