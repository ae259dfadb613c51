-- Takes several free locks, or none of them.
-- KEYS: the locks, and their tokens if some are to be minted. ARGV: how many locks, owner, lease in ms.
-- Returns the tokens, or 1 for each; or {'busy', which one, ms left or -1, who holds it}.
local locks, owner, lease = tonumber(ARGV[1]), ARGV[2], ARGV[3]
for i = 1, locks do
    local left = redis.call('pttl', KEYS[i])
    if left ~= -2 then
        return { 'busy', i, left, redis.call('hkeys', KEYS[i])[1] }
    end
end
local tokens = {}
for i = 1, locks do
    tokens[i] = mint(KEYS[locks + i])
end
for i = 1, locks do
    redis.call('hset', KEYS[i], owner, 1)
    redis.call('pexpire', KEYS[i], lease)
end
return tokens
