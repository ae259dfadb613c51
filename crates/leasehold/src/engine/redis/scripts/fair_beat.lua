-- Says of many waiters for fair locks that they live, takes out those who do not, and tells the heads of free locks.
-- KEYS: for each lock the lock, queue, scores, marks, waits.
-- ARGV: for each lock its channel, a number of waiters, and for each of them the owner and how many ms it waits.
-- Returns for each waiter, in order, its place in the queue, or 0 if it has none.
local places, argument = {}, 1
for first = 1, #KEYS, 5 do
    local key, queue, scores = KEYS[first], KEYS[first + 1], KEYS[first + 2]
    local marks, waits = KEYS[first + 3], KEYS[first + 4]
    local channel, waiters = ARGV[argument], tonumber(ARGV[argument + 1])
    argument = argument + 2
    local lives = {}
    for waiter = 1, waiters do
        local owner, wait = ARGV[argument], tonumber(ARGV[argument + 1])
        argument = argument + 2
        local score = redis.call('zscore', scores, owner)
        if score then
            mark(marks, waits, owner, wait)
            if tonumber(score) < now + wait then
                -- Others would presume it dead although it waits: as if it had come just now.
                lives[#lives + 1] = owner
            end
        end
    end
    if #lives > 0 then
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
    tell(key, evict(queue, scores, marks, waits), channel)
    for waiter = waiters, 1, -1 do
        local place = redis.call('lpos', queue, ARGV[argument - 2 * waiter])
        places[#places + 1] = place and place + 1 or 0
    end
end
return places
