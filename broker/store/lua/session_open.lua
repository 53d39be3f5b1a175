-- session_open.lua: makes a session, all or nothing. No entry: nobody delivers for it yet.
--
-- KEYS[1] session, KEYS[2] subscriptions, KEYS[3] the tenant's list (its revision is the list's baseline).
-- ARGV[1] subject, ARGV[2] protocol version, ARGV[3] idle time to live in ms, ARGV[4] name of the list key.

--@include session

local baseline = revision_of(KEYS[3])
redis.call('HSET', KEYS[1], 'subject', ARGV[1], 'version', ARGV[2], 'idle', ARGV[3], 'counter', '0', 'owner', '',
  'fence', '0', 'proof_epoch', '', 'proof_n', '0')
redis.call('HSET', KEYS[2], ARGV[4], baseline)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'OK'
