"""What tests share. Each fixture imports what it needs itself: the tests of the core load nothing but the core, and the
process that hands out the tests not even torch.
"""

import gc
import os
import runpy
import signal
import sys
import threading
from functools import cache, lru_cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path

import pytest

# Tests, and the processes that they start, have one environment, whatever the terminal and the shell are.
os.environ.setdefault("OMP_NUM_THREADS", "1")       # beside others two only wait
os.environ |= {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
for name in [*os.environ]:
    if name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "MPLBACKEND") or (
            name.startswith("PYTHON") and name not in ("PYTHONPATH", "PYTHONHOME")):
        del os.environ[name]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:       # a shell's job in the background hands that down
    signal.signal(signal.SIGINT, signal.default_int_handler)
LESSONS, COUNT = Path(__file__).parent.parent / "lessons", count()


class OneModule:
    """A finder and a loader: what a lesson imports as `kit` is `lessons.kit`, so that a patch of one reaches both."""

    @classmethod
    def find_spec(cls, name: str, *_) -> ModuleSpec | None:
        first = name.partition(".")[0]
        there = (LESSONS / f"{first}.py").exists() or (LESSONS / first / "__init__.py").exists()
        return ModuleSpec(name, cls) if there else None

    @staticmethod
    def create_module(spec: ModuleSpec):
        found = import_module(f"lessons.{spec.name}")
        OneModule.own[found.__name__] = found.__spec__
        return found

    @staticmethod
    def exec_module(module) -> None:
        module.__spec__ = OneModule.own[module.__name__]            # it keeps its own name

    own: dict[str, ModuleSpec] = {}


sys.meta_path.insert(0, OneModule)


def pytest_make_parametrize_id(val):
    """A test's name is one that can be read: of what is long, be it a file's bytes, it has the beginning."""
    text = str(val) if isinstance(val, (str, bytes, int)) else ""
    return f"{text[:50]}..." if len(text) > 80 else None


def pytest_xdist_auto_num_workers():
    """One process more than processors: some tests wait for servers and for processes of their own."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return here + 1


@pytest.fixture(scope="session")
def transformers():
    """The library, quiet; a test that asks for it is skipped where it is not installed."""
    found = pytest.importorskip("transformers", reason="transformers is not installed (the extra 'hf')")
    found.logging.set_verbosity_error()
    found.logging.disable_progress_bar()
    return found


@pytest.fixture(scope="session", autouse=True)
def a_device_more():
    """torch counts its devices at the first gradient of a process, and never again."""
    from tests.device.pretend import register
    register()


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors gain nothing from threads, and two test runs at once lose much."""
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_time_passes(request, monkeypatch):
    """For what tells users how long they have waited, for a walk that is given up after a while, and for what drafts
    where it pays: on a slow machine a test would go another way. A test of these winds the clock itself. What the
    core's tests import has none.
    """
    if request.path.parent.name != "core":
        monkeypatch.setattr("nanospec.fast.announce.STILL", threading.TIMEOUT_MAX)
        for module in "judge.sampler", "judge.known_bugs", "methods.lengths.never_slower":
            monkeypatch.setattr(f"nanospec.{module}.perf_counter", lambda: 0.0)


@pytest.fixture(autouse=True)
def nothing_is_kept(request, monkeypatch, tmp_path_factory):
    """What one test has measured no other finds, nor does the user. A process that a test starts has a folder by its
    environment.
    """
    if request.path.parent.name != "core":
        folder = tmp_path_factory.getbasetemp() / "kept" / str(next(COUNT))
        monkeypatch.setattr("nanospec.files.kept.cache_folder", lambda: folder)


# What stands in for the clocks while a lesson is tested: no test may pass or fail because of the time it takes.

def priced(model, tokens=1, context=256, rows=1, repeats=1, warm_up=1, compiler=None, **sampling) -> float:
    """A plausible machine's: in proportion to the weights, and a twentieth more for every token more."""
    from nanospec.probs import Sampling
    Sampling(**sampling)                                    # what `step_seconds` would not take is refused here, too
    return 1e-9 * sum(weight.numel() for weight in model.parameters()) * (1 + 0.05 * (tokens * rows - 1))


def once(work, device, repeats=1, warm_up=0) -> float:
    """The work is done, for its errors, and its seconds are made up."""
    work()
    return 1e-3


def unmeasured(model, dtypes=None, threads=(), seconds=None, packed=True, glance=None, turns=2, what=""):
    """The first data type, without trying any: the same texts on every machine."""
    import torch
    from nanospec.fast.autotune import Tuning
    from nanospec.fast.packed import can_pack
    dtypes = dtypes or [torch.float32]
    return Tuning(dtypes[0], 1, int(packed and can_pack(next(model.parameters()).to(dtypes[0]))))


@pytest.fixture
def untuned(monkeypatch):
    """Nothing is tried before it runs: which setting is the fastest is what test_autotune.py asks."""
    for module in "fast.autotune", "cli.prepared":
        monkeypatch.setattr(f"nanospec.{module}.fastest", unmeasured)


