-- Who holds a half. KEYS: the lock. ARGV: tag, `read` or `write`, the owner whom to tell of if it is one of many, or
-- nothing. Returns nil or {ms left or -1, owner, count}.
local key, tag, asked = KEYS[1], ARGV[1], ARGV[3]
if not mode_of(key) then
    return nil
end
local found
if ARGV[2] == 'write' then
    local owner, field = writer_of(key)
    found = owner and { owner, redis.call('hget', key, field) }
else
    local function alive(owner, count)
        return left(tag, owner, count) > 0 and { owner, tostring(count) }
    end
    found = alive(asked, tonumber(redis.call('hget', key, asked) or 0)) or each_reader(key, alive)
end
return found and { redis.call('pttl', key), found[1], found[2] }
