"""Runs a command at a terminal of its own, answers what it asks, and prints all that a person would see.

Usage: terminal.py JSON: {"argv": [...], "env": {...}, "answers": [[question, answer], ...]}. Ends with the exit
code of the command.
"""
import json
import os
import pty
import select
import sys
import time

task = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    os.execvpe(task["argv"][0], task["argv"], task["env"])
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
    if answered < len(task["answers"]) and task["answers"][answered][0].encode() in seen:
        os.write(terminal, task["answers"][answered][1].encode() + b"\n")
        answered += 1
_, status = os.waitpid(child, 0)
sys.stdout.write(seen.decode())
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(status))
