"""The command `nanospec`: each name reaches its script, with what stands behind the name."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from nanospec.commands import __main__ as commands

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", commands.MODULES)
def test_each_name_reaches_its_script(name, monkeypatch):
    heard = []
    monkeypatch.setattr(import_module(commands.MODULES[name]), "main", lambda argv: heard.append(argv) or 7)
    assert commands.main([name, "--some", "words"]) == 7 and heard == [["--some", "words"]]
    assert f"\n    {name} " in commands.__doc__


@pytest.mark.parametrize("argv, status", [([], 0), (["--help"], 0), (["demp"], 2), (["\x1b[2J"], 2)])
def test_without_a_name_it_says_which_there_are(argv, status, capsys):
    assert commands.main(argv) == status
    said = "".join(capsys.readouterr())
    assert all(name in said for name in commands.MODULES) and "\x1b" not in said
    assert len(said.splitlines()) == 1 or status == 0


def test_the_exercises_are_in_a_clone(tmp_path, monkeypatch, capsys):
    """Found from any folder of it; without one, said in a line."""
    monkeypatch.setattr(commands, "__file__", str(tmp_path / "site" / "nanospec" / "commands" / "__main__.py"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert commands.main(["check", "--list"]) == 2 and "in the repository" in capsys.readouterr().err
    monkeypatch.chdir(ROOT / "lessons" / "exercises")
    assert commands.main(["check", "--list"]) == 0 and "of 21 solved" in capsys.readouterr().out


def test_as_a_process():
    done = subprocess.run([sys.executable, "-m", "nanospec.commands", "bench", "--gammas", "0"], capture_output=True,
                          text=True, cwd=ROOT)
    assert done.returncode == 2 and "--gammas" in done.stderr and "Traceback" not in done.stderr
