"""Pictures, drawn with matplotlib from numbers that others measured."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanospec.cli.quantities import cost_of_round

GREEN, AMBER, BLUE, INK, FAINT = "#2a9d5c", "#d9902f", "#3f72c8", "#26303a", "#9aa5b1"


def draw_batches(rows: Sequence[int], gains: Mapping[str, Sequence[float]], title: str,
                 path: Path) -> None:
    """Gain over plain decoding against the number of texts at once: a line for each method."""
    figure, (axes,) = blank(title, 1)
    places = range(len(rows))
    for (name, gain), colour in zip(gains.items(), cycle((GREEN, BLUE, AMBER, INK))):
        axes.plot(places, gain, color=colour, marker="o", linewidth=2, markersize=6, label=name)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xticks(places, [str(count) for count in rows])
    axes.set_xlabel("texts at once")
    axes.set_ylabel("tokens a second over those of plain decoding")
    axes.set_ylim(0, 1.08 * max(1.0, *sum(map(list, gains.values()), [])))
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, format="png", dpi=160)


def draw_field(rows: Sequence[dict], title: str, path: Path) -> None:
    """Every method as a point: what a round costs beyond a plain step, and the tokens that it
    writes. So each stands on the line of its own speed-up. A panel for each temperature.
    """
    temperatures = [*dict.fromkeys(row["temperature"] for row in rows)]
    figure, panels = blank(title, len(temperatures))
    figure.set_size_inches(6.4 * len(temperatures), 5.6)
    kinds = {"chain": GREEN, "other drafters": BLUE, "without a draft model": AMBER}
    # Points bear their draft models' names, if there are several.
    several = len({row["draft"] for row in rows} - {"none"}) > 1
    points = [(row, cost_of_round(row) - 1, row["tokens_per_target_call"]) for row in rows
              if row["rule"] == rows[0]["rule"]]
    right = 1.1 * max(cost for _, cost, _ in points)
    top = 1.1 * max(tokens for *_, tokens in points)
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
            kind = "without a draft model" if row["draft"] == "none" else kind
            name = f"{row['drafter']} {row['gamma']}"
            if several and row["draft"] != "none":
                name = row["draft"]
            axes.plot(*place, color=kinds[kind], marker="o", markersize=6)
            axes.annotate(name, (place[0], place[1]), color=kinds[kind], fontsize=8,
                          textcoords="offset points",
                          xytext=(5, -10 if kind == "other drafters" else 4))
        axes.set(xlim=(0, right), ylim=(0.8, top),
                 xlabel="a round's cost beyond one plain step, in plain steps")
        axes.set_title(f"T = {temperature:g}", loc="left", color=INK, fontsize=10)
    panels[0].set_ylabel("tokens for each target call")
    for label, colour in kinds.items():
        panels[0].plot([], [], color=colour, marker="o", linestyle="", label=label)
    panels[0].legend(frameon=False, loc="lower right")
    figure.savefig(path, format="png", dpi=160)


def blank(title: str, panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with empty panels, side by side, in the house style."""
    figure = Figure(figsize=(4.4 + 3.6 * panels, 4.6), layout="constrained")
    figure.suptitle(title, x=0.02, ha="left", color=INK, fontsize=12, fontweight="bold")
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(FAINT)
        panel.tick_params(colors=INK)
        panel.grid(axis="y", color="#e6e9ed", linewidth=1)
        panel.set_axisbelow(True)
    return figure, axes
