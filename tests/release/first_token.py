"""How long a stranger waits: a command in a terminal of its own, the seconds until a text stands on it, and until it
ends. To be run by hand, on a machine that does nothing else.

    python -m tests.release.first_token TEXT COMMAND ...
    python -m tests.release.first_token ' the files' python demo.py
"""

import os
import pty
import re
import select
import sys
from time import perf_counter

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def main(text: str, command: list[str]) -> None:
    began = perf_counter()
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        os.execvp(command[0], command)
    shown, first = "", None
    while True:
        try:
            ready, _, _ = select.select([terminal], [], [], 0.1)
            if ready:
                shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:                 # the command has ended
            break
        if first is None and text in ESCAPE.sub("", shown):
            first = perf_counter() - began
    _, status = os.waitpid(child, 0)
    seen = "never" if first is None else f"after {first:.1f} s"
    ended = f"status {os.waitstatus_to_exitcode(status)} after {perf_counter() - began:.1f} s"
    print(f"{text!r} stood there {seen}; {ended}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
