-- Frees a lock, for any holder, and publishes it. KEYS: the lock. ARGV: channel or an empty string.
-- Returns 0 if the lock was free, else -2 minus the number of subscribers that received the message.
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
return -2 - (ARGV[1] ~= '' and publish(ARGV[1], '0') or 0)
