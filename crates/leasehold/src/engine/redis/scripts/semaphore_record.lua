-- Sets the time to live of the permit record of a semaphore, at most to that of the semaphore: the owners in the record
-- have no permits of the next semaphore of that name.
local function renew_record(semaphore, record, ms)
    local left = redis.call('pttl', semaphore)
    redis.call('pexpire', record, left < 0 and ms or math.min(left, tonumber(ms)))
end

