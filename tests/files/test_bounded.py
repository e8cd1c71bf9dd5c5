"""A stranger's chat template has so much time and memory, and no more; and the next one is none the worse."""

import json
import os
import resource
import signal
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from nanospec.errors import PairError, RequestError
from nanospec.files import bounded
from nanospec.files.chat_template import ChatTemplate

pytest.importorskip("jinja2", reason="jinja2 is not installed (the extra 'hf')")
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLES = "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}"


@pytest.fixture
def hurried(monkeypatch):
    """With it the process is waited for a quarter of a second."""
    @contextmanager
    def of():
        with monkeypatch.context() as patch:
            patch.setattr(bounded, "SECONDS", .25)
            yield
    return of


@pytest.mark.parametrize("source", [LOOPS, DOUBLES, "{{ lipsum(n=1000000) }}", "{{ 'a' * 99999999 }}",
                                    "{% if messages %}" + LOOPS + "{% endif %}"])
def test_a_template_that_takes_too_long(source, hurried):
    with hurried(), pytest.raises(PairError, match="template cannot be used"):
        ChatTemplate(source, {})
    assert ChatTemplate("{{ messages | length }}", {})([]) == "0"


@pytest.mark.parametrize("source", ["{{ 'a' * 10 ** 12 }}", "{{ '%999999999d' % 1 }}", "{{ 'a' * 1000001 }}"])
def test_a_template_that_takes_too_much(source):
    with pytest.raises(PairError, match="template cannot be used"):
        ChatTemplate(source, {})
    assert ChatTemplate("{{ messages | length }}", {})([]) == "0"


def test_a_template_may_write_a_million_characters():
    assert ChatTemplate("{{ 'a' * 1000000 }}", {})([]) == "a" * 1_000_000


def test_one_that_takes_too_long_for_some_messages(hurried):
    template = ChatTemplate("{% if messages | length > 2 %}" + LOOPS + "{% endif %}fine", {})
    with hurried(), pytest.raises(RequestError, match="more than 0.25 seconds"):
        template([{"role": "user", "content": "x"}] * 3)
    assert template([]) == "fine"


def test_a_model_is_opened_in_one_time_for_all_that_its_template_is_asked(monkeypatch):
    given, process = [], bounded.Process()
    read = process.read
    monkeypatch.setattr(process, "read", lambda seconds: given.append(seconds) or read(60))
    monkeypatch.setattr("nanospec.files.chat_template.PROCESS", process)
    monkeypatch.setattr(bounded, "perf_counter", iter([0, 3, 10, 16.5, 20, 22]).__next__)
    for _ in range(2):                                  # its files are read twice, and it is asked once
        assert ChatTemplate("{{ messages | length }} read", {}).written == ["0 read", "2 read", "1 read"]
    process.end()
    assert given == [60, 10, 7, 1]                      # the first is its start, and .5 would be left


def test_it_is_said_how_long_it_had(monkeypatch):
    process = bounded.Process()
    process.start()
    monkeypatch.setattr(process, "read", lambda seconds: "")
    assert process.ask({}, 2.5)[0] == {"ended": "it takes more than 2.5 seconds, or too much memory"}


def test_nobody_waits_for_it_for_ever(monkeypatch, capsys):
    """It ends by itself five seconds after it would be ended, if that time is not over with its answer."""
    done = []
    monkeypatch.setattr(bounded, "limit", lambda: done.append("limited"))
    monkeypatch.setattr(signal, "alarm", lambda seconds: done.extend([seconds, capsys.readouterr().out]))
    monkeypatch.setattr("sys.stdin", [json.dumps({"source": "a{{ b }}", "given": {"b": 7}})] * 2)
    bounded.serve()
    answer = '{"text": "a7"}\n'
    assert done == ["limited", 15, "ready\n", 0, answer, 15, "", 0, answer]


def test_who_has_answered_in_time_is_not_ended_later_and_who_is_ended_keeps_nothing_open(monkeypatch):
    process, heard = bounded.Process(), []
    timer = SimpleNamespace(start=lambda: heard.append(f"started, {timer.daemon = }"),
                            cancel=lambda: heard.append("cancelled"))
    monkeypatch.setattr(threading, "Timer", lambda seconds, end: timer)
    process.start()
    running = process.running
    process.end()
    assert heard == ["started, timer.daemon = True", "cancelled"]        # an exit does not wait for it
    assert running.returncode and running.stdin.closed and running.stdout.closed


def test_what_it_says_when_it_ends_is_not_shown(capfd):
    process = bounded.Process()
    process.start()
    process.running.communicate("no task\n")
    assert process.running.returncode == 1 and capfd.readouterr().err == ""


def test_threads_ask_in_turn():
    template, found = ChatTemplate("{{ messages[0].content }}", {}), {}

    def ask(word):
        found[word] = [template([{"role": "user", "content": word}]) for _ in range(20)]

    threads = [threading.Thread(target=ask, args=[str(number)]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {str(number): [str(number)] * 20 for number in range(4)}


def test_a_process_that_has_ended_since_the_last_question_is_started_anew():
    """The system may have ended it; an honest template is not to blame."""
    template = ChatTemplate("{{ messages | length }}", {})
    assert template([]) == "0"
    bounded.PROCESS.running.kill()
    bounded.PROCESS.running.wait()
    assert template([]) == "0"


def test_one_that_ends_while_it_is_asked_is_no_error_of_the_system_and_the_next_is_started_anew(monkeypatch):
    process, task = bounded.Process(), {"source": "a{{ b }}", "given": {"b": 7}}
    process.start()
    process.running.kill()
    process.running.wait()
    monkeypatch.setattr(process.running, "poll", lambda: None)         # it was there when somebody looked
    assert process.ask(task, 60) == ({"ended": "its process has ended"}, 0.0)
    assert process.ask(task, 60)[0] == {"text": "a7"}
    process.end()


def test_a_fork_asks_a_process_of_its_own_and_ends_no_other(monkeypatch):
    process, task = bounded.Process(), {"source": "a{{ b }}", "given": {"b": 7}}
    process.ask(task, 60)
    ours = process.running
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert process.ask(task, 60)[0] == {"text": "a7"}
    theirs = process.running
    process.end()
    assert theirs is not ours and theirs.poll() is ours.poll() is None
    for running in theirs, ours:
        running.kill()
        running.communicate()


def test_the_process_itself_hears_no_interruption():
    """By no signal, and not from the terminal, whose processes get one together."""
    template = ChatTemplate("{{ messages | length }}", {})
    assert template([]) == "0"
    running = bounded.PROCESS.running
    running.send_signal(signal.SIGINT)
    assert template([]) == "0" and bounded.PROCESS.running is running and os.getsid(running.pid) == running.pid


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells what another process may take")
def test_the_process_has_a_gigabyte():
    assert ChatTemplate("{{ messages | length }}", {})([]) == "0"
    assert resource.prlimit(bounded.PROCESS.running.pid, resource.RLIMIT_AS) == (2 ** 30, 2 ** 30)


def test_an_interruption_is_heard_and_leaves_nothing_behind(monkeypatch):
    template = ChatTemplate("{{ messages | length }}", {})
    before = bounded.PROCESS.running

    def interrupted(seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as within:
        within.setattr(bounded.PROCESS, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            template([])
    assert before.poll() is not None and template([]) == "0"
