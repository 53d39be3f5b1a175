-- watching.lua: how many resources the sessions of a tenant watch: the field `subs` of its quota's hash.
--
-- Sessions that expire are not taken off here; who reaches the limit counts anew (store/quotas.py).

-- How many a tenant watches, on listen streams (`held`, as hold.lua writes it) and in sessions.
local function watched(quota, held)
  local total = tonumber(redis.call('HGET', quota, 'subs') or '0')
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  for _, value in ipairs(redis.call('HVALS', held)) do
    local amount, till = string.match(value, '^(%d+):(%d+)$')
    if tonumber(till) > now then
      total = total + tonumber(amount)
    end
  end
  return total
end

local function unwatch(quota, amount)
  local counted = tonumber(redis.call('HGET', quota, 'subs') or '0')
  if counted <= amount then
    redis.call('HDEL', quota, 'subs')
  elseif amount > 0 then
    redis.call('HINCRBY', quota, 'subs', -amount)
  end
end
