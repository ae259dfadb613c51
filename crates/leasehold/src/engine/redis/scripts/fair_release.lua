-- Gives back one count of an owner of a fair lock. Freeing it tells the head of the queue.
-- KEYS: the lock, queue, scores, marks, waits.
-- ARGV: owner, the count it has, lease in ms that a lock still held gets at least, channel.
-- Returns the counts left, or -1 when the owner does not have that count; if a head was told that the lock is free, -2 and
-- one less for each who listens.
local head = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local left = leave(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
return left == 0 and tell(KEYS[1], head, ARGV[4]) or left
