"""What every lesson uses: dice for a single text, a table, and a word about a busy machine."""

from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.table import Table

from nanospec.bench.measure import BUSY
from nanospec.dice import Dice


class OneRow:
    """Dice for one text. The library's are for B rows at once and take (B, ...) tensors. Here a distribution is (V,),
    a probability is a number, and the answers are plain Python. Real dice by default; the walking ones do as well.
    """

    def __init__(self, dice=None, seed: int = 0):
        self.dice = dice or Dice([seed])

    def pick(self, weights) -> int:
        """weights (V,), not negative -> an index, drawn in proportion to them."""
        self.dice.refill(1)
        return int(self.dice.pick(torch.as_tensor(weights, dtype=torch.float64)[None]))

    def flip(self, prob) -> bool:
        """True with probability min(1, prob)."""
        self.dice.refill(1)
        return bool(self.dice.flip(torch.as_tensor(prob, dtype=torch.float64).view(1, 1)))


def table(columns: Sequence[str], rows: Sequence[Sequence], note: str = "") -> None:
    """Print rows under their headings; numbers as they are given, so format them first."""
    shown = Table(box=None, header_style="bold", padding=(0, 3, 0, 0), caption=note or None, caption_justify="left",
                  caption_style="dim")
    for number, name in enumerate(columns):
        shown.add_column(str(name), justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*map(str, row))
    console = Console(markup=False)
    console.width = max(console.width, 110)         # a number cut short would be a wrong one
    console.print()
    console.print(shown)


class Quiet:
    """Did others use the machine while a lesson measured? The same work is timed at the beginning, at the end, and
    whenever the lesson calls `look`.

    quiet = Quiet(lambda: step_seconds(target, repeats=3)); ...; quiet.tell("v(2) 1.04, v(10) 1.21")
    """

    def __init__(self, seconds: Callable[[], float]):
        self.seconds, self.took = seconds, []
        self.look(3)

    def look(self, times: int = 1) -> None:
        self.took += [self.seconds() for _ in range(times)]

    def tell(self, recorded: str) -> None:
        """Nothing, or a warning with the figures of a machine that did nothing else."""
        self.look(3)
        if max(self.took) > BUSY * min(self.took):
            print(f"\nThis machine is busy: one and the same step took {1e3 * min(self.took):.2f} to "
                  f"{1e3 * max(self.took):.2f} ms. Run this lesson again. On a quiet machine: {recorded}.")
