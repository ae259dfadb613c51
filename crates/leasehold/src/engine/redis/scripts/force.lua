-- Frees a lock, whoever has it, and tells one waiter. KEYS: the lock. ARGV: channel or nothing. Returns 1 if there was one.
local freed = redis.call('del', KEYS[1])
if freed == 1 and ARGV[1] ~= '' then
    redis.call('publish', ARGV[1], '0')
end
return freed
