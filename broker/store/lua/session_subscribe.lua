-- session_subscribe.lua: sets uri → baseline (its current revision) and announces it in the log, so that the
-- replica that delivers meets it in order with the changes. A uri that is subscribed keeps its baseline.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session, KEYS[4] subscriptions, KEYS[5] resource, KEYS[6] the tenant's quota,
-- KEYS[7] what its listen streams watch.
-- ARGV[1..3] fresh (append.lua), ARGV[4] tenant, ARGV[5] session id, ARGV[6] subject, ARGV[7] uri,
-- ARGV[8] most subscriptions allowed, ARGV[9] most resources that the tenant may watch in all (0: any number, and
-- they are not counted). Returns the baseline.

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
local baseline = redis.call('HGET', KEYS[4], ARGV[7])
local most = tonumber(ARGV[9])
local is_counted = not baseline and most > 0
if not baseline then
  -- One field is the list's.
  if redis.call('HLEN', KEYS[4]) - 1 >= tonumber(ARGV[8]) then
    return redis.error_reply('LIMIT ' .. ARGV[8])
  end
  if is_counted and watched(KEYS[6], KEYS[7]) >= most then
    return redis.error_reply('QUOTA uris ' .. ARGV[9])
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
if is_counted then
  redis.call('HINCRBY', KEYS[6], 'subs', 1)
end
redis.call('PEXPIRE', KEYS[3], text(s.idle))
redis.call('PEXPIRE', KEYS[4], text(s.idle))
return baseline
