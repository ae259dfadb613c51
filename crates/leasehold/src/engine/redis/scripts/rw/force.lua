-- Frees a half, whoever has it. KEYS: the lock. ARGV: tag, `read` or `write`, channel. Returns 0 if nobody had it, else
-- -2 and one less for each who listens.
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[2] then
    return 0
end
delete(KEYS[1], ARGV[1])
return -2 - announce(ARGV[3], ARGV[2] == 'write' and '1' or '0')
