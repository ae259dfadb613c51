-- Frees values of a group, whoever holds them, and tells one waiter. KEYS: the group. ARGV: channel, the fields.
-- Returns 0 if none of them was held, else -2 and one less for each who listens.
local freed = false
for i = 2, #ARGV do
    if holder(KEYS[1], ARGV[i]) then
        freed = true
    end
    clear(KEYS[1], ARGV[i])
end
return freed and -2 - announce(ARGV[1], '0') or 0
