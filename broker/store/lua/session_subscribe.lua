-- session_subscribe.lua: sets uri → baseline (its current revision) and announces it in the log, so that the
-- replica that delivers meets it in order with the changes. A uri that is subscribed keeps its baseline.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session, KEYS[4] subscriptions, KEYS[5] resource.
-- ARGV[1..3] fresh (append.lua), ARGV[4] tenant, ARGV[5] session id, ARGV[6] subject, ARGV[7] uri,
-- ARGV[8] most subscriptions allowed. Returns the baseline.

--@include append
--@include session

local h, err = read_head()
if not h then
  return err
end
local s
s, err = read_session(KEYS[3], KEYS[4], ARGV[6])
if not s then
  return err
end
local baseline = redis.call('HGET', KEYS[4], ARGV[7])
if not baseline then
  -- One field is the list's.
  if redis.call('HLEN', KEYS[4]) - 1 >= tonumber(ARGV[8]) then
    return redis.error_reply('LIMIT ' .. ARGV[8])
  end
  baseline = revision_of(KEYS[5])
end
local counter = text(s.counter + 1)
local n
n, err = append(h, 'k', 's', 't', ARGV[4], 'i', ARGV[5], 'x', '+', 'c', counter, 'u', ARGV[7], 'b', baseline)
if not n then
  return err
end
redis.call('HSET', KEYS[3], 'counter', counter)
redis.call('HSET', KEYS[4], ARGV[7], baseline)
redis.call('PEXPIRE', KEYS[3], text(s.idle))
redis.call('PEXPIRE', KEYS[4], text(s.idle))
return baseline
