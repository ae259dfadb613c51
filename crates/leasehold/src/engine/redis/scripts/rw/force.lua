-- Frees a half, for any holders. KEYS: the lock. ARGV: tag, `read` or `write`, channel. Returns 0 if the half was free,
-- else -2 minus the number of subscribers that received the message.
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[2] then
    return 0
end
delete(KEYS[1], ARGV[1])
return -2 - publish(ARGV[3], ARGV[2] == 'write' and '1' or '0')
