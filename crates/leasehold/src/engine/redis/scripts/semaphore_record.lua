-- Keeps the record of a semaphore for so many ms, but no longer than the semaphore lasts: whoever is in it has none of the
-- permits of the next one.
local function keep(semaphore, record, ms)
    local left = redis.call('pttl', semaphore)
    redis.call('pexpire', record, left < 0 and ms or math.min(left, tonumber(ms)))
end

