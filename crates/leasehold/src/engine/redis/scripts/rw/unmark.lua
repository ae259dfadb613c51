-- A writer waits no longer: readers may come in. KEYS: the mark. ARGV: owner, channel. Returns 1 if it was its mark.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
announce(ARGV[2], '1')
return redis.call('del', KEYS[1])
