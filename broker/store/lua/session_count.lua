-- session_count.lua: counts a session that is about to be opened, if its tenant and its caller may have one more.
-- All or nothing.
--
-- KEYS[1] sessions of the tenant, KEYS[2] sessions of the caller (sorted sets by when each ends, in ms).
-- ARGV[1] session, ARGV[2] idle time to live in ms, ARGV[3] limit of the tenant, ARGV[4] limit of the caller
-- (0 none). Returns 0 if it was counted, 1 if the tenant has too many, 2 if the caller has.

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 1, 2 do
  local limit = tonumber(ARGV[i + 2])
  if limit > 0 and redis.call('ZCARD', KEYS[i]) >= limit then
    return i
  end
end
for i = 1, 2 do
  redis.call('ZADD', KEYS[i], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
  -- Long after the last of them could have ended: what is renewed is looked at when there are too many.
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', 24 * 3600000 + 2 * tonumber(ARGV[2])))
end
return 0
