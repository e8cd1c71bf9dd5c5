"""How a pair runs fastest on this machine, chosen by measuring: data type, threads, layout of the
weights, compiled or not.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import inf
from statistics import median
from typing import Any, NamedTuple

import torch

from nanospec.errors import RequestError
from nanospec.fast.announce import announced
from nanospec.fast.clock import DRAFTED, draft_seconds, round_seconds, step_seconds
from nanospec.fast.compiled import compiler_for
from nanospec.fast.fbgemm import FBGEMMLinear, halve, has_fbgemm
from nanospec.fast.int8 import can_quantise, quantise
from nanospec.fast.packed import PackedLinear, can_pack, pack
from nanospec.files.runnable import ready
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer
from nanospec.model import GPT

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
COPIES: dict[torch.dtype, tuple[Callable, Callable]] = {        # what makes them, and where it can
    torch.float16: (halve, has_fbgemm), torch.int8: (quantise, can_quantise)}
GLANCE = partial(draft_seconds, repeats=1)
TURNS = 6           # of measuring each; one in which the machine changed its mind decides nothing
HOPELESS = 2.0          # times the least of a glance: not worth a measurement
SEVERAL = 4     # tokens, from which on oneDNN's layout was quicker in float32; for fewer it depends
COMPILED = "; compiled: "       # between the eager setup and the compiled one, in words


class Tuning(NamedTuple):
    """dtype: of the weights; in float16 and int8 they are FBGEMM's copies (fbgemm.py, int8.py).

    packed: oneDNN's layout is for calls on that many tokens and more; 0: for none.
    """

    dtype: torch.dtype
    threads: int
    packed: int


class Setup(NamedTuple):
    """A pair as it runs: eagerly where there is no compiler, as `speculate` takes it, or compiled.

    draft_model: None where there is none.
    """

    target: GPT
    draft_model: GPT | Learned | None
    compiler: Callable | None


def set_up(model: GPT | Learned, tuning: Tuning) -> GPT | Learned:
    """The model itself, converted in place. Copies of weights that it has already are kept."""
    torch.set_num_threads(tuning.threads)
    now = tuning_of(model)
    if (now.dtype, now.packed > 0) == (tuning.dtype, tuning.packed > 0):
        for part in packed_parts(model):
            part.fewest = tuning.packed
        return model
    if tuning.dtype in COPIES:
        return COPIES[tuning.dtype][0](model)
    model.to(tuning.dtype)
    return pack(model, tuning.packed) if tuning.packed else model


def fastest(model: GPT | Learned, dtypes: Sequence[torch.dtype] = (), threads: Sequence[int] = (),
            seconds: Callable[[Any], float] = partial(step_seconds, repeats=12),
            packed: bool = True, glance: Callable[[Any], float] | None = None,
            turns: int = 2, what: str = "measuring what is fastest here") -> Tuning:
    """The tuning in which `seconds(model)`, by default a plain step, is least. The model stays as
    it is.

    The tunings take turns, and what counts is one's part of a turn's time: a machine that others
    use, too, is slow for a while, and then quick.
    dtypes: the data types to try; by default those of DTYPES that can be had on its device.
    threads: the counts to try; by default 1 and as many as torch has now. On CUDA they make no
    difference.
    packed: whether to try oneDNN's layout, too. glance: looks at each first, so that no time goes
    into a hopeless one: on a busy machine two threads can take twenty times as long as one.
    what: what is said of it while it goes on.
    """
    before = torch.get_num_threads()
    candidates = []
    for dtype in dtypes or dtypes_of("auto", model.device):
        copy = copy_of(model, torch.float32 if dtype in COPIES else dtype)
        packs = packed and dtype not in COPIES and can_pack(next(copy.parameters()))
        layouts = (1, SEVERAL) if packs else (0,)
        candidates += [(Tuning(dtype, count, layout), copy)
                       for layout in layouts for count in threads or sorted({1, before})]
    if glance:
        seen: list[float] = []
        slow: set[int] = set()      # thread counts that are hopeless: other programs let them wait
        with announced(what, at_once=False, steps=len(candidates)) as step:
            for tuning, copy in candidates:
                now = inf if tuning.threads in slow else glance(set_up(copy, tuning))
                if any(tuning == other._replace(threads=tuning.threads) and now > HOPELESS * least
                       for (other, _), least in zip(candidates, seen)):
                    slow.add(tuning.threads)
                seen.append(now)
                step()
        candidates = [candidate for candidate, took in zip(candidates, seen)
                      if took <= HOPELESS * min(seen)]
    parts: dict[Tuning, list[float]] = {tuning: [] for tuning, _ in candidates}
    with announced(what, steps=turns * len(candidates)) as step:
        for _ in range(turns):
            took = {}
            for tuning, copy in candidates:
                took[tuning] = seconds(set_up(copy, tuning))
                step()
            for tuning in took:
                parts[tuning].append(took[tuning] / sum(took.values()))
    torch.set_num_threads(before)
    return min(parts, key=lambda tuning: median(parts[tuning]))


def copy_of(model: GPT | Learned, dtype: torch.dtype) -> Any:
    """The same weights in this type, in no layout. A GPT's in its own type are not copied."""
    if isinstance(model, GPT):
        return first_layers(model, dtype, model.config.layers)
    if isinstance(model, OtherTokenizer):
        return OtherTokenizer(copy_of(model.draft_model, dtype), model.tables)
    copy = type(model)(**model.sizes).attach(model.target).to(model.device, dtype)
    copy.load_state_dict(model.state_dict())
    return copy.requires_grad_(False)


