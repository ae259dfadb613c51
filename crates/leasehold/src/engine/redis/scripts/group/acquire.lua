-- Takes or re-enters values of a group, all or none.
-- KEYS: the group, and its tokens if one is to be minted.
-- ARGV: owner, lease in ms, how often the owner holds them now, 1 to take them from whoever has them, the fields.
-- Returns the token, or 1, when they are ours; 0 when the owner does not hold each as often as it says; else {ms until the
-- last is free, who has it}. Nothing is changed unless they are ours.
local key, owner, lease, held = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
check(key)
local last, who, ends = 0, nil, {}
for i = 5, #ARGV do
    local other, till, count = holder(key, ARGV[i])
    if (other == owner and count or 0) ~= held then
        return 0
    end
    ends[i] = other == owner and till or 0
    if other and other ~= owner and till > last then
        last, who = till, other
    end
end
if who and ARGV[4] ~= '1' then
    return { last - now, who }
end
local token = mint(KEYS[2])
for i = 5, #ARGV do
    local field = ARGV[i]
    if held == 0 then
        -- What the one before left there would be garbage.
        clear(key, field)
        redis.call('hset', key, field, owner)
    end
    keep(key, field, owner, ends[i], lease)
    redis.call('hset', key, count_of(field, owner), held + 1)
end
raise(key, lease)
return token
