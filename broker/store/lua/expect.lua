-- expect.lua: what a caller expects of the revision before its call. Included by publish and remove.
--
-- '' anything; '*' that the resource is there; '-' that it is not; ',n:mark,n:mark,' that it is at one of
-- these revisions (RFC 9110, 13.1: If-Match and If-None-Match).

local function holds(expect, is_live, n, mark)
  if expect == '' then
    return true
  elseif expect == '*' then
    return is_live
  elseif expect == '-' then
    return not is_live
  end
  return is_live and string.find(expect, ',' .. n .. ':' .. mark .. ',', 1, true) ~= nil
end
