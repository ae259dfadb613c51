-- Returns the owners in a queue, the front waiter first. KEYS: the queue.
return redis.call('lrange', KEYS[1], 0, -1)
