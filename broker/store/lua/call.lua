-- call.lua: one call to a worker group, accepted only if somebody is there to answer it.
--
-- KEYS[1] call stream, KEYS[2] workers of the group.
-- ARGV[1] lapse of a worker in ms, ARGV[2] how many calls may wait, ARGV[3] life of the stream in ms, then the
-- fields of the entry.
-- Returns the entry's id; 'none' without a live worker, 'full' where too many calls wait.
--
-- A resend adds the call twice, and both are answered: a read done twice does no harm.

--@include alive

if live(KEYS[2], ARGV[1]) == 0 then
  return 'none'
end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  return 'full'
end
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return id
