-- Acquires or re-enters a lock.
-- KEYS: the lock, and its tokens if a token is to be minted.
-- ARGV: owner, lease in ms, the count that the owner expects to have, 1 to take the lock over from another holder, the ms
-- for which tokens are kept or nothing.
-- Returns the token, or 1, if the lock is granted; 0 if the owner has another count than expected; else {ms left or -1,
-- the holder}. Nothing is changed unless the lock is granted.
local key, owner, held = KEYS[1], ARGV[1], tonumber(ARGV[3])
local left, count = read_state(key, owner)
if count ~= held then
    return 0
end
local busy = left ~= -2 and held == 0
if busy and ARGV[4] ~= '1' then
    return { left, redis.call('hkeys', key)[1] }
end
local token = mint(KEYS[2], ARGV[5])
if busy then
    redis.call('del', key)
end
enter(key, owner, ARGV[2])
return token
