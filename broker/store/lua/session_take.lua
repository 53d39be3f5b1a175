-- session_take.lua: makes a replica the one that delivers for a session: raises the fence, announces it, and
-- answers with the subscriptions as of exactly that entry.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] session, KEYS[4] subscriptions.
-- ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] session id, ARGV[6] subject, ARGV[7] replica,
-- ARGV[8] '*', or the owner that must still be there ('' for none): else nothing is done and it answers
--         {0, owner, fence},
-- ARGV[9] lowest fence to go above (after a rollback Redis may know a lower one than we hold),
-- ARGV[10], ARGV[11] epoch and n of the Last-Event-ID that the client presented ('' and 0 for none),
-- ARGV[12] server time in ms after which nothing is done ('' for ever): a take that the network held back must
--          not demote who has taken since; answers the error LATE,
-- ARGV[13..] uri, baseline, …: subscriptions that a rollback may have lost; written back where missing.
-- Returns {1, version, fence, counter, epoch, n, proof epoch, proof n, uri, baseline, …}.

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
if ARGV[12] ~= '' and now_us() / 1000 > tonumber(ARGV[12]) then
  return redis.error_reply('LATE')
end
if ARGV[8] ~= '*' and s.owner ~= ARGV[8] then
  return {0, s.owner, s.fence}
end
local fence = text(math.max(s.fence, tonumber(ARGV[9])) + 1)
local counter = text(s.counter + 1)
local n, epoch = append(h, 'k', 's', 't', ARGV[4], 'i', ARGV[5], 'x', 'g', 'c', counter, 'o', ARGV[7], 'f', fence)
if not n then
  return epoch
end
redis.call('HSET', KEYS[3], 'counter', counter, 'owner', ARGV[7], 'fence', fence)
local proof = redis.call('HMGET', KEYS[3], 'proof_epoch', 'proof_n')
if ARGV[10] == epoch and (proof[1] ~= epoch or tonumber(proof[2]) < tonumber(ARGV[11])) then
  -- The client has shown that it was told everything up to there.
  proof = {ARGV[10], ARGV[11]}
  redis.call('HSET', KEYS[3], 'proof_epoch', proof[1], 'proof_n', proof[2])
end
for i = 13, #ARGV, 2 do
  redis.call('HSETNX', KEYS[4], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[3], text(s.idle))
redis.call('PEXPIRE', KEYS[4], text(s.idle))
local answer = {1, s.version, fence, counter, epoch, n, proof[1], proof[2]}
for _, value in ipairs(redis.call('HGETALL', KEYS[4])) do
  answer[#answer + 1] = value
end
return answer
