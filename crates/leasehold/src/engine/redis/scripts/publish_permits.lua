-- Publishes the number of free permits in Redisson's format: a Redisson waiter breaks on less than one, and reads 32 bits.
-- Returns -2 minus the number of subscribers that received the message, or 0 if no message was sent.
local function publish_permits(channel, permits)
    if permits < 1 then
        return 0
    end
    return -2 - publish(channel, string.format('%.0f', math.min(permits, 2147483647)))
end
