-- token.lua: what a call was answered, kept under its token. Included by the scripts of publishing.
--
-- The client resends a command whose reply was lost, and a caller may repeat a call under its own
-- idempotency key. A field in the resource's hash would not do: another publish in between overwrites it.
--
-- The value is 'status call epoch n mark ask', any of them empty: the answer, the mark of the call that got
-- it (ARGV[2] there), and the digest of what was asked ('' under a random token).

-- The earlier answer under `token`, or nil. The same call again gets the same words; another call with the
-- same key hears that it was replayed, or reused if it asks for something else.
local function seen(token, ask)
  local value = redis.call('GET', token)
  if not value then
    return nil
  end
  local status, call, epoch, n, mark, asked = string.match(value, '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*)$')
  if call ~= ARGV[2] then
    status = asked == ask and 'replayed' or 'reused'
  end
  return {status, epoch, n, mark}
end

local function remember(token, life, ask, status, epoch, n, mark)
  redis.call('SET', token, status .. ' ' .. ARGV[2] .. ' ' .. epoch .. ' ' .. n .. ' ' .. mark .. ' ' .. ask,
    'PX', life)
  return {status, epoch, n, mark}
end

-- A call that wrote nothing may be decided again, unless its caller chose the key.
local function settle(token, life, ask, status, epoch, n, mark)
  if ask == '' then
    return {status, epoch, n, mark}
  end
  return remember(token, life, ask, status, epoch, n, mark)
end
