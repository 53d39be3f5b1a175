-- control.lua: one act of administration: tenants and keys changed, counted and written to the audit log, all
-- or nothing, and only if nobody else changed anything since it was decided.
--
-- KEYS[1] control (the count), KEYS[2] audit, KEYS[3] tenants, KEYS[4] credentials, KEYS[5] credentials of the
-- tenant.
-- ARGV[1] the count when it was decided, ARGV[2] length of the audit log, ARGV[3] the audit entry (JSON),
-- then triples: 't' or 'k', field, record ('' removes).
-- Returns the new count, or -1 if somebody was first.

local count = redis.call('GET', KEYS[1]) or '0'
if count ~= ARGV[1] then
  return -1
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'act', ARGV[3])
for i = 4, #ARGV, 3 do
  local field, record = ARGV[i + 1], ARGV[i + 2]
  local key = ARGV[i] == 't' and KEYS[3] or KEYS[4]
  if record == '' then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, record)
  end
  if ARGV[i] == 'k' then
    redis.call(record == '' and 'SREM' or 'SADD', KEYS[5], field)
  end
end
-- Last: who sees the new count finds what it counts.
return redis.call('INCR', KEYS[1])
