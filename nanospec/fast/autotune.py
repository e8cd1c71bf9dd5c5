"""How a model runs fastest on this machine: data type, threads and the layout of its weights, chosen by measuring."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch

from nanospec.draft_models.learned import Learned
from nanospec.fast.clock import draft_seconds, round_seconds, step_seconds
from nanospec.model import GPT, Linear, can_pack

DTYPES = (torch.float32, torch.bfloat16)
GLANCE = partial(draft_seconds, repeats=1)
TURNS = 6               # of measuring each; one in which the machine changed its mind decides nothing
HOPELESS = 2.0          # times the least of a glance: not worth a measurement
SEVERAL = 4             # tokens. For so many oneDNN's layout was quicker in float32; for fewer that is the machine's


class Tuning(NamedTuple):
    """packed: oneDNN's layout is for calls on so many tokens and more; 0: for none."""

    dtype: torch.dtype
    threads: int
    packed: int


def set_up(model: GPT | Learned, tuning: Tuning) -> GPT | Learned:
    """The model itself, converted in place, and torch's threads."""
    torch.set_num_threads(tuning.threads)
    model.to(tuning.dtype)
    return model.pack(tuning.packed) if tuning.packed else model


def fastest(model: GPT | Learned, dtypes: Sequence[torch.dtype] = DTYPES, threads: Sequence[int] = (),
            seconds: Callable[[Any], float] = partial(step_seconds, repeats=12), packed: bool = True,
            glance: Callable[[Any], float] | None = None, turns: int = 2) -> Tuning:
    """The tuning in which `seconds(model)`, by default a plain step, is least; the model is left as it is.

    The tunings take turns, and what counts is one's part of a turn's time: a machine that others use, too, is slow for
    a while, and then quick.
    threads: the counts to try; by default 1 and as many as torch has now. They make no difference on CUDA.
    packed: whether to try oneDNN's layout, too. glance: looks at each first, so that no time goes into a hopeless one:
    on a busy machine two threads can take twenty times as long as one.
    """
    before = torch.get_num_threads()
    candidates = []
    for dtype in dtypes:
        copy = (GPT(model.config) if isinstance(model, GPT) else type(model)(**model.sizes).attach(model.target))
        copy = copy.to(model.device, dtype).requires_grad_(False)
        copy.load_state_dict(model.state_dict())
        layouts = (1, SEVERAL) if packed and can_pack(next(copy.parameters())) else (0,)
        candidates += [(Tuning(dtype, count, layout), copy)
                       for layout in layouts for count in threads or sorted({1, before})]
    if glance:
        seen = [glance(set_up(copy, tuning)) for tuning, copy in candidates]
        candidates = [candidate for candidate, took in zip(candidates, seen) if took <= HOPELESS * min(seen)]
    parts: dict[Tuning, list[float]] = {tuning: [] for tuning, _ in candidates}
    for _ in range(turns):
        took = {tuning: seconds(set_up(copy, tuning)) for tuning, copy in candidates}
        for tuning in took:
            parts[tuning].append(took[tuning] / sum(took.values()))
    torch.set_num_threads(before)
    return min(parts, key=lambda tuning: median(parts[tuning]))


def settle(target: GPT, draft: GPT | Learned, dtypes: Sequence[torch.dtype] = DTYPES, threads: Sequence[int] = (),
           capture: Callable | None = None) -> None:
    """Convert target and draft, in place, each to its fastest tuning here; torch's threads are the target's.

    The target's is the one in which a plain step and a round together take least: in some a step on one token is quick
    and one on five is slow. The draft is measured in rounds, not alone: a pass of the target drives the draft's weights
    out of the caches, so that a data type of half the size wins although a step in it, alone, takes longer.
    capture: `compiled`, and models that will run compiled: their steps are. A compiler has layouts of its own.
    """
    if capture:
        timing: dict = {"repeats": 12, "capture": capture}
        tuning = fastest(target, dtypes, threads or [torch.get_num_threads()], partial(step_seconds, **timing), False)
        set_up(target, tuning)
        set_up(draft, fastest(draft, dtypes, [tuning.threads], partial(draft_seconds, **timing), False))
        return
    tuning = fastest(target, dtypes, threads, lambda copy: step_seconds(copy, repeats=3, warm_up=1)
                     + round_seconds(copy, draft), glance=GLANCE, turns=TURNS)
    set_up(target, tuning)
    settle_draft(target, draft, dtypes)


def settle_draft(target: GPT, draft: GPT | Learned, dtypes: Sequence[torch.dtype] = DTYPES) -> None:
    """The draft alone, to what is fastest beside this target, which has been settled."""
    set_up(draft, fastest(draft, dtypes, [torch.get_num_threads()], lambda copy: round_seconds(target, copy),
                          glance=GLANCE, turns=TURNS))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def way_of(model: GPT | Learned) -> str:
    """Data type and layout, in words."""
    fewest = {part.fewest for part in model.modules() if isinstance(part, Linear) and part.packed is not None}
    return name_of(model.dtype) + "".join(" packed" if few == 1 else f", packed from {few} tokens on" for few in fewest)
