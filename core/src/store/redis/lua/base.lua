-- What every script begins with: names of keys, packed state, records of a log, numbers of a queue.
--
-- KEYS[1] is the realm's prefix with its hash tag, so that all of a realm lies in one slot.
-- ARGV: writer, epoch, number, then what the call is about. State is packed with cmsgpack.
-- Numbers stay below 2^53; ids of messages and users are texts.

local P, call = KEYS[1], redis.call
local mp, mu = cmsgpack.pack, cmsgpack.unpack
local floor, min, max, format = math.floor, math.min, math.max, string.format
local W, N = P .. 'w:' .. ARGV[1], tonumber(ARGV[3])
local WINDOW, KEPT = 16, 3600000

local function get(key)
  local packed = call('GET', P .. key)
  if packed then return mu(packed) end
end

local function put(key, value)
  call('SET', P .. key, mp(value))
end

-- Some changes make room: their first write is one that a full Redis allows, and so are the rest.
local function make_room()
  call('DEL', P .. '-')
end

-- The answer is kept until the writer has surely got it: a repeat is answered, not done again.
local function finish(answer)
  call('HSET', W, 'l', N, N % WINDOW, answer)
  call('PEXPIRE', W, KEPT)
  return answer
end

-- While a writer copies the realm it notes what changes, each row once until that is told: `ch`, in the
-- order of the first change. Names: l log, q queue, x exception, X all of a queue, g dead letter, d delayed,
-- m instance, u user's id, R all but logs and queues.
local COPIED = false

local function note(row)
  if not COPIED then return end
  call('ZADD', P .. 'ch', 'NX', call('HINCRBY', W, 'x', 1), row)
  call('PEXPIRE', P .. 'ch', KEPT)
end

-- Absent texts are '-', others begin with '+'.
local function opt(text)
  if text and string.sub(text, 1, 1) == '+' then return string.sub(text, 2) end
end

local function as_opt(text)
  return text and '+' .. text or '-'
end

local function num(n)
  return format('%d', n)
end

local function pad(n)
  return format('%016d', n)
end

-- --- The realm ---
-- q unsettled entries of all queues, b bytes that are kept for them, d how many are held, y places of
-- those so far.

local M

local function meta()
  if not M then
    M = get('m') or { q = 0, b = 0, d = 0, y = 0 }
  end
  return M
end

local function weigh(bytes)
  local m = meta()
  m.b = max(m.b + bytes, 0)
end

-- --- Logs ---
-- k key, nq readers, h head, g guaranteed, b bytes, gb bytes of the guaranteed, hb bytes of the messages
-- that are here, f front, cl cleared, ca cleared after, le latest expiry in line, ls line swept, fp first
-- piece, gp first piece of the gap, w wake, z sizes of its sets, f1 f2 full readers per class, sn so a
-- sweep under way, mx how many may wait in a queue as far as its queues were told, by appends.

local logs = {}

local function log_of(id)
  local L = logs[id]
  if L == nil then
    L = get('l:' .. id) or false
    if L then L.id = id end
    logs[id] = L
  end
  return L
end

local function save()
  for id, L in pairs(logs) do
    if L and L.dirty then
      note('l:' .. id)
      L.dirty, L.id = nil, nil
      put('l:' .. id, L)
      L.id = id
    end
  end
  if M then put('m', M) end
end

local function size(L, set)
  return L.z[set] or 0
end

local function zput(L, set, member, score)
  if call('ZADD', P .. set .. ':' .. L.id, score, member) == 1 then
    L.z[set] = size(L, set) + 1
  end
end

local function zdrop(L, set, member)
  if call('ZREM', P .. set .. ':' .. L.id, member) == 1 then
    L.z[set] = size(L, set) - 1
  end
end

local function zmin(L, set)
  if size(L, set) == 0 then return nil end
  local found = call('ZRANGE', P .. set .. ':' .. L.id, 0, 0, 'WITHSCORES')
  return tonumber(found[2]), found[1]
end

local function zmax(L, set)
  if size(L, set) == 0 then return nil end
  local found = call('ZREVRANGE', P .. set .. ':' .. L.id, 0, 0, 'WITHSCORES')
  return tonumber(found[2])
end

local function wake(L, at)
  if at == L.w then return end
  if at then
    call('ZADD', P .. 'wk', at, L.id)
  else
    call('ZREM', P .. 'wk', L.id)
  end
  L.w, L.dirty = at, true
