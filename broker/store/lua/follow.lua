-- follow.lua: one process of a group takes, keeps or gives up the place from which the group follows a log, and
-- moves it on.
--
-- KEYS[1] place (hash). ARGV[1] process, ARGV[2] for how many ms it is to have the place, 0 gives it up;
-- ARGV[3] life of the place in ms; then, to move it: ARGV[4] epoch, ARGV[5] n, ARGV[6] mark.
-- Returns {1, epoch, n, mark} if the process has the place now, else {0}.

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local r = redis.call('HMGET', KEYS[1], 'holder', 'until', 'e', 'n', 'm')
if r[1] and r[1] ~= ARGV[1] and tonumber(r[2]) > now then
  return {0}
end
if #ARGV > 3 then
  r[3], r[4], r[5] = ARGV[4], ARGV[5], ARGV[6]
  redis.call('HSET', KEYS[1], 'e', r[3], 'n', r[4], 'm', r[5])
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until', string.format('%.0f', now + tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, r[3] or '', r[4] or '0', r[5] or ''}
