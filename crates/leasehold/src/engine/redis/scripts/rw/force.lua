-- Frees a half, whoever has it. KEYS: the lock. ARGV: tag, `read` or `write`, channel. Returns 1 if somebody had it.
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[2] then
    return 0
end
delete(KEYS[1], ARGV[1])
redis.call('publish', ARGV[3], ARGV[2] == 'write' and '1' or '0')
return 1
