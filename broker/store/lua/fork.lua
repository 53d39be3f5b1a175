-- fork.lua: begins a new epoch because a reader found that the log broke within one.
--
-- After a rollback n repeats with other contents, so an SSE id of before, (epoch, n), would claim to prove what
-- nobody was told. With another epoch it proves nothing, and every replica compares.
--
-- KEYS[1] log, KEYS[2] head. ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch to begin, ARGV[4] the epoch that broke.
-- Returns 1, or 0 if another one has begun already (the first replica to notice does it for all).

--@include append

local h = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'mark', 'schema')
if h[4] and h[4] ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. h[4])
end
if h[1] ~= ARGV[4] then
  return 0
end
redis.call('HSET', KEYS[2], 'epoch', new_epoch(), 'n', text(math.max(tonumber(h[2]) + 1, now_us())), 'mark', ARGV[2])
return 1
