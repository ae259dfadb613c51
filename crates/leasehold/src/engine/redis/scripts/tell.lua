-- Tells waiters how many permits there are, as Redisson's do: it breaks on less than one, and reads 32 bits.
local function tell(channel, permits)
    if permits >= 1 then
        redis.call('publish', channel, string.format('%.0f', math.min(permits, 2147483647)))
    end
end
