-- Frees a fair lock, whoever has it, and tells the head of the queue, which stays as it is.
-- KEYS: the lock, queue, scores, marks, waits. ARGV: channel. Returns 0 if it was free, else 1, or if a head was
-- told -2 and one less for each who listens.
local head = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local freed = redis.call('del', KEYS[1])
return freed == 1 and tell(KEYS[1], head, ARGV[1]) or freed
