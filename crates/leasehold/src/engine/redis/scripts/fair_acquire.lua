-- Takes or re-enters a fair lock, or joins its queue.
-- KEYS: the lock, queue, scores, marks, waits, and its tokens if one is to be minted.
-- ARGV: owner, lease in ms, how often the owner holds it now, 1 to take it from whoever has it, how many ms to be presumed
-- alive in the queue, or 0 not to join it.
-- Returns the token, or 1, when it is ours; 0 when the owner does not hold it as often as it says; else {ms left, -1 or
-- -2, who holds it or nothing, place in the queue or 0}.
local key, queue, scores, marks, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, held, wait = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local head = evict(queue, scores, marks, waits)
local left, count = look(key, owner)
if count ~= held then
    return 0
end
local steal = ARGV[4] == '1'
if held == 0 then
    if not steal and (left ~= -2 or head and head ~= owner) then
        local place = 0
        if wait > 0 then
            place = redis.call('lpos', queue, owner)
            if not place then
                local tail = redis.call('lindex', queue, -1)
                local last = tail and redis.call('zscore', scores, tail) or now + math.max(left, 0)
                redis.call('zadd', scores, last + wait, owner)
                place = redis.call('rpush', queue, owner) - 1
            end
            mark(marks, waits, owner, wait)
            place = place + 1
        end
        return { left, left ~= -2 and redis.call('hkeys', key)[1] or '', place }
    end
end
local token = mint(KEYS[6])
if held == 0 then
    if steal then
        redis.call('del', key)
    end
    if head == owner then
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
