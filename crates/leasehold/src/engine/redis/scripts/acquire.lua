-- Takes or re-enters a lock.
-- KEYS: the lock, and its tokens if one is to be minted.
-- ARGV: owner, lease in ms, how often the owner holds it now, 1 to take it from whoever has it.
-- Returns the token, or 1, when it is ours; 0 when the owner does not hold it as often as it says; else {ms left or
-- -1, who holds it}. Nothing is changed unless it is ours.
local key, owner, held = KEYS[1], ARGV[1], tonumber(ARGV[3])
local left, count = look(key, owner)
if count ~= held then
    return 0
end
local others = left ~= -2 and held == 0
if others and ARGV[4] ~= '1' then
    return { left, redis.call('hkeys', key)[1] }
end
local token = mint(KEYS[2])
if others then
    redis.call('del', key)
end
enter(key, owner, ARGV[2])
return token
