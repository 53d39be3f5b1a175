-- hold.lua: how much of something (streams, URIs, calls) one replica holds for a tenant or a caller: a value of
-- its own under a lease, so a replica that died leaks nothing for longer than that.
--
-- KEYS[1] holdings (hash: replica → "amount:until in ms"), KEYS[2] for URIs only, the tenant's quota, where those
-- of its sessions are counted (watching.lua). ARGV[1] replica, ARGV[2] how much it wants to hold in all, ARGV[3] how
-- much it uses, ARGV[4] limit for the fleet (0 none), ARGV[5] lease in ms.
-- Returns how much it holds now: what it wants as far as the limit leaves room, never less than it uses.

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local others = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local amount, till = string.match(all[i + 1], '^(%d+):(%d+)$')
  if tonumber(till) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= ARGV[1] then
    others = others + tonumber(amount)
  end
end
local held, limit = tonumber(ARGV[2]), tonumber(ARGV[4])
if limit > 0 then
  others = others + (KEYS[2] and tonumber(redis.call('HGET', KEYS[2], 'subs') or '0') or 0)
  held = math.max(math.min(held, limit - others), tonumber(ARGV[3]))
end
if held <= 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], held .. ':' .. string.format('%.0f', now + tonumber(ARGV[5])))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return held
