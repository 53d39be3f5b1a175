-- session_release.lua: the delivering stream ended; whoever holds an older one may take over.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session.
-- ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] session id, ARGV[6] replica, ARGV[7] its fence, '*' for any (where
-- it does not know whether a take of its own was executed).
-- Returns 1, or 0 if another one delivers by now or the session is gone (then nothing is done).

--@include append

local h, err = read_head()
if not h then
  return err
end
local s = redis.call('HMGET', KEYS[3], 'owner', 'fence', 'counter')
if s[1] ~= ARGV[6] or (ARGV[7] ~= '*' and s[2] ~= ARGV[7]) then
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
