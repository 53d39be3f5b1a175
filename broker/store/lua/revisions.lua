-- revisions.lua: when did these last change, and who may know? Read only; ".0." for what never was.
--
-- KEYS: resource (or list) hashes of one shard. Returns one "epoch.n.mark" each, followed by what is required of
-- whoever sees it, each word behind a blank.

local answer = {}
for i, key in ipairs(KEYS) do
  local r = redis.call('HMGET', key, 'e', 'n', 'm', 'sc')
  answer[i] = (r[1] or '') .. '.' .. (r[2] or '0') .. '.' .. (r[3] or '')
  if r[4] and r[4] ~= '' then
    answer[i] = answer[i] .. ' ' .. r[4]
  end
end
return answer
