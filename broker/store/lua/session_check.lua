-- session_check.lua: whether a session lives and is the caller's; renews it. Returns its protocol version.
--
-- KEYS[1] session, KEYS[2] subscriptions. ARGV[1] subject.

--@include session

local s, err = read_session(KEYS[1], KEYS[2], ARGV[1])
if not s then
  return err
end
renew(s, KEYS[1], KEYS[2])
return s.version
