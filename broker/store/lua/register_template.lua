-- register_template.lua: one template (or fixed URI that wants demand) that a worker group answers, announced
-- and stored.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] templates, KEYS[4] the tenant's list, KEYS[5] the tenant's templates as a
-- list, KEYS[6] what the group declared, KEYS[7] workers of the group that is assumed to have it,
-- KEYS[8] what the group withdrew.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] template, ARGV[6] group, ARGV[7] the
-- assumed group or '', ARGV[8] lapse of a worker in ms, ARGV[9] declaration, ARGV[10] when this process first said so, ''
-- for now, ARGV[11] life of a withdrawal in ms.
-- Returns {status, group} as register.lua. The value is the group, a line feed, and the declaration.

--@include append
--@include alive
--@include withdrawn
--@include relist

local said_at = string.format('%.0f', now_ms())

local function note()
  redis.call('HDEL', KEYS[8], 't' .. ARGV[5])
  redis.call('ZADD', KEYS[6], said_at, 't' .. ARGV[5])
end

local h, refusal = read_head()
if not h then
  return refusal
end
local before = redis.call('HGET', KEYS[3], ARGV[5])
local owner = before and string.match(before, '^[^\n]*') or ''
local value = ARGV[6] .. '\n' .. ARGV[9]
redis.call('ZSCORE', KEYS[6], 't' .. ARGV[5])
if is_withdrawn(KEYS[8], 't' .. ARGV[5], ARGV[10], ARGV[11]) then
  return {'withdrawn', ARGV[6]}
end
check_lists()
if before and owner ~= ARGV[6] then
  if owner ~= ARGV[7] then
    return {'owned', owner}
  end
  if live(KEYS[7], ARGV[8]) > 0 then
    return {'conflict', owner}
  end
end
note()
if before == value then
  return {'unchanged', owner, said_at}
end
-- The announcement first: a reader that asks before the template is there finds another revision later.
local n, problem = relist(h)
if not n then
  return problem
end
redis.call('HSET', KEYS[3], ARGV[5], value)
return {'registered', ARGV[6], said_at}
