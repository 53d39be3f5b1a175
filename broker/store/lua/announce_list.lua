-- announce_list.lua: "the tenant's list changed", for a reason that only the caller can see: instances that a
-- worker's list callback returns come and go without a registration. One entry and a new revision of the list.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] the tenant's list, KEYS[4] token.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] life of the token in ms,
-- ARGV[6] digest of what is asked ('' under a random token).
-- Returns {status, epoch, n, mark}: touched, replayed; or reused.

--@include append
--@include token

local h, refusal = read_head()
if not h then
  return refusal
end
local earlier = seen(KEYS[4], ARGV[6])
if earlier then
  return earlier
end
redis.call('HGET', KEYS[3], 'n')
local n, epoch = append(h, 'k', 'l', 't', ARGV[4])
if not n then
  return epoch
end
redis.call('HSET', KEYS[3], 'e', epoch, 'n', n, 'm', ARGV[2])
return remember(KEYS[4], ARGV[5], ARGV[6], 'touched', epoch, n, ARGV[2])
