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


def draw_losses(history: Sequence[tuple], phases: Sequence[str], path: Path) -> None:
    """Curves from (phase, step, loss, held-out loss): cross-entropies, then distillation's KL."""
    labels = {"target": GREEN, "draft": AMBER, "distil": BLUE}
    titles = ["cross-entropy, nats per token", "KL(p_target || q_draft), nats per token"]
    if len(phases) == 1:
        titles = ["rejected draft tokens (thin: the loss)"]
    figure, panels = blank("training", len(titles))
    for number, phase in enumerate(phases):
        axes, colour = panels[phase == "distil" and len(phases) > 1], labels[phase]
        rows = [row for row in history if row[0] == number]
        if not rows:
            continue
        steps = [row[1] for row in rows]
        axes.plot(steps, [row[2] for row in rows], color=colour, linewidth=1, alpha=0.5)
        axes.plot(steps, [row[3] for row in rows], color=colour, linewidth=2)
        axes.annotate(f"{phase} {rows[-1][3]:.2f}", (steps[-1], rows[-1][3]), xytext=(0, 16),
                      ha="right", textcoords="offset points", color=colour, fontweight="bold")
    for axes, title in zip(panels, titles):
        axes.set_ylabel(title)
        axes.set_xlabel("step (thick: held out, thin: one training batch)")
    figure.savefig(path, format="png", dpi=160)


def draw_accepted(history: Sequence[tuple], name: str, path: Path) -> None:
    """A learned draft model on held-out text: how often its first, second, ... draft token is
    accepted against steps of training, from (phase, step, loss, held-out loss, *accepted).
    """
    figure, (axes,) = blank("accepted draft tokens, held-out text", 1)
    steps, each = [row[1] for row in history], [*zip(*(row[4:] for row in history))]
    for k, accepted in enumerate(each):
        axes.plot(steps, accepted, color=BLUE, linewidth=2.4 - 0.4 * k)
        if k in (0, len(each) - 1):
            axes.annotate(f"token {k + 1}", (steps[-1], accepted[-1]), color=BLUE, fontsize=8,
                          xytext=(0, -14 if k else 6), ha="right", textcoords="offset points")
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"{name}: how often a draft token is accepted")
    axes.set_xlabel("steps of training")
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
