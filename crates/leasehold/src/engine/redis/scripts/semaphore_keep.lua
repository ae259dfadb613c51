-- Keeps the record of many owners at once.
-- KEYS: their records. ARGV: for each the owner and the ms that the record is kept. Returns for each: 1 noted, 0 not.
local noted = {}
for i, record in ipairs(KEYS) do
    noted[i] = redis.pcall('hexists', record, ARGV[2 * i - 1]) == 1 and 1 or 0
    if noted[i] == 1 then
        redis.call('pexpire', record, ARGV[2 * i])
    end
end
return noted
