-- head.lua: where a log stands, at one moment. Read only.
--
-- KEYS[1] log, KEYS[2] head. Returns {epoch, n, mark, n of the id that the stream generated last}.

local h = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'mark')
local last = '0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = string.match(info[i + 1], '^%d+')
    end
  end
end
return {h[1] or '', h[2] or '0', h[3] or '', last}
