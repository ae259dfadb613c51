-- Frees a lock, whoever has it, and tells one waiter. KEYS: the lock. ARGV: channel or nothing.
-- Returns 0 if it was free, else -2 and one less for each who listens.
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
return -2 - (ARGV[1] ~= '' and announce(ARGV[1], '0') or 0)
