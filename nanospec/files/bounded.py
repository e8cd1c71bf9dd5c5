"""A chat template is run in a process of its own, which may take so much time and memory and no
more.

jinja2's sandbox keeps a template from attributes and functions that are not its own. It does not
bound time or memory: a loop that never ends, a string that is doubled forty times or
lipsum(n=1000000) would stop this process, and Ctrl-C would not be heard. Where the system knows no
limit of memory, as Windows and macOS, time alone is bounded.

Run as a program this file is that process: a task a line, in JSON, and an answer a line. It imports
nothing of ours.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from time import perf_counter
from typing import Any

SECONDS = 10            # for a template
MEMORY = 2 ** 30        # bytes
LONGEST = 1_000_000     # characters of what a template writes; encoding takes 250 bytes for each


# In the process

def limit() -> None:
    """From now on this process has MEMORY, and hears no Ctrl-C."""
    import signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, ValueError, OSError):
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def alarm(seconds: int) -> None:
    """This process ends after these seconds, whatever it does; with 0 it goes on."""
    import signal
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


def environment() -> Any:
    """What a chat template finds, as transformers makes it."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what the assistant writes; it changes nothing in the text."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.now().strftime(form)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return made


def answer_to(env: Any, task: dict) -> dict:
    """{"text"}, or {"unread"} or {"refused"}, with the reason: it is no program, or does not take
    this; {"ended"} where it takes too much.
    """
    from jinja2 import TemplateSyntaxError
    try:
        text = env.from_string(task["source"]).render(**task["given"])
        if len(text) > LONGEST:
            raise MemoryError(f"it writes {len(text):,} characters")
        return {"text": text}
    except TemplateSyntaxError as error:
        return {"unread": str(error)[:1000]}
    except MemoryError as error:
        return {"ended": str(error) or "it takes too much memory"}
    except BaseException as error:                      # a program may fail in any way
        return {"refused": str(error)[:1000] or type(error).__name__}


def serve() -> None:
    env = environment()
    limit()
    print("ready", flush=True)
    for line in sys.stdin:
        alarm(SECONDS + 5)                              # for nobody may wait any longer
        print(json.dumps(answer_to(env, json.loads(line))), flush=True)
        alarm(0)


# In ours

class Process:
    """The process: started when it is first asked, and anew after one that had to be ended."""

    def __init__(self) -> None:
        self.lock, self.owner = threading.Lock(), 0
        self.running: Any = None
        atexit.register(self.end)

    def ask_all(self, tasks: list[dict]) -> Iterator[dict]:
        """Its answers to tasks that have SECONDS in all, and each one second at least."""
        left = float(SECONDS)
        for task in tasks:
            answer, took = self.ask(task, left)
            yield answer
            left = max(1.0, left - took)

    def ask(self, task: dict, seconds: float) -> tuple[dict, float]:
        """Its answer, and how long it took; {"ended"}, with the reason, where it takes too long or
        too much.
        """
        with self.lock:
            try:
                # A fork has none, and somebody may have ended it since the last question.
                if (self.owner != os.getpid() or self.running is None
                        or self.running.poll() is not None):
                    self.start()
                self.running.stdin.write(json.dumps(task) + "\n")
                self.running.stdin.flush()
                begun = perf_counter()
                answer = self.read(seconds)
                took = perf_counter() - begun
            except BaseException as error:              # an interruption too
                self.end()
                if isinstance(error, OSError):
                    return {"ended": "its process has ended"}, 0.0
                raise
            if not answer:
                self.end()
                why = f"it takes more than {seconds:.3g} seconds, or too much memory"
                return {"ended": why}, took
            return json.loads(answer), took

    def start(self) -> None:
        self.owner = os.getpid()
        self.running = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, encoding="utf-8", start_new_session=True)
        self.read(60)

    def read(self, seconds: float) -> str:
        """A line; "" if none comes in these seconds."""
        timer = threading.Timer(seconds, self.running.kill)
        timer.daemon = True
        timer.start()
        try:
            return self.running.stdout.readline()
        finally:
            timer.cancel()

    def end(self) -> None:
        if self.running and self.owner == os.getpid():
            self.running.kill()
            self.running.wait()
            with suppress(OSError):
                self.running.stdin.close()
            self.running.stdout.close()
        self.running = None


PROCESS = Process()

if __name__ == "__main__":
    serve()
