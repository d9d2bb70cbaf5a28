-- The life of queues: opening, attach times, forgetting, purging; and what is done to dead letters
-- and delayed messages.
--
-- ARGV: what, drops its oldest, now, then its own.

make_room()
local WHAT, NOW = ARGV[4], tonumber(ARGV[6])
DROPS = ARGV[5] == '1'
-- Others know as exactly when a queue was last used.
local STALE = 3600000

local function class_segment(L, number, class)
  return { L.h, class, number, class == 1 and L.h or L.g }
end

-- What it owns it keeps.
local function set_class(L, Q, class)
  local s = tail(Q)
  if s[2] == class then return end
  local number = last_number(L, Q)
  if s[3] == number then table.remove(Q.sg) end
  Q.sg[#Q.sg + 1] = class_segment(L, number, class)
end

-- The record, and whether others have to know.
local function opened(L, Q, is_new)
  if is_new then tell_all('o', Q.id) end
  return record_of(L, Q) .. (is_new and ' 1' or ' 0')
end

-- key, kind, name, durable, owner, settings, id for a log, id for a queue.
local function open()
  local key, kind, name = ARGV[7], ARGV[8], ARGV[9]
  local class, owner, settings = ARGV[10] == '1' and 1 or 2, ARGV[11], ARGV[12]
  local log = call('HGET', P .. 'lk', key)
  local id = log and call('HGET', P .. 'qn', log .. '|' .. kind .. '|' .. name)
  if id then
    local Q = queue_of(id)
    local L = log_of(log)
    if Q.ow ~= '-' and Q.ow ~= owner and (Q.lf or owner ~= '-') then return 'taken' end
    begin(L, Q)
    local was_left = Q.lf
    if was_left then
      local number = Q.sh[1]
      Q.lf, Q.sh = nil, nil
      settle_run(Q, number + 1, last_number(L, Q))
      compact(L, Q)
    end
    local is_new = was_left or tail(Q)[2] ~= class or Q.st ~= settings or Q.ow ~= owner
    is_new = is_new or NOW - Q.se > STALE
    set_class(L, Q, class)
    Q.st, Q.ow, Q.se = settings, owner, NOW
    end_change(L, Q)
    return opened(L, Q, is_new)
  end
  if not log then
    log = ARGV[13]
    call('HSET', P .. 'lk', key, log)
    logs[log] = {
      id = log, k = key, nq = 0, h = 0, g = 0, b = 0, gb = 0, hb = 0, f = 0, cl = 0, ca = 0, ls = 0,
      fp = 0, gp = 0, z = {}, f1 = 0, f2 = 0, dirty = true,
    }
  end
  local L = log_of(log)
  id = ARGV[14]
  L.nq = L.nq + 1
  local Q = {
    id = id, lg = log, kd = kind, nm = name, st = settings, ow = owner, se = NOW, sn = L.h, j = L.h,
    low = L.h, dl = 0, xn = 0, xb = 0, sg = { class_segment(L, L.h, class) }, before = 0,
  }
  call('HSET', P .. 'qn', log .. '|' .. kind .. '|' .. name, id)
  call('ZADD', P .. 'qs', id, id)
  end_change(L, Q)
  return opened(L, Q, true)
end

local function live()
  local Q = queue_of(ARGV[7])
  if Q and not Q.lf then return Q, log_of(Q.lg) end
end

local function touch()
  local Q = live()
  if not Q then return '?' end
  if NOW - Q.se > STALE then tell_all('o', Q.id) end
  Q.se = NOW
  put_queue(Q)
  return ''
end

local function forget()
  local Q, L = live()
  if not Q then return '?' end
  begin(L, Q)
  if others(L, Q) > 0 and (Q.kd == GROUP or ARGV[9] ~= '1') then
    -- Somebody still has it in hand.
    Q.se = max(Q.se, NOW)
    end_change(L, Q)
    return '='
  end
  leave_all(L, Q)
  tell_all('f', Q.id)
  local left = depth(L, Q)
  Q.sh, Q.lf = { last_number(L, Q), L.h }, true
  end_change(L, Q)
  if ARGV[8] == '1' or left == 0 then remove_queue(L, Q) end
  return num(left)
end

local function purge_queue()
  local Q, L = live()
  if not Q then return '?' end
  begin(L, Q)
  local left = depth(L, Q)
  drop_exceptions(Q)
  pass_number(L, Q, last_number(L, Q))
  tell_others(Q, 'p')
  end_change(L, Q)
  return num(left)
end

-- letter's queue, its id.
local function revive()
  local packed = call('HGET', P .. 'g', ARGV[8])
  if not packed then return '!' end
  local Q = queue_of(ARGV[7])
  if not Q then return '?' end
  local L = log_of(Q.lg)
  local letter, message = take_letter(ARGV[8])
  begin(L, Q)
  local seq = tonumber(string.sub(ARGV[8], 18))
  put_exception(Q, seq, {
    a = letter.a, f = 0, r = 0, d = NOW, fe = letter.fe, le = letter.le, s = false, ro = letter.ro,
    ex = letter.ex > 0 and NOW + letter.ex - letter.pr or 0, pr = letter.pr, sz = letter.sz,
  }, message)
  tell_others(Q, 'q')
  end_change(L, Q)
  return ''
end

local function discard()
  return take_letter(ARGV[7]) and '' or '!'
end

local function purge_letters()
  local count = call('ZCARD', P .. 'ga')
  if COPIED then
    for _, id in ipairs(call('ZRANGE', P .. 'gi', 0, -1)) do note('g:' .. id) end
  end
  call('UNLINK', P .. 'g', P .. 'gm', P .. 'gi', P .. 'ga')
  return num(count)
end

local function drop_delayed()
  for at = 7, #ARGV do drop_held(ARGV[at]) end
  return num(meta().d)
end

-- A bite of what a realm holds; `0` when nothing is left.
local function purge_realm()
  local count = 0
  local ids = call('ZRANGEBYSCORE', P .. 'qs', '-inf', '+inf', 'LIMIT', 0, 200)
  for _, id in ipairs(ids) do
    local Q = queue_of(id)
    local L = log_of(Q.lg)
    begin(L, Q)
    count = count + Q.before
    remove_queue(L, Q)
  end
  local letters = call('ZCARD', P .. 'ga')
  call('UNLINK', P .. 'g', P .. 'gm', P .. 'gi', P .. 'ga')
  local m = meta()
  count = count + letters + m.d
  m.d = 0
  call('UNLINK', P .. 'y', P .. 'yi', P .. 'yb', P .. 'u', P .. 'ul')
  local ended = end_instances(0, 0, 0, 500)
  local is_over = #ids < 200 and ended < 500
  if is_over then
    tell_all('r', '0')
    call('UNLINK', P .. 'xe', P .. 'wk', P .. 'm')
    M = nil
    -- Told before all that comes after it.
    if COPIED then call('ZADD', P .. 'ch', 0, 'R') end
  end
  return num(count) .. (is_over and ' 0' or ' 1')
end

local does = {
  open = open, touch = touch, forget = forget, purge_queue = purge_queue, revive = revive,
  discard = discard, purge_letters = purge_letters, drop_delayed = drop_delayed,
  purge_realm = purge_realm,
}
local answer = does[WHAT]()
save()
return finish(answer)
