"""torch.compile: a plain step or a whole round, its drafting and its rule included, becomes one compiled function.

    speculate(target, drafter, ids, capture=compiled)       # the same tokens, for the same seed, as without

A small model spends its time on calling hundreds of small operations, not in them; compiled, they are a few dozen. That
a round can be compiled whole has the same reason as that it can be recorded (capture.py): it has no branch, no shape
that varies, and no read-back. So this is for drafters whose drafts have one shape.

The first call of a kind compiles, which takes a minute; the compiler keeps its work on disk, and the next process has
it in seconds. Kinds differ in model, drafter, rule, sampling, and the width of the text, which text.py rounds up.
Weights that change behind the first call may be seen or not, as with GPT.pack.
On CUDA, `captured` records what is compiled here. That has not run on a GPU so far.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from nanospec.dice import Dice
from nanospec.errors import one_line
from nanospec.fast.capture import Step, captured
from nanospec.text import Text

KINDS = 256             # compiled functions kept of one source; torch itself would give up after 8


@contextmanager
def _compiler(device: torch.device) -> Iterator[None]:
    """The compiler's settings. It looks at them while it compiles, and at no other time."""
    import torch._dynamo.config as tracing                      # a second's worth of Python, for those who compile
    import torch._inductor.config as inductor
    # Weights become constants, laid out as its kernels read them; products are its own kernels or the library's,
    # whichever is faster here; and what calls them is C++.
    cpu = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP", "cpp_wrapper": True,
           "max_autotune_report_choices_stats": False, "autotune_num_choices_displayed": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tracing.patch(recompile_limit=KINDS), inductor.patch(cpu if device.type == "cpu" else {}), \
                torch.backends.mkldnn.flags(enabled=False, allow_tf32=False):   # its layouts cannot be kept on disk
            yield


def _inductor(graph: torch.fx.GraphModule, inputs: list) -> Callable:
    """torch's compiler, with all weights in the key under which it keeps its work on disk.

    Its own key holds only the shapes of weights that it packs, and its work holds the packed weights. So a second model
    of one shape would run with the weights of the first (torch 2.13).
    """
    from torch._inductor.compile_fx import compile_fx
    digest = hashlib.sha256()
    for weight in graph.parameters():
        digest.update(weight.detach().contiguous().view(torch.uint8).cpu().numpy())
    with torch.compiler.config.patch(cache_key_tag=digest.hexdigest()):
        return compile_fx(graph, inputs)


def compiled(step: Step, text: Text, dice: Dice,
             progress: Callable[[str], AbstractContextManager] = lambda what: nullcontext()) -> Step:
    """`step(upto)`, compiled. It reads all slots, however few are asked for, so that one function serves them all.

    progress: what is shown while the compiler works, a context manager made from a few words.
    """
    device, slots, compiles = text.tokens.device, text.tokens.shape[1], True
    run = torch.compile(_step, backend=_inductor, fullgraph=True, dynamic=False)

    def stepped(upto: int) -> tuple:
        nonlocal compiles
        if compiles:
            with _compiler(device), progress(f"compiling for texts of up to {slots} tokens"):
                out = run(step, slots)
            compiles = False
            return out
        return run(step, slots)

    return captured(stepped, text, dice) if device.type == "cuda" else stepped


def _step(step: Step, slots: int) -> tuple:
    """One function for all that is compiled: what it calls, torch tells apart."""
    return step(slots)


def why_not(device: torch.device | str = "cpu") -> str:
    """Why nothing can be compiled here, in one line; an empty one if it can. A trifle is compiled to find out."""
    try:
        with _compiler(torch.device(device)):
            torch.compile(lambda x: x + 1, fullgraph=True)(torch.zeros(1, device=device))
    except Exception as error:                                  # whatever the tools of this machine raise
        return one_line(error)
    return ""
