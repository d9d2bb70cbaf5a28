"""Runs a command at a terminal of its own, answers what it asks, and prints all that a person would see.

Usage: terminal.py JSON: {"argv": [...], "env": {...}, "answers": [[question, answer, is_secret], ...]}. A secret is
typed once the terminal shows nothing any more. Ends with the exit code of the command.
"""
import json
import os
import pty
import select
import sys
import termios
import time

task = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    os.execvpe(task["argv"][0], task["argv"], task["env"])


def echoes():
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


seen, answered, end = b"", 0, time.time() + 60
while time.time() < end:
    if select.select([terminal], [], [], 0.2)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        if not data:
            break
        seen += data
    if answered == len(task["answers"]):
        continue
    question, answer, is_secret = task["answers"][answered]
    if question.encode() in seen and echoes() is not is_secret:
        os.write(terminal, answer.encode() + b"\n")
        answered += 1
_, status = os.waitpid(child, 0)
sys.stdout.write(seen.decode())
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(status))
