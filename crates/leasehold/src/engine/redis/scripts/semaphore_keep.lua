-- Keeps the record of many owners at once.
-- KEYS: for each the semaphore and the record. ARGV: for each the owner and the ms that the record is kept.
-- Returns for each: 1 noted, 0 not.
local noted = {}
for i = 1, #KEYS / 2 do
    local semaphore, record = KEYS[2 * i - 1], KEYS[2 * i]
    noted[i] = redis.call('exists', semaphore) == 1 and redis.pcall('hexists', record, ARGV[2 * i - 1]) == 1 and 1 or 0
    if noted[i] == 1 then
        keep(semaphore, record, ARGV[2 * i])
    end
end
return noted
