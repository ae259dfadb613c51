-- Returns the holder of values of a group. KEYS: the group. ARGV: the owner in question, or an empty string for the first
-- holder that is found, the fields. Returns nil, or {ms until the last value is free, owner, count}. The owner in question
-- counts as the holder only if it holds all of the values.
local key, expected = KEYS[1], ARGV[1]
check_type(key)
local last, found, least = 0, nil, nil
for i = 2, #ARGV do
    local holder, expires, count = holder_of(key, ARGV[i])
    if expected ~= '' and holder ~= expected then
        return nil
    end
    if holder then
        last = math.max(last, expires)
        if not found or expected ~= '' and count < least then
            found, least = holder, count
        end
    end
end
return found and { last - now, found, tostring(least) }
