-- Returns a holder of a half. KEYS: the lock. ARGV: tag, `read` or `write`, the owner to return if it is one of several
-- readers, or an empty string. Returns nil or {ms left or -1, owner, count}.
local key, tag, preferred = KEYS[1], ARGV[1], ARGV[3]
if not mode_of(key) then
    return nil
end
local found
if ARGV[2] == 'write' then
    local owner, field = writer_of(key)
    found = owner and { owner, redis.call('hget', key, field) }
else
    local function alive(owner, count)
        return read_left(tag, owner, count) > 0 and { owner, tostring(count) }
    end
    found = alive(preferred, tonumber(redis.call('hget', key, preferred) or 0)) or each_reader(key, alive)
end
return found and { redis.call('pttl', key), found[1], found[2] }
