-- Messages held until they are due: y by due time, then in the order they came; yi their places by
-- id; yb owner and message by id.

local function hold(id, due, owner, message)
  local m = meta()
  m.d, m.y = m.d + 1, m.y + 1
  local place = pad(m.y) .. id
  call('ZADD', P .. 'y', due, place)
  call('HSET', P .. 'yi', id, place)
  call('HSET', P .. 'yb', id, mp({ owner, message }))
  note('d:' .. id)
end

local function is_held(id)
  return call('HEXISTS', P .. 'yi', id) == 1
end

local function drop_held(id)
  local place = call('HGET', P .. 'yi', id)
  if not place then return end
  call('ZREM', P .. 'y', place)
  call('HDEL', P .. 'yi', id)
  call('HDEL', P .. 'yb', id)
  note('d:' .. id)
  local m = meta()
  m.d = m.d - 1
end
