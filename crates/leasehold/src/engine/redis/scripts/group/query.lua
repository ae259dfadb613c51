-- Who holds values of a group. KEYS: the group. ARGV: the owner who is asked about, or nothing for the first that is found,
-- the fields. Returns nil, or {ms until the last is free, owner, count}. An owner that is asked about holds all or none.
local key, asked = KEYS[1], ARGV[1]
check(key)
local last, who, least = 0, nil, nil
for i = 2, #ARGV do
    local by, till, count = holder(key, ARGV[i])
    if asked ~= '' and by ~= asked then
        return nil
    end
    if by then
        last = math.max(last, till)
        if not who or asked ~= '' and count < least then
            who, least = by, count
        end
    end
end
return who and { last - now, who, tostring(least) }
