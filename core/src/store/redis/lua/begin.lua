-- A writer begins an epoch: what it sent in an earlier one can no longer happen. ARGV[4]: it copies the
-- realm. Answers the number of the last call that has, and the answers from ARGV[3] on.

make_room()
local last = tonumber(call('HGET', W, 'l') or '0')
call('HSET', W, 'e', ARGV[2], 'l', last)
if ARGV[4] == '1' then call('HSETNX', W, 'x', 1) end
call('PEXPIRE', W, KEPT)
local answer = { num(last) }
for number = max(N, last - WINDOW + 1, 1), last do
  answer[#answer + 1] = num(number)
  answer[#answer + 1] = call('HGET', W, number % WINDOW) or ''
end
return answer