end

-- Records stand in pieces of 1,024, each a string, so that any is found by its place. A record:
-- expiry, produced, totals up to it (guaranteed, bytes, bytes of the guaranteed), size, flags.

local PIECE, RECORD, FORM = 1024, 37, '<I6I6I6I7I7I4I1'
local GUARANTEED, STRAGGLER = 1, 2
local pieces = {}

local function piece_of(seq)
  return floor((max(seq, 1) - 1) / PIECE)
end

local function piece(L, index)
  local name = L.id .. ':' .. index
  local found = pieces[name]
  if found == nil then
    found = call('GET', P .. 'h:' .. name)
    pieces[name] = found
  end
  return found
end

-- Nothing if the record is let go.
local function record(L, seq)
  if seq < 1 or seq > L.h then return nil end
  local index = piece_of(seq)
  local at = (seq - 1 - index * PIECE) * RECORD
  local name = L.id .. ':' .. index
  local found = pieces[name]
  if found then
    if #found < at + RECORD then return nil end
    return struct.unpack(FORM, found, at + 1)
  end
  found = call('GETRANGE', P .. 'h:' .. name, at, at + RECORD - 1)
  if #found < RECORD then return nil end
  return struct.unpack(FORM, found)
end

-- The seq of the guaranteed entry with this number; if it is let go, the end of what is left before.
local function seq_of_guaranteed(L, number)
  if number > L.g then return L.h + 1 end
  local found = call('ZREVRANGEBYSCORE', P .. 'hp:' .. L.id, number - 1, '-inf', 'LIMIT', 0, 1)
  local index = tonumber(found[1])
  local records = index and piece(L, index)
  if not records then return L.f + 1 end
  local low, high = 0, #records / RECORD
  while low < high do
    local middle = floor((low + high) / 2)
    local _, _, g = struct.unpack(FORM, records, middle * RECORD + 1)
    if g >= number then high = middle else low = middle + 1 end
  end
  return index * PIECE + low + 1
end

-- Messages come, or go.
local function weigh_log(L, bytes)
  L.hb, L.dirty = L.hb + bytes, true
  weigh(bytes)
end

local function drop_entry(L, seq)
  local _, _, _, _, _, bytes = record(L, seq)
  if call('HDEL', P .. 'e:' .. L.id, num(seq)) == 1 then weigh_log(L, -bytes) end
end

-- --- Queues ---
-- lg log, kd kind, nm name, st settings, ow owner, se seen, sn sent, lf forgotten, j joined,
-- sg segments, low, dl settled above low, xn exceptions, xb their bytes, sh {number, seq} when shut,
-- sp its places in the log's sets, sf the class it counts as full in.
--
-- A queue numbers the entries for it without gaps. A segment {seq, class, number, base} says how
-- from this seq on: class 1 takes every entry, class 2 guaranteed ones; base is the log's total of
-- that class there.

local function queue_of(id)
  local Q = get('q:' .. id)
  if Q then Q.id = id end
  return Q
end

local function put_queue(Q)
  local id, before = Q.id, Q.before
  Q.id, Q.before = nil, nil
  put('q:' .. id, Q)
  note('l:' .. Q.lg)
  note('q:' .. id)
  Q.id, Q.before = id, before
end

-- Between two segments there may be entries that were for nobody: a class without numbers left none.
local function number_upto(Q, seq, g)
  local segments = Q.sg
  for i = #segments, 1, -1 do
    local s = segments[i]
    if seq >= s[1] or i == 1 then
      local number = s[3] + max(s[2] == 1 and seq - s[1] or g - s[4], 0)
      local following = segments[i + 1]
      return following and min(number, following[3]) or number
    end
  end
end

local function last_number(L, Q)
  if Q.sh then return Q.sh[1] end
  return number_upto(Q, L.h, L.g)
end

