-- What time ends: entries, exceptions, dead letters, marks, left-overs. By index, in bites.
--
-- ARGV: drops its oldest, now, budget, dlq_ttl, mark_idle, marks, dedupe_window, dedupe_max.
-- Answer: rows looked at, whether there is more, expired, dead letters ended, when to come again.

make_room()
DROPS = ARGV[4] == '1'
local NOW, BUDGET, LETTER_TTL = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local IDLE, MARKS, SPAN, UIDS = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local READERS, RUNS = 500, 32
local looked, expired, ended = 0, 0, 0

local function left()
  return BUDGET - looked
end

-- Seqs of entries in line that have expired, where the line was left, and when its next one expires.
local function expired_in_line(L, now, most, into)
  local seq = max(L.ls, L.f)
  while seq < L.h do
    if #into >= most then return seq, 0 end
    local found = piece(L, piece_of(seq + 1))
    if not found then
      seq = min((piece_of(seq + 1) + 1) * PIECE, L.h)
    else
      local ex, _, _, _, _, _, flags = record(L, seq + 1)
      local in_line = ex > 0 and flags < STRAGGLER
      if in_line and ex > now then return seq, ex end
      if in_line then into[#into + 1] = seq + 1 end
      seq = seq + 1
    end
  end
  return seq, nil
end

local function runs_of(L, seqs)
  table.sort(seqs)
  local runs = {}
  for _, seq in ipairs(seqs) do
    local run = runs[#runs]
    local _, _, g, _, _, _, flags = record(L, seq)
    if g and run and run[2] + 1 == seq then
      run[2], run[4] = seq, g
    elseif g then
      runs[#runs + 1] = { seq, seq, g - flags % 2, g }
    end
  end
  return runs
end

-- Readers that may still wait for one of these, from the one at `offset` on.
local function readers_before(L, last, last_g, offset, most)
  local ids = {}
  local function add(set, below)
    if size(L, set) == 0 or #ids >= most then return end
    local key = P .. set .. ':' .. L.id
    local top = below and '(' .. num(below) or '+inf'
    local count = call('ZCOUNT', key, '-inf', top)
    if offset >= count then
      offset = offset - count
      return
    end
    for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', top, 'LIMIT', offset, most - #ids)) do
      ids[#ids + 1] = id
    end
    offset = 0
  end
  add('c')
  add('cg')
  add('k')
  add('kg')
  add('o', last)
  add('og', last_g)
  return ids
end

local function lose(L, id, runs)
  local Q = queue_of(id)
  begin(L, Q)
  local last = last_number(L, Q)
  local lost = 0
  for _, run in ipairs(runs) do
    local first = max(number_upto(Q, run[1] - 1, run[3]) + 1, Q.low + 1)
    lost = lost + settle_run(Q, first, min(number_upto(Q, run[2], run[4]), last))
  end
  if run_end(Q, Q.low + 1) then compact(L, Q) end
  end_change(L, Q, true)
  end_left(L, Q)
  return lost
end

local function sweep_log(id)
  local L = log_of(id)
  if not L then
    call('ZREM', P .. 'wk', id)
    looked = looked + 1
    return
  end
  -- All readers lose the same entries, in however many bites: the time is that of the first.
  local now = L.sn or NOW
  local most = max(1, min(left(), 500))
  local seqs = {}
  local early = {}
  if size(L, 's') > 0 then
    early = call('ZRANGEBYSCORE', P .. 's:' .. id, '-inf', now, 'LIMIT', 0, most)
    for _, seq in ipairs(early) do seqs[#seqs + 1] = tonumber(seq) end
  end
  local line, following = expired_in_line(L, now, most, seqs)
  local taken = #seqs
  looked = looked + max(taken, 1)
  local runs = runs_of(L, seqs)
  if #runs > RUNS then
    -- Fewer entries: those of the first runs.
    local last = runs[RUNS][2]
    while #runs > RUNS do table.remove(runs) end
    line = min(line, last)
    following = 0
    local kept, kept_early = {}, {}
    for _, seq in ipairs(seqs) do if seq <= last then kept[#kept + 1] = seq end end
    for _, seq in ipairs(early) do if tonumber(seq) <= last then kept_early[#kept_early + 1] = seq end end
    seqs, early = kept, kept_early
  end
  if #runs > 0 then
    local final = runs[#runs]
    local ids = readers_before(L, final[2], final[4], L.so or 0, READERS)
    for _, reader in ipairs(ids) do
      expired = expired + lose(L, reader, runs)
      if not log_of(id) then return end
    end
    looked = looked + floor(#ids / 10)
    L.dirty = true
    if #ids >= READERS then
      L.sn, L.so = now, (L.so or 0) + READERS
      wake(L, 0)
      return
    end
    L.sn, L.so = nil, nil
    for _, seq in ipairs(seqs) do drop_entry(L, seq) end
  end
  if #early > 0 then L.z.s = size(L, 's') - call('ZREM', P .. 's:' .. id, unpack(early)) end
  L.ls, L.dirty = line, true
  local straggler = zmin(L, 's')
  if straggler and (not following or straggler < following) then following = straggler end
  wake(L, following)
  trim(L)
end

local function sweep_exception(member)
  looked = looked + 1
  call('ZREM', P .. 'xe', member)
  local id, seq = string.match(member, '^(%d+):(%d+)$')
  local Q = queue_of(id)
  if not Q then return end
  local L = log_of(Q.lg)
  local state = exception_of(Q, tonumber(seq))
  if not L or not state or state.ex == 0 or state.ex > NOW then return end
  begin(L, Q)
  take_exception(Q, tonumber(seq))
  expired = expired + 1
  end_change(L, Q)
  end_left(L, Q)
end

local function first_of(key)
  local found = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  return found[1], tonumber(found[2])
end

while left() > 0 do
  local id, at = first_of('wk')
  if not id or at > NOW then break end
  sweep_log(id)
end
while left() > 0 do
  local member, at = first_of('xe')
  if not member or at > NOW then break end
  sweep_exception(member)
end
while left() > 0 do
  local id, at = first_of('ga')
  if not id or at > NOW - LETTER_TTL then break end
  take_letter(id)
  ended = ended + 1
  looked = looked + 1
end
if left() > 0 then looked = looked + end_instances(NOW, IDLE, MARKS, left()) end
if left() > 0 then looked = looked + end_uids(NOW, SPAN, UIDS, left()) end
save()

local again
local function at_latest(at)
  if at and (not again or at < again) then again = at end
end
local _, at = first_of('wk')
at_latest(at)
_, at = first_of('xe')
at_latest(at)
_, at = first_of('ga')
at_latest(at and at + LETTER_TTL)
_, at = first_of('il')
at_latest(at and at + IDLE)
local uid = call('LINDEX', P .. 'ul', 0)
at_latest(uid and tonumber(string.match(uid, '^(%d+)')) + SPAN)
local more = left() <= 0 and '1' or '0'
local counts = num(looked) .. ' ' .. more .. ' ' .. expired .. ' ' .. ended
return finish(counts .. ' ' .. (again and num(again) or '-'))
