-- set_limits.lua: a tenant's own limits, where the publishing scripts read them. All or nothing.
--
-- KEYS[1] quota. ARGV: name, value, …; '' gives a limit back to the default.

for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 'OK'
