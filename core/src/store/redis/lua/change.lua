-- What happens in one queue: settling, excepting, burying, its low and its sent mark.
--
-- ARGV: queue, drops its oldest, most dead letters, now, what; then for `update`: the claim,
-- low and sent ('-': not given), numbers of except, clear, done, bury, and these: except 8 each, bury 5
-- each. For `settle`, which nobody is refused: seqs. Left-overs are queues too here. Answer: `?` if there
-- is no such queue, `F` if it is another's.

make_room()
DROPS = ARGV[5] == '1'
local LETTERS, NOW, WHAT = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local buried, letters_dropped = 0, 0

local Q = queue_of(ARGV[4])
local L = Q and log_of(Q.lg)
if not L then return finish('?') end
if WHAT == 'update' and is_fenced(Q, ARGV[9]) then return finish('F') end

local function settle(seq)
  if take_exception(Q, seq) then return 'N' end
  return settle_waiting(L, Q, seq)
end

-- The message and state of an entry that waits for its turn; it is settled by that.
local function take_waiting(seq)
  if seq <= Q.j or seq > L.h then return nil end
  local number = number_of(L, Q, seq)
  if not number or not is_waiting(L, Q, number) then return nil end
  local message = call('HGET', P .. 'e:' .. L.id, num(seq))
  local ex, pr, _, _, _, sz = record(L, seq)
  settle_waiting(L, Q, seq)
  if message then return { ex = ex, pr = pr, sz = sz, ro = 0 }, message end
end

local function except(at)
  local seq = tonumber(ARGV[at])
  local state = exception_of(Q, seq)
  local message
  local due = tonumber(ARGV[at + 4])
  local is_known = state ~= nil
  if not state then
    state, message = take_waiting(seq)
    if not state then return end
  end
  if is_known and state.d ~= due then call('ZADD', P .. 'xd:' .. Q.id, due, pad(seq)) end
  state.a, state.f, state.r = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  state.d, state.fe, state.le = due, opt(ARGV[at + 5]), opt(ARGV[at + 6])
  state.s = ARGV[at + 7] == '1'
  state.o = Q.kd == GROUP and SELF or nil
  if is_known then
    call('HSET', P .. 'x:' .. Q.id, num(seq), mp(state))
    note('x:' .. Q.id .. ':' .. num(seq))
  else
    put_exception(Q, seq, state, message)
  end
end

local function bury(at)
  local seq = tonumber(ARGV[at])
  local state, message = take_exception(Q, seq)
  if not state then
    state, message = take_waiting(seq)
    if not state then return end
  end
  local letter = {
    k = L.k, kd = Q.kd, nm = Q.nm, a = tonumber(ARGV[at + 1]), ro = state.ro + 1, rs = ARGV[at + 2],
    fe = opt(ARGV[at + 3]), le = opt(ARGV[at + 4]), at = NOW, ex = state.ex, pr = state.pr, sz = state.sz,
  }
  put_letter(pad(tonumber(Q.id)) .. '-' .. pad(seq), letter, message)
  buried = buried + 1
  letters_dropped = letters_dropped + drop_letters(LETTERS)
end

local answers = {}
begin(L, Q)
if WHAT == 'settle' then
  local now = {}
  for at = 9, #ARGV do
    local answer = settle(tonumber(ARGV[at]))
    answers[#answers + 1] = answer
    if answer == 'N' then now[#now + 1] = ARGV[at] end
  end
  -- Whoever has them in hand must not send them again.
  if #now > 0 then tell_others(Q, 's', table.concat(now, ' ')) end
else
  local low, sent = tonumber(ARGV[10]), tonumber(ARGV[11])
  local at = 16
  for _ = 1, tonumber(ARGV[12]) do
    except(at)
    at = at + 8
  end
  for _ = 1, tonumber(ARGV[13]) + tonumber(ARGV[14]) do
    settle(tonumber(ARGV[at]))
    at = at + 1
  end
  for _ = 1, tonumber(ARGV[15]) do
    bury(at)
    at = at + 5
  end
  if low then pass_number(L, Q, min(upto(L, Q, low), last_number(L, Q))) end
  if sent then Q.sn = max(Q.sn, sent) end
end
end_change(L, Q)
end_left(L, Q)
save()
return finish(buried .. ' ' .. letters_dropped .. ' ' .. table.concat(answers))
