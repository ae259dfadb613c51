-- Frees values of a group, for any holder, and publishes it. KEYS: the group. ARGV: channel, the fields.
-- Returns 0 if none of the values was held, else -2 minus the number of subscribers that received the message.
local freed = false
for i = 2, #ARGV do
    if holder_of(KEYS[1], ARGV[i]) then
        freed = true
    end
    clear(KEYS[1], ARGV[i])
end
return freed and -2 - publish(ARGV[1], '0') or 0
