-- demand_tend.lua: one worker takes, keeps or lets go of watched URIs: each has at most one of the group.
--
-- KEYS[1] watched, then the claim of each URI. ARGV[1] worker, ARGV[2] life of a claim in ms, ARGV[3] for how
-- many ms a URI counts as watched after the last report, then the URIs.
-- Returns of each: 'new', taken now; 'held', still ours and watched; 'over', ours and nobody watches any more:
-- let go; 'none', somebody else's, or not watched.

--@include alive

local since = now_ms() - tonumber(ARGV[3])
local answer = {}
for i = 4, #ARGV do
  local claim = KEYS[i - 2]
  local holder = redis.call('GET', claim)
  local reported = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '0')
  local is_watched = reported > since
  if holder == ARGV[1] and not is_watched then
    redis.call('DEL', claim)
    redis.call('ZREM', KEYS[1], ARGV[i])
    answer[#answer + 1] = 'over'
  elseif holder == ARGV[1] then
    redis.call('PEXPIRE', claim, ARGV[2])
    answer[#answer + 1] = 'held'
  elseif not holder and is_watched then
    redis.call('SET', claim, ARGV[1], 'PX', ARGV[2])
    answer[#answer + 1] = 'new'
  else
    answer[#answer + 1] = 'none'
  end
end
return answer
