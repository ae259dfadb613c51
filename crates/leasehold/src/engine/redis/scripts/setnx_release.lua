-- Deletes a lock that has this owner, and publishes it. Idempotent.
-- Where the server has DELEX or DELIFEQ, that command and a PUBLISH are sent instead of this script.
-- KEYS: the lock. ARGV: owner, channel. Returns 0, or if the lock was deleted, -2 minus the number of subscribers that
-- received the message.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1])
return -2 - publish(ARGV[2], '0')
