-- cancel.lua: nobody waits for a call any more: it is taken back, and whoever runs it is told. Best effort.
--
-- KEYS[1] call stream, KEYS[2] notes. ARGV[1] the call's entry, ARGV[2] the call, ARGV[3] length of the notes,
-- ARGV[4] life of the notes in ms. Returns 1 if the call was still there.

local there = redis.call('XDEL', KEYS[1], ARGV[1])
if there == 1 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'k', 'x', 'c', ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return there