local function tail(Q)
  return Q.sg[#Q.sg]
end

-- The number up to `seq`; 0 if nobody can tell any more.
local function upto(L, Q, seq)
  if seq >= L.h then return number_upto(Q, L.h, L.g) end
  if #Q.sg == 1 and Q.sg[1][2] == 1 then return number_upto(Q, seq, 0) end
  local _, _, g = record(L, seq)
  if g then return number_upto(Q, seq, g) end
  -- What was let go behind the end of a queue is behind all that waits in it.
  return Q.sh and seq >= Q.sh[2] and Q.sh[1] or 0
end

local function seq_of(L, Q, number)
  local segments = Q.sg
  for i = #segments, 1, -1 do
    local s = segments[i]
    if number > s[3] then
      if s[2] == 1 then return s[1] + number - s[3] end
      return seq_of_guaranteed(L, s[4] + number - s[3])
    end
  end
  return segments[1][1]
end

-- The number of the entry, or why it has none: 'other' if it is not for this queue, else 'gone'.
local function number_of(L, Q, seq)
  local segments = Q.sg
  for i = #segments, 1, -1 do
    local s = segments[i]
    if seq > s[1] then
      local following = segments[i + 1]
      if following and s[2] == 1 and s[3] + seq - s[1] > following[3] then return nil, 'other' end
      if s[2] == 1 then return s[3] + seq - s[1] end
      local _, _, g, _, _, _, flags = record(L, seq)
      if not g then return nil, 'gone' end
      if flags % 2 ~= GUARANTEED then return nil, 'other' end
      return s[3] + g - s[4]
    end
  end
  return nil, 'gone'
end

-- Runs of settled numbers above low: members `first-last` by first.

local function bounds_of(run)
  local first, last = string.match(run, '^(%d+)-(%d+)$')
  return tonumber(first), tonumber(last)
end

local function run_before(Q, number)
  if Q.dl == 0 then return nil end
  local found = call('ZREVRANGEBYSCORE', P .. 'd:' .. Q.id, number, '-inf', 'LIMIT', 0, 1)
  if not found[1] then return nil end
  local first, last = bounds_of(found[1])
  return first, last, found[1]
end

local function run_end(Q, number)
  local _, last = run_before(Q, number)
  if last and last >= number then return last end
end

-- How many of them are new.
local function settle_run(Q, first, last)
  if first > last then return 0 end
  local before = Q.dl
  while Q.dl > 0 do
    local a, b, run = run_before(Q, last + 1)
    if not a or b + 1 < first then break end
    call('ZREM', P .. 'd:' .. Q.id, run)
    Q.dl = Q.dl - (b - a + 1)
    first, last = min(first, a), max(last, b)
  end
  call('ZADD', P .. 'd:' .. Q.id, first, num(first) .. '-' .. num(last))
  Q.dl = Q.dl + last - first + 1
  return Q.dl - before
end

local function compact(L, Q)
  local last = last_number(L, Q)
  while Q.low < last and Q.dl > 0 do
    local a, b, run = run_before(Q, Q.low + 1)
    if not a or b <= Q.low then return end
    call('ZREM', P .. 'd:' .. Q.id, run)
    Q.dl = Q.dl - (b - a + 1)
    Q.low = b
  end
end

local function pass_number(L, Q, low)
  if low <= Q.low then return end
  if low >= last_number(L, Q) then
    if Q.dl > 0 then call('DEL', P .. 'd:' .. Q.id) end
    Q.dl = 0
  end
  while Q.dl > 0 do
    local runs = call('ZRANGEBYSCORE', P .. 'd:' .. Q.id, '-inf', low, 'LIMIT', 0, 500)
    if #runs == 0 then break end
    call('ZREM', P .. 'd:' .. Q.id, unpack(runs))
    for _, run in ipairs(runs) do
      local a, b = bounds_of(run)
      Q.dl = Q.dl - (b - a + 1)
      if b > low then settle_run(Q, low + 1, b) end
    end
  end
  Q.low = low
end

local function waiting(L, Q)
  return last_number(L, Q) - Q.low - Q.dl
end

local function depth(L, Q)
  return waiting(L, Q) + Q.xn
end

local function next_waiting(L, Q, number)
  local last = last_number(L, Q)
  local found = max(number, Q.low) + 1
  while found <= last do
    local settled = run_end(Q, found)
    if not settled then return found end
    found = settled + 1
  end
end

local function is_waiting(L, Q, number)
  return number > Q.low and number <= last_number(L, Q) and not run_end(Q, number)
end

-- N: settled now, B: before, U: never was for this queue.
local function settle_waiting(L, Q, seq)
  if seq <= Q.j or seq > L.h then return 'U' end
  local number, why = number_of(L, Q, seq)
  if not number then return why == 'other' and 'U' or 'B' end
  if not is_waiting(L, Q, number) then return 'B' end
  if number == Q.low + 1 then
    Q.low = number
    compact(L, Q)
  else
    settle_run(Q, number, number)
  end
  return 'N'
end
