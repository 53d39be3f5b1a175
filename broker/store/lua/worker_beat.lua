-- worker_beat.lua: one worker process says that it lives, and hears what it must know.
--
-- KEYS[1] workers of the group, KEYS[2] groups, KEYS[3] call stream, KEYS[4] notes, KEYS[5] what the group
-- declared, KEYS[6] head.
-- ARGV[1] worker, ARGV[2] member of the groups, ARGV[3] lapse in ms, ARGV[4] consumer group, ARGV[5] life of
-- the group's streams in ms, should every worker and reader be gone.
-- Returns {live workers, how much is declared, server time in ms, epoch}.

--@include alive

local now = string.format('%.0f', now_ms())
-- The consumer group first: what is called before anybody reads is answered by whoever comes.
local made = redis.pcall('XGROUP', 'CREATE', KEYS[3], ARGV[4], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  return made
end
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.call('PEXPIRE', KEYS[4], ARGV[5])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms() - tonumber(ARGV[3])))
redis.call('ZADD', KEYS[2], now, ARGV[2])
return {redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[5]), now, redis.call('HGET', KEYS[6], 'epoch') or ''}
