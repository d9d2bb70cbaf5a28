-- Dead letters of a realm: g state, gm message by id; gi ids in order; ga ids by age.

local function put_letter(id, letter, message)
  call('HSET', P .. 'g', id, mp(letter))
  call('HSET', P .. 'gm', id, message)
  call('ZADD', P .. 'gi', 0, id)
  call('ZADD', P .. 'ga', letter.at, id)
  note('g:' .. id)
end

local function take_letter(id)
  local packed = call('HGET', P .. 'g', id)
  if not packed then return nil end
  local message = call('HGET', P .. 'gm', id)
  call('HDEL', P .. 'g', id)
  call('HDEL', P .. 'gm', id)
  call('ZREM', P .. 'gi', id)
  call('ZREM', P .. 'ga', id)
  note('g:' .. id)
  return mu(packed), message
end

local function drop_letters(most)
  local dropped = 0
  while call('ZCARD', P .. 'ga') > most do
    take_letter(call('ZRANGE', P .. 'ga', 0, 0)[1])
    dropped = dropped + 1
  end
  return dropped
end
