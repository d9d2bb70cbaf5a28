-- Taking queues in hand, sharing them, and letting go.
--
-- ARGV: what, drops its oldest, now, queue, then its own. Answer: `?` if there is no such
-- queue, `F` if it is another's.

make_room()
local WHAT = ARGV[4]
DROPS = ARGV[5] == '1'
local LOOKS = 16

local function live()
  local Q = queue_of(ARGV[7])
  if Q and not Q.lf then return Q, log_of(Q.lg) end
end

local function put_runs(Q, writer, runs)
  call('HSET', P .. 'c:' .. Q.id, writer, mp(runs))
end

local function is_shared(Q, writer)
  return call('HEXISTS', P .. 'c:' .. Q.id, writer) == 1
end

-- Who had it alone keeps what may have been sent, and is told.
local function share(Q)
  for writer in pairs(Q.mb) do
    if not is_shared(Q, writer) then
      put_runs(Q, writer, { { 1, Q.sn } })
      tell(writer, 'q ' .. TAG .. ' ' .. Q.id)
    end
  end
  put_runs(Q, SELF, {})
end

-- Who comes for a queue draws a ticket and asks who has it to let go; with the last ticket it may insist.
--
-- `come`, `look` or a ticket; our last claim, how long we live without a sign, the last entry we have
-- handed out. Answer: what we have (N nothing, S all, G a part), our epoch, whether the rest is as it
-- was; the record; its class; the last ticket.
local function claim()
  local Q, L = live()
  if not Q then return '?' end
  local known, view = string.match(ARGV[9], '^(%d+)(%+?)$')
  known = tonumber(known)
  call('SET', P .. 'n:' .. SELF, '1', 'PX', ARGV[10])
  begin(L, Q)
  local count = others(L, Q)
  if ARGV[8] == 'come' then Q.tk = (Q.tk or 0) + 1 end
  if count > 0 and Q.kd ~= GROUP then
    local insists = tonumber(ARGV[8]) == Q.tk
    if ARGV[8] == 'come' then insists = not tell_others(Q, 'y', num(Q.tk)) end
    if not insists then
      end_change(L, Q, true)
      return 'N 0 0 ' .. record_of(L, Q) .. ' ' .. tail(Q)[2] .. ' ' .. num(Q.tk or 0)
    end
    tell_others(Q, 't')
    for writer in pairs(Q.mb) do leave(L, Q, writer) end
    count = 0
  end
  local own = Q.mb and Q.mb[SELF]
  local is_kept = own ~= nil and own == known
  if not own then
    is_kept = count == 0 and known ~= nil and Q.ep == known and view == ''
    if not is_kept then Q.ep = (Q.ep or 0) + 1 end
    if count > 0 then share(Q) end
    enter(L, Q, SELF, Q.ep)
    own = Q.ep
  end
  local shared = is_shared(Q, SELF)
  if not shared and own ~= Q.ep then
    -- Others have come and gone.
    put_runs(Q, SELF, { { 1, Q.sn } })
    shared = true
  end
  if is_kept and shared and view == '' then
    -- What was marked and has not been handed out is anybody's.
    local taken = tonumber(ARGV[11])
    put_runs(Q, SELF, { { 1, taken } })
    if taken < Q.sn then Q.un = { taken, Q.sn } end
    tell_others(Q, 'q')
  end
  end_change(L, Q, true)
  return (shared and 'G ' or 'S ') .. num(own) .. (is_kept and ' 1 ' or ' 0 ') .. record_of(L, Q)
    .. ' ' .. tail(Q)[2] .. ' ' .. num(Q.tk or 0)
end

-- our claim, the last entry that was sent if we had it alone.
local function release()
  local Q, L = live()
  local epoch, view = string.match(ARGV[8], '^(%d+)(%+?)$')
  if not Q or not Q.mb or Q.mb[SELF] ~= tonumber(epoch) then return '' end
  begin(L, Q)
  local sent = tonumber(ARGV[9])
  if not is_shared(Q, SELF) then
    Q.sn = min(Q.sn, sent)
  elseif view == '' and sent < Q.sn then
    Q.un = { sent, Q.sn }
  end
  leave(L, Q, SELF)
  tell_others(Q, 'q')
  end_change(L, Q, true)
  if not Q.mb then tell_all('w', Q.id) end
  return ''
