-- session_unsubscribe.lua: forgets a subscription and announces that in the log.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session, KEYS[4] subscriptions, KEYS[5] the tenant's quota.
-- ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] session id, ARGV[6] subject, ARGV[7] uri.
-- Returns 1, or 0 if it was not subscribed (then nothing is announced).

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
if redis.call('HEXISTS', KEYS[4], ARGV[7]) == 0 then
  renew(s, KEYS[3], KEYS[4])
  return 0
end
local counter = text(s.counter + 1)
local n
n, err = append(h, 'k', 's', 't', ARGV[4], 'i', ARGV[5], 'x', '-', 'c', counter, 'u', ARGV[7])
if not n then
  return err
end
redis.call('HSET', KEYS[3], 'counter', counter)
redis.call('HDEL', KEYS[4], ARGV[7])
unwatch(KEYS[5], 1)
renew(s, KEYS[3], KEYS[4])
return 1
