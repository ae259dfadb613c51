-- Publishes a message, and returns the number of subscribers that received it. Where the server denies PUBLISH, that is 0:
-- the change before the message is made, so the reply must not be an error.
local function publish(channel, payload)
    local receivers = redis.pcall('publish', channel, payload)
    return type(receivers) == 'number' and receivers or 0
end

