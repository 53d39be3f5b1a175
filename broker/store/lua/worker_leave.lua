-- worker_leave.lua: one worker process is given no more calls. If it was the last, none is accepted from now
-- on; what was accepted before, it must still take.
--
-- KEYS[1] workers of the group, KEYS[2] those that leave. ARGV[1] worker, ARGV[2] lapse in ms, ARGV[3] 1 if it
-- has finished. Returns how many live workers are left.

--@include alive

redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], string.format('%.0f', now_ms()), ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return live(KEYS[1], ARGV[2])
