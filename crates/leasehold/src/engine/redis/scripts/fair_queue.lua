-- The queue of a fair lock: Redisson's list and scores, and beside them our own marks of who is alive.
-- `queue` is the list of waiters, `scores` says after which ms a waiter is presumed dead, by everybody. `marks` says the
-- same of our own waiters, which say every second or so that they live, and `waits` how long each of ours waits.
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Takes one of ours out. Whoever stands behind it is presumed dead that much earlier.
local function dequeue(queue, scores, marks, waits, owner)
    local wait = redis.call('hget', waits, owner)
    if not wait then
        return false
    end
    local waiters, behind = redis.call('lrange', queue, 0, -1), false
    -- First what frees memory: a full server lets a script go on that has begun with that.
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

-- Takes out those of ours who are silent, wherever they stand, and heads that are presumed dead by everybody.
-- Returns the head that remains.
local function evict(queue, scores, marks, waits)
    for _, owner in ipairs(redis.call('zrangebyscore', marks, '-inf', now)) do
        dequeue(queue, scores, marks, waits, owner)
    end
    while true do
        local head = redis.call('lindex', queue, 0)
        local score = head and redis.call('zscore', scores, head)
        if not score or tonumber(score) > now then
            return head
        end
        redis.call('zrem', scores, head)
        redis.call('lpop', queue)
        redis.call('zrem', marks, head)
        redis.call('hdel', waits, head)
    end
end

-- Says of one of ours that it lives.
local function mark(marks, waits, owner, wait)
    -- Nothing has that name, but a full server lets a script go on that has begun with what frees memory. Whoever stands
    -- in the queue keeps its place.
    redis.call('zrem', marks, '')
    redis.call('zadd', marks, now + 3000, owner)
    redis.call('hset', waits, owner, wait)
    -- If all of them die, nobody takes these away.
    redis.call('pexpire', marks, 3600000)
    redis.call('pexpire', waits, 3600000)
end

-- Tells the head that the lock is free, if it is. Returns -2 and one less for each who listens, or nothing if there was
-- nothing to tell.
local function tell(key, head, channel)
    if head and redis.call('exists', key) == 0 then
        return -2 - announce(channel .. ':' .. head, '0')
    end
end

