-- session.lua: what every session script starts with.
--
-- A session that is unknown, ended or somebody else's gives the same answer (promise 7): the error NOSESSION.
-- Its two hashes live and expire together; the time to live is renewed once a third of it has passed.

-- Returns the session's fields, or nil and the error. `subject` is the caller's.
local function read_session(session, subscriptions, subject)
  local s = redis.call('HMGET', session, 'subject', 'idle', 'counter', 'owner', 'fence', 'version')
  if not s[1] or s[1] ~= subject then
    return nil, redis.error_reply('NOSESSION')
  end
  local kind = redis.call('TYPE', subscriptions).ok
  if kind ~= 'hash' and kind ~= 'none' then
    return nil, redis.error_reply('WRONGTYPE the subscriptions ' .. subscriptions .. ' are a ' .. kind)
  end
  return {idle = tonumber(s[2]), counter = tonumber(s[3]), owner = s[4], fence = tonumber(s[5]), version = s[6]}
end

local function renew(s, session, subscriptions)
  if redis.call('PTTL', session) < s.idle * 2 / 3 then
    redis.call('PEXPIRE', session, string.format('%.0f', s.idle))
    redis.call('PEXPIRE', subscriptions, string.format('%.0f', s.idle))
  end
end

-- The revision of a resource or list hash as a baseline, "0:" where there never was one.
local function revision_of(key)
  local r = redis.call('HMGET', key, 'n', 'm')
  return (r[1] or '0') .. ':' .. (r[2] or '')
end
