-- Tells rows of the realm as they are, for a copy. Changes nothing.
--
-- ARGV: what, then its own.

local WHAT = ARGV[4]
local LOOKS = 4096

local function number(at)
  return tonumber(ARGV[at])
end

-- cursor. Answer: the next one, `0` at the end; ids of logs.
local function logs_from()
  local found = call('HSCAN', P .. 'lk', ARGV[5], 'COUNT', 200)
  local ids = {}
  for at = 2, #found[2], 2 do ids[#ids + 1] = found[2][at] end
  return { found[1], table.concat(ids, ' ') }
end

-- log. Answer: `?`, or its totals; its key.
local function log()
  local L = log_of(ARGV[5])
  if not L then return '?' end
  return { table.concat({ num(L.h), num(L.g), num(L.b), num(L.gb), num(L.f) }, ' '), L.k }
end

-- log, after, at most, bytes. Answer: `?`, or up to where it was looked; totals of each; messages.
local function entries()
  local L = log_of(ARGV[5])
  if not L then return '?' end
  local seq, most, bytes = max(number(6), L.f), number(7), number(8)
  local looks, seqs, totals = LOOKS, {}, {}
  while seq < L.h and #seqs < most and looks > 0 do
    local index = piece_of(seq + 1)
    local g, b, gb, size
    if piece(L, index) then
      local _
      _, _, g, b, gb, size = record(L, seq + 1)
    end
    if not g then
      -- Nothing of this piece is left from here on.
      seq = min((index + 1) * PIECE, L.h)
    else
      if #seqs > 0 and size > bytes then break end
      seq, bytes = seq + 1, bytes - size
      seqs[#seqs + 1] = num(seq)
      totals[#totals + 1] = table.concat({ num(seq), num(g), num(b), num(gb) }, ' ')
    end
    looks = looks - 1
  end
  local messages = {}
  for first = 1, #seqs, 100 do
    local some = call('HMGET', P .. 'e:' .. L.id, unpack(seqs, first, min(first + 99, #seqs)))
    for _, message in ipairs(some) do messages[#messages + 1] = message end
  end
  return { num(seq), table.concat(totals, ' '), messages }
end

-- after, at most. Answer: ids of queues.
local function queues_from()
  local ids = call('ZRANGEBYSCORE', P .. 'qs', '(' .. ARGV[5], '+inf', 'LIMIT', 0, ARGV[6])
  return table.concat(ids, ' ')
end

-- queue. Answer: `?`, or its numbers; kind, name, settings; its segments; settled runs.
local function queue()
  local Q = queue_of(ARGV[5])
  if not Q then return '?' end
  local numbers = {
    Q.lg, num(Q.se), num(Q.sn), Q.lf and '1' or '0', num(Q.j), num(Q.low), num(Q.xn), num(Q.xb),
    Q.sh and num(Q.sh[1]) or '-', Q.sh and num(Q.sh[2]) or '-',
  }
  local segments = {}
  for _, s in ipairs(Q.sg) do
    for place = 1, 4 do segments[#segments + 1] = num(s[place]) end
  end
  local runs = table.concat(call('ZRANGE', P .. 'd:' .. Q.id, 0, -1), ' ')
  return { table.concat(numbers, ' '), Q.kd, Q.nm, Q.st, table.concat(segments, ' '), runs }
end

-- log, after, up to. Answer: `?`, or up to where it was looked; seq and number of the guaranteed entries
-- there.
local function guaranteed()
  local L = log_of(ARGV[5])
  if not L then return '?' end
  local seq, last = max(number(6), L.f), min(number(7), L.h)
  local looks, seqs = LOOKS, {}
  while seq < last and looks > 0 do
    local index = piece_of(seq + 1)
    local g, flags
    if piece(L, index) then
      local _
      _, _, g, _, _, _, flags = record(L, seq + 1)
    end
    if not flags then
      seq = min((index + 1) * PIECE, last)
    else
      seq = seq + 1
      if flags % 2 == GUARANTEED then seqs[#seqs + 1] = num(seq) .. ' ' .. num(g) end
    end
    looks = looks - 1
  end
  return { num(max(seq, number(6))), table.concat(seqs, ' ') }
end

-- queue, after, at most, bytes. Answer: numbers, errors, message each.
local function exceptions()
  local Q = queue_of(ARGV[5])
  if not Q then return {} end
  local bytes, found = number(8), {}
  local rows = call('ZRANGEBYSCORE', P .. 'xs:' .. Q.id, '(' .. ARGV[6], '+inf', 'LIMIT', 0, ARGV[7])
  for _, place in ipairs(rows) do
    local seq = tonumber(place)
    local x = exception_of(Q, seq)
    if x then
      if #found > 0 and x.sz > bytes then break end
      bytes = bytes - x.sz
      local numbers = {
        num(seq), num(x.ro), num(x.a), num(x.f), num(x.r), num(x.d), num(x.ex), x.s and '1' or '0',
      }
      local message = call('HGET', P .. 'xm:' .. Q.id, num(seq))
      found[#found + 1] = { table.concat(numbers, ' '), as_opt(x.fe), as_opt(x.le), message }
    end
  end
  return found
end

local function held_row(place, due)
  local held = mu(call('HGET', P .. 'yb', string.sub(place, 17)))
  return { num(due), place, held[1], held[2] }
end

-- due time and place of the last one (`-`: from the first), at most. Answer: due time, place, owner,
-- message each.
local function delayed_from()
  local rank = 0
  if ARGV[6] ~= '-' then
    local last = call('ZRANK', P .. 'y', ARGV[6])
    rank = last and last + 1 or call('ZCOUNT', P .. 'y', '-inf', '(' .. ARGV[5])
  end
  local rows = call('ZRANGE', P .. 'y', rank, rank + number(7) - 1, 'WITHSCORES')
  local found = {}
  for at = 1, #rows, 2 do found[#found + 1] = held_row(rows[at], tonumber(rows[at + 1])) end
  return found
end

-- id. Answer: none, or that one.
local function delayed()
  local place = call('HGET', P .. 'yi', ARGV[5])
  if not place then return {} end
  return { held_row(place, tonumber(call('ZSCORE', P .. 'y', place))) }
end

local function mark_row(instance)
  local mark = get('i:' .. instance)
  if not mark then return nil end
  local missing = {}
  for _, run in ipairs(mark.ms) do missing[#missing + 1] = num(run[1]) .. '-' .. num(run[2]) end
  local kept, pairs_of = call('HGETALL', P .. 'in:' .. instance), {}
  for at = 1, #kept, 2 do pairs_of[#pairs_of + 1] = kept[at] .. ' ' .. kept[at + 1] end
  local numbers = num(mark.us) .. ' ' .. num(mark.hi) .. ' ' .. num(mark.c)
  return { instance, numbers, table.concat(missing, ' '), table.concat(pairs_of, ' ') }
end

-- use of the last one, how many of that were told, at most. Answer: both for the next time, `-` at the end;
-- instance, numbers, missing, ids each.
local function marks_from()
  local use, passed = ARGV[5], number(6)
  local rows =
    call('ZRANGEBYSCORE', P .. 'il', use, '+inf', 'WITHSCORES', 'LIMIT', passed, number(7))
  local found = {}
  for at = 1, #rows, 2 do
    if rows[at + 1] == use then
      passed = passed + 1
    else
      use, passed = rows[at + 1], 1
    end
    found[#found + 1] = mark_row(rows[at])
  end
  return { #rows == 0 and '-' or use .. ' ' .. num(passed), found }
end

-- instance. Answer: none, or that one.
local function mark()
  return { mark_row(ARGV[5]) }
end

-- place of the last one, at most. Answer: that of the next time, `-` at the end; uid, time and message each.
local function uids_from()
  local gone = meta().up or 0
  local first = max(number(5) - gone, 0)
  local rows = call('LRANGE', P .. 'ul', first, first + number(6) - 1)
  local found = {}
  for _, row in ipairs(rows) do
    local uid = string.match(row, '^%d+ (.*)$')
    local kept = call('HGET', P .. 'u', uid)
    if kept then found[#found + 1] = { uid, kept } end
  end
  return { #rows == 0 and '-' or num(gone + first + #rows), found }
end

-- uid. Answer: none, or that one.
local function uid()
  local kept = call('HGET', P .. 'u', ARGV[5])
  return kept and { { ARGV[5], kept } } or {}
end

local does = {
  logs_from = logs_from, log = log, entries = entries, queues_from = queues_from, queue = queue,
  guaranteed = guaranteed, exceptions = exceptions, delayed_from = delayed_from, delayed = delayed,
  marks_from = marks_from, mark = mark, uids_from = uids_from, uid = uid,
}
return does[WHAT]()
