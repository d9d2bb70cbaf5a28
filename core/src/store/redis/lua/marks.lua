-- What a realm remembers of messages it has stored, so that a resend is stored once. Times are those
-- of the messages.
--
-- i:<instance>: hi highest number, us last used, ms numbers missing in the window as runs, c how many
-- were stored; in:<instance>: numbers and ids of the last 128; il instances by use; u user ids; ul their line.

local BITS, IDS = 1024, 128
local marks = {}

local function mark_of(instance)
  local mark = marks[instance]
  if mark == nil then
    mark = get('i:' .. instance) or false
    marks[instance] = mark
  end
  return mark
end

local function is_missing(mark, number)
  for _, run in ipairs(mark.ms) do
    if number >= run[1] and number <= run[2] then return true end
  end
  return false
end

-- The id of the first copy, '' if it is known no more, nothing if the message is new.
local function known_number(instance, number, now, idle)
  local mark = mark_of(instance)
  if not mark or now - mark.us >= idle then return nil end
  if number > mark.hi then return nil end
  if number > mark.hi - BITS and is_missing(mark, number) then return nil end
  local new = mark.new or {}
  local function is_it(pair)
    local at, id = string.match(pair, '^(%d+) (%d+)$')
    if tonumber(at) == number then return id end
  end
  for _, pair in pairs(new) do
    local id = is_it(pair)
    if id then return id end
  end
  local kept = call('HGETALL', P .. 'in:' .. instance)
  for at = 1, #kept, 2 do
    -- What has a new content already is forgotten.
    local id = not new[tonumber(kept[at])] and is_it(kept[at + 1])
    if id then return id end
  end
  return ''
end

local function known_uid(uid, now, span)
  local kept = call('HGET', P .. 'u', uid)
  if not kept then return nil end
  local at, id = string.match(kept, '^(%d+) (%d+)$')
  if now - tonumber(at) < span then return id end
end

local function set_number(instance, number, id, now, idle)
  local mark = mark_of(instance)
  if not mark or now - mark.us >= idle then
    call('DEL', P .. 'in:' .. instance)
    mark = { hi = -1, us = 0, ms = {}, c = 0 }
    marks[instance] = mark
  end
  local runs = {}
  if number > mark.hi then
    local from = number - BITS + 1
    for _, run in ipairs(mark.ms) do
      if run[2] >= from then runs[#runs + 1] = { max(run[1], from), run[2] } end
    end
    local first = max(mark.hi + 1, from)
    if first < number then runs[#runs + 1] = { first, number - 1 } end
    mark.hi = number
  else
    for _, run in ipairs(mark.ms) do
      if number < run[1] or number > run[2] then
        runs[#runs + 1] = run
      else
        if run[1] < number then runs[#runs + 1] = { run[1], number - 1 } end
        if run[2] > number then runs[#runs + 1] = { number + 1, run[2] } end
      end
    end
  end
  mark.ms = runs
  mark.us = max(mark.us, now)
  mark.new = mark.new or {}
  if id then
    mark.new[mark.c % IDS] = num(number) .. ' ' .. id
    mark.c = mark.c + 1
  end
end

local function end_instances(now, idle, most, budget)
  local ended = 0
  while ended < budget do
    local oldest = call('ZRANGE', P .. 'il', 0, 0, 'WITHSCORES')
    if not oldest[1] then break end
    local is_idle = now - tonumber(oldest[2]) >= idle
    if not is_idle and call('ZCARD', P .. 'il') <= most then break end
    call('ZREM', P .. 'il', oldest[1])
    call('DEL', P .. 'i:' .. oldest[1], P .. 'in:' .. oldest[1])
    marks[oldest[1]] = nil
    ended = ended + 1
  end
  return ended
end

local function set_uid(uid, id, now)
  call('HSET', P .. 'u', uid, num(now) .. ' ' .. id)
  call('RPUSH', P .. 'ul', num(now) .. ' ' .. uid)
  note('u:' .. uid)
end

local function end_uids(now, span, most, budget)
  local ended = 0
  while ended < budget do
    local oldest = call('LINDEX', P .. 'ul', 0)
    if not oldest then break end
    local at, uid = string.match(oldest, '^(%d+) (.*)$')
    if now - tonumber(at) < span and call('LLEN', P .. 'ul') <= most then break end
    call('LPOP', P .. 'ul')
    local m = meta()
    m.up = (m.up or 0) + 1
    local kept = call('HGET', P .. 'u', uid)
    if kept and string.match(kept, '^(%d+)') == at then call('HDEL', P .. 'u', uid) end
    ended = ended + 1
  end
  return ended
end

local function save_marks()
  for instance, mark in pairs(marks) do
    if mark and mark.new then
      local fields = {}
      for place, text in pairs(mark.new) do
        fields[#fields + 1] = place
        fields[#fields + 1] = text
      end
      if #fields > 0 then call('HSET', P .. 'in:' .. instance, unpack(fields)) end
      mark.new = nil
      call('SET', P .. 'i:' .. instance, mp(mark))
      call('ZADD', P .. 'il', mark.us, instance)
      note('m:' .. instance)
    end
  end
end
