-- demand_release.lua: a worker that leaves lets go of what it tends, so that another takes it at once.
--
-- KEYS[1] notes, then the claims. ARGV[1] worker, ARGV[2] length of the notes, ARGV[3] life of the notes in ms.

local released = 0
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    released = released + redis.call('DEL', KEYS[i])
  end
end
if released > 0 then
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'k', 'w')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return released
