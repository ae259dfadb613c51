-- Frees a fair lock, whoever has it, and tells the head of the queue, which stays as it is.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: channel. Returns 1 if somebody had it.
local head = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local freed = redis.call('del', KEYS[1])
if freed == 1 then
    tell(KEYS[1], head, ARGV[1])
end
return freed
