-- demand_report.lua: these URIs are watched on some replica, now.
--
-- KEYS[1] watched, KEYS[2] notes. ARGV[1] life of both in ms, ARGV[2] length of the notes, ARGV[3] '1' to tell
-- the workers at once, ARGV[4] for how many ms what nobody repeats is kept, then the URIs.

--@include alive

local now = string.format('%.0f', now_ms())
for i = 5, #ARGV do
  redis.call('ZADD', KEYS[1], now, ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms() - tonumber(ARGV[4])))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if ARGV[3] == '1' then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'k', 'w')
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
end
return #ARGV - 4
