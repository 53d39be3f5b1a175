-- remove.lua: one resource removed and that announced, or refused; a tombstone keeps revision and version.
--
-- KEYS[1] log, KEYS[2] head, KEYS[3] resource, KEYS[4] the tenant's list, KEYS[5] order, KEYS[6] expiry,
-- KEYS[7] token, KEYS[8] quota.
-- ARGV[1] schema, ARGV[2] mark, ARGV[3] epoch, ARGV[4] tenant, ARGV[5] uri, ARGV[6] member of the expiry
-- set, ARGV[7] life of a tombstone in ms, ARGV[8] life of the token in ms, ARGV[9] digest of what is asked
-- ('' under a random token), ARGV[10] version or '', ARGV[11] what is expected (expect.lua).
-- Returns {status, epoch, n, mark}: removed, absent, superseded, replayed; or conflict, reused.
--
-- Reads, announcement, commit record: the rules of publish.lua. What is past its time and not yet swept is
-- removed like anything else, since its end has not been announced.

--@include append
--@include token
--@include expect
--@include bury

local h, refusal = read_head()
if not h then
  return refusal
end
local earlier = seen(KEYS[7], ARGV[9])
if earlier then
  return earlier
end
local r = redis.call('HMGET', KEYS[3], 'e', 'n', 'm', 'dig', 'ver', 'exp', 'sc', 'meta')
local epoch, n, mark = r[1] or '', r[2] or '', r[3] or ''
local version = ARGV[10]
local is_stored = r[4] ~= false and r[4] ~= ''
local past = tonumber(r[6] or '')
local is_live = is_stored and not (past and past <= math.floor(now_us() / 1000))
check_burial()

if version ~= '' and r[5] and tonumber(version) <= tonumber(r[5]) then
  return settle(KEYS[7], ARGV[8], ARGV[9], 'superseded', epoch, n, mark)
end
if not holds(ARGV[11], is_live, n, mark) then
  return {'conflict', epoch, is_live and n or '', mark}
end
if not is_stored then
  if r[8] then
    clear()
  end
  if version == '' then
    return settle(KEYS[7], ARGV[8], ARGV[9], 'absent', epoch, n, mark)
  end
  -- A publisher's older version that comes late must find this one, though nothing was here to remove.
  redis.call('HSET', KEYS[3], 'ver', version, 'gone', '1')
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
  return remember(KEYS[7], ARGV[8], ARGV[9], 'absent', epoch, n, mark)
end
n, epoch = bury(h, r[7], version)
if not n then
  return epoch
end
return remember(KEYS[7], ARGV[8], ARGV[9], 'removed', epoch, n, ARGV[2])
