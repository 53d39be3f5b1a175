-- charge.lua: charges a rate of the fleet as a whole or not at all; the last to be admitted may go into debt.
--
-- KEYS[1] bucket: the moment in us up to which what was charged is paid for; a second's worth may be ahead.
-- ARGV[1] rate per second, ARGV[2] amount. As quota.lua's rates.
-- Returns ms until one more can be charged, 0 if the amount was.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local each = 1000000 / tonumber(ARGV[1])
local stands = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
local ahead = stands - now - math.max(0, 1000000 - each)
if ahead > 0 then
  return math.max(1, math.ceil(ahead / 1000))
end
stands = stands + tonumber(ARGV[2]) * each
redis.call('SET', KEYS[1], string.format('%.0f', stands), 'PX', 2000 + math.ceil((stands - now) / 1000))
return 0
