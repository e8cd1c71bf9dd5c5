"""What every lesson uses: dice for a single text, a table to print, a picture to draw."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from nanospec.dice import Dice
from nanospec.show.figures import AMBER, BLUE, FAINT, GREEN, INK, blank as picture  # noqa: F401, for the lessons

RED = "#c8463f"


class OneRow:
    """Dice for one text. The library's are for B rows at once and take (B, ...) tensors; here a law is (V,), a
    probability a number, and the answers are plain Python. Real dice by default; the walking ones do as well.
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
        shown.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*map(str, row))
    console = Console(markup=False)
    console.width = max(console.width, 110)         # a number cut short would be a wrong one
    console.print()
    console.print(shown)


def save(figure: Figure, name: str) -> None:
    """Write the picture to lessons/out/NAME.png and say where it lies."""
    out = Path("lessons/out") if Path("lessons").is_dir() else Path("out")      # run from the top, or from lessons/
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=140)
    print(f"\npicture: {out / name}.png")


def bars(axes: Axes, names: Sequence[str], *series: tuple[Sequence[float], str, str]) -> None:
    """Bars side by side for each name; every series is (heights, colour, label)."""
    width = 0.8 / len(series)
    for number, (heights, colour, label) in enumerate(series):
        left = [i - 0.4 + width * (number + 0.5) for i in range(len(names))]
        axes.bar(left, [float(height) for height in heights], width, color=colour, label=label)
    axes.set_xticks(range(len(names)), names)
    axes.legend(frameon=False)
