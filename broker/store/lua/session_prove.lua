-- session_prove.lua: the client has read a key at a revision, so its baseline rises there: proof from the
-- client, never our writes (design section 3). A key that is not subscribed stays so.
--
-- KEYS[1] session, KEYS[2] subscriptions. ARGV[1] subject, ARGV[2] uri (or list), ARGV[3] "n:mark".

--@include session

local s, err = read_session(KEYS[1], KEYS[2], ARGV[1])
if not s then
  return err
end
renew(s, KEYS[1], KEYS[2])
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
end
return s.version
