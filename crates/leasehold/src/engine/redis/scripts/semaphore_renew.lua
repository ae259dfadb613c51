-- Renews the permit records of many owners at once.
-- KEYS: for each the semaphore and the permit record. ARGV: for each the owner and the ms for which the record is kept.
-- Returns for each: 1 if the owner is in the record, 0 if not.
local recorded = {}
for i = 1, #KEYS / 2 do
    local semaphore, record = KEYS[2 * i - 1], KEYS[2 * i]
    recorded[i] = redis.call('exists', semaphore) == 1 and redis.pcall('hexists', record, ARGV[2 * i - 1]) == 1 and 1 or 0
    if recorded[i] == 1 then
        renew_record(semaphore, record, ARGV[2 * i])
    end
end
return recorded