@cache
def read_once():
    """The standard library is read once, for all lessons of a process."""
    from nanospec.files import corpus
    return lru_cache(corpus.read_texts)


@cache
def held_out_ids_once():
    """The ids of the held-out files, which prompts are cut from: made once, for all lessons of a process."""
    from nanospec.files.corpus import to_ids
    found = {}

    def known(texts, tokenizer):
        key = tokenizer.fingerprint()
        if key not in found:
            found[key] = to_ids(texts, tokenizer)
        return found[key]
    return known


@cache
def learn_and_test_once():
    """Texts that several lessons learn from: read by the pair's target once, for all lessons of a process."""
    import kit
    from nanospec.files import load_pair
    learn_and_test = kit.learn_and_test

    @cache
    def known(count):
        target, _, tokenizer = load_pair()
        return learn_and_test(target, tokenizer, count)
    return lambda target, tokenizer, count: known(count)


@cache
def load_once():
    """The pairs that lessons load are read and checked once, for all lessons of a process: each gets its own copy."""
    from copy import deepcopy
    from nanospec.files import load_pair
    loaded = cache(load_pair)

    def copied(*source, **options):
        pair = loaded(*source, **options)
        target, draft_model = deepcopy((pair.target, pair.draft_model))  # together: a draft model may hold its target
        return pair._replace(target=target, draft_model=draft_model)
    return copied


@pytest.fixture
def stand_in(monkeypatch):
    """What is said to be compiled runs eagerly: the way there is tested where nothing can be compiled, too."""
    monkeypatch.setattr("nanospec.fast.compiled.why_not", lambda device: "")
    monkeypatch.setattr("nanospec.fast.compiled.compiled", lambda step, text, dice: step)


@pytest.fixture
def lesson(tmp_path, monkeypatch, capsys, untuned):
    """lesson("the_cache"): that script, run as it is but for the clocks -> (what it has defined, what it has printed),
    with its picture. A lesson is named without its number. It belongs to one test, so that none is run twice.

    lesson("heads", ("train(medusa, 120)", "train(medusa, 60)")): with these words exchanged, for a training that takes
    longer than a test may. Each must stand there, once.
    """
    read_texts = read_once()
    monkeypatch.setattr("kit.learn_and_test", learn_and_test_once())
    monkeypatch.setattr("nanospec.files.load_pair", load_once())
    monkeypatch.setattr("nanospec.cli.bench.prompts.to_ids", held_out_ids_once())

    def run(name: str, *exchanged: tuple[str, str]) -> tuple[dict, str]:
        monkeypatch.chdir(tmp_path)
        for module in "nanospec.fast.clock", "nanospec.cli.bench.measure":
            monkeypatch.setattr(f"{module}.step_seconds", priced)
        for module in "nanospec.fast.clock", "machine":
            monkeypatch.setattr(f"{module}.median_seconds", once)
        for module in "nanospec.files.corpus", "nanospec.cli.bench.prompts":
            monkeypatch.setattr(f"{module}.read_texts", read_texts)
        path, = LESSONS.glob(f"[0-9][0-9]_{name}.py")
        if exchanged:
            source = path.read_text()
            for old, new in exchanged:
                assert source.count(old) == 1, f"the lesson {name} has no longer, or not once: {old!r}"
                source = source.replace(old, new)
            path = tmp_path / path.name
            path.write_text(source)
        names = runpy.run_path(str(path))
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        return names, capsys.readouterr().out
    yield run
    # Functions hold their lesson's names, and these hold its models: Python would look for such circles seldom.
    gc.collect()


@pytest.fixture
def packed(lesson, monkeypatch):
    """The pair that the lesson loads has weights in float16 or is packed, for those that mostly wait for its products.
    A copy cannot be made of it then, nor another data type.
    """
    import torch
    from nanospec import files
    from nanospec.fast.fbgemm import halve, has_fbgemm
    from nanospec.fast.packed import pack
    relaid = halve if has_fbgemm(torch.device("cpu")) else pack
    load_pair = files.load_pair

    def loaded(*source, **options):
        pair = load_pair(*source, **options)
        return pair._replace(target=relaid(pair.target), draft_model=relaid(pair.draft_model))
    monkeypatch.setattr(files, "load_pair", loaded)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """told(3, source) -> what is found in that text, as exercise 3. No busy machine decides a test."""
    from lessons import check as classroom
    from lessons.check import clock as patience
    from lessons.check import engine
    monkeypatch.setattr(patience, "PATIENCE", 1_000)

    def judge(number: int, source: str, seconds: float = 20):
        exercise = classroom.EXERCISES[number]              # made when first asked for
        path = tmp_path / exercise.file
        path.write_text(source, errors="surrogateescape")
        return engine.check(exercise, path, patience.Clock(seconds))
    return judge
