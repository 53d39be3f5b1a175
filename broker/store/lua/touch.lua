-- touch.lua: "it changed", of any URI, published or not: callback resources and what a template stands for
-- change without contents of theirs here. One entry and a new revision, all or nothing as in publish.lua.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's templates as a list, KEYS[5] token,
-- KEYS[6] quota.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] life of the token in ms,
-- ARGV[7] digest of what is asked ('' under a random token), ARGV[8] life of a tombstone in ms,
-- ARGV[9] the installation's limits or '' (quota.lua), ARGV[10] as of which revision of the templates the
-- caller knows the rule, ARGV[11] that rule behind a blank, '' if no template answers for the URI.
-- Returns {status, epoch, n, mark}: touched, replayed; reused; or templates, of which the caller knows others
-- than there are (ask again).
--
-- The revision is stored where nothing was published, too: a replica that missed the entry finds the change
-- by comparing revisions and by nothing else. There it lives as long as a tombstone, and beside it what is
-- required of whoever hears of it: the rule of the template that answers reads there.

--@include append
--@include token
--@include quota

local h, refusal = read_head()
if not h then
  return refusal
end
local earlier = seen(KEYS[5], ARGV[7])
if earlier then
  return earlier
end
local r = redis.call('HMGET', KEYS[3], 'dig', 'sc')
local is_stored = r[1] ~= false and r[1] ~= ''
local rule = r[2] or ''
if not is_stored then
  local t = redis.call('HMGET', KEYS[4], 'n', 'm')
  if (t[1] or '') .. '.' .. (t[2] or '') ~= ARGV[10] then
    return {'templates', '', '', ''}
  end
  if ARGV[11] ~= '' then
    rule = string.sub(ARGV[11], 2)
  end
end
local entry = {'k', 'c', 't', ARGV[4], 'u', ARGV[5]}
if rule ~= '' then
  entry[7], entry[8] = 's', rule
end
local over = admit(read_quota(ARGV[9]), h, 0, 0, 0)
if over then
  return over
end
local n, epoch = append(h, unpack(entry))
if not n then
  return epoch
end
if is_stored then
  redis.call('HSET', KEYS[3], 'e', epoch, 'n', n, 'm', ARGV[2])
else
  redis.call('HSET', KEYS[3], 'e', epoch, 'n', n, 'm', ARGV[2], 'gone', '1', 'sc', rule)
  redis.call('PEXPIRE', KEYS[3], ARGV[8])
end
return remember(KEYS[5], ARGV[6], ARGV[7], 'touched', epoch, n, ARGV[2])
