-- Looking: pages, due exceptions, depth, a look, records, delayed messages, dead letters.
--
-- ARGV: what, drops its oldest, now, then its own. What it finds expired it settles.

local WHAT, NOW = ARGV[4], tonumber(ARGV[6])
DROPS = ARGV[5] == '1'
local LOOKS = 16

local is_changed = false

-- What a full queue missed or dropped is settled by any look at it.
local function look(L, Q)
  if Q.sh and not Q.lf then
    make_room()
    begin(L, Q)
    end_change(L, Q)
    is_changed = true
  end
  Q.before = depth(L, Q)
end

-- A queue, or what is left of it.
local function known()
  local Q = queue_of(ARGV[7])
  local L = Q and log_of(Q.lg)
  if not L then return nil end
  look(L, Q)
  return Q, L
end

local function live()
  local Q, L = known()
  if Q and not Q.lf then return Q, L end
end

-- Settles what was found expired; how many those were.
local function lose(L, Q, lost, take)
  if #lost == 0 then return 0 end
  make_room()
  local expired = 0
  for _, seq in ipairs(lost) do
    if take(seq) then expired = expired + 1 end
  end
  end_change(L, Q)
  is_changed = true
  return expired
end

-- The messages of these seqs.
local function messages(L, seqs)
  local found = {}
  for first = 1, #seqs, 100 do
    local some = {}
    for at = first, min(first + 99, #seqs) do some[#some + 1] = num(seqs[at]) end
    for _, message in ipairs(call('HMGET', P .. 'e:' .. L.id, unpack(some))) do
      found[#found + 1] = message
    end
  end
  return found
end

-- queue, after, entries, bytes, the claim. Answer: next, whether that is the end, expired, sent; seqs;
-- messages.
local function page()
  local Q, L = live()
  if not Q then return '?' end
  if is_fenced(Q, ARGV[11]) then return 'F' end
  local after, most, bytes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  local looks = most * LOOKS
  local following, is_end = L.h, true
  local number, looked = upto(L, Q, after), after
  local seqs, lost = {}, {}
  while true do
    number = next_waiting(L, Q, number)
    if not number then break end
    local seq = seq_of(L, Q, number)
    piece(L, piece_of(seq))
    local ex, _, _, _, _, size = record(L, seq)
    if not ex then break end
    if seq > after then
      local is_expired = ex > 0 and ex <= NOW
      local fits = #seqs == 0 or (#seqs < most and size <= bytes)
      if looks == 0 or (not is_expired and not fits) then
        following, is_end = looked, false
        break
      end
      looks = looks - 1
      if is_expired then
        lost[#lost + 1] = seq
      else
        seqs[#seqs + 1] = seq
        bytes = bytes - size
      end
      looked = seq
    end
  end
  local found = messages(L, seqs)
  local expired = lose(L, Q, lost, function(seq) return settle_waiting(L, Q, seq) == 'N' end)
  local names = {}
  for at, seq in ipairs(seqs) do names[at] = num(seq) end
  local head = num(following) .. (is_end and ' 1 ' or ' 0 ') .. expired .. ' ' .. num(Q.sn)
  return { head, table.concat(names, ' '), found }
end

-- queue, seqs. Answer: their messages.
local function fetch()
  local Q, L = live()
  if not Q then return '?' end
  local seqs = {}
  for at = 8, #ARGV do seqs[#seqs + 1] = tonumber(ARGV[at]) end
  return { messages(L, seqs) }
end

-- What a group's member looks at is its own from now on.
local function own_exception(Q, seq, state, claim)
  if claim == '-' or Q.kd ~= GROUP or state.o == SELF then return end
  make_room()
  state.o = SELF
  call('HSET', P .. 'x:' .. Q.id, num(seq), mp(state))
end

local function exception_fields(state)
  return table.concat({
    num(state.a), num(state.f), num(state.r), num(state.d), num(state.ex), state.s and '1' or '0',
  }, ' ')
end

local function add_exception(entries, Q, seq, state)
  local message = call('HGET', P .. 'xm:' .. Q.id, num(seq))
  entries[#entries + 1] = {
    num(seq) .. ' ' .. exception_fields(state), as_opt(state.fe), as_opt(state.le), message,
  }
end

-- queue, entries, bytes, the claim. Answer: expired, when the next is due or `-`; entries.
local function due()
  local Q, L = live()
  if not Q then return '?' end
  if is_fenced(Q, ARGV[10]) then return 'F' end
  local most, bytes = tonumber(ARGV[8]), tonumber(ARGV[9])
  local entries, lost, following = {}, {}, '-'
  local at = 0
  while following == '-' do
    local places = call('ZRANGE', P .. 'xd:' .. Q.id, at, at + 99, 'WITHSCORES')
    for i = 1, #places, 2 do
      local seq, time = tonumber(places[i]), tonumber(places[i + 1])
      local state = exception_of(Q, seq)
      local fits = #entries == 0 or (#entries < most and state.sz <= bytes)
      if is_others(Q, state) then
        -- Not ours to see.
      elseif time <= NOW and state.ex > 0 and state.ex <= NOW then
        lost[#lost + 1] = seq
      elseif time <= NOW and fits then
        own_exception(Q, seq, state, ARGV[10])
        add_exception(entries, Q, seq, state)
        bytes = bytes - state.sz
      else
        following = num(time)
        break
      end
    end
    if #places < 200 then break end
    at = at + 100
  end
  local expired = lose(L, Q, lost, function(seq) return take_exception(Q, seq) end)
  return { expired .. ' ' .. following, entries }
end

-- queue, after, entries, bytes, the claim. Answer: sent; entries, those in their turn with a message only.
local function browse()
  local Q, L = known()
  if not Q then return '?' end
  local claim = ARGV[11]
  local after, most, bytes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  local entries = {}
  local number = upto(L, Q, after)
  local rows = call('ZRANGEBYSCORE', P .. 'xs:' .. Q.id, '(' .. num(after), '+inf', 'LIMIT', 0, most)
  local row = 1
  local seq
  local function step()
    repeat
      number = next_waiting(L, Q, number)
      seq = number and seq_of(L, Q, number)
    until not seq or seq > after
  end
  step()
  while #entries < most and (seq or rows[row]) do
    local other = tonumber(rows[row])
    local is_row = other and (not seq or other < seq)
    local state = is_row and exception_of(Q, other)
    local size
    if is_row then
      size = state.sz
    else
      local _
      _, _, _, _, _, size = record(L, seq)
      if not size then break end
    end
    if #entries > 0 and size > bytes then break end
    bytes = bytes - size
    if is_row then
      if claim == '-' or not is_others(Q, state) then
        own_exception(Q, other, state, claim)
        add_exception(entries, Q, other, state)
      end
      row = row + 1
    else
      entries[#entries + 1] = { num(seq), call('HGET', P .. 'e:' .. L.id, num(seq)) }
      step()
    end
  end
  return { num(Q.sn), entries }
end

-- Totals of bytes up to the entry with this number, or before it. Where records are let go it is the
-- end of what is left before.
local function bytes_upto(L, seq)
  if seq >= L.h then return L.b, L.gb end
  local _, _, _, b, gb = record(L, seq)
  return b or 0, gb or 0
end

local function bytes_before(L, seq)
  local _, _, _, b, gb, bytes = record(L, seq)
  if b then return b - bytes, gb - bytes end
  return bytes_upto(L, seq - 1)
end

local function bytes_between(L, Q, first, last)
  local sum = 0
  for i, s in ipairs(Q.sg) do
    local following = Q.sg[i + 1]
    local from = max(first, s[3] + 1)
    local till = following and min(last, following[3]) or last
    if from <= till then
      local b, gb = bytes_upto(L, seq_of(L, Q, till))
      local b0, gb0 = bytes_before(L, seq_of(L, Q, from))
      sum = sum + (s[2] == 1 and b - b0 or gb - gb0)
    end
  end
  return sum
end

local function depth_of(L, Q)
  local last = last_number(L, Q)
  local count, bytes, oldest = depth(L, Q), Q.xb, nil
  if Q.low < last then
    bytes = bytes + bytes_between(L, Q, Q.low + 1, last)
    if Q.dl > 0 then
      for _, run in ipairs(call('ZRANGE', P .. 'd:' .. Q.id, 0, 9999)) do
        local a, b = bounds_of(run)
        bytes = bytes - bytes_between(L, Q, a, b)
      end
    end
    local number = next_waiting(L, Q, 0)
    if number then
      local _, produced = record(L, seq_of(L, Q, number))
      oldest = produced
    end
  end
  if Q.xn > 0 then
    local row = call('ZRANGE', P .. 'xs:' .. Q.id, 0, 0)
    local state = row[1] and exception_of(Q, tonumber(row[1]))
    if state and (not oldest or state.pr < oldest) then oldest = state.pr end
  end
  return num(count) .. ' ' .. num(max(bytes, 0)) .. ' ' .. (oldest and num(oldest) or '-')
end

local function depth_answer()
  local Q, L = live()
  if not Q then return '?' end
  return depth_of(L, Q)
end

-- after, at most. Answer: depths of a bite of the realm's queues, left-overs among them; the last one.
local function depths()
  local ids = call('ZRANGEBYSCORE', P .. 'qs', '(' .. ARGV[7], '+inf', 'LIMIT', 0, ARGV[8])
  local found = {}
  for _, id in ipairs(ids) do
    local Q = queue_of(id)
    local L = log_of(Q.lg)
    look(L, Q)
    found[#found + 1] = depth_of(L, Q)
  end
  return { ids[#ids] or '-', found }
end

local function whole_record(L, Q)
  return { record_of(L, Q), L.k, Q.kd, Q.nm, Q.st }
end

-- after, at most. Answer: records of a bite of the realm's queues, of left-overs the id; the last one.
local function records()
  local ids = call('ZRANGEBYSCORE', P .. 'qs', '(' .. ARGV[7], '+inf', 'LIMIT', 0, ARGV[8])
  local found = {}
  for _, id in ipairs(ids) do
    local Q = queue_of(id)
    local L = log_of(Q.lg)
    look(L, Q)
    found[#found + 1] = Q.lf and { id } or whole_record(L, Q)
  end
  return { ids[#ids] or '-', found }
end

-- queue. Answer: its record, if it is remembered.
local function record_answer()
  local Q, L = live()
  if not Q then return '?' end
  return whole_record(L, Q)
end

-- queue. Answer: its record, if it is a left-over.
local function left_over()
  local Q, L = known()
  if not Q or not Q.lf then return '?' end
  return whole_record(L, Q)
end

-- at most. Answer: when the first of the others is due, how many are held; due, owner, message each.
local function delayed()
  local most = tonumber(ARGV[7])
  local rows = call('ZRANGE', P .. 'y', 0, most, 'WITHSCORES')
  local found, following = {}, '-'
  for at = 1, #rows, 2 do
    local time = tonumber(rows[at + 1])
    if time > NOW or #found == most then
      following = num(time)
      break
    end
    local held = mu(call('HGET', P .. 'yb', string.sub(rows[at], 17)))
    found[#found + 1] = { num(time), held[1], held[2] }
  end
  return { following .. ' ' .. num(meta().d), found }
end

-- after ('-': from the first), at most. Answer: fields, key, kind, name, reason, errors, message each.
local function dead_letters()
  local from = ARGV[7] == '-' and '-' or '(' .. ARGV[7]
  local ids = call('ZRANGEBYLEX', P .. 'gi', from, '+', 'LIMIT', 0, ARGV[8])
  local found = {}
  for _, id in ipairs(ids) do
    local g = mu(call('HGET', P .. 'g', id))
    local fields = table.concat({ num(g.a), num(g.ro), num(g.at), num(g.ex) }, ' ')
    local message = call('HGET', P .. 'gm', id)
    found[#found + 1] = { id, fields, g.k, g.kd, g.nm, g.rs, as_opt(g.fe), as_opt(g.le), message }
  end
  return found
end

-- Whether the realm holds anything.
local function holds()
  local held = call('ZCARD', P .. 'qs') + call('ZCARD', P .. 'ga') + meta().d
  return num(held + call('ZCARD', P .. 'il') + call('LLEN', P .. 'ul'))
end

-- How many messages are held, how many dead letters there are.
local function counts()
  return num(meta().d) .. ' ' .. num(call('ZCARD', P .. 'gi'))
end

local does = {
  page = page, due = due, browse = browse, depth = depth_answer, depths = depths, records = records,
  delayed = delayed, dead_letters = dead_letters, holds = holds,
  left_over = left_over, fetch = fetch, record = record_answer, counts = counts,
}
local answer = does[WHAT]()
if is_changed then save() end
return answer
