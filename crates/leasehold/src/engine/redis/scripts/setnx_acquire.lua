-- Takes a lock that is one string, by force or with a token. Without either a plain SET does.
-- KEYS: the lock, and its tokens if one is to be minted. ARGV: owner, lease in ms, 1 to take it from whoever has it.
-- Returns the token, or 1, when it is ours; else {ms left or -1, who holds it}. Nothing is changed unless it is ours.
local key, owner, lease = KEYS[1], ARGV[1], ARGV[2]
local holder = redis.call('get', key)
if holder and ARGV[3] ~= '1' then
    return { redis.call('pttl', key), holder }
end
local token = mint(KEYS[2])
redis.call('set', key, owner, 'PX', lease)
return token
