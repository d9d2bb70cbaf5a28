-- How a queue stands among the readers of its log, and what the log lets go of.
--
-- Sets of a log, by class (`g`: guaranteed): o og lows of readers that may take more; r rg the last
-- number they have room for; c cg lows of the shut; ce last entries of the shut; k kg how far behind
-- those are that drop their oldest; s stragglers by expiry.

local TRIM, TRIM_PIECES = 2000, 64

-- Where an entry stands by its expiry: in line, or as a straggler with this flag.
local function line_up(L, seq, expires)
  if expires == 0 then return 0 end
  if not L.w or expires < L.w then wake(L, expires) end
  if not L.le or expires >= L.le then
    L.le = expires
    return 0
  end
  zput(L, 's', num(seq), expires)
  return STRAGGLER
end

-- Set by the scripts that need it.
local DROPS = false

local function places(L, Q)
  local s = tail(Q)
  local class = s[2]
  local in_tail = Q.low >= s[3]
  local g = class == 2 and 'g' or ''
  local low, lows
  if class == 2 and in_tail then
    low, lows = s[4] + Q.low - s[3], 'g'
  else
    low, lows = seq_of(L, Q, Q.low + 1) - 1, ''
  end
  local found, full = {}, nil
  if Q.sh then
    if not Q.lf then full = class end
    if Q.lf or not DROPS then
      found['c' .. lows] = low
      found.ce = Q.sh[2]
    elseif in_tail then
      found['k' .. g] = Q.sh[1] - Q.low
    else
      found.o = low
    end
  else
    found['o' .. lows] = low
    -- Who drops its oldest keeps the newest, even if exceptions alone fill it.
    local free = math.max((L.mx or 0) - Q.xn, DROPS and 1 or 0)
    found['r' .. g] = s[4] + Q.low + Q.dl + free - s[3]
  end
  return found, full
end

local function stand(L, Q, found, full)
  local before = Q.sp or {}
  for set in pairs(before) do
    if not found[set] then zdrop(L, set, Q.id) end
  end
  for set, score in pairs(found) do
    if before[set] ~= score then zput(L, set, Q.id, score) end
  end
  if Q.sf ~= full then
    if Q.sf then L['f' .. Q.sf] = L['f' .. Q.sf] - 1 end
    if full then L['f' .. full] = L['f' .. full] + 1 end
  end
  Q.sp, Q.sf, L.dirty = found, full, true
end

local function drop_oldest(L, Q, count)
  local last = last_number(L, Q)
  while count > 0 do
    compact(L, Q)
    if Q.low >= last then return end
    local stop = last + 1
    if Q.dl > 0 then
      local found = call('ZRANGEBYSCORE', P .. 'd:' .. Q.id, '(' .. num(Q.low), '+inf', 'LIMIT', 0, 1)
      if found[1] then stop = min(stop, (bounds_of(found[1]))) end
    end
    local dropped = min(count, stop - 1 - Q.low)
    Q.low = Q.low + dropped
    count = count - dropped
  end
end

-- Begins a change: what the queue missed or dropped while it was full is settled. Whether anything
-- was.
local function begin(L, Q)
  local was_shut = Q.sh and not Q.lf
  if was_shut then
    local number = Q.sh[1]
    Q.sh = nil
    local last = last_number(L, Q)
    if DROPS then drop_oldest(L, Q, last - number) else settle_run(Q, number + 1, last) end
    compact(L, Q)
  end
  Q.before = depth(L, Q)
  return was_shut
end

