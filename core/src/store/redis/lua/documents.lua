-- Documents: realms, tokens, requests, nonces. All in one slot, apart from every realm.
--
-- KEYS[1] is their prefix with its hash tag. ARGV: writer, number (0 for a look), what, then what it is about.
-- h:<collection> key to `version expires text`, k:<collection> keys in their order, x what expires when,
-- v the highest version, c how often anything has changed, w:<writer> what its last change was answered.

local P, call = KEYS[1], redis.call
local WRITER, N, WHAT = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local KEPT, MOST_BYTES, MOST_LOOKED = 3600000, 1048576, 1024
local format, match = string.format, string.match

local at = 3
local function arg()
  at = at + 1
  return ARGV[at]
end

-- A document without its time is '-'.
local function parts(value)
  return match(value, '^(%d+) (%S+) (.*)$')
end

local function is_over(expires, now)
  return expires ~= '-' and tonumber(expires) <= now
end

local function drop(collection, key)
  call('HDEL', P .. 'h:' .. collection, key)
  call('ZREM', P .. 'k:' .. collection, key)
  call('ZREM', P .. 'x', collection .. ' ' .. key)
end

local function put(collection, key, version, expires, text)
  call('HSET', P .. 'h:' .. collection, key, version .. ' ' .. expires .. ' ' .. text)
  call('ZADD', P .. 'k:' .. collection, 0, key)
  if expires == '-' then
    call('ZREM', P .. 'x', collection .. ' ' .. key)
  else
    call('ZADD', P .. 'x', expires, collection .. ' ' .. key)
  end
end

-- --- Looks ---

if WHAT == 'page' then
  local collection, from, now, most = arg(), arg(), tonumber(arg()), tonumber(arg())
  local looked = math.min(most, MOST_LOOKED)
  local keys = call('ZRANGEBYLEX', P .. 'k:' .. collection, from, '+', 'LIMIT', 0, looked)
  local found, bytes, last = {}, 0, ''
  for _, key in ipairs(keys) do
    local value = call('HGET', P .. 'h:' .. collection, key)
    last = key
    if value then
      local _, expires = parts(value)
      if not is_over(expires, now) then
        found[#found + 1] = key
        found[#found + 1] = value
        bytes = bytes + #key + #value
        if bytes >= MOST_BYTES then break end
      end
    end
  end
  return { last, found }
end

if WHAT == 'changes' then
  return call('GET', P .. 'c') or '0'
end

if WHAT == 'count' then
  local count = 0
  while true do
    local collection = arg()
    if not collection then return format('%d', count) end
    count = count + call('HLEN', P .. 'h:' .. collection)
  end
end

-- --- Changes ---

-- One that came late, or is sent again, has been answered.
local answered = call('GET', P .. 'w:' .. WRITER)
if answered then
  local number, answer = match(answered, '^(%d+) (.*)$')
  if tonumber(number) == N then return answer end
  if tonumber(number) > N then return redis.error_reply('LATE a later change has been made') end
end

local function finish(answer)
  -- The first write is one that a full Redis allows, and so are the rest.
  call('SET', P .. 'w:' .. WRITER, format('%d ', N) .. answer, 'PX', KEPT)
  return answer
end

local function highest()
  return tonumber(call('GET', P .. 'v') or '0')
end

call('DEL', P .. '-')

if WHAT == 'change' then
  local channel, now, count = arg(), tonumber(arg()), tonumber(arg())
  local changes = {}
  for i = 1, count do
    local one = { collection = arg(), key = arg(), expires = arg(), only_if = arg(), text = arg() }
    if one.only_if ~= '-' then
      local value = call('HGET', P .. 'h:' .. one.collection, one.key)
      local version, expires
      if value then version, expires = parts(value) end
      if version and is_over(expires, now) then version = nil end
      if one.only_if == 'absent' then
        if version then return finish('conflict') end
      elseif version ~= one.only_if then
        return finish('conflict')
      end
    end
    changes[i] = one
  end
  local version, told = highest(), {}
  for _, one in ipairs(changes) do
    if one.text == '-' then
      drop(one.collection, one.key)
    else
      version = math.max(version + 1, now)
      put(one.collection, one.key, format('%d', version), one.expires, string.sub(one.text, 2))
    end
    told[one.collection] = true
  end
  call('SET', P .. 'v', format('%d', version))
  call('INCR', P .. 'c')
  -- Whoever has to know of a nonce asks.
  told['nonces'] = nil
  for collection in pairs(told) do
    call('PUBLISH', channel, WRITER .. ' d ' .. collection)
  end
  return finish('ok')
end

if WHAT == 'sweep' then
  local now, most = tonumber(arg()), tonumber(arg())
  local over = call('ZRANGEBYSCORE', P .. 'x', '-inf', now, 'LIMIT', 0, most)
  for _, name in ipairs(over) do
    drop(match(name, '^(%S+) (.*)$'))
  end
  if #over > 0 then call('INCR', P .. 'c') end
  return finish(format('%d', #over))
end

if WHAT == 'take' then
  local version = highest()
  while true do
    local collection = arg()
    if not collection then break end
    local key, number, expires, text = arg(), arg(), arg(), arg()
    if text == '-' then
      drop(collection, key)
    else
      version = math.max(version, tonumber(number))
      put(collection, key, number, expires, string.sub(text, 2))
    end
  end
  call('SET', P .. 'v', format('%d', version))
  call('INCR', P .. 'c')
  return finish('ok')
end

if WHAT == 'wipe' then
  local most, gone = tonumber(arg()), 0
  while true do
    local collection = arg()
    if not collection then break end
    for _, key in ipairs(call('ZRANGE', P .. 'k:' .. collection, 0, most - gone - 1)) do
      drop(collection, key)
      gone = gone + 1
    end
    if gone >= most then break end
  end
  if gone > 0 then call('INCR', P .. 'c') end
  return finish(format('%d', gone))
end

return redis.error_reply('ERR no such call')
