"""The pictures of docs/results/, drawn from the rows that `nanospec bench` has measured.

    nanospec bench speed --draft-models all --json rows.json
    python -m docs.pictures field rows.json docs/field.png

    nanospec bench serve --json rows.json
    python -m docs.pictures batches rows.json docs/batches.png

To be run in the root of the repository.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import json
import sys
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from nanospec.cli.launch import Parser, command
from nanospec.cli.options import TEXT, file, option
from nanospec.cli.quantities import cost_of_round, gain_of
from nanospec.errors import RequestError, one_line
from nanospec.cli.show.figures import AMBER, BLUE, FAINT, GREEN, INK, blank


def draw_batches(rows: Sequence[dict], title: str, path: Path) -> None:
    """Gain over plain decoding against the number of texts at once: a line for each method."""
    counts = [*dict.fromkeys(row["rows"] for row in rows)]
    methods = [name for name in dict.fromkeys(row["method"] for row in rows) if name != "plain"]
    gains = {name: [gain_of(rows, count, name) for count in counts] for name in methods}
    figure, (axes,) = blank(title, 1)
    places = range(len(counts))
    for (name, gain), colour in zip(gains.items(), cycle((GREEN, BLUE, AMBER, INK))):
        axes.plot(places, gain, color=colour, marker="o", linewidth=2, markersize=6, label=name)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xticks(places, [str(count) for count in counts])
    axes.set_xlabel("texts at once")
    axes.set_ylabel("tokens a second over those of plain decoding")
    axes.set_ylim(0, 1.08 * max(1.0, *sum(gains.values(), [])))
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, format="png", dpi=160)


def draw_field(rows: Sequence[dict], title: str, path: Path) -> None:
    """Every method as a point: what a round costs beyond a plain step, and the tokens that it
    writes. So each stands on the line of its own speed-up. A panel for each temperature. Of
    several rules of verification the first is drawn.
    """
    temperatures = [*dict.fromkeys(row["temperature"] for row in rows)]
    figure, panels = blank(title, len(temperatures))
    figure.set_size_inches(6.4 * len(temperatures), 5.6)
    kinds = {"chain": GREEN, "other drafters": BLUE, "without a draft model": AMBER}
    # Points bear their draft models' names, if there are several.
    several = len({row["draft_model"] for row in rows} - {"none"}) > 1
    points = [(row, cost_of_round(row) - 1, row["acceptance_length"]) for row in rows
              if row["rule"] == rows[0]["rule"]]
    right = 1.1 * max(cost for _, cost, _ in points)
    top = 1.1 * max(tokens for *_, tokens in points)
    names = []
    for axes, temperature in zip(panels, temperatures):
        for times in (0.5, 1, 1.5, 2, 2.5, 3, 4):
            axes.plot([0, right], [times, times * (1 + right)], color=FAINT,
                      linewidth=2 if times == 1 else 0.8)
            end = min(right, top / times - 1)
            if end > 0:
                axes.annotate(f"{times:g} times", (end, times * (1 + end)), color=FAINT,
                              fontsize=8, ha="right", va="top")
        for row, *place in points:
            if row["temperature"] != temperature:
                continue
            kind = row["drafter"] if row["drafter"] == "chain" else "other drafters"
            kind = "without a draft model" if row["draft_model"] == "none" else kind
            name = f"{row['drafter']} {row['gamma']}"
            if several and row["draft_model"] != "none":
                name = row["draft_model"]
            axes.plot(*place, color=kinds[kind], marker="o", markersize=6)
            names.append((axes, name, place, kinds[kind]))
        axes.set(xlim=(0, right), ylim=(0.8, top),
                 xlabel="a round's cost beyond one plain step, in plain steps")
        axes.set_title(f"T = {temperature:g}", loc="left", color=INK, fontsize=10)
    panels[0].set_ylabel("tokens for each target call")
    for label, colour in kinds.items():
        if colour in {colour for *_, colour in names}:
            panels[0].plot([], [], color=colour, marker="o", linestyle="", label=label)
    panels[0].legend(frameon=False, loc="lower right")
    write_names(figure, names)
    figure.savefig(path, format="png", dpi=160)


def write_names(figure: Figure, names: Sequence[tuple[Axes, str, Sequence[float], str]]) -> None:
    """names: (panel, name, place, colour). Above its point or below, to the right or to the left:
    where it covers fewest points and other names.
    """
    figure.draw_without_rendering()             # now it is known where everything stands
    covered = [Bbox([at - 8, at + 8]) for axes, _, place, _ in names
               for at in [axes.transData.transform(place)]]
    for axes, name, place, colour in names:
        labels = [axes.annotate(name, (place[0], place[1]), (x, y), textcoords="offset points",
                                ha="left" if x > 0 else "right", color=colour, fontsize=8)
                  for x in (5, -5) for y in (4, -10)]
        boxes = [label.get_window_extent() for label in labels]
        best = min(range(4), key=lambda i: boxes[i].count_overlaps(covered))
        covered.append(boxes[best])
        for label in labels[:best] + labels[best + 1:]:
            label.remove()


class Picture(NamedTuple):
    """subcommand: of the bench, which measures its rows. keys: what is drawn of a row."""

    draw: Callable[[Sequence[dict], str, Path], None]
    subcommand: str
    keys: set[str]
    title: str


PICTURES = {
    "field": Picture(draw_field, "speed", {"drafter", "draft_model", "gamma", "rule", "temperature",
                                           "speedup", "acceptance_length"},
                     "What a round costs, and the tokens that it writes"),
    "batches": Picture(draw_batches, "serve", {"rows", "method", "tokens_per_s"},
                       "What speculation gains in a batch")}


def rows_of(path: Path, picture: Picture) -> list[dict]:
    """The rows that the bench has written there. RequestError if the picture is of other rows."""
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is no JSON: {one_line(error)}") from error
    if not (isinstance(rows, list) and rows
            and all(isinstance(row, dict) and picture.keys <= row.keys() for row in rows)):
        raise RequestError(f"{path} does not hold what this picture shows, the rows of `nanospec "
                           f"bench {picture.subcommand} --json`")
    return rows


def parser() -> Parser:
    found = Parser(prog="python -m docs.pictures", description=__doc__)
    found.add_argument("picture", choices=PICTURES, metavar="PICTURE",
                       help="which one: " + ", ".join(PICTURES))
    found.add_argument("rows", type=option("a file that is there", Path, Path.is_file),
                       metavar="ROWS.json", help="what the bench has written with --json")
    found.add_argument("out", type=file(".png"), metavar="OUT.png", help="where to draw it")
    found.add_argument("--title", type=TEXT, help="what stands over it; default: what it shows")
    return found


@command("docs.pictures")
def main(argv: Sequence[str] | None = None) -> None:
    asked = parser().parse_args(argv)
    picture = PICTURES[asked.picture]
    picture.draw(rows_of(asked.rows, picture), asked.title or picture.title, asked.out)


if __name__ == "__main__":
    sys.exit(main())