def first_layers(model: GPT, dtype: torch.dtype, layers: int) -> GPT:
    """A model of its first `layers` alone, in this type. In their own type weights are not copied.
    """
    left_out = [f"blocks.{layer}." for layer in range(layers, model.config.layers)]
    left_out += ["head."] * model.config.tied
    state = {name: weight for name, weight in model.state_dict().items()
             if not name.startswith(tuple(left_out))}
    return ready(replace(model.config, layers=layers), state, model.device, dtype)


def autotune(target: GPT, draft_model: GPT | Learned | None, dtype: str = "auto",
             threads: int | None = None, compiler: Callable | None = None, rows: int = 1,
             rounding: bool = False) -> str:
    """Convert both, in place, each to its fastest tuning here, and say what that is; threads are
    the target's.

    The target's tuning is the one in which a plain step and a round together take least: in some a
    step on one token is quick and one on five is slow.
    rows: texts at once. What is fastest for one need not be for many, which take more arithmetic.
    dtype, threads: "auto" and None, or the only ones to try. rounding: whether "auto" has int8.
    compiler: of a pair that will run compiled. Its steps are measured so, and it is not packed: a
    compiler has layouts of its own.
    """
    def seconds(copy: Any) -> float:
        if compiler:
            return step_seconds(copy, repeats=12, compiler=compiler)
        step = partial(step_seconds, copy, rows=rows, repeats=3, warm_up=1)
        return step() + (round_seconds(copy, draft_model) if rows == 1 else step(DRAFTED + 1))

    counts = [threads] if threads else [torch.get_num_threads()] if compiler else []
    convert(target, dtypes_of(dtype, target.device, rounding), counts, seconds, compiler,
            "measuring which data type, threads and weight layout are fastest here")
    count = torch.get_num_threads()
    words = f"{target.device}, {count} thread{'s' * (count > 1)}; target in {described(target)}"
    if draft_model is None:
        return words
    autotune_draft_model(target, draft_model, dtype, compiler, rows, rounding)
    return f"{words}, draft model in {described(draft_model)}"


