-- take.lua: some of a rate, for one replica to spend: the fleet shares the rate whatever a balancer does.
--
-- KEYS[1] bucket: the moment in us up to which what was taken is paid for; a second's worth may be ahead.
-- ARGV[1] rate per second, ARGV[2] how much is wanted.
-- Returns {taken, ms until one more can be taken}.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local each = 1000000 / tonumber(ARGV[1])
local stands = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
local room = math.max(1000000, each) - (stands - now)
local taken = math.max(0, math.min(tonumber(ARGV[2]), math.floor(room / each)))
if taken > 0 then
  stands = stands + taken * each
  redis.call('SET', KEYS[1], string.format('%.0f', stands), 'PX', 2000 + math.ceil(each / 1000))
end
local wait = math.max(0, stands - now + each - math.max(1000000, each))
return {taken, math.ceil(wait / 1000)}
