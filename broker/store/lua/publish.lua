-- publish.lua: one publication of one resource, stored and announced or refused (promise 11).
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's list, KEYS[5] order, KEYS[6] expiry,
-- KEYS[7] token, KEYS[8] quota.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] member of the expiry
-- set, ARGV[7] life of the token in ms, ARGV[8] digest of what is asked ('' under a random token),
-- ARGV[9] version or '', ARGV[10] what is expected (expect.lua), ARGV[11] digest, ARGV[12] meta,
-- ARGV[13] body, ARGV[14] scopes or '', ARGV[15] ttl or '', ARGV[16] cache scope or '',
-- ARGV[17] life of the resource in ms or '', ARGV[18] the installation's limits or '' (quota.lua).
-- Returns {status, epoch, n, mark}: published, unchanged, superseded, replayed; or conflict, reused.
--
-- 1. Every read, each of them also a type check, comes before the first write: a refusal changes nothing
--    and consumes no n.
-- 2. The entry comes before the head and both before anything that can be read: a script that dies half-way
--    leaves a spurious cue and an error to its caller, never a silent change.
-- 3. The hash is written after the order, the list and the expiry, in one HSET, and is the commit record: a
--    call that died before it is not taken for unchanged when it is repeated, so repeating heals.
-- 4. A member of the expiry set is never later than the hash's `exp`; it may be earlier, or of a resource
--    that no longer expires, and sweep.lua corrects it. So no expiry goes unannounced.

--@include append
--@include token
--@include expect
--@include quota

-- How much of a digest is about what resources/list shows; hex digits, and a letter for each optional field
-- at the end (core/publication.py).
local LISTED, PLAIN = 24, 56

local h, refusal = read_head()
if not h then
  return refusal
end
local earlier = seen(KEYS[7], ARGV[8])
if earlier then
  return earlier
end
-- Few fields: the digest also says what the list shows of it, and which optional fields there are.
local r = redis.call('HMGET', KEYS[3], 'e', 'n', 'm', 'dig', 'ver', 'exp')
local epoch, n, mark = r[1] or '', r[2] or '', r[3] or ''
local version, life, expires = ARGV[9], ARGV[17], ''
local past = tonumber(r[6] or '')
local digest, before = ARGV[11], r[4] or ''
local is_live = before ~= ''
if past or life ~= '' then
  local now = math.floor(now_us() / 1000)
  -- What is past its time counts as absent, swept or not.
  is_live = is_live and not (past and past <= now)
  if life ~= '' then
    expires = text(now + tonumber(life))
  end
end

if version ~= '' and r[5] and tonumber(version) <= tonumber(r[5]) then
  return settle(KEYS[7], ARGV[7], ARGV[8], 'superseded', epoch, n, mark)
end
if not holds(ARGV[10], is_live, n, mark) then
  return {'conflict', epoch, is_live and n or '', mark}
end

local is_due_later = false
if expires ~= '' then
  local due = redis.call('ZSCORE', KEYS[6], ARGV[6])
  is_due_later = not (due and tonumber(due) <= tonumber(expires))
end

if is_live and before == digest then
  local fields = {}
  if version ~= '' then
    fields = {'ver', version}
  end
  if expires ~= (r[6] or '') then
    fields[#fields + 1] = 'exp'
    fields[#fields + 1] = expires
  end
  if #fields == 0 then
    return settle(KEYS[7], ARGV[7], ARGV[8], 'unchanged', epoch, n, mark)
  end
  if is_due_later then
    redis.call('ZADD', KEYS[6], expires, ARGV[6])
  end
  redis.call('HSET', KEYS[3], unpack(fields))
  return remember(KEYS[7], ARGV[7], ARGV[8], 'unchanged', epoch, n, mark)
end

local is_listed_anew = not is_live or string.sub(before, 1, LISTED) ~= string.sub(digest, 1, LISTED)
if is_listed_anew then
  redis.call('HGET', KEYS[4], 'n')
end
if not is_live then
  redis.call('ZSCORE', KEYS[5], ARGV[5])
end

-- The tenant's quota: after every other refusal, before the first write.
local before_bytes = before ~= '' and redis.call('HSTRLEN', KEYS[3], 'body') or 0
local over = admit(read_quota(ARGV[18]), h, is_live and 0 or 1, #ARGV[13], before_bytes)
if over then
  return over
end

local entry = {'k', 'c', 't', ARGV[4], 'u', ARGV[5]}
if is_listed_anew then
  entry[7], entry[8] = 'l', '1'
end
if ARGV[14] ~= '' then
  entry[#entry + 1] = 's'
  entry[#entry + 1] = ARGV[14]
end
n, epoch = append(h, unpack(entry))
if not n then
  return epoch
end
mark = ARGV[2]
if not is_live then
  redis.call('ZADD', KEYS[5], 0, ARGV[5])
end
if is_listed_anew then
  redis.call('HSET', KEYS[4], 'e', epoch, 'n', n, 'm', mark)
end
if is_due_later then
  redis.call('ZADD', KEYS[6], expires, ARGV[6])
end
local fields = {'e', epoch, 'n', n, 'm', mark, 'dig', digest, 'meta', ARGV[12], 'body', ARGV[13]}
local is_tombstone = before == '' and (r[1] or r[5])
if is_tombstone then
  redis.call('PERSIST', KEYS[3])
  fields[13], fields[14] = 'gone', ''
end
local i = #fields
if version ~= '' then
  fields[i + 1], fields[i + 2], i = 'ver', version, i + 2
end
if expires ~= '' or r[6] then
  fields[i + 1], fields[i + 2], i = 'exp', expires, i + 2
end
if #digest > PLAIN or #before > PLAIN or is_tombstone then
  -- What was declared before and is not now is blanked in the same command; blank reads as absent. A tombstone
  -- keeps what its resource required.
  fields[i + 1], fields[i + 2], fields[i + 3], fields[i + 4] = 'sc', ARGV[14], 'ttl', ARGV[15]
  fields[i + 5], fields[i + 6] = 'cs', ARGV[16]
end
redis.call('HSET', KEYS[3], unpack(fields))
account(#ARGV[13], before_bytes)
return remember(KEYS[7], ARGV[7], ARGV[8], 'published', epoch, n, mark)
