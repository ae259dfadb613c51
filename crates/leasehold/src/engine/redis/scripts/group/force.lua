-- Frees values of a group, whoever holds them, and tells one waiter. KEYS: the group. ARGV: channel, the fields.
-- Returns 1 if one of them was held.
local freed = 0
for i = 2, #ARGV do
    if holder(KEYS[1], ARGV[i]) then
        freed = 1
    end
    clear(KEYS[1], ARGV[i])
end
if freed == 1 then
    redis.call('publish', ARGV[1], '0')
end
return freed
