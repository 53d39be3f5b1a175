-- session_end.lua: ends a session: announces it, then deletes both hashes.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session, KEYS[4] subscriptions, KEYS[5] the tenant's quota.
-- ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] session id, ARGV[6] subject.

--@include append
--@include session
--@include watching

local h, err = read_head()
if not h then
  return err
end
local s
s, err = read_session(KEYS[3], KEYS[4], ARGV[6])
if not s then
  return err
end
local n
n, err = append(h, 'k', 's', 't', ARGV[4], 'i', ARGV[5], 'x', 'x', 'c', text(s.counter + 1))
if not n then
  return err
end
-- One field is the list's.
unwatch(KEYS[5], redis.call('HLEN', KEYS[4]) - 1)
redis.call('DEL', KEYS[3], KEYS[4])
return 1
