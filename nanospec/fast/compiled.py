"""torch.compile: a plain step, or a whole round with its drafting and its rule, becomes one
function.

    speculate(target, drafter, ids, compiler=compiled)      # for the same seed, the same tokens

A small model spends its time on calling hundreds of small operations, not in them. Compiled, they
are a few dozen. A round can be compiled whole because it has no branch, no shape that varies, and
no read-back. So this is for drafters whose drafts have one shape (`fixed`).

The first call of a kind compiles, which takes a minute. The compiler keeps its work on disk, and
the next process has it in seconds. Kinds differ in model, drafter, rule, sampling, and the width of
the text, which text.py rounds up. Weights that change after the first call may be seen or not.

On CUDA a compiled round is also recorded as a CUDA graph, by torch.compile itself, and launched as
one (tests/device/test_cuda.py: token for token what an eager round writes).
"""

import hashlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.dice import Dice
from nanospec.errors import one_line
from nanospec.fast.announce import announced
from nanospec.text import Text

KINDS = 256             # compiled functions kept of one source; torch itself would give up after 8
Step = Callable[[int], tuple]           # of kv_length


def has_graphs(device: torch.device) -> bool:
    """Whether compiled rounds are recorded there."""
    return device.type == "cuda"


@contextmanager
def _settings(device: torch.device) -> Iterator[None]:
    """The compiler's settings. It looks at them while it compiles, and at no other time."""
    import torch._dynamo.config as tracing      # a second's worth of Python, for those who compile
    import torch._inductor.config as inductor
    # On a CPU weights become constants, laid out as its kernels read them; products are its own
    # kernels or the library's, whichever is faster here; and what calls them is C++.
    chosen: dict = {"freezing": True, "max_autotune": True,
                    "max_autotune_gemm_backends": "ATEN,CPP",
                    "cpp_wrapper": True, "max_autotune_report_choices_stats": False,
                    "autotune_num_choices_displayed": 0}
    if has_graphs(device):
        chosen = {"triton.cudagraphs": True}                # what mode="reduce-overhead" stands for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Without oneDNN, whose layouts cannot be kept on disk.
        with tracing.patch(recompile_limit=KINDS), inductor.patch(chosen), \
                torch.backends.mkldnn.flags(enabled=False, allow_tf32=False):
            yield


def _inductor(graph: torch.fx.GraphModule, inputs: list) -> Callable:
    """torch's compiler, with all weights in the key under which it keeps its work on disk.

    Its own key holds only the shapes of weights that it packs, and its work holds the packed
    weights. So a second model of one shape would run with the weights of the first (torch 2.13).
    """
    from torch._inductor.compile_fx import compile_fx
    digest = hashlib.sha256()
    for weight in graph.parameters():
        digest.update(weight.detach().contiguous().view(torch.uint8).cpu().numpy())
    with torch.compiler.config.patch(cache_key_tag=digest.hexdigest()):
        return compile_fx(graph, inputs)


def _recorded(graph: torch.fx.GraphModule, inputs: list) -> Callable:
    """The same for CUDA graphs, whose outputs stay in one place: what leaves is a copy."""
    run = _inductor(graph, inputs)

    def replayed(*inputs: Any) -> tuple:
        torch.compiler.cudagraph_mark_step_begin()
        return tuple(out.clone() if isinstance(out, Tensor) else out for out in run(*inputs))

    return replayed


def compiled(step: Step, text: Text, dice: Dice) -> Step:
    """`step(kv_length)`, compiled. It reads all slots: so one function serves all."""
    device, slots, compiles = text.tokens.device, text.tokens.shape[1], True
    backend = _recorded if has_graphs(device) else _inductor
    run = torch.compile(_step, backend=backend, fullgraph=True, dynamic=False)
    if has_graphs(device):
        stay_in_place(step, set())

    def stepped(kv_length: int) -> tuple:
        nonlocal compiles
        if compiles:
            with _settings(device), announced(f"compiling for texts of up to {slots} tokens"):
                out = run(step, slots)
            compiles = False
            return out
        return run(step, slots)

    return stepped


def _step(step: Step, slots: int) -> tuple:
    """One function for all that is compiled: what it calls, torch tells apart."""
    return step(slots)


def stay_in_place(thing: Any, seen: set[int]) -> None:
    """Tell torch of every tensor that a step carries from one call to the next: its address stays.

    All of them are written in place: texts, caches, what readers keep. A recording may write only
    such tensors; anything else that is written would keep it from being made.
    """
    if id(thing) in seen or isinstance(thing, nn.Module):               # weights are known already
        return
    seen.add(id(thing))
    parts: Iterable = ()
    if isinstance(thing, Tensor):
        torch._dynamo.mark_static_address(thing)                        # type: ignore[attr-defined]
    elif isinstance(thing, partial):
        parts = thing.args
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif type(thing).__module__.startswith("nanospec."):
        parts = vars(thing).values()
    for part in parts:
        stay_in_place(part, seen)


def why_not(device: torch.device | str = "cpu") -> str:
    """Why nothing can be compiled here, in one line, or "". A trifle is compiled to find out."""
    try:
        with announced("looking whether anything can be compiled here"), \
                _settings(torch.device(device)):
            torch.compile(lambda x: x + 1, fullgraph=True)(torch.zeros(1, device=device))
    except Exception as error:                          # whatever the tools of this machine raise
        return one_line(error)
    return ""


def compiler_for(device: torch.device) -> Callable | None:
    """`compiled`; None, and a line on stderr that says why, where nothing can be compiled."""
    reason = why_not(device)
    if reason:
        print(f"nothing can be compiled here, so all runs eagerly: {reason}", file=sys.stderr)
    return None if reason else compiled
