-- The last token of a lock. KEYS: its tokens. Returns 0 if none was minted.
return tonumber(redis.call('get', KEYS[1]) or 0)
