-- unregister_template.lua: a template that a group answers no more, removed and announced, or swept.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] templates, KEYS[4] the tenant's list, KEYS[5] the tenant's templates as a
-- list, KEYS[6] what the group declared, KEYS[7] what it withdrew.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] template, ARGV[6] group, ARGV[7] if it
-- is swept: for how many ms nobody may have declared it, else '', ARGV[8] life of a withdrawal in ms.
-- Returns as unregister.lua.

--@include append
--@include alive
--@include withdrawn
--@include relist

local h, refusal = read_head()
if not h then
  return refusal
end
redis.call('HGET', KEYS[7], 't' .. ARGV[5])
local declared = redis.call('ZSCORE', KEYS[6], 't' .. ARGV[5])
if ARGV[7] ~= '' and declared and tonumber(declared) > now_ms() - tonumber(ARGV[7]) then
  return -1
end
local before = redis.call('HGET', KEYS[3], ARGV[5])
check_lists()
local is_ours = before and string.match(before, '^[^\n]*') == ARGV[6]
if is_ours then
  local n, problem = relist(h)
  if not n then
    return problem
  end
  redis.call('HDEL', KEYS[3], ARGV[5])
end
redis.call('ZREM', KEYS[6], 't' .. ARGV[5])
if ARGV[7] == '' then
  withdraw(KEYS[7], 't' .. ARGV[5], string.format('%.0f', now_ms()), ARGV[8])
end
return is_ours and 1 or 0
