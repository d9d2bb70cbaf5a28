-- Who of several brokers has a queue in hand, and what they tell each other.
--
-- Q.mb epochs by writer, Q.ep the last epoch; L.at how many queues of the log each has in hand. While
-- several share a queue, c:<queue> has the seqs that each may hand out, as runs, and an exception is
-- its owner's. n:<writer> says that a writer lives.

local BASE, TAG = string.match(P, '^([^{]*){(.*)}')
local SELF, GROUP = ARGV[1], '1'

local function is_alive(writer)
  return call('EXISTS', P .. 'n:' .. writer) == 1
end

-- Whether somebody hears it.
local function tell(writer, text)
  return call('PUBLISH', BASE .. 'notices:' .. writer, SELF .. ' ' .. text) > 0
end

local function tell_all(what, rest)
  call('PUBLISH', BASE .. 'notices', SELF .. ' ' .. what .. ' ' .. TAG .. ' ' .. rest)
end

local function tell_others(Q, what, more)
  local is_heard = false
  local text = what .. ' ' .. TAG .. ' ' .. Q.id .. ' ' .. (more or '')
  for writer in pairs(Q.mb or {}) do
    if writer ~= SELF and tell(writer, text) then is_heard = true end
  end
  return is_heard
end

-- Those who have it in hand and live, without us. Lets go of the dead.
local function others(L, Q)
  local count = 0
  for writer in pairs(Q.mb or {}) do
    if writer ~= SELF then
      if is_alive(writer) then count = count + 1 else leave(L, Q, writer) end
    end
  end
  return count
end

-- Whether somebody else has it now. `claim`: `-`, or our epoch, with `+` where we know that it is shared.
local function is_fenced(Q, claim)
  local epoch, shared = string.match(claim, '^(%d+)(%+?)$')
  if epoch then
    local own = Q.mb and Q.mb[SELF]
    return own ~= tonumber(epoch) or (shared == '' and Q.ep ~= own)
  end
  for writer in pairs(Q.mb or {}) do
    if writer ~= SELF and is_alive(writer) then return true end
  end
  return false
end

-- Whether an exception is another's to hand out.
local function is_others(Q, state)
  return state.o and state.o ~= SELF and Q.mb and Q.mb[state.o] ~= nil
end
