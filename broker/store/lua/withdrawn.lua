-- withdrawn.lua: what a group has withdrawn at run time, and when. Included after append.lua.
--
-- One process withdraws for its group: others that declared the same before are refused when they repeat it.
-- A process that says it later, or says it anew, brings it back for all.

-- Whether what was said at `said` ('' for now) has been withdrawn since. The record lives while somebody repeats.
local function is_withdrawn(key, field, said, life)
  local at = redis.call('HGET', key, field)
  if not at or said == '' or tonumber(at) < tonumber(said) then
    return false
  end
  redis.call('PEXPIRE', key, life)
  return true
end

local function withdraw(key, field, at, life)
  redis.call('HSET', key, field, at)
  redis.call('PEXPIRE', key, life)
end
