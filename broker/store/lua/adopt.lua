-- adopt.lua: the first thing on every connection. If the server's run id is not the head's, the server has
-- started again or is another one: a new epoch begins, before anything else is sent (design section 3).
--
-- KEYS[1] log, KEYS[2] head.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch to begin, ARGV[4] run id, ARGV[5] shards,
-- ARGV[6] log length to set, '' to leave it as it is (workers do).
-- Returns {epoch, n, mark}. All or nothing: one HSET.

--@include append

local h = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'mark', 'schema', 'run', 'shards', 'length')
if h[4] and h[4] ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. h[4])
end
if h[6] and h[6] ~= ARGV[5] then
  return redis.error_reply('SHARDS ' .. h[6])
end
if h[5] == ARGV[4] and (ARGV[6] == '' or ARGV[6] == h[7]) then
  return {h[1], h[2], h[3]}
end
local epoch, n, mark = h[1], h[2], h[3]
if h[5] ~= ARGV[4] then
  epoch, n, mark = ARGV[3], text(math.max((tonumber(h[2] or '0')) + 1, now_us())), ARGV[2]
end
redis.call('HSET', KEYS[2], 'epoch', epoch, 'n', n, 'mark', mark, 'schema', ARGV[1], 'run', ARGV[4],
  'shards', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[2], 'length', ARGV[6])
end
return {epoch, n, mark}
