"""Running a learner's functions: they may not end, and they may print."""

import contextlib
import io
import signal
import threading

PRINTED = 1_000         # characters of what they print


class Beginning(io.StringIO):
    """Keeps the first few lines that are written to it: a function is called thousands of times."""

    def write(self, text: str) -> int:
        return super().write(text) if self.tell() < PRINTED else len(text)


class TooLong(BaseException):
    """Not an Exception: what falls over inside a walk is looked at, what does not end must end it."""


@contextlib.contextmanager
def limit(seconds: float):
    """Raises TooLong inside after that time, where the system has alarms; 0 is never."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise TooLong
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
