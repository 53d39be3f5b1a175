-- revisions.lua: when did these last change? Read only; ".0." for what never was.
--
-- KEYS: resource (or list) hashes of one shard. Returns one "epoch.n.mark" each.

local answer = {}
for i, key in ipairs(KEYS) do
  local r = redis.call('HMGET', key, 'e', 'n', 'm')
  answer[i] = (r[1] or '') .. '.' .. (r[2] or '0') .. '.' .. (r[3] or '')
end
return answer
