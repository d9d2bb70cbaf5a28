-- The gate of calls that change something: each happens once, in the order of the numbers.

do
  local state = call('HMGET', W, 'e', 'l', 'x')
  COPIED = state[3]
  if state[1] ~= ARGV[2] then return redis.error_reply('RESYNC another epoch') end
  local last = tonumber(state[2])
  if N <= last then return call('HGET', W, N % WINDOW) end
  if N > last + 1 then return redis.error_reply('RESYNC a gap') end
end
