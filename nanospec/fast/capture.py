"""CUDA graphs: a step of fixed shape is recorded once and then replayed as one launch instead of hundreds.

    speculate(target, drafter, ids, capture=captured)       # the same tokens, for the same seed, as without

That a whole round can be recorded is decision, not luck: no branch, no shape that varies, no read-back in it; all that
it carries from one round to the next (the text, the caches, the dice's uniforms) is written in place. `upto`, the
only plain number in it, is rounded up to a multiple of BUCKET, one recording each. (A text's width is one, too.)

Not run on a GPU so far. Everything but the recording itself is tested on a CPU, with a stand-in for `Recording`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.text import Text

BUCKET = 128                # slots; reading up to so many too many costs less than another recording
Step = Callable[[int], tuple]


class Recording:
    """work() as a CUDA graph: `out`, its results, are the same tensors after every replay, with new numbers in them."""

    def __init__(self, work: Callable[[], tuple], warm_up: Callable[[], None]):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):       # libraries allocate on first use, which a recording must not see
            for _ in range(3):
                warm_up()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = work()

    def replay(self) -> None:
        self.graph.replay()


def cloned(out):
    """A copy that holds still while the recording is replayed: of tensors, and of tuples of them, as a Draft is."""
    if isinstance(out, tuple):
        parts = map(cloned, out)
        return type(out)(*parts) if hasattr(out, "_fields") else tuple(parts)
    return out.clone() if isinstance(out, Tensor) else out


def captured(step: Step, text: Text, dice: Dice, recording: type = Recording) -> Step:
    """`step(upto)`, recorded. It may change `text`, in place, and caches above the text's length; nothing else.

    dice: refilled outside, before every call; the recording reads the columns of its buffer in the order of the first.
    """
    recorded = {}

    def replayed(upto: int) -> tuple:
        upto = -(-upto // BUCKET) * BUCKET
        if upto not in recorded:
            recorded[upto] = recording(lambda: rewound(upto), lambda: undone(upto))
        recorded[upto].replay()
        return cloned(recorded[upto].out)

    def rewound(upto: int) -> tuple:
        dice.column = 0
        return step(upto)

    def undone(upto: int) -> None:
        before = text.tokens.clone(), text.length.clone()
        rewound(upto)
        text.tokens.copy_(before[0])
        text.length.copy_(before[1])

    return replayed
