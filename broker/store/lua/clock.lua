-- clock.lua: what the clock of a key's server says: on a cluster each node has its own.
--
-- KEYS[1] any key; it is not looked at. Returns ms since 1970.

local t = redis.call('TIME')
return string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
