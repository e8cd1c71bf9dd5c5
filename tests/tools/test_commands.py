"""The command `nanospec`: each name reaches its script, with what follows the name. Ctrl-C ends it without a word."""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from nanospec.cli import __main__ as commands
from nanospec.cli import launch
from nanospec.cli.options import sampling_of
from nanospec.errors import RequestError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", commands.MODULES)
def test_each_name_reaches_its_script(name, monkeypatch):
    heard = []
    monkeypatch.setattr(import_module(commands.MODULES[name]), "main", lambda argv: heard.append(argv) or 7)
    assert commands.main([name, "--some", "words"]) == 7 and heard == [["--some", "words"]]
    assert f"\n    {name} " in commands.__doc__


@pytest.mark.parametrize("argv, status", [([], 0), (["--help"], 0), (["-h"], 0), (["demp"], 2), (["\x1b[2J"], 2)])
def test_without_a_name_it_says_which_there_are(argv, status, capsys):
    assert commands.main(argv) == status
    said = "".join(capsys.readouterr())
    assert all(name in said for name in commands.MODULES) and "\x1b" not in said
    assert len(said.splitlines()) == 1 or status == 0


def test_the_exercises_are_in_a_clone(tmp_path, monkeypatch, capsys):
    """Found from any folder of it; without one, said in a line."""
    monkeypatch.setattr(commands, "__file__", str(tmp_path / "site" / "nanospec" / "cli" / "__main__.py"))
    monkeypatch.setattr(sys, "path", ["elsewhere", *sys.path])
    monkeypatch.chdir(tmp_path)
    assert commands.main(["check", "--list"]) == 2 and "in the repository" in capsys.readouterr().err
    for folder in ROOT, ROOT / "lessons" / "exercises":
        monkeypatch.chdir(folder)
        assert commands.main(["check", "--list"]) == 0 and "of 23 solved" in capsys.readouterr().out
    assert sys.path[0] == str(ROOT)


