-- Acquires several free locks, or none of them.
-- KEYS: the locks, and their tokens if tokens are to be minted. ARGV: the number of locks, owner, lease in ms,
-- the ms for which tokens are kept or nothing.
-- Returns the tokens, or 1 for each lock; or {'busy', index of the first lock that is held, ms left or -1, its holder}.
local locks, owner, lease = tonumber(ARGV[1]), ARGV[2], ARGV[3]
for i = 1, locks do
    local left = redis.call('pttl', KEYS[i])
    if left ~= -2 then
        return { 'busy', i, left, redis.call('hkeys', KEYS[i])[1] }
    end
end
local tokens = {}
for i = 1, locks do
    tokens[i] = mint(KEYS[locks + i], ARGV[4])
end
for i = 1, locks do
    redis.call('hset', KEYS[i], owner, 1)
    redis.call('pexpire', KEYS[i], lease)
end
return tokens
