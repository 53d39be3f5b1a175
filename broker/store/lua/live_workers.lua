-- live_workers.lua: how many workers each group has that answer, or still finish what they took. Read only.
--
-- KEYS: of each group, its workers and those that leave; of one shard. ARGV[1] lapse in ms. Returns one count
-- each.

--@include alive

local answer = {}
for i = 1, #KEYS, 2 do
  answer[#answer + 1] = live(KEYS[i], ARGV[1]) + live(KEYS[i + 1], ARGV[1])
end
return answer
