-- announce_access.lua: tells every replica, in order with the changes, that access to a tenant was narrowed or
-- changed. All or nothing: one entry.
--
-- KEYS[1] log, KEYS[2] head. ARGV[1..3] fresh, ARGV[4] tenant, ARGV[5] what ended: a key's digest, '*' for
-- everything of the tenant, '' if nothing did.

--@include append

local h, refusal = read_head()
if not h then
  return refusal
end
local n, problem = append(h, 'k', 'a', 't', ARGV[4], 'x', ARGV[5])
if not n then
  return problem
end
return n
