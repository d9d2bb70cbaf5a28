-- Copies: noting what changes while the realm is told, taking in another store's rows, dropping all.
--
-- ARGV: what, drops its oldest, then its own.

local WHAT = ARGV[4]
DROPS = ARGV[5] == '1'
local at = 6
if WHAT ~= 'take' then make_room() end

local function following()
  at = at + 1
  return ARGV[at - 1]
end

local function number()
  return tonumber(following())
end

-- --- Telling ---

local function note_on()
  call('UNLINK', P .. 'ch')
  call('HSET', W, 'x', 1)
  return ''
end

local function note_off()
  call('UNLINK', P .. 'ch')
  call('HDEL', W, 'x')
  return ''
end

-- at most. Answer: whether there are more; then the names of changed rows, each behind its length.
local function notes()
  local names = call('ZRANGE', P .. 'ch', 0, number() - 1)
  if #names == 0 then return '0' end
  call('ZREM', P .. 'ch', unpack(names))
  local parts = { call('EXISTS', P .. 'ch') == 1 and '1' or '0' }
  for _, name in ipairs(names) do parts[#parts + 1] = num(#name) .. ':' .. name end
  return table.concat(parts)
end

-- log, seqs. Messages that cannot be read are to end for every reader; the sweep of the time 1 does that.
local function spoil()
  local L = log_of(following())
  while L and ARGV[at] do
    zput(L, 's', num(number()), 1)
    L.dirty = true
  end
  if L then wake(L, 0) end
  return ''
end

-- --- Taking in ---
-- While rows come a log has beside its own: pp the piece in hand, pn records in it, pb those not written.

local function write_piece(L)
  if L.pb and #L.pb > 0 then
    call('APPEND', P .. 'h:' .. L.id .. ':' .. L.pp, table.concat(L.pb))
  end
  L.pb = nil
end

local function take_piece(L, index, g)
  if L.pp == index and L.pb then return end
  write_piece(L)
  L.pp, L.pb = index, {}
  L.pn = call('STRLEN', P .. 'h:' .. L.id .. ':' .. index) / RECORD
  if L.pn == 0 then call('ZADD', P .. 'hp:' .. L.id, g, pad(index)) end
end

-- What is let go stands for the totals at the end of its gap.
local function fill_piece(L, count, g, b, gb)
  if count <= L.pn then return end
  L.pb[#L.pb + 1] = string.rep(struct.pack(FORM, 0, 0, g, b, gb, 0, 0), count - L.pn)
  L.pn = count
end

-- Fills records up to the one before `seq`; whether `seq` itself is to come.
local function reach(L, seq, g, b, gb)
  local index = piece_of(seq)
  local place = seq - 1 - index * PIECE
  if L.pp and L.pp < index then
    take_piece(L, L.pp, g)
    fill_piece(L, PIECE, g, b, gb)
  end
  take_piece(L, index, g)
  if place < L.pn then return false end
  fill_piece(L, place, g, b, gb)
  return true
end

local function take_log()
  local id, key = following(), following()
  local L = log_of(id)
  if not L then
    L = {
      id = id, k = key, nq = 0, hb = 0, cl = 0, ca = 0, ls = 0, fp = 0, gp = 0, z = {}, f1 = 0, f2 = 0,
    }
    logs[id] = L
    call('HSET', P .. 'lk', key, id)
  end
  L.h, L.g, L.b, L.gb = number(), number(), number(), number()
  L.dirty = true
end

local function take_entry()
  local L = log_of(following())
  local seq, g, b, gb = number(), number(), number(), number()
  local expires, produced, size, flags = struct.unpack('<I6I6I4I1', following())
  local message = following()
  local is_guaranteed = flags % 2
  if not L.f then
    L.f = seq - 1
    L.fp = piece_of(seq)
  end
  if not reach(L, seq, g - is_guaranteed, b - size, gb - size * is_guaranteed) then return end
  flags = line_up(L, seq, expires) + is_guaranteed * GUARANTEED
  L.pb[#L.pb + 1] = struct.pack(FORM, expires, produced, g, b, gb, size, flags)
  L.pn = L.pn + 1
  weigh_log(L, size)
  call('HSET', P .. 'e:' .. L.id, num(seq), message)
end

-- A queue is written when everything has come; here it is only found by who drops a copy.
local function take_queue()
  local id = following()
  call('ZADD', P .. 'qs', id, id)
end

local function drop_exception(id, seq)
  call('HDEL', P .. 'x:' .. id, num(seq))
  call('HDEL', P .. 'xm:' .. id, num(seq))
  call('ZREM', P .. 'xs:' .. id, pad(seq))
  call('ZREM', P .. 'xd:' .. id, pad(seq))
  call('ZREM', P .. 'xe', id .. ':' .. num(seq))
end

local function take_exception_row()
  local id, seq = following(), number()
  local x = { ro = number(), a = number(), f = number(), r = number(), d = number() }
  x.ex, x.s, x.pr, x.sz = number(), following() == '1', number(), number()
  x.fe, x.le = opt(following()), opt(following())
  local message = following()
  drop_exception(id, seq)
  call('HSET', P .. 'x:' .. id, num(seq), mp(x))
  call('HSET', P .. 'xm:' .. id, num(seq), message)
  call('ZADD', P .. 'xs:' .. id, seq, pad(seq))
  call('ZADD', P .. 'xd:' .. id, x.d, pad(seq))
  if x.ex > 0 then call('ZADD', P .. 'xe', x.ex, id .. ':' .. num(seq)) end
end

local function take_letter_row()
  local id = following()
  local letter = { k = following(), kd = following(), nm = following(), a = number(), ro = number() }
  letter.rs, letter.fe, letter.le = following(), opt(following()), opt(following())
  letter.at, letter.ex, letter.pr, letter.sz = number(), number(), number(), number()
  take_letter(id)
  put_letter(id, letter, following())
end

local function take_delayed()
  local id, due, owner, message = following(), number(), following(), following()
  if not is_held(id) then hold(id, due, owner, message) end
end

-- instance, use, highest, missing runs, ids of the last ones, the oldest first.
local function take_mark()
  local instance = following()
  local mark = { us = number(), hi = number(), ms = {}, c = 0 }
  for first, last in string.gmatch(following(), '(%d+)-(%d+)') do
    mark.ms[#mark.ms + 1] = { tonumber(first), tonumber(last) }
  end
  call('DEL', P .. 'in:' .. instance)
  for n, id in string.gmatch(following(), '(%d+) (%d+)') do
    call('HSET', P .. 'in:' .. instance, mark.c % IDS, n .. ' ' .. id)
    mark.c = mark.c + 1
  end
  call('SET', P .. 'i:' .. instance, mp(mark))
  call('ZADD', P .. 'il', mark.us, instance)
end

local function take_uid()
  local uid, id = following(), following()
  set_uid(uid, id, number())
end

local function drop_log(id)
  local L = log_of(id)
  if not L then return end
  for _, index in ipairs(call('ZRANGE', P .. 'hp:' .. id, 0, -1)) do
    call('UNLINK', P .. 'h:' .. id .. ':' .. num(tonumber(index)))
  end
  L.fp = piece_of(L.h) + 1
  remove_log(L)
end

local function drop_queue(id)
  call('UNLINK', P .. 'x:' .. id, P .. 'xm:' .. id, P .. 'xs:' .. id, P .. 'xd:' .. id)
  call('UNLINK', P .. 'q:' .. id, P .. 'd:' .. id)
  call('ZREM', P .. 'qs', id)
end

local function drop_exceptions_of(id)
  for _, place in ipairs(call('ZRANGE', P .. 'xs:' .. id, 0, -1)) do
    drop_exception(id, tonumber(place))
  end
end

-- All but logs and queues.
local function clear()
  call('UNLINK', P .. 'g', P .. 'gm', P .. 'gi', P .. 'ga', P .. 'y', P .. 'yi', P .. 'yb')
  call('UNLINK', P .. 'u', P .. 'ul')
  for _, instance in ipairs(call('ZRANGE', P .. 'il', 0, -1)) do
    call('UNLINK', P .. 'i:' .. instance, P .. 'in:' .. instance)
  end
  call('UNLINK', P .. 'il')
  meta().d = 0
end

local takes = {
  l = take_log, e = take_entry, q = take_queue, x = take_exception_row, g = take_letter_row,
  d = take_delayed, m = take_mark, u = take_uid, R = clear,
  L = function() drop_log(following()) end,
  Q = function() drop_queue(following()) end,
  X = function() drop_exceptions_of(following()) end,
  x0 = function() drop_exception(following(), number()) end,
  g0 = function() take_letter(following()) end,
  d0 = function() drop_held(following()) end,
}

local function take()
  -- Refused by a full Redis before anything has changed.
  call('HSET', W, 'l', N - 1)
  while ARGV[at] do takes[following()]() end
  for _, L in pairs(logs) do
    if L then write_piece(L) end
  end
  return ''
end

-- logs. Their ends as they were told, for those who read them next.
local function end_logs()
  while ARGV[at] do
    local L = log_of(following())
    if L then
      if not L.f then L.f, L.fp = L.h, piece_of(L.h + 1) end
      if L.h % PIECE ~= 0 and reach(L, L.h, L.g, L.b, L.gb) then
        L.pb[#L.pb + 1] = struct.pack(FORM, 0, 0, L.g, L.b, L.gb, 0, 0)
      end
      write_piece(L)
      L.pp, L.pn, L.dirty = nil, nil, true
    end
  end
  return ''
end

-- id, log, kind, name, settings, owner; attach, sent, forgotten, joined, low, exceptions, their bytes; what
-- it had when it was shut (`-`: it is not); segments; settled runs.
local function end_queue()
  local Q = { id = following(), lg = following(), kd = following(), nm = following(), st = following() }
  local L = log_of(Q.lg)
  Q.ow, Q.se, Q.sn, Q.lf = following(), number(), number(), following() == '1' or nil
  Q.j, Q.low, Q.xn, Q.xb, Q.dl, Q.sg = number(), number(), number(), number(), 0, {}
  local shut, shut_seq = number(), number()
  if shut then Q.sh = { shut, shut_seq } end
  for s, class, n, base in string.gmatch(following(), '(%d+) (%d+) (%d+) (%d+)') do
    Q.sg[#Q.sg + 1] = { tonumber(s), tonumber(class), tonumber(n), tonumber(base) }
  end
  for run in string.gmatch(following(), '%d+-%d+') do
    local first, last = bounds_of(run)
    call('ZADD', P .. 'd:' .. Q.id, first, run)
    Q.dl = Q.dl + last - first + 1
  end
  call('HSET', P .. 'qn', Q.lg .. '|' .. Q.kd .. '|' .. Q.nm, Q.id)
  call('ZADD', P .. 'qs', Q.id, Q.id)
  L.nq, L.dirty = L.nq + 1, true
  weigh(Q.xb)
  begin(L, Q)
  Q.before = 0
  end_change(L, Q, true)
  end_left(L, Q)
end

local function end_queues()
  while ARGV[at] do end_queue() end
  for _, L in pairs(logs) do
    if L and L.nq > 0 then trim(L) end
  end
  return ''
end

-- --- What another store remembers ---

-- As `take_mark`, added to what is known of the instance.
local function add_mark()
  local instance, used, highest = following(), number(), number()
  local missing, ids = {}, {}
  for first, last in string.gmatch(following(), '(%d+)-(%d+)') do
    missing[#missing + 1] = { tonumber(first), tonumber(last) }
  end
  for n, id in string.gmatch(following(), '(%d+) (%d+)') do ids[tonumber(n)] = id end
  local told = { ms = missing }
  for n = max(highest - BITS + 1, 0), highest do
    if not is_missing(told, n) then set_number(instance, n, ids[n], used, math.huge) end
  end
end

local function add_uid()
  local uid, id = following(), following()
  local time = number()
  if not call('HGET', P .. 'u', uid) then set_uid(uid, id, time) end
end

local function remember()
  while ARGV[at] do
    if following() == 'm' then add_mark() else add_uid() end
  end
  save_marks()
  return ''
end

-- --- Dropping all ---

-- A bite of all there is; whether there may be more.
local function wipe()
  local ids = call('ZRANGE', P .. 'qs', 0, 199)
  for _, id in ipairs(ids) do drop_queue(id) end
  if #ids > 0 then return '1' end
  local found = call('HSCAN', P .. 'lk', 0, 'COUNT', 50)[2]
  for place = 2, #found, 2 do
    drop_log(found[place])
    call('HDEL', P .. 'lk', found[place - 1])
  end
  if #found > 0 then return '1' end
  if end_instances(0, 0, 0, 500) == 500 then return '1' end
  clear()
  call('UNLINK', P .. 'xe', P .. 'wk', P .. 'm', P .. 'qn', P .. 'ch')
  M = nil
  return '0'
end

local does = {
  note_on = note_on, note_off = note_off, notes = notes, spoil = spoil, take = take, end_logs = end_logs,
  end_queues = end_queues, remember = remember, wipe = wipe,
}
local answer = does[WHAT]()
save()
return finish(answer)
