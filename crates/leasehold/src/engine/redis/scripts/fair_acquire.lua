-- Acquires or re-enters a fair lock, or joins its queue.
-- KEYS: the lock, queue, scores, marks, waits, and its tokens if a token is to be minted.
-- ARGV: owner, lease in ms, the count that the owner expects to have, 1 to take the lock over from another holder, the wait
-- of the owner in the queue in ms, or 0 not to join the queue, the ms for which tokens are kept or nothing.
-- Returns the token, or 1, if the lock is granted; 0 if the owner has another count than expected; else {ms left, -1 or
-- -2, the holder or an empty string, position in the queue or 0}.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, held, wait = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local front = evict(queue, scores, marks, waits)
local left, count = read_state(key, owner)
if count ~= held then
    return 0
end
local steal = ARGV[4] == '1'
if held == 0 then
    if not steal and (left ~= -2 or front and front ~= owner) then
        local position = 0
        if wait > 0 then
            position = redis.call('lpos', queue, owner)
            if not position then
                local tail = redis.call('lindex', queue, -1)
                local last = tail and redis.call('zscore', scores, tail) or now + math.max(left, 0)
                redis.call('zadd', scores, last + wait, owner)
                position = redis.call('rpush', queue, owner) - 1
            end
            mark_alive(marks, waits, owner, wait)
            position = position + 1
        end
        return { left, left ~= -2 and redis.call('hkeys', key)[1] or '', position }
    end
end
local token = mint(KEYS[6], ARGV[6])
if held == 0 then
    if steal then
        redis.call('del', key)
    end
    if front == owner then
        wait = redis.call('hget', waits, owner) or wait
        redis.call('lpop', queue)
        redis.call('zrem', scores, owner)
        redis.call('zrem', marks, owner)
        redis.call('hdel', waits, owner)
        for _, waiter in ipairs(redis.call('zrange', scores, 0, -1)) do
            redis.call('zincrby', scores, -wait, waiter)
        end
    else
        dequeue(queue, scores, marks, waits, owner)
    end
end
enter(key, owner, ARGV[2])
return token
