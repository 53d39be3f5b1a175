-- lease.lua: takes or renews a lease: a claim with a holder that ends by itself.
--
-- KEYS[1] lease. ARGV[1] holder, ARGV[2] time to live in ms. Returns 1 if the caller holds it now, else 0.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
