-- bury.lua: turns a resource into its tombstone. Included by remove and sweep, after append.lua.
--
-- KEYS[1] to KEYS[6] and ARGV[1] to ARGV[6] as in remove.lua; ARGV[7] life of a tombstone in ms.

-- Checks the types of what `bury` writes besides the resource itself, before the first write.
local function check_burial()
  redis.call('HGET', KEYS[4], 'n')
  redis.call('ZSCORE', KEYS[5], ARGV[5])
  redis.call('ZSCORE', KEYS[6], ARGV[6])
end

local function clear()
  -- First the time to live: should the rest not happen, the contents still go.
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
  -- What was required stays: the end of what somebody could not see is nothing that they hear of.
  redis.call('HDEL', KEYS[3], 'dig', 'meta', 'body', 'ttl', 'cs', 'exp')
end

-- Announces and removes. Returns n and epoch, or nil and an error to return.
local function bury(h, scopes, version)
  local entry = {'k', 'd', 't', ARGV[4], 'u', ARGV[5], 'l', '1'}
  if scopes and scopes ~= '' then
    entry[9], entry[10] = 's', scopes
  end
  local n, epoch = append(h, unpack(entry))
  if not n then
    return nil, epoch
  end
  redis.call('ZREM', KEYS[5], ARGV[5])
  redis.call('HSET', KEYS[4], 'e', epoch, 'n', n, 'm', ARGV[2])
  -- The commit record, in one command; then what nobody can read any more.
  local fields = {'e', epoch, 'n', n, 'm', ARGV[2], 'gone', '1', 'dig', ''}
  if version and version ~= '' then
    fields[11], fields[12] = 'ver', version
  end
  local size = redis.call('HSTRLEN', KEYS[3], 'body')
  redis.call('HSET', KEYS[3], unpack(fields))
  clear()
  if size > 0 then
    -- The tenant's quota is the last key wherever contents may be buried (quota.lua).
    redis.call('HINCRBY', KEYS[#KEYS], 'used', -size)
  end
  redis.call('ZREM', KEYS[6], ARGV[6])
  return n, epoch
end
