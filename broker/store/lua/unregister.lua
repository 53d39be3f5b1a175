-- unregister.lua: a fixed URI that a group answers no more, removed and announced; or swept, if no worker has
-- declared it for a while.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's list, KEYS[5] order, KEYS[6] expiry,
-- KEYS[7] what the group declared, KEYS[8] what it withdrew.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] member of the expiry set,
-- ARGV[7] life of a tombstone in ms, ARGV[8] group, ARGV[9] if it is swept: for how many ms nobody may have
-- declared it, else '', ARGV[10] life of a withdrawal in ms.
-- Returns 1 if it was removed, 0 if it was not this group's (contents were published there, or another group
-- took it), -1 if it has been declared since.

--@include append
--@include bury
--@include alive
--@include withdrawn

local h, refusal = read_head()
if not h then
  return refusal
end
redis.call('HGET', KEYS[8], 'u' .. ARGV[5])
local declared = redis.call('ZSCORE', KEYS[7], 'u' .. ARGV[5])
if ARGV[9] ~= '' and declared and tonumber(declared) > now_ms() - tonumber(ARGV[9]) then
  return -1
end
local r = redis.call('HMGET', KEYS[3], 'dig', 'grp', 'sc')
check_burial()
local is_ours = r[1] and r[1] ~= '' and r[2] == ARGV[8] and redis.call('HSTRLEN', KEYS[3], 'body') == 0
if is_ours then
  local n, problem = bury(h, r[3], nil)
  if not n then
    return problem
  end
  redis.call('HDEL', KEYS[3], 'grp', 'opt')
end
redis.call('ZREM', KEYS[7], 'u' .. ARGV[5])
if ARGV[9] == '' then
  withdraw(KEYS[8], 'u' .. ARGV[5], string.format('%.0f', now_ms()), ARGV[10])
end
return is_ours and 1 or 0
