-- register.lua: one fixed URI that a worker group answers, stored and announced like a publication (publish.lua,
-- rules 1 to 3), but without contents: readers find `grp` where a published resource has its body.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's list, KEYS[5] order, KEYS[6] what the group
-- declared, KEYS[7] workers of the group that is assumed to have the URI, KEYS[8] what the group withdrew.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] group, ARGV[7] the assumed
-- group or '', ARGV[8] lapse of a worker in ms, ARGV[9] digest, ARGV[10] meta, ARGV[11] scopes or '',
-- ARGV[12] ttl or '', ARGV[13] cache scope or '', ARGV[14] options (registry.py), ARGV[15] when this process
-- first said so, '' for now, ARGV[16] life of a withdrawal in ms.
-- Returns {status, group}: registered; unchanged; published, contents are there and win; owned, by another
-- group than was assumed (ask again); conflict, that group has a live worker; withdrawn, another process of this group
-- did so since. With the first three comes when it was said.
--
-- Sent again it finds itself done, so it needs no token.

--@include append
--@include alive
--@include withdrawn

local said_at = string.format('%.0f', now_ms())

local function note()
  redis.call('HDEL', KEYS[8], 'u' .. ARGV[5])
  redis.call('ZADD', KEYS[6], said_at, 'u' .. ARGV[5])
end

-- As in publish.lua: how much of a digest is about what resources/list shows.
local LISTED = 24

local h, refusal = read_head()
if not h then
  return refusal
end
local r = redis.call('HMGET', KEYS[3], 'dig', 'grp', 'exp', 'ver')
local before, owner = r[1] or '', r[2] or ''
redis.call('ZSCORE', KEYS[6], 'u' .. ARGV[5])
if is_withdrawn(KEYS[8], 'u' .. ARGV[5], ARGV[15], ARGV[16]) then
  return {'withdrawn', ARGV[6]}
end
local is_live = before ~= ''
if is_live and redis.call('HSTRLEN', KEYS[3], 'body') > 0 then
  note()
  return {'published', '', said_at}
end
if is_live and owner ~= ARGV[6] then
  if owner ~= ARGV[7] then
    return {'owned', owner}
  end
  if live(KEYS[7], ARGV[8]) > 0 then
    return {'conflict', owner}
  end
end
if is_live and before == ARGV[9] then
  note()
  return {'unchanged', owner, said_at}
end
local is_listed_anew = string.sub(before, 1, LISTED) ~= string.sub(ARGV[9], 1, LISTED)
redis.call('HGET', KEYS[4], 'n')
redis.call('ZSCORE', KEYS[5], ARGV[5])

local entry = {'k', 'c', 't', ARGV[4], 'u', ARGV[5]}
if is_listed_anew then
  entry[7], entry[8] = 'l', '1'
end
if ARGV[11] ~= '' then
  entry[#entry + 1] = 's'
  entry[#entry + 1] = ARGV[11]
end
local n, epoch = append(h, unpack(entry))
if not n then
  return epoch
end
note()
redis.call('ZADD', KEYS[5], 0, ARGV[5])
if is_listed_anew then
  redis.call('HSET', KEYS[4], 'e', epoch, 'n', n, 'm', ARGV[2])
end
redis.call('PERSIST', KEYS[3])
-- The commit record. Blank reads as absent.
redis.call('HSET', KEYS[3], 'e', epoch, 'n', n, 'm', ARGV[2], 'dig', ARGV[9], 'meta', ARGV[10], 'grp', ARGV[6],
  'opt', ARGV[14], 'sc', ARGV[11], 'ttl', ARGV[12], 'cs', ARGV[13], 'exp', '', 'gone', '')
return {'registered', ARGV[6], said_at}
