"""What the pictures of all lessons share: a second sign beside each colour, bars, and where a picture is written."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanospec.cli.show.figures import AMBER, BLUE, FAINT, GREEN, INK, blank  # noqa: F401

RED = "#c8463f"
# A second sign beside each colour: on grey paper green, blue and red are one shade, and amber and faint another.
MARK = {GREEN: "o", BLUE: "s", AMBER: "^", RED: "D", INK: "v", FAINT: "o"}
HATCH = {BLUE: "///", AMBER: "..."}


def bars(axes: Axes, names: Sequence[str], *series: tuple[Sequence[float], str, str]) -> None:
    """Bars side by side for each name; every series is (heights, colour, label)."""
    width, hatches = 0.8 / len(series), ("", "//", "..", "\\\\", "xx")              # for a reader without colours
    for number, (heights, colour, label) in enumerate(series):
        left = [i - 0.4 + width * (number + 0.5) for i in range(len(names))]
        axes.bar(left, [float(height) for height in heights], width, color=colour, label=label, edgecolor="white",
                 linewidth=0, hatch=hatches[number % len(hatches)])
    axes.set_xticks(range(len(names)), names)
    axes.legend(frameon=False)


def along_the_draft(axes: Axes, lines: dict[str, Sequence[float]], colours: Sequence[str], what: str) -> None:
    """Draft model -> what it has at draft token 1, 2, ..."""
    for (name, line), colour in zip(lines.items(), colours):
        axes.plot(range(1, len(line) + 1), line, color=colour, marker=MARK[colour], linewidth=2, label=name)
    axes.set(xlabel="draft token", ylabel=f"{what} on held-out text", ylim=(0, 1),
             xticks=range(1, 1 + max(map(len, lines.values()))))
    axes.legend(frameon=False, loc="upper right")


def save(figure: Figure, name: str) -> None:
    """Write the picture to lessons/out/NAME.png, or to out/NAME.png where there is no lessons/, and say so."""
    out = Path("lessons/out") if Path("lessons").is_dir() else Path("out")
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=140)
    print(f"\npicture: {out / name}.png")
