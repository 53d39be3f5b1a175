-- quota.lua: what a tenant may publish. Included by the scripts of publishing.
--
-- The tenant's hash is the last of KEYS: its own limits under their names, the bytes that it has stored (used),
-- and where its two rates stand (tat, btat: the moment, in us of this server's clock, up to which what was
-- admitted is paid for; a second's worth may be ahead of time). `defaults` are the limits of the installation,
-- 'resources,content_bytes,resource_bytes,publishes,publish_bytes', or '' for a caller that is trusted like a
-- broker: then only the tenant's own limits hold. 0 is no limit, but for publishes: there it is the log's
-- length in a minute, so that nobody trims the changes of his neighbours.
--
-- Checked after all other reads; the rates are charged by one HSET before the first other write, so a refusal
-- costs nothing and a script that dies half-way has been charged. The bytes are counted once they are stored.

local SECOND = 1000000

local function read_quota(defaults)
  local q = redis.call('HMGET', KEYS[#KEYS], 'resources', 'content_bytes', 'resource_bytes', 'publishes',
    'publish_bytes', 'used', 'tat', 'btat')
  q.used = tonumber(q[6] or '0')
  if defaults == '' and not (q[1] or q[2] or q[3] or q[4] or q[5]) then
    return q
  end
  local i = 0
  for value in string.gmatch(defaults, '[^,]+') do
    i = i + 1
    q[i] = q[i] or value
  end
  for k = 1, 5 do
    q[k] = tonumber(q[k] or '0') or 0
  end
  q.is_limited = true
  q.is_default = defaults ~= ''
  return q
end

-- Charges, or returns an error. `added` resources and `size` bytes of contents come; `before` bytes were there.
-- `h` is the head.
local function admit(q, h, added, size, before)
  local fields = {}
  if q.is_limited then
    if added > 0 and q[1] > 0 and redis.call('ZCARD', KEYS[5]) >= q[1] then
      return redis.error_reply('QUOTA resources ' .. q[1])
    end
    if q[3] > 0 and size > q[3] then
      return redis.error_reply('QUOTA resource_bytes ' .. q[3])
    end
    if q[2] > 0 and size > before and q.used + size - before > q[2] then
      return redis.error_reply('QUOTA content_bytes ' .. q[2])
    end
    local now, rate = now_us(), q[4]
    if rate == 0 and q.is_default then
      rate = tonumber(h[5] or DEFAULT_LENGTH) / 60
    end
    for _, one in ipairs({{'tat', q[7], rate, 1, 'publishes'}, {'btat', q[8], q[5], size, 'publish_bytes'}}) do
      local name, stands, limit, amount = one[1], tonumber(one[2] or '0') or 0, one[3], one[4]
      if limit > 0 and amount > 0 then
        stands = math.max(stands, now)
        if stands - now > SECOND - SECOND / limit then
          local wait = math.ceil((stands - now - SECOND + SECOND / limit) / 1000)
          return redis.error_reply('RATE ' .. one[5] .. ' ' .. text(math.max(1, wait)))
        end
        fields[#fields + 1] = name
        fields[#fields + 1] = string.format('%.0f', stands + SECOND * amount / limit)
      end
    end
  end
  if #fields > 0 then
    redis.call('HSET', KEYS[#KEYS], unpack(fields))
  end
  return nil
end

-- After the contents have changed.
local function account(size, before)
  if size ~= before then
    redis.call('HINCRBY', KEYS[#KEYS], 'used', size - before)
  end
end
