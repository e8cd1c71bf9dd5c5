"""A class can be graded: whatever one file does, the next is looked at as if nothing had happened."""

import builtins
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import nanospec.reader
import nanospec.theory
from lessons.check import EXERCISES, seeds, seen, workers
from lessons.check.catalogue import ANSWERS
from lessons.check.command import main
from lessons.check.grade import Grading
from lessons.check.workers import Job, found_in, run

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "lessons" / "exercises"
pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="grading forks"),
              pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No busy machine decides a test."""
    for module in "clock", "workers":
        monkeypatch.setattr(f"lessons.check.{module}.PATIENCE", 1_000)


FILE = "ex02_total_variation.py"
RIGHT = EXERCISES[2].answer
HARM = {
    "wrong types": ("def total_variation(one, other):\n    return 'far'\n", "contract"),
    "huge output": ("def total_variation(one, other):\n    print('x' * 10 ** 6)\n    return 2.0\n", "worked number"),
    "a changed library": ("import nanospec.theory\nnanospec.theory.acceptance = lambda a, b: 0\n" + RIGHT, "library"),
    "changed checks": ("import lessons.check.seen as e\ne.TOLERANCE = 9\ndef total_variation(a, b):\n    return .5\n",
                       "library"),
    "parts removed": ("from lessons.check import EXERCISES\nEXERCISES[2].looks.clear()\n"
                      "def total_variation(a, b):\n    return .5\n", "library"),
    "no contract": ("from lessons.check import EXERCISES\nEXERCISES[2].contract = print\n" + RIGHT, "library"),
    "tests removed": ("from lessons.check import EXERCISES\nEXERCISES[12].tests.clear()\n" + RIGHT, "library"),
    "a changed built-in": ("import builtins\nbuiltins.ascii = repr\n" + RIGHT, "library"),
    "a method more": ("import lessons.check.seen as e\ne.Seen.__len__ = lambda seen: 0\n" + RIGHT, "library"),
    "a changed method": ("import lessons.check.seen as e\ne.Seen.greatest = lambda seen: 0\n" + RIGHT, "library"),
    "a changed keyword": ("import nanospec.reader as r\nr.GPTReader.step.__kwdefaults__ = {'scored': 7}\n" + RIGHT,
                          "library"),
    "a changed tensor": ("import torch\ntorch.Tensor.abs = lambda x: x\n" + RIGHT, "library"),
    "no text": ("\x00\x01", "syntax"),
    "no colon": ("def total_variation(one, other)\n    return 2.0\n", "syntax"),
}


@pytest.mark.parametrize("name", HARM)
def test_what_a_students_file_may_do(name, tmp_path, monkeypatch):
    """Each is put back here; in earnest each has a process of its own."""
    for thing, part in ((nanospec.theory, "acceptance"), (seen, "TOLERANCE"), (torch.Tensor, "abs"),
                        (seen.Seen, "greatest"), (EXERCISES[2], "contract"), (builtins, "ascii"),
                        (nanospec.reader.GPTReader.step, "__kwdefaults__")):
        monkeypatch.setattr(thing, part, getattr(thing, part))
    monkeypatch.setattr(seen.Seen, "__len__", None, raising=False)
    monkeypatch.delattr(seen.Seen, "__len__")
    monkeypatch.setattr(EXERCISES[2], "looks", dict(EXERCISES[2].looks))
    monkeypatch.setattr(EXERCISES[12], "tests", {"of mine": print})
    monkeypatch.setattr(EXERCISES[2], "_made", {})              # what is made with a changed library is not kept
    text, part = HARM[name]
    path = tmp_path / FILE
    path.write_text(text)
    assert found_in(EXERCISES[2], path)["part"] == part


def judged(texts: dict[str, str], seconds: float = 20, number: int = 2) -> dict[str, dict]:
    """What is found in each of those texts, side by side, each in a process of its own."""
    jobs = []
    for name, text in texts.items():
        jobs.append(Job(name, EXERCISES[number], text.encode()))
    return {job.student: result for job, result in run(jobs, 2, seconds)}


LIES = {        # what people try, and what becomes of it
    "its own result": ("import json, os\nfor fd in range(3, 60):\n    try:\n        os.write(fd, json.dumps({'solved': "
                       "True, 'part': '', 'why': '', 'label': 'solved'}).encode())\n    except OSError:\n        pass\n"
                       "os._exit(0)\n", "crash"),
    "the answer, run": (f"exec(open({str(ANSWERS / FILE)!r}).read())\n", "answers"),
    "the answer, run later": (f"def total_variation(a, b):\n    names = {{}}\n    exec(open({str(ANSWERS / FILE)!r})"
                              ".read(), names)\n    return names['total_variation'](a, b)\n", "answers"),
    "the answer, read and caught": (f"try:\n    open({str(ANSWERS / FILE)!r})\nexcept Exception:\n    pass\n" + RIGHT,
                                    "answers"),
    "the answer, imported": (f"import sys\nsys.path.insert(0, {str(ANSWERS)!r})\n"
                             "from ex02_total_variation import total_variation\n", "answers"),
    "the checks, asked": ("from lessons.check import EXERCISES\nexec(EXERCISES[2].answer)\n", "answers"),
    "the checks, by their folder": ("from lessons import check\n" + RIGHT, "answers"),
    "the checks, imported": ("from lessons.check.seen import TOLERANCE\n" + RIGHT, "answers"),
    "the answer, through a program": (f"import subprocess\nexec(subprocess.check_output(['cat', "
                                      f"{str(ANSWERS / FILE)!r}]))\n", "process"),
    "the grader, sent a signal": ("import os\nos.kill(os.getppid(), 0)\n" + RIGHT, "process"),
    "the answer, by another path": (f"open({str(ANSWERS)!r} + '//' + {FILE!r})\n" + RIGHT, "answers"),
    "the answer, by a link": (f"import os\nos.symlink({str(ANSWERS / FILE)!r}, 'mine')\nopen('mine')\n" + RIGHT,
                              "answers"),
    "the answer, by a path of bytes": (f"open({os.fsencode(ANSWERS / FILE)!r})\n" + RIGHT, "answers"),
    "an import that asks the system": ("import sys\nsys.path.insert(0, '.')\nwith open('asking.py', 'w') as file:\n"
                                       "    file.write('import subprocess; subprocess.run([\"true\"])')\n"
                                       "import asking\n" + RIGHT, ""),
    "a check's default": ("import sys\nsys.modules['lessons.check.seen'].values.__defaults__ = (9.0,)\n"
                          "def total_variation(a, b):\n    return .5\n", "library"),
    "an early end": ("import os\nos._exit(0)\n", "crash"),
    "nothing of the kind": ("import sys\nsys.stdout.buffer.write(b'!')\nsys.stderr.close()\n" + RIGHT, ""),
}


def test_who_did_not_solve_it_has_no_tick(tmp_path):
    found = judged({name: text for name, (text, _) in LIES.items()})
    assert {name: result["part"] for name, result in found.items()} == {name: part for name, (_, part) in LIES.items()}
    assert [name for name, result in found.items() if result["solved"]] == [name for name, (_, part) in LIES.items()
                                                                         if not part]
    assert {(result["part"], result["why"]) for result in found.values()} == {
        ("answers", "it reads the answers"), ("answers", "it imports lessons.check.seen"), ("", ""),
        ("answers", "it imports lessons.check"),
        ("library", "it changes the library or the checks"),
        ("crash", "its process ended before there was a verdict: status 0"),
        ("process", "it starts another program, or ends one")}


def test_no_file_stays_open():
    """A class of 50 has a thousand files to be judged."""
    before = len(os.listdir("/dev/fd"))
    judged({str(number): RIGHT for number in range(4)})
    assert len(os.listdir("/dev/fd")) == before


def test_whatever_a_file_says_or_removes_the_others_are_judged():
    """One that has found the word by which the grader knows its child, and says what no child of its says."""
    says = ("import os, sys\nframe = sys._getframe()\nwhile 'word' not in frame.f_locals:\n    frame = frame.f_back\n"
            "os.write(frame.f_locals['send'], frame.f_locals['word'] + {})\nos._exit(0)\n")
    forged = [b"{}", b"[" * 20_000, b'{"solved": "yes"}', b'{"solved": true, "label": [1]}', b"7", b"\xff"]
    texts = {f"forged {number}": says.format(what) for number, what in enumerate(forged)}
    texts["removes all"] = "import os, shutil\nshutil.rmtree(os.path.dirname(os.getcwd()), True)\n" + RIGHT
    found = judged(texts | {"right": RIGHT, "right, too": RIGHT})
    assert {name for name, result in found.items() if result["solved"]} == {"removes all", "right", "right, too"}
    assert all(result["part"] == "crash" for name, result in found.items() if name.startswith("forged"))


@pytest.mark.skipif(sys.platform != "linux", reason="the only system here that bounds memory")
def test_memory_is_bounded(tmp_path):
    found = judged({
        "lists": "kept = []\nwhile True:\n    kept.append(bytearray(10 ** 8))\n",
        "tensors": "import torch\ndef total_variation(a, b):\n    return torch.empty(10 ** 10)[0]\n",
        "a file": "with open('big', 'wb') as file:\n    while True:\n        file.write(bytes(10 ** 6))\n"})
    assert "memory" in found["lists"]["why"] and "allocate" in found["tensors"]["why"]
    assert "too large" in found["a file"]["why"]


def test_an_endless_loop_ends(tmp_path):
    found = judged({"loops": "while True:\n    pass\n"}, 0.1)["loops"]
    assert found["part"] == "time" and "endless" in found["why"]


def test_who_fills_the_pipe_is_ended(tmp_path):
    """Long before its time is over: what it says would fill the memory of who listens."""
    says = ("import os\nwhile True:\n    for pipe in range(3, 4096):\n        try:\n"
            "            os.write(pipe, bytes(10 ** 5))\n        except OSError:\n            pass\n")
    found = judged({"says": says}, 9)["says"]
    assert found["part"] == "crash" and "Killed" in found["why"]


def test_who_waits_is_not_judged(monkeypatch):
    monkeypatch.setattr("lessons.check.clock.PATIENCE", 1)
    found = judged({"sleeps": "import time\ntime.sleep(1000)\n"}, 0.1)["sleeps"]
    assert found["part"] == "busy" and "not judged" in found["why"]
    for name in "PATIENCE", "OWN_WORK":
        monkeypatch.setattr(f"lessons.check.workers.{name}", 1)
    found = judged({"hears no alarm": "import time\nwhile True:\n    try:\n        time.sleep(1000)\n"
                                      "    except BaseException:\n        pass\n"}, 0.1)["hears no alarm"]
    assert (found["part"], found["why"]) == ("busy", "not done by the clock on the wall; it was not judged")


def test_what_the_checker_does_itself_is_no_time_of_the_students(monkeypatch):
    """It looks at every known mistake, say: here for a second and a half, where a file may take a tenth of one."""
    def looked(*_):
        begun = time.process_time()
        while time.process_time() < begun + 1.5:
            pass
        return workers.found(True) | {"form": "", "size": 0, "shipped": False}

    monkeypatch.setattr(workers, "found_in", looked)
    assert judged({"quick": ""}, 0.1)["quick"]["solved"]


def test_a_call_that_python_cannot_interrupt_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("lessons.check.workers.OWN_WORK", 0)
    found = judged({"a sum": "import torch\ntorch.zeros(()).expand(10 ** 13).sum()\n"}, 0.1)["a sum"]
    assert found["part"] == "time" and "cannot be interrupted" in found["why"]


def test_the_bug_is_named_to_the_teacher(tmp_path):
    path = tmp_path / "ex03_accept_or_replace.py"
    path.write_text(EXERCISES[3].answer.replace("(p_target - q_draft).clamp(min=0))", "p_target)"))
    found = found_in(EXERCISES[3], path)
    assert not found["solved"] and not found["slow"] and not found["shipped"]
    assert (found["part"], found["why"], found["label"]) == ("worked number", *["residual-is-target"] * 2)


def test_a_class_is_graded_as_told(tmp_path, monkeypatch):
    """Each option unlike its default and all others; and then the defaults."""
    heard = []
    monkeypatch.setattr(seeds, "NAME", "")
    monkeypatch.setattr(os, "cpu_count", lambda: 11)
    monkeypatch.setattr("lessons.check.grade.grade", lambda asked, console: heard.append(asked) or 0)
    assert main(["--grade", str(tmp_path), "--jobs", "37", "--seconds", "0.75", "--csv", "a.csv", "--json", "b.json",
                 "--gradescope", "c"]) == 0
    assert heard == [Grading(tmp_path, 0.75, 37, Path("a.csv"), Path("b.json"), Path("c"))]
    assert main(["--grade", str(tmp_path), "--variant", "autumn"]) == 0 and seeds.NAME == "autumn"
    assert heard[1:] == [Grading(tmp_path, 20, 11)]


def test_grading_a_class(tmp_path, capsys):
    """Folders of files, and clones; a row for each; who has failed why; what the class got wrong; two files, and one
    for each student.
    """
    folder, sheet, record = tmp_path / "class", tmp_path / "sheet.csv", tmp_path / "found.json"
    marks, linked = tmp_path / "marks", tmp_path / "elsewhere.json"
    record.symlink_to(linked)
    wrong = RIGHT.replace(" / 2", "")
    texts = {"one": LIES["its own result"][0], "two": HARM["a changed library"][0], "three": RIGHT, "four": wrong,
             "five/lessons/exercises": wrong, "six/lessons/exercises": RIGHT, ".git": RIGHT}
    for name, text in texts.items():
        (folder / name).mkdir(parents=True)
        (folder / name / FILE).write_text(text)
    (folder / "three" / "ex01_pick.py").write_bytes((STUBS / "ex01_pick.py").read_bytes().replace(b"\n", b"\r\n"))
    assert main(["--grade", str(folder), "--jobs", "3", "--csv", str(sheet), "--json", str(record),
                 "--gradescope", str(marks)]) == 0
    out = capsys.readouterr().out
    assert "one, 2: crash: " in out and "two, 2: library: " in out and "five, 2: worked number: not-halved" in out
    assert "exercise 2, 4 not yet: not-halved (2), " in out and "three, " not in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()[-1:] != []}
    others = len(EXERCISES) - 2
    assert rows["three"] == [*"·✓" + "·" * others, "1", "1"] and rows["four"] == [*"·✗" + "·" * others, "0", "0"]
    assert rows["solved"][:3] == ["by", "0", "2"]
    written = {row["student"]: row for row in csv.DictReader(sheet.open())}
    assert list(written["six"].values()) == [
        "six", "missing", "solved", *["missing"] * others, "1", "1", "(2)", "others (2)", ""]
    assert written["three"]["1"] == "untouched" and written["four"]["2"] == "not-halved" and len(written) == 6
    found = json.loads(linked.read_text())
    assert record.is_symlink()
    assert found["results"]["two"]["2"]["part"] == "library" and found["mistakes"]["2"]["not-halved"] == 2
    assert sorted(path.name for path in marks.iterdir()) == sorted(f"{name}.json" for name in written)
    assert [json.loads((marks / f"{name}.json").read_text())["score"] for name in ("six", "four")] == [1, 0]


def test_who_has_changed_nothing_has_a_line_too(tmp_path, capsys):
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / FILE).write_bytes(b"\xef\xbb\xbf" + (STUBS / FILE).read_bytes() + b"\n\n")
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--grade", str(tmp_path)]) == 0 and "ann        ·  ·" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before           # to grade sets one of its own


def test_folders_that_are_nested_deeper_than_python_goes_do_no_harm(tmp_path, capsys):
    (tmp_path / "ann").mkdir()
    nested = "import os\nfor _ in range(2_500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    (tmp_path / "ann" / FILE).write_text(nested + RIGHT)
    assert main(["--grade", str(tmp_path), "--jobs", "1"]) == 0
    assert "ann        ·  ✓" in capsys.readouterr().out


@pytest.mark.parametrize("argv, words", [
    (["99"], "99"), (["\x1b[2J"], "invalid"),
    (["--grade", "no\x1b[2Jsuch"], "is no folder"),
    *(([option, "7"], "go with --grade FOLDER") for option in (
        "--jobs", "--seconds", "--csv", "--json", "--gradescope")),
    *((["--grade", ".", "--seconds", seconds], "--seconds must be") for seconds in ("0", "nan", "inf", "1e300")),
    (["--grade", ".", "--jobs", "0"], "--jobs must be"), (["--handout", ".", "--variant", "\x1b"], "--variant")])
def test_what_cannot_be_is_one_clear_line(argv, words, capsys):
    try:
        status = main(argv)
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert status == 2 and not out and words in err and err.count("\n") == 1 and err[:-1].isprintable()


def test_a_folder_without_students_is_one_clear_line(tmp_path, capsys):
    (tmp_path / FILE).write_text(RIGHT)
    assert main(["--grade", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "one for each student" in said and len(said.splitlines()) == 1 and said.endswith(f"not looked at: {FILE}\n")


def runs(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def wait_for(what) -> None:
    """Not a clock that decides: it only ends a test that has failed."""
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT,
                                 pytest.param(signal.SIGKILL, marks=pytest.mark.skipif(
                                     sys.platform != "linux", reason="elsewhere nobody tells the child"))])
def test_a_stopped_grader_leaves_no_process_and_what_it_knew(tmp_path, how):
    """One student is done, the other's file does not end."""
    pid, sheet, record = tmp_path / "pid", tmp_path / "sheet.csv", tmp_path / "all.json"
    for name, text in {"a": RIGHT, "b": f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n"
                                        "while True:\n    pass\n"}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / FILE).write_text(text)
    (tmp_path / "class" / "b" / EXERCISES[1].file).write_text(EXERCISES[1].answer)
    grader = subprocess.Popen([sys.executable, str(ROOT / "lessons" / "check"), "--grade", str(tmp_path / "class"),
                               "--jobs", "1", "--seconds", "600", "--csv", str(sheet), "--json", str(record)],
                              cwd=tmp_path,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: pid.exists() and pid.read_text())
        theirs = int(pid.read_text())
        assert runs(theirs)
        grader.send_signal(how)
        out, err = grader.communicate(timeout=120)
        wait_for(lambda: not runs(theirs))
    finally:
        grader.kill()
        grader.wait()
    assert "a          ·  ✓" in out and "Traceback" not in err and sheet.read_text().count("solved") == 2
    assert grader.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}[how]
    assert ("interrupted: 1 of 2 students" in out) == (how == signal.SIGINT)
    if how != signal.SIGKILL:                               # what is known of b, too
        found = json.loads(record.read_text())["results"]["b"]
        assert found["1"]["solved"] and "2" not in found


def test_on_a_busy_machine_a_file_may_take_longer_than_it_may_work(monkeypatch, tmp_path):
    """And twice the half minute that the checker itself may take."""
    monkeypatch.setattr(workers.os, "fork", lambda: 12345)                   # this process is the parent
    monkeypatch.setattr(workers.time, "monotonic", lambda: 100.0)
    pipe, child = workers.start(Job("ann", EXERCISES[2], b"text"), tmp_path / "gone", 7.0, {})
    os.close(pipe)
    assert child.deadline == 100 + workers.PATIENCE * 7 + 2 * 30 and child.pid == 12345
    assert child.folder.parent == tmp_path / "gone"