local function let_go(L, from, upto_seq, budget)
  local messages = P .. 'e:' .. L.id
  local last = min(upto_seq, from + budget)
  if from == L.f and upto_seq == L.h and upto_seq - from > 100 then
    call('UNLINK', messages, P .. 's:' .. L.id)
    L.z.s = 0
    weigh_log(L, -L.hb)
    return L.h
  end
  -- Where none is gone yet the totals tell what they weigh.
  local is_whole = last - from > 1 and call('HLEN', messages) == L.h - L.f
  if is_whole then
    local _, _, _, first, _, bytes = record(L, from + 1)
    local _, _, _, total = record(L, last)
    weigh_log(L, first - bytes - total)
  end
  for first = from + 1, last, 500 do
    local seqs = {}
    for seq = first, min(first + 499, last) do
      seqs[#seqs + 1] = num(seq)
      if not is_whole then drop_entry(L, seq) end
    end
    if is_whole then call('HDEL', messages, unpack(seqs)) end
    if size(L, 's') > 0 then
      L.z.s = L.z.s - call('ZREM', P .. 's:' .. L.id, unpack(seqs))
    end
  end
  return max(last, from)
end

-- Lets go of pieces of records `from..upto_piece - 1`; where to go on.
local function let_pieces_go(L, from, upto_piece)
  local last = min(upto_piece, from + TRIM_PIECES)
  for index = from, last - 1 do
    call('UNLINK', P .. 'h:' .. L.id .. ':' .. index)
    call('ZREM', P .. 'hp:' .. L.id, pad(index))
    pieces[L.id .. ':' .. index] = nil
  end
  return max(last, from)
end

local function pin(L, low)
  if low and low < L.g then return seq_of_guaranteed(L, low + 1) - 1 end
end

local function least(a, b)
  if a and b then return min(a, b) end
  return a or b
end

-- Lets go of what no reader needs, in bites: what is left is done when the log is woken.
local function trim(L)
  local slack, slack_g = zmax(L, 'k'), zmax(L, 'kg')
  local open = least(zmin(L, 'o'), slack and L.h - slack)
  open = least(open, pin(L, least(zmin(L, 'og'), slack_g and L.g - slack_g)))
  open = min(max(open or L.h, L.f), L.h)
  local shut = least(zmin(L, 'c'), pin(L, zmin(L, 'cg')))
  local floor_seq = max(L.f, least(shut, open))
  local f = L.f
  if floor_seq > f then
    L.f = let_go(L, f, floor_seq, TRIM)
    L.dirty = true
  end
  local shut_end = zmax(L, 'ce')
  local is_done = L.f >= floor_seq
  local first = piece_of(L.f)
  if shut_end then
    if shut_end < L.ca then
      L.cl = min(L.cl, shut_end)
      L.gp = min(L.gp, piece_of(shut_end) + 1)
    end
    L.ca = shut_end
    local from = max(shut_end, L.cl, L.f)
    L.cl = max(L.cl, open > from and let_go(L, from, open, TRIM) or open)
    L.gp = let_pieces_go(L, max(L.gp, piece_of(shut_end) + 1, first + 1), piece_of(min(L.cl, open)))
    L.dirty = true
    is_done = is_done and L.cl >= open and L.gp >= piece_of(min(L.cl, open))
  end
  if L.fp < first then
    L.fp = let_pieces_go(L, L.fp, first)
    L.dirty = true
    is_done = is_done and L.fp >= first
  end
  if not is_done then wake(L, 0) end
end

-- --- Exceptions ---
-- x state, xm message, xs by seq, xd by due time, all of a queue; xe by expiry, of the realm.

local function exception_of(Q, seq)
  if Q.xn == 0 then return nil end
  local packed = call('HGET', P .. 'x:' .. Q.id, num(seq))
  if packed then return mu(packed) end
end

local function take_exception(Q, seq)
  local state = exception_of(Q, seq)
  if not state then return nil end
  local name, place = num(seq), pad(seq)
  local message = call('HGET', P .. 'xm:' .. Q.id, name)
  call('HDEL', P .. 'x:' .. Q.id, name)
  call('HDEL', P .. 'xm:' .. Q.id, name)
  call('ZREM', P .. 'xs:' .. Q.id, place)
  call('ZREM', P .. 'xd:' .. Q.id, place)
  if state.ex > 0 then call('ZREM', P .. 'xe', Q.id .. ':' .. name) end
  note('x:' .. Q.id .. ':' .. name)
  Q.xn, Q.xb = Q.xn - 1, Q.xb - state.sz
  weigh(-state.sz)
  return state, message
end

local function put_exception(Q, seq, state, message)
  take_exception(Q, seq)
  local name, place = num(seq), pad(seq)
  call('HSET', P .. 'x:' .. Q.id, name, mp(state))
  call('HSET', P .. 'xm:' .. Q.id, name, message)
  call('ZADD', P .. 'xs:' .. Q.id, seq, place)
  call('ZADD', P .. 'xd:' .. Q.id, state.d, place)
  if state.ex > 0 then call('ZADD', P .. 'xe', state.ex, Q.id .. ':' .. name) end
  note('x:' .. Q.id .. ':' .. name)
  Q.xn, Q.xb = Q.xn + 1, Q.xb + state.sz
  weigh(state.sz)
end

local function drop_exceptions(Q)
  if Q.xn > 0 then note('X:' .. Q.id) end
  call('UNLINK', P .. 'x:' .. Q.id, P .. 'xm:' .. Q.id, P .. 'xs:' .. Q.id, P .. 'xd:' .. Q.id)
  weigh(-Q.xb)
  Q.xn, Q.xb = 0, 0
end

-- --- Who has a queue in hand ---

local function enter(L, Q, writer, epoch)
  Q.mb = Q.mb or {}
  Q.mb[writer] = epoch
  L.at = L.at or {}
  L.at[writer] = (L.at[writer] or 0) + 1
  L.dirty = true
end

local function leave(L, Q, writer)
  Q.mb[writer] = nil
  if not next(Q.mb) then Q.mb = nil end
  local left = (L.at and L.at[writer] or 0) - 1
  if L.at then
    L.at[writer] = left > 0 and left or nil
    if not next(L.at) then L.at = nil end
  end
  L.dirty = true
  call('HDEL', P .. 'c:' .. Q.id, writer)
end

local function leave_all(L, Q)
  for writer in pairs(Q.mb or {}) do leave(L, Q, writer) end
end

-- --- The end of a change ---

local function remove_log(L)
  local id = L.id
  wake(L, nil)
  weigh(-L.hb)
  for _, set in ipairs({ 'e', 's', 'hp', 'o', 'og', 'r', 'rg', 'c', 'cg', 'ce', 'k', 'kg', 'l' }) do
    call('UNLINK', P .. set .. ':' .. id)
  end
  for index = L.fp, piece_of(L.h) do call('UNLINK', P .. 'h:' .. id .. ':' .. index) end
  call('HDEL', P .. 'lk', L.k)
  note('l:' .. id)
  logs[id] = false
end

local function remove_queue(L, Q)
  local m = meta()
  m.q = m.q - depth(L, Q)
  stand(L, Q, {}, nil)
  drop_exceptions(Q)
  leave_all(L, Q)
  call('UNLINK', P .. 'd:' .. Q.id, P .. 'q:' .. Q.id)
  call('HDEL', P .. 'qn', Q.lg .. '|' .. Q.kd .. '|' .. Q.nm)
  call('ZREM', P .. 'qs', Q.id)
  note('q:' .. Q.id)
  L.nq = L.nq - 1
  if L.nq == 0 then remove_log(L) else trim(L) end
end

-- A left-over ends with its last entry.
local function end_left(L, Q)
  if Q.lf and depth(L, Q) == 0 then remove_queue(L, Q) end
end

local function end_change(L, Q, keeps_log)
  compact(L, Q)
  while #Q.sg > 1 and Q.sg[2][3] <= Q.low do table.remove(Q.sg, 1) end
  local after = depth(L, Q)
  if after ~= Q.before then
    local m = meta()
    m.q = m.q + after - Q.before
  end
  Q.before = nil
  stand(L, Q, places(L, Q))
  put_queue(Q)
  if not keeps_log then trim(L) end
end

local function record_of(L, Q)
  local last = last_number(L, Q)
  local low = Q.low < last and seq_of(L, Q, Q.low + 1) - 1 or L.h
  local fields = { Q.id, L.id, num(Q.se), num(low), num(Q.sn), num(L.h), num(Q.xn), num(depth(L, Q)) }
  return table.concat(fields, ' ')
end
