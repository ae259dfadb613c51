-- Returns the last token of a lock, 0 if none was minted. KEYS: its tokens.
return tonumber(redis.call('get', KEYS[1]) or 0)
