-- Brings the counts of an owner down: by one for a release, to at most a given one for an undo, which is harmless to repeat.
-- KEYS: the group. ARGV: owner, the count it has or nothing for any, the count it is to have, lease in ms that values still
-- held get at least, channel, the fields.
-- Returns the count, or -1 when the owner does not hold all of them as often as it says. Those that it does hold are
-- brought down all the same. Freeing values tells one waiter, and returns -2 and one less for each who listens if that was
-- all of them.
local key, owner, most, lease = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
if not is_hash(key) then
    return -1
end
go_on_when_full(key)
local all, freed = true, false
for i = 6, #ARGV do
    local field = ARGV[i]
    local by, till, count = holder(key, field)
    all = all and by == owner and (ARGV[2] == '' or count == tonumber(ARGV[2]))
    if most == 0 and redis.call('hget', key, field) == owner then
        clear(key, field)
        freed = true
    elseif by == owner and count > most then
        redis.call('hset', key, count_of(field, owner), most)
        keep(key, field, owner, till, lease)
    end
end
if most > 0 and all then
    raise(key, lease)
end
local heard = freed and announce(ARGV[5], '0')
if not all then
    return -1
end
return heard and -2 - heard or most
