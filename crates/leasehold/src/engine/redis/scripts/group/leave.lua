-- Lowers the counts of an owner: by one for a release, to at most a given one for an undo, which is idempotent.
-- KEYS: the group. ARGV: owner, its count or an empty string for any, the count afterwards, the least lease in ms of values
-- that are still held, channel, the fields.
-- Returns the count, or -1 if the owner has another count of one of the values; the counts of the others are lowered all
-- the same. If values were freed, a message is published, and if those were all values, the return value is -2 minus the
-- number of subscribers that received it.
local key, owner, most, lease = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
if not is_hash(key) then
    return -1
end
pass_memory_check(key)
local all, freed = true, false
for i = 6, #ARGV do
    local field = ARGV[i]
    local holder, expires, count = holder_of(key, field)
    all = all and holder == owner and (ARGV[2] == '' or count == tonumber(ARGV[2]))
    if most == 0 and redis.call('hget', key, field) == owner then
        clear(key, field)
        freed = true
    elseif holder == owner and count > most then
        redis.call('hset', key, count_of(field, owner), most)
        extend(key, field, owner, expires, lease)
    end
end
if most > 0 and all then
    raise_ttl(key, lease)
end
local receivers = freed and publish(ARGV[5], '0')
if not all then
    return -1
end
return receivers and -2 - receivers or most
