-- sweep.lua: one member of the expiry set that is due: an ordinary removal, or the set corrected.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's list, KEYS[5] order, KEYS[6] expiry,
-- KEYS[7] quota.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] member of the expiry
-- set, ARGV[7] life of a tombstone in ms.
-- Returns {'removed', epoch, n, mark} or {'kept', '', '', ''}.
--
-- One resource a call, since a call has one mark; and all its keys are declared. It needs no token: sent
-- again it finds nothing due. The time is asked for here: whoever said "due" may have had another clock.

--@include append
--@include bury

local h, refusal = read_head()
if not h then
  return refusal
end
local r = redis.call('HMGET', KEYS[3], 'dig', 'exp', 'sc')
local is_stored = r[1] ~= false and r[1] ~= ''
local past = tonumber(r[2] or '')
check_burial()
if not is_stored or not past then
  redis.call('ZREM', KEYS[6], ARGV[6])
  return {'kept', '', '', ''}
end
if past > math.floor(now_us() / 1000) then
  redis.call('ZADD', KEYS[6], text(past), ARGV[6])
  return {'kept', '', '', ''}
end
local n, epoch = bury(h, r[3], nil)
if not n then
  return epoch
end
return {'removed', epoch, n, ARGV[2]}
