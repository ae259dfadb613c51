-- Acquires or re-enters values of a group, all or none.
-- KEYS: the group, and its tokens if a token is to be minted.
-- ARGV: owner, lease in ms, the count that the owner expects to have of each value, 1 to take the values over from other
-- holders, the ms for which tokens are kept or an empty string, the fields.
-- Returns the token, or 1, if the values are granted; 0 if the owner has another count of one of them; else {ms until the
-- last value is free, its holder}. Nothing is changed unless the values are granted.
local key, owner, lease, held = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
check_type(key)
local last, holder, ends = 0, nil, {}
for i = 6, #ARGV do
    local other, expires, count = holder_of(key, ARGV[i])
    if (other == owner and count or 0) ~= held then
        return 0
    end
    ends[i] = other == owner and expires or 0
    if other and other ~= owner and expires > last then
        last, holder = expires, other
    end
end
if holder and ARGV[4] ~= '1' then
    return { last - now, holder }
end
local token = mint(KEYS[2], tonumber(ARGV[5]))
for i = 6, #ARGV do
    local field = ARGV[i]
    if held == 0 then
        -- The fields of an earlier holder would stay in the hash.
        clear(key, field)
        redis.call('hset', key, field, owner)
    end
    extend(key, field, owner, ends[i], lease)
    redis.call('hset', key, count_of(field, owner), held + 1)
end
raise_ttl(key, lease)
return token