def autotune_draft_model(target: GPT, draft_model: GPT | Learned, dtype: str = "auto",
                   compiler: Callable | None = None, rows: int = 1,
                   rounding: bool = False) -> None:
    """Convert the draft model alone, in place, to what is fastest beside this target, which is
    tuned.

    It is measured in rounds, not alone: a pass of the target drives the draft model's weights
    out of the processor's caches. So a data type of half the size wins although a step in it,
    alone, takes longer. Of many rows a step takes long enough to be measured alone.
    dtype, rounding: int8 is for the target's sake. The draft model may then have any, since no text
    depends on it.
    """
    def seconds(copy: Any) -> float:
        if compiler:
            return draft_seconds(copy, repeats=12, compiler=compiler)
        return (round_seconds(target, copy) if rows == 1
                else draft_seconds(copy, rows=rows, repeats=3, warm_up=1))

    if dtype == "int8":
        dtype, rounding = "auto", True
    dtypes = dtypes_of(dtype, target.device, rounding)
    convert(draft_model, dtypes, [torch.get_num_threads()], seconds, compiler,
            "the same for the draft model")


def convert(model: GPT | Learned, dtypes: Sequence[torch.dtype], threads: Sequence[int],
            seconds: Callable[[Any], float], compiler: Callable | None, what: str) -> None:
    """To its fastest tuning. Compiling takes so long that there are two turns and no glance."""
    how: dict = {"packed": False} if compiler else {"glance": GLANCE, "turns": TURNS}
    set_up(model, fastest(model, dtypes, threads, seconds, what=what, **how))


def setups_of(target: GPT, draft_model: GPT | Learned | None, dtype: str = "auto",
              threads: int | None = None, compile: bool = False) -> tuple[list[Setup], str]:
    """The pair, converted to what is fastest here eagerly; with `compile`, where anything can be
    compiled, also copies of both, converted to what is fastest compiled. And what that is, in
    words.
    """
    compiler = compiler_for(target.device) if compile else None
    setups = [Setup(target, draft_model, None)]
    if compiler:                        # copied together: a draft model may use the target's parts
        setups.append(Setup(*deepcopy((target, draft_model)), compiler))
    return setups, COMPILED.join(autotune(*setup[:2], dtype, threads, setup.compiler)
                                 for setup in setups)


def dtypes_of(name: str, device: torch.device, rounding: bool = False) -> Sequence[torch.dtype]:
    """Of "auto" those that can be had there, else the one of this name, or RequestError. rounding:
    whether int8, which rounds more, is among the former.
    """
    every = (*DTYPES, torch.int8) if rounding else DTYPES
    lacking = [dtype for dtype, (_, can) in COPIES.items() if not can(device)]
    found = ([dtype for dtype in every if dtype not in lacking] if name == "auto"
             else [getattr(torch, name)])
    if found[0] in lacking:
        raise RequestError(f"--dtype {name} is for x86 processors"
                           + " with VNNI" * (name == "int8"))
    return found


def name_of(dtype: torch.dtype) -> str:
    """Example: "float32"."""
    return str(dtype).removeprefix("torch.")


def tuning_of(model: GPT | Learned) -> Tuning:
    """What `set_up` has made of it, with torch's threads as they are now."""
    copies = [part.kept for part in model.modules() if isinstance(part, FBGEMMLinear)
              and part.copy is not None]
    fewest = max((part.fewest for part in packed_parts(model)), default=0)
    return Tuning(copies[0] if copies else model.dtype, torch.get_num_threads(), fewest)


def packed_parts(model: GPT | Learned) -> list[PackedLinear]:
    return [part for part in model.modules() if isinstance(part, PackedLinear)
            and part.copy is not None]


def weights_of(model: GPT | Learned) -> str:
    """The data type of the weights that its products read."""
    return name_of(tuning_of(model).dtype)


def described(model: GPT | Learned) -> str:
    """Data type and layout, in words. Example: "float32, packed from 4 tokens on"."""
    few = tuning_of(model).packed
    return weights_of(model) + (f", packed from {few} tokens on" if few > 1 else " packed" * few)