end

-- All runs of those who share it by their beginning, and our own.
local function claimed(L, Q)
  local all, own = {}, {}
  local last = last_number(L, Q)
  local low = Q.low < last and seq_of(L, Q, Q.low + 1) - 1 or L.h
  local flat = call('HGETALL', P .. 'c:' .. Q.id)
  for at = 1, #flat, 2 do
    local is_own = flat[at] == SELF
    for _, run in ipairs(Q.mb[flat[at]] and mu(flat[at + 1]) or {}) do
      if run[2] > low then
        all[#all + 1] = run
        if is_own then own[#own + 1] = run end
      end
    end
  end
  table.sort(all, function(a, b) return a[1] < b[1] end)
  return all, own
end

local function add_runs(own, seqs)
  for _, seq in ipairs(seqs) do own[#own + 1] = { seq, seq } end
  table.sort(own, function(a, b) return a[1] < b[1] end)
  local runs = {}
  for _, run in ipairs(own) do
    local last = runs[#runs]
    if last and run[1] <= last[2] + 1 then
      last[2] = max(last[2], run[2])
    else
      runs[#runs + 1] = { run[1], run[2] }
    end
  end
  return runs
end

-- Free entries that are ours from now on, expired ones apart, and whether that was all.
local function free_entries(L, Q, all, most, bytes)
  local found, lost = {}, {}
  local number, at, looks = Q.low, 1, most * LOOKS
  while true do
    number = next_waiting(L, Q, number)
    if not number then return found, lost, true end
    local seq = seq_of(L, Q, number)
    while all[at] and all[at][2] < seq do at = at + 1 end
    local run = all[at]
    if run and run[1] <= seq then
      if run[2] >= L.h then return found, lost, true end
      number = max(number, upto(L, Q, run[2]))
    else
      piece(L, piece_of(seq))
      local ex, _, _, _, _, size = record(L, seq)
      if not ex then return found, lost, true end
      local is_expired = ex > 0 and ex <= tonumber(ARGV[6])
      local fits = #found == 0 or (#found < most and size <= bytes)
      if looks == 0 or (not is_expired and not fits) then return found, lost, false end
      looks = looks - 1
      if is_expired then
        lost[#lost + 1] = seq
      else
        found[#found + 1] = seq
        bytes = bytes - size
      end
    end
  end
end

-- our claim, entries, bytes. Answer: whether that was all, expired; seqs, those that may have been
-- sent with a star.
local function take()
  local Q, L = live()
  if not Q then return '?' end
  if is_fenced(Q, ARGV[8]) then return 'F' end
  begin(L, Q)
  local count = others(L, Q)
  local all, own = claimed(L, Q)
  local found, lost, is_end = free_entries(L, Q, all, tonumber(ARGV[9]), tonumber(ARGV[10]))
  -- The others get their part.
  local part = math.ceil(#found / (count + 1))
  local names, seqs = {}, {}
  for at = 1, part do
    local seq = found[at]
    local is_new = seq > Q.sn or (Q.un and seq > Q.un[1] and seq <= Q.un[2])
    names[at] = num(seq) .. (is_new and '' or '*')
    seqs[at] = seq
  end
  if part < #found then is_end = false end
  local last = seqs[part]
  if last then
    if Q.un and last > Q.un[1] then
      Q.un[1] = last
      if last >= Q.un[2] then Q.un = nil end
    end
    Q.sn = max(Q.sn, last)
  end
  local expired = 0
  for _, seq in ipairs(lost) do
    if settle_waiting(L, Q, seq) == 'N' then expired = expired + 1 end
  end
  put_runs(Q, SELF, add_runs(own, seqs))
  end_change(L, Q)
  return (is_end and '1 ' or '0 ') .. expired .. ' ' .. table.concat(names, ' ')
end

local does = { claim = claim, release = release, take = take }
local answer = does[WHAT]()
save()
return finish(answer)