@pytest.mark.parametrize("package", ["nanospec", "nanospec.cli"])
def test_as_a_process(package):
    """Without a name of a command, for torch is not imported then; test_a_real_terminal and others start commands."""
    done = subprocess.run([sys.executable, "-m", package, "demp"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "demp" in done.stderr and "Traceback" not in done.stderr


def test_only_a_process_of_its_own_is_made_quiet(monkeypatch, capsys):
    """Who calls main with words of his own keeps his streams and signals."""
    made = []
    monkeypatch.setattr(commands, "quiet", lambda: made.append("quiet"))
    monkeypatch.setattr(sys, "argv", ["nanospec", "--help"])
    assert commands.main(["--version"]) == 0 and not made
    assert capsys.readouterr().out.startswith("nanospec ") and commands.main() == 0 and made == ["quiet"]
    assert capsys.readouterr().out.startswith("nanospec NAME ...")


def test_its_version(capsys, monkeypatch):
    assert commands.main(["--version"]) == 0
    assert re.fullmatch(r"nanospec \d+\.\d+\S*\n", capsys.readouterr().out)

    def missing(name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out == "nanospec of a clone that is not installed\n"


def test_the_training_is_in_a_clone_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as left:
        commands.main(["train", "--help"])
    assert left.value.code == 0 and "--texts" in capsys.readouterr().out
    monkeypatch.setattr(commands, "__file__", str(tmp_path / "site" / "nanospec" / "cli" / "__main__.py"))
    monkeypatch.chdir(tmp_path)
    for name, file in ("train", "train_tiny.py"), ("proof", "tests/proof/__main__.py"):
        assert commands.main([name]) == 2 and f"{file} is in the repository" in capsys.readouterr().err


def test_an_interrupt_while_a_command_is_being_imported_is_no_traceback(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "import_module", interrupted)
    assert commands.main(["demo"]) == 130 and capsys.readouterr() == ("", "")


def test_an_interruption_that_no_command_can_catch_ends_the_process(monkeypatch):
    """In a finalizer, or before and after the command. Other errors are Python's to tell."""
    done, error = [], BaseException()
    monkeypatch.setattr(launch, "leave", lambda: done.append("left"))
    monkeypatch.setattr(sys, "__unraisablehook__", lambda what: done.append(what.exc_value))
    monkeypatch.setattr(sys, "__excepthook__", lambda kind, error, traceback: done.append(error))
    for hear in lambda it: launch.unraisable(SimpleNamespace(exc_value=it)), lambda it: launch.uncaught(
            type(it), it, None):
        done.clear()
        hear(error)
        assert done == [error]
        hear(KeyboardInterrupt())
        assert done[1] == "left"


def test_the_launcher_itself_imports_nothing_heavy():
    """Ctrl-C in the seconds in which torch is imported must be caught."""
    code = "import sys, nanospec.cli.__main__\nprint(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert {*done.stdout.split()} - {"__main__", "nanospec"} <= sys.stdlib_module_names


GUARD = """if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()
"""
FILES = [*ROOT.glob("*.py"), *(ROOT / "nanospec").rglob("*.py"), *(ROOT / "tests" / "proof").glob("*.py"),
         ROOT / "tests" / "release" / "gpu.py", ROOT / "docs" / "pictures.py", ROOT / "training" / "__main__.py"]
STARTED = sorted(path for path in FILES if 'if __name__ == "__main__"' in path.read_text())


@pytest.mark.parametrize("path", STARTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_whatever_can_be_started_is_quiet_from_its_first_line_on(path):
    if path in (ROOT / "nanospec" / "cli" / "__main__.py", ROOT / "nanospec" / "files" / "bounded.py"):
        return                              # which import nothing heavy: the tests above and below
    source = path.read_text()
    assert GUARD in source and not re.search("^(import|from) ", source[:source.index(GUARD)], re.M)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("start", [
    "-m nanospec demo", "train_tiny.py", "-m training", "-m lessons.check 3", "-m nanospec bench", "-m nanospec why",
    "-m tests.proof", "-m tests.proof.itself",
    "-m nanospec export", "-m nanospec chat", "-m docs.pictures"])
def test_ctrl_c_while_torch_is_imported(start, tmp_path):
    """A torch that takes for ever, and would make something else of an interruption."""
    (tmp_path / "torch.py").write_text("import time\nprint('importing', flush=True)\ntry:\n    time.sleep(60)\n"
                                       "except KeyboardInterrupt:\n    raise ImportError('half of it') from None\n")
    started = subprocess.Popen([sys.executable, *start.split()], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert started.stdout.readline() == "importing\n"
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=30)
    assert started.returncode == 130 and err == ""


def in_a_shell(code, more="", **env):
    """Status, stdout and stderr of a command that is this code; `more` redirects its streams."""
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f'"$0" -c "$1" {more}', sys.executable,
                           "from nanospec.cli.launch import quiet\nquiet()\nimport os, signal, sys\n" + code],
                          cwd=ROOT, capture_output=True, env=os.environ | env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


FULL = "standard output could not be written: No space left on device\n"
LOUD = "for _ in range(99_999): print('a line')"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a shell, and a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("code, more, ends", [
    ("print('a line')", "> /dev/full", (2, "", FULL)), (LOUD, "> /dev/full", (2, "", FULL)),
    ("import argparse\nargparse.ArgumentParser().print_help()", "> /dev/full", (2, "", FULL)),     # it catches OSErrors
    (LOUD, "| head -1", (141, "a line\n", "")),
    ("try:\n " + LOUD + "\nexcept (OSError, KeyboardInterrupt):\n sys.exit(3)", "| head -1", (141, "a line\n", "")),
    ("try:\n " + LOUD + "\nfinally:\n print('saved', file=sys.stderr)", "| head -1", (141, "a line\n", "saved\n")),
    ("print(sys.stdin.isatty(), repr(sys.stdin.read()))", "<&-", (0, "False ''\n", "")),
    ("print('a line', sys.stdout.isatty(), flush=True)", ">&-", (0, "", "")),
    ("print('a line')\nprint('a word', file=sys.stderr, flush=True)", "2>&-", (0, "a line\n", "")),
    ("print('a line')\nprint('a word', file=sys.stderr, flush=True)", "2> /dev/full", (0, "a line\n", "")),
    ("file = open(os.devnull)\nprint(file.fileno() > 2, file=sys.stderr)", "<&- >&-", (0, "", "True\n")),
    ("raise ZeroDivisionError", ">&- 2>&-", (1, "", ""))])
def test_streams_that_are_full_closed_or_no_longer_read(code, more, ends, unbuffered):
    assert in_a_shell(code, more, PYTHONUNBUFFERED=unbuffered) == ends


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_what_python_does_not_buffer_is_written_at_once():
    """Lines on the error stream, and everything where it is told so."""
    assert in_a_shell("print('a line', file=sys.stderr)\nos._exit(4)") == (4, "", "a line\n")
    assert in_a_shell("print('a word')\nos._exit(3)", PYTHONUNBUFFERED="1") == (3, "a word\n", "")


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_what_was_printed_before_it_was_made_quiet_stays_before():
    code = "kept, sys.stdout = sys.stdout, sys.__stdout__\nprint('a line')\nquiet()\nprint('a word')"
    assert in_a_shell(code) == (0, "a line\na word\n", "")


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_what_the_encoding_lacks_is_a_question_mark():
    assert in_a_shell("print('a\u23ceb')", PYTHONIOENCODING="cp1252") == (0, "a?b\n", "")
    assert in_a_shell("print('a\u23ceb', file=sys.stderr)", PYTHONIOENCODING="cp1252") == (0, "", "a\\u23ceb\n")


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_a_width_of_nothing_is_one_that_is_not_known():
    """rich would print nothing at all."""
    code = "from rich.console import Console\nprint(Console().width > 20)"
    assert in_a_shell(code, COLUMNS="0", LINES="0") == (0, "True\n", "")
    assert in_a_shell(code, COLUMNS="20") == (0, "False\n", "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_within_an_import_that_is_printing():
    """The interruption comes while stdout is being flushed, which nothing can begin a second time."""
    code = ("from nanospec.cli import launch\nlaunch.IMPORT = '<string>'\n"
            "class Slow(launch.io.RawIOBase):\n"
            "    def writable(self): return True\n"
            "    def write(self, data):\n        signal.raise_signal(signal.SIGINT)\n        return len(data)\n"
            "sys.stdout = launch.io.TextIOWrapper(launch.io.BufferedWriter(Slow()))\n"
            "print('a line', flush=True)\n")
    assert in_a_shell(code, PYTHONUNBUFFERED="")[::2] == (130, "")


def test_an_interrupted_command_ends_with_130():
    def interrupted(argv):
        raise KeyboardInterrupt

    assert launch.command("it")(interrupted)([]) == 130 and launch.command("it")(lambda argv: None)([]) == 0
    assert launch.command("it")(lambda argv: 3)([]) == 3


def test_an_error_is_one_line_and_whole(capsys):
    """However long it is, and without what a terminal would obey."""
    def refuse(argv):
        raise RequestError("a\x1b[2J\n" + "word " * 99)

    assert launch.command("it")(refuse)([]) == 2
    assert capsys.readouterr() == ("", "it: a\ufffd[2J" + " word" * 99 + "\n")


def test_what_is_asked_of_a_distribution_is_what_makes_it():
    asked = SimpleNamespace(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125, seed=3)
    assert sampling_of(asked) == {"temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125}


@pytest.mark.parametrize("argv", [[name, *words] for name, words in (
    ("demo", []), ("chat", []), ("why", []), ("bench", []), ("bench", ["acceptance"]), ("bench", ["serve"]),
    ("bench", ["transformers"]), ("train", ["--size", "dust"]))], ids=" ".join)
def test_a_device_that_is_not_here_is_refused_before_anything_is_loaded(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "__file__", str(ROOT / "nanospec" / "cli" / "__main__.py"))
    assert commands.main([*argv, "--device", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and "'nowhere'" in err and not [*tmp_path.iterdir()]
