-- Tells waiters how many permits there are, as Redisson's do: it breaks on less than one, and reads 32 bits. Returns -2 and
-- one less for each who listens, or 0 if there was nothing to tell.
local function tell(channel, permits)
    if permits < 1 then
        return 0
    end
    return -2 - announce(channel, string.format('%.0f', math.min(permits, 2147483647)))
end
