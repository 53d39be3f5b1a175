-- alive.lua: whether a worker group has a live process. Included by what decides for or against one.
--
-- A process is in its group's sorted set by its last heartbeat, in ms of this server's clock.

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function live(workers, lapse)
  local since = string.format('%.0f', now_ms() - tonumber(lapse))
  return redis.call('ZCOUNT', workers, since, '+inf')
end
