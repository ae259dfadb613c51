-- The queue of a fair lock: Redisson's list and scores, and our own marks of live waiters.
-- `queue` is the list of waiters. `scores` has for each waiter the epoch ms from which all clients presume it dead. `marks`
-- has the same for waiters of Leasehold, which send a heartbeat about once a second, and `waits` has the wait of each of
-- them in ms.
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Removes a waiter of Leasehold. The scores of the waiters behind it are lowered by its wait.
local function dequeue(queue, scores, marks, waits, owner)
    local wait = redis.call('hget', waits, owner)
    if not wait then
        return false
    end
    local waiters, behind = redis.call('lrange', queue, 0, -1), false
    -- The writes that free memory come first: a server over its maxmemory continues a script that began with such a write.
    redis.call('zrem', scores, owner)
    redis.call('lrem', queue, 0, owner)
    redis.call('zrem', marks, owner)
    redis.call('hdel', waits, owner)
    for _, waiter in ipairs(waiters) do
        if behind then
            redis.call('zincrby', scores, -wait, waiter)
        elseif waiter == owner then
            behind = true
        end
    end
    return true
end

-- Removes the silent waiters of Leasehold at any position, and each front waiter whose score is in the past.
-- Returns the front waiter that remains.
local function evict(queue, scores, marks, waits)
    for _, owner in ipairs(redis.call('zrangebyscore', marks, '-inf', now)) do
        dequeue(queue, scores, marks, waits, owner)
    end
    while true do
        local front = redis.call('lindex', queue, 0)
        local score = front and redis.call('zscore', scores, front)
        if not score or tonumber(score) > now then
            return front
        end
        redis.call('zrem', scores, front)
        redis.call('lpop', queue)
        redis.call('zrem', marks, front)
        redis.call('hdel', waits, front)
    end
end

-- Marks a waiter of Leasehold as alive for 3 s.
local function mark_alive(marks, waits, owner, wait)
    -- There is no such member, but a server over its maxmemory continues a script that began with a write that frees
    -- memory. So a queued waiter keeps its position.
    redis.call('zrem', marks, '')
    redis.call('zadd', marks, now + 3000, owner)
    redis.call('hset', waits, owner, wait)
    -- If all waiters die, no client removes these keys.
    redis.call('pexpire', marks, 3600000)
    redis.call('pexpire', waits, 3600000)
end

-- Notifies the front waiter if the lock is free. Returns -2 minus the number of subscribers that received the message, or
-- nil if no message was sent.
local function notify_front(key, front, channel)
    if front and redis.call('exists', key) == 0 then
        return -2 - publish(channel .. ':' .. front, '0')
    end
end

