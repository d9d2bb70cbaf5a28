-- The gate of calls that only look: what was called before them has happened.

if N > 0 then
  local state = call('HMGET', W, 'e', 'l', 'x')
  COPIED = state[3]
  if state[1] ~= ARGV[2] then return redis.error_reply('RESYNC another epoch') end
  if tonumber(state[2]) < N then return redis.error_reply('RESYNC a gap') end
end
