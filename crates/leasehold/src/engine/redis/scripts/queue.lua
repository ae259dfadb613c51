-- Who stands in a queue. KEYS: the queue. Returns the owners, the next one first.
return redis.call('lrange', KEYS[1], 0, -1)
