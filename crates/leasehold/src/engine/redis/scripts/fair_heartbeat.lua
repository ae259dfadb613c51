-- Marks waiters for several fair locks as alive, removes silent waiters, and notifies the front waiters of free locks.
-- KEYS: for each lock the lock, queue, scores, marks, waits.
-- ARGV: for each lock its channel, the number of waiters, and for each waiter the owner and its wait in ms.
-- Returns for each waiter, in order, its position in the queue, or 0 if it must retry: it is not in the queue, or the lock
-- is free for it and the notification may not have arrived.
local positions = {}

-- Handles the waiters for one lock. Their arguments begin at ARGV[argument].
local function heartbeat(key, queue, scores, marks, waits, channel, argument, waiters)
    local expiring = {}
    for waiter = 0, waiters - 1 do
        local owner, wait = ARGV[argument + 2 * waiter], tonumber(ARGV[argument + 2 * waiter + 1])
        local score = redis.call('zscore', scores, owner)
        if score then
            mark_alive(marks, waits, owner, wait)
            if tonumber(score) < now + wait then
                -- Redisson would presume this waiter dead too early: its score is set as if it had joined just now.
                expiring[#expiring + 1] = owner
            end
        end
    end
    if #expiring > 0 then
        local score = now + math.max(redis.call('pttl', key), 0)
        for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
            local wait = redis.call('hget', waits, waiter)
            local before = tonumber(redis.call('zscore', scores, waiter) or 0)
            if wait and before < score + wait then
                redis.call('zadd', scores, score + wait, waiter)
                before = score + wait
            end
            score = math.max(score, before)
        end
    end
    local front = evict(queue, scores, marks, waits)
    local notified = notify_front(key, front, channel) and front
    for waiter = 0, waiters - 1 do
        local owner = ARGV[argument + 2 * waiter]
        local position = owner ~= notified and redis.call('lpos', queue, owner)
        positions[#positions + 1] = position and position + 1 or 0
    end
end

local argument = 1
for first = 1, #KEYS, 5 do
    local channel, waiters, before = ARGV[argument], tonumber(ARGV[argument + 1]), #positions
    local done, failure = pcall(heartbeat, KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4],
        channel, argument + 2, waiters)
    if not done then
        failure = type(failure) == 'table' and failure.err or failure
        -- With a key of another type the waiters for this lock have no position; the other locks are not affected.
        if not string.find(failure, 'WRONGTYPE', 1, true) then
            -- Raised again, it would lose its code: servers from Redis 7 on put ERR in front of it.
            return redis.error_reply(failure)
        end
        for position = before + 1, before + waiters do
            positions[position] = 0
        end
    end
    argument = argument + 2 + 2 * waiters
end
return positions
