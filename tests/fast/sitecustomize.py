"""Python runs this when it starts, where this folder is on PYTHONPATH: nanospec's clocks run a hundred times as fast.

So what depends on how long something takes is seen on a quick machine. A test's own patience has the real clock.
"""

import sys
import threading
import time

FASTER = 100


def of_ours() -> bool:
    """Whether the package, or a script of the repository, has called the caller of this function."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return name.split(".")[0] in ("nanospec", "train_tiny", "__main__")


def fast(clock):
    return lambda: clock() * (FASTER if of_ours() else 1)


def wait(event, timeout=None, really=threading.Event.wait):
    return really(event, timeout and timeout / (FASTER if of_ours() else 1))


time.perf_counter, time.monotonic = fast(time.perf_counter), fast(time.monotonic)
threading.Event.wait = wait
