-- Releases one count of an owner of a fair lock. If this frees the lock, the front waiter is notified.
-- KEYS: the lock, queue, scores, marks, waits.
-- ARGV: owner, its count, the least lease in ms of a lock that is still held, channel.
-- Returns the counts left, or -1 if the owner has another count; if the front waiter was notified that the lock is free,
-- -2 minus the number of subscribers that received it.
local front = evict(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local left = leave(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
return left == 0 and notify_front(KEYS[1], front, ARGV[4]) or left
