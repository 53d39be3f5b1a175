-- beat.lua: one replica's heartbeat: renews its place among the replicas, drops those that have lapsed, and
-- answers with the head of a log and who is there.
--
-- KEYS[1] head, KEYS[2] replicas (sorted set; it is beside the first log only, and not asked for elsewhere).
-- ARGV[1] replica ('' registers nobody), ARGV[2] lapse in ms.
-- Returns {epoch, n, mark, server time in ms, replica, …}; the epoch is nil where the head is gone.

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'mark')
if KEYS[2] and ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[2], now, ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - tonumber(ARGV[2])))
end
local answer = {h[1] or '', h[2] or '0', h[3] or '', string.format('%.0f', now)}
if KEYS[2] then
  for _, replica in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    answer[#answer + 1] = replica
  end
end
return answer
