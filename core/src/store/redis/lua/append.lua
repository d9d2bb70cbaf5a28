-- Stores messages: what is known already, who takes it, who is left out, and holding what is not due.
--
-- ARGV: drops its oldest; how many may wait in a queue, how many and how many bytes in the realm;
-- mark_idle, marks, dedupe_window, dedupe_max; then per item its head (expiry or 0, produced, size,
-- flags), logs, message, and what the flags say: who is skipped, instance and number, uid, due time with
-- owner, what it releases, and its id.
-- Answer: appended, refused, dropped, duplicates; then per item a line.

DROPS = ARGV[4] == '1'
local MAX, REALM_MAX, REALM_BYTES = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local IDLE, MARKS, SPAN, UIDS = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local FIRST, HEAD = 12, '<I6I6I4I1'
-- Refused by a full Redis before anything has changed.
call('HSET', W, 'l', N - 1)
local appended, refused, dropped, duplicates = 0, 0, 0, 0

-- Entries of one call go to their log together: `pe` messages by seq, `ph` records from `pf` on.
local function flush(L)
  local messages, records, first = L.pe, L.ph, L.pf
  if not messages then return end
  L.pe, L.ph, L.pf = nil, nil, nil
  for at = 1, #messages, 400 do
    call('HSET', P .. 'e:' .. L.id, unpack(messages, at, min(at + 399, #messages)))
  end
  local index = piece_of(first)
  local name = L.id .. ':' .. index
  pieces[name] = nil
  call('SETRANGE', P .. 'h:' .. name, (first - 1 - index * PIECE) * RECORD, table.concat(records))
end

-- Another number counts for its queues: each stands anew.
local function resize(L)
  flush(L)
  L.mx, L.room, L.dirty = MAX, nil, true
  for _, set in ipairs({ 'o', 'og', 'c', 'cg', 'k', 'kg' }) do
    local ids = size(L, set) > 0 and call('ZRANGE', P .. set .. ':' .. L.id, 0, -1) or {}
    for _, id in ipairs(ids) do
      local Q = queue_of(id)
      begin(L, Q)
      end_change(L, Q, true)
    end
  end
end

local function fill(L, id)
  flush(L)
  local Q = queue_of(id)
  -- It may have been made smaller than what it has.
  local over = DROPS and waiting(L, Q) - MAX or 0
  if over > 0 then
    drop_oldest(L, Q, over)
    dropped = dropped + over
    local m = meta()
    m.q = m.q - over
  end
  Q.sh = { last_number(L, Q), L.h }
  stand(L, Q, places(L, Q))
  put_queue(Q)
end

-- How many want it, and how many of those are full.
local function offer(L, guaranteed)
  local wanted, full = 0, 0
  for class = 1, guaranteed and 2 or 1 do
    local set = class == 1 and 'r' or 'rg'
    local following = (class == 1 and L.h or L.g) + 1
    -- The least room is known until a queue of the log changes.
    L.room = L.room or {}
    local least_room = L.room[class]
    if least_room == nil or least_room and least_room < following then
      local room, id = zmin(L, set)
      -- Every queue comes by here once from having room to being full.
      while room and room < following do
        fill(L, id)
        room, id = zmin(L, set)
      end
      L.room[class] = room or false
    end
    full = full + L['f' .. class]
    wanted = wanted + L['f' .. class] + size(L, set)
  end
  return wanted, full
end

local function push(L, item)
  if L.f == L.h then L.le = nil end
  local seq = L.h + 1
  local flags = line_up(L, seq, item.expires) + (item.guaranteed and GUARANTEED or 0)
  if (seq - 1) % PIECE == 0 then
    flush(L)
    call('ZADD', P .. 'hp:' .. L.id, L.g, pad(piece_of(seq)))
  end
  L.h, L.b = seq, L.b + item.size
  weigh_log(L, item.size)
  if item.guaranteed then L.g, L.gb = L.g + 1, L.gb + item.size end
  if not L.pe then L.pe, L.ph, L.pf = {}, {}, seq end
  local messages, records = L.pe, L.ph
  messages[#messages + 1] = num(seq)
  messages[#messages + 1] = item.message
  records[#records + 1] =
    struct.pack(FORM, item.expires, item.produced, L.g, L.b, L.gb, item.size, flags)
  L.grew = true
  appended = appended + 1
  if size(L, 'k') > 0 or size(L, 'kg') > 0 then
    flush(L)
    trim(L)
  end
  return seq
end

-- The readers of a log that would take the message, were they not to be skipped.
local function skipped_of(L, item)
  local found = {}
  for id in string.gmatch(item.skip, '%d+') do
    local Q = queue_of(id)
    local wants = Q and not Q.lf and Q.lg == L.id and (tail(Q)[2] == 1 or item.guaranteed)
    for _, other in ipairs(found) do wants = wants and other.id ~= id end
    if wants then found[#found + 1] = Q end
  end
  return found
end

-- One that drops its oldest for every new entry must not do so for one that it does not get.
local function settle_for(L, skipped, item)
  flush(L)
  for _, Q in ipairs(skipped) do
    begin(L, Q)
    end_change(L, Q, true)
  end
  local seq = push(L, item)
  flush(L)
  for _, known in ipairs(skipped) do
    local m = meta()
    -- Every new entry of their class counts, until the change says otherwise.
    m.q = m.q + 1
    local Q = queue_of(known.id)
    begin(L, Q)
    settle_waiting(L, Q, seq)
    end_change(L, Q, true)
  end
  L.room = nil
  return seq
end

local NOBODY = {}

-- What the answer says and how many queues took it, or nothing and why not.
local function place(item)
  local offers, grows, queued, refusing, bytes = {}, 0, 0, 0, 0
  for _, id in ipairs(item.logs) do
    local L = log_of(id)
    if L then
      if L.mx ~= MAX then resize(L) end
      local wanted, full = offer(L, item.guaranteed)
      local skipped = item.skip and skipped_of(L, item) or NOBODY
      for _, Q in ipairs(skipped) do
        wanted = wanted - 1
        if Q.sh then full = full - 1 end
      end
      if wanted > 0 then
        local refuses = DROPS and 0 or full
        grows = grows + wanted - full
        queued = queued + wanted - refuses
        refusing = refusing + refuses
        if wanted > refuses then bytes = bytes + item.size end
        offers[#offers + 1] = { L, wanted - refuses, refuses, skipped }
      end
    end
  end
  if #offers == 0 then return '', 0 end
  local m = meta()
  local is_over = m.q + grows > REALM_MAX and 'realm' or m.b + bytes > REALM_BYTES and 'bytes'
  if queued == 0 or is_over then
    refused = refused + refusing + (is_over and queued or 0)
    return nil, is_over or 'queues'
  end
  m.q = m.q + grows
  refused = refused + refusing
  dropped = dropped + queued - grows
  local placed = {}
  for _, o in ipairs(offers) do
    local seq = 0
    if o[2] > 0 then
      seq = #o[4] > 0 and settle_for(o[1], o[4], item) or push(o[1], item)
    end
    placed[#placed + 1] = format('%s:%d:%d:%d', o[1].id, seq, o[2], o[3])
  end
  return table.concat(placed, ' '), queued
end

local function append(item)
  local now = item.produced
  local known = item.instance and known_number(item.instance, item.number, now, IDLE)
  known = known or item.uid and known_uid(item.uid, now, SPAN)
  if not known and item.release and not is_held(item.release) then known = '' end
  if known then
    duplicates = duplicates + 1
    local is_held = known ~= '' and is_held(known) and 'h' or 's'
    return 'D ' .. is_held .. ' ' .. (known == '' and '-' or known)
  end
  local placed, queued = '', 1
  if item.due then
    if meta().d >= MAX then return 'F delayed' end
    hold(item.id, item.due, item.owner, item.message)
  else
    placed, queued = place(item)
    if not placed then return 'F ' .. queued end
  end
  if item.release then drop_held(item.release) end
  if queued > 0 then
    if item.instance then set_number(item.instance, item.number, item.id, now, IDLE) end
    if item.uid then
      set_uid(item.uid, item.id, now)
      end_uids(now, SPAN, UIDS, 16)
    end
  end
  return 'S ' .. placed
end

local latest = 0
local lines = {}
local at = FIRST

local function following()
  at = at + 1
  return ARGV[at - 1]
end

-- Most messages of a call go to the same logs.
local known_logs = {}
local function logs_of(text)
  local found = known_logs[text]
  if not found then
    found = {}
    for id in string.gmatch(text, '%d+') do found[#found + 1] = id end
    known_logs[text] = found
  end
  return found
end

while ARGV[at] do
  local item = {}
  local flags
  item.expires, item.produced, item.size, flags = struct.unpack(HEAD, ARGV[at])
  item.logs, item.message = logs_of(ARGV[at + 1]), ARGV[at + 2]
  item.guaranteed = flags % 2 == 1
  at = at + 3
  if flags >= 2 then
    if bit.band(flags, 2) ~= 0 then item.skip = following() end
    if bit.band(flags, 4) ~= 0 then item.instance, item.number = following(), tonumber(following()) end
    if bit.band(flags, 8) ~= 0 then item.uid = following() end
    if bit.band(flags, 16) ~= 0 then
      local due, owner = string.match(following(), '^(%d+) (.*)$')
      item.due, item.owner = tonumber(due), owner
    end
    if bit.band(flags, 32) ~= 0 then item.release = following() end
    item.id = following()
  end
  latest = max(latest, item.produced)
  lines[#lines + 1] = append(item)
end
save_marks()
end_instances(latest, IDLE, MARKS, 64)
for _, L in pairs(logs) do
  if L then
    flush(L)
    if L.grew then
      for writer in pairs(L.at or {}) do
        if writer ~= SELF then tell(writer, 'l ' .. TAG .. ' ' .. L.id .. ' ' .. num(L.h)) end
      end
    end
    L.room, L.grew = nil, nil
  end
end
save()
local counts = appended .. ' ' .. refused .. ' ' .. dropped .. ' ' .. duplicates
return finish(counts .. '\n' .. table.concat(lines, '\n'))
