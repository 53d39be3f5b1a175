-- append.lua: the one way into a log. Included by every script that announces something.
--
-- KEYS[1] log (stream), KEYS[2] head (hash).
-- ARGV[1] schema number, ARGV[2] mark of this call, ARGV[3] epoch to use if a new one begins, eight characters;
-- behind them the caller's trace context, if it is traced: it goes into the entry, for whoever reads it.
--
-- Order matters and is the promise (design section 3): an entry is added before the head says so, and the
-- head before anything that a reader could find. A script that dies half-way leaves a spurious cue and an
-- error to its caller, never a silent change.

local DEFAULT_LENGTH = '100000'
local EPOCH_LENGTH = 8

-- Time stands still while a script runs, so it is asked once: 1.2 us.
local clock
local function now_us()
  if not clock then
    local t = redis.call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  return clock
end

-- n is beyond what Lua prints without an exponent; as an integer of 64 bits, since %.0f cost 0.7 us each.
local function text(n)
  return string.format('%d', n)
end

-- Reads the head and with it checks its type and the schema, before any write. (The log's type needs no
-- command of its own: adding to it is the first write of every script, and fails there with nothing done.)
local function read_head()
  local h = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'mark', 'schema', 'length')
  if h[4] and h[4] ~= ARGV[1] then
    return nil, redis.error_reply('SCHEMA ' .. h[4])
  end
  return h
end

local function new_epoch()
  return string.sub(ARGV[3], 1, EPOCH_LENGTH)
end

local function add(h, ...)
  local mark, epoch, previous, n = ARGV[2], h[1], h[3], nil
  if epoch then
    n = tonumber(h[2]) + 1
  else
    -- n never restarts at 1: ids of an earlier life must not look known.
    n, epoch, previous = now_us(), new_epoch(), ''
  end
  local length, id = h[5] or DEFAULT_LENGTH, text(n)
  -- When, in ms of this server's clock: how late a cue is can be told from it.
  local at = text(math.floor(now_us() / 1000))
  local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', length, id .. '-0',
    'e', epoch, 'm', mark, 'p', previous, 'w', at, ...)
  if type(added) == 'table' and added.err then
    if not string.find(added.err, 'equal or smaller', 1, true) then
      return nil, added
    end
    -- The head was lost or rolled back and the stream was not: go on behind it, as another life.
    local info = redis.call('XINFO', 'STREAM', KEYS[1])
    local last = 0
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        last = tonumber(string.match(info[i + 1], '^%d+'))
      end
    end
    id, epoch = text(math.max(last + 1, now_us())), new_epoch()
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', length, id .. '-0',
      'e', epoch, 'm', mark, 'p', previous, 'w', at, ...)
  end
  if epoch == h[1] and h[4] then
    redis.call('HSET', KEYS[2], 'n', id, 'mark', mark)
  else
    redis.call('HSET', KEYS[2], 'epoch', epoch, 'n', id, 'mark', mark, 'schema', ARGV[1])
  end
  return id, epoch
end

-- Adds one entry and moves the head there. Returns n (as text) and the epoch.
local function append(h, ...)
  if #ARGV[3] > EPOCH_LENGTH then
    return add(h, 'tp', string.sub(ARGV[3], EPOCH_LENGTH + 1), ...)
  end
  return add(h, ...)
end
