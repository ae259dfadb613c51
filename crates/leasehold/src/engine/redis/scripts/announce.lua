-- Tells those who listen, and returns how many do. Where publishing is denied, nobody is told: what was changed is
-- changed all the same, and must not be answered with an error.
local function announce(channel, payload)
    local heard = redis.pcall('publish', channel, payload)
    return type(heard) == 'number' and heard or 0
end

