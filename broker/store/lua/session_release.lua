-- session_release.lua: the delivering stream ended; whoever holds an older one may take over.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session.
-- ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] session id, ARGV[6] replica.
-- Returns 1, or 0 if another one delivers by now or the session is gone (then nothing is done).

--@include append

local h, err = read_head()
if not h then
  return err
end
local s = redis.call('HMGET', KEYS[3], 'owner', 'fence', 'counter')
if s[1] ~= ARGV[6] then
  return 0
end
local counter = text(tonumber(s[3]) + 1)
local n
n, err = append(h, 'k', 's', 't', ARGV[4], 'i', ARGV[5], 'x', 'r', 'c', counter, 'f', s[2])
if not n then
  return err
end
redis.call('HSET', KEYS[3], 'owner', '', 'counter', counter)
return 1
