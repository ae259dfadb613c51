-- Acquires a lock that is a string, by force or with a token. For other acquires a plain SET is sent.
-- KEYS: the lock, and its tokens if a token is to be minted. ARGV: owner, lease in ms, 1 to take the lock over from another
-- holder, the ms for which tokens are kept or nothing.
-- Returns the token, or 1, if the lock is granted; else {ms left or -1, the holder}. Nothing is changed unless it is
-- granted.
local key, owner, lease = KEYS[1], ARGV[1], ARGV[2]
local holder = redis.call('get', key)
if holder and ARGV[3] ~= '1' then
    return { redis.call('pttl', key), holder }
end
local token = mint(KEYS[2], ARGV[4])
redis.call('set', key, owner, 'PX', lease)
return token
