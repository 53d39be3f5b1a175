-- relist.lua: announces that the tenant's templates changed, and with them perhaps its list. Included after
-- append.lua.
--
-- KEYS[1] log, KEYS[2] head, KEYS[4] the tenant's list, KEYS[5] the tenant's templates as a list.

local function check_lists()
  redis.call('HGET', KEYS[4], 'n')
  redis.call('HGET', KEYS[5], 'n')
end

-- Returns n, or nil and an error to return.
local function relist(h)
  local n, epoch = append(h, 'k', 'l', 't', ARGV[4])
  if not n then
    return nil, epoch
  end
  redis.call('HSET', KEYS[4], 'e', epoch, 'n', n, 'm', ARGV[2])
  redis.call('HSET', KEYS[5], 'e', epoch, 'n', n, 'm', ARGV[2])
  return n
end
