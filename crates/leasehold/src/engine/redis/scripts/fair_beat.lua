-- Says of many waiters for fair locks that they live, takes out those who do not, and tells the heads of free locks.
-- KEYS: for each lock the lock, queue, scores, marks, waits.
-- ARGV: for each lock its channel, a number of waiters, and for each of them the owner and how many ms it waits.
-- Returns for each waiter, in order, its place in the queue, or 0 if it has to look: it has none, or the lock is free for
-- it, which nobody may have told it.
local places = {}

-- Those whose arguments begin there.
local function beat(key, queue, scores, marks, waits, channel, argument, waiters)
    local lives = {}
    for waiter = 0, waiters - 1 do
        local owner, wait = ARGV[argument + 2 * waiter], tonumber(ARGV[argument + 2 * waiter + 1])
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
    local head = evict(queue, scores, marks, waits)
    local called = tell(key, head, channel) and head
    for waiter = 0, waiters - 1 do
        local owner = ARGV[argument + 2 * waiter]
        local place = owner ~= called and redis.call('lpos', queue, owner)
        places[#places + 1] = place and place + 1 or 0
    end
end

local argument = 1
for first = 1, #KEYS, 5 do
    local channel, waiters, before = ARGV[argument], tonumber(ARGV[argument + 1]), #places
    local done, failure = pcall(beat, KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4],
        channel, argument + 2, waiters)
    if not done then
        -- A key of another type takes their places from the waiters for this lock, and from no others.
        if not string.find(type(failure) == 'table' and failure.err or failure, 'WRONGTYPE', 1, true) then
            error(failure, 0)
        end
        for place = before + 1, before + waiters do
            places[place] = 0
        end
    end
    argument = argument + 2 + 2 * waiters
end
return places
