-- template_rules.lua: a tenant's templates, and as of when. Read only.
--
-- KEYS[1] templates, KEYS[2] the tenant's templates as a list. Returns the revision as "n.mark", then each value.

local t = redis.call('HMGET', KEYS[2], 'n', 'm')
local answer = redis.call('HVALS', KEYS[1])
table.insert(answer, 1, (t[1] or '') .. '.' .. (t[2] or ''))
return answer
