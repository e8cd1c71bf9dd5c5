"""The house style of pictures: those of the lessons, of a training, and of docs/results/."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREEN, AMBER, BLUE, INK, FAINT = "#2a9d5c", "#d9902f", "#3f72c8", "#26303a", "#9aa5b1"


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


def draw_losses(history: Sequence[tuple], phases: Sequence[str], path: Path) -> None:
    """The losses of a training of train_tiny.py. history: (phase, step, loss, held-out loss)."""
    figure, panels = blank("training (thick: held out, thin: one batch)", 2)
    panels[0].set_ylabel("cross-entropy, nats per token")
    panels[1].set_ylabel("rejected draft tokens")
    for number, colour in enumerate((FAINT, GREEN, AMBER, BLUE)):
        rows, panel = [row for row in history if row[0] == number], panels[number == 3]
        for column, width in (2, 1), (3, 2):
            panel.plot([row[1] for row in rows], [row[column] for row in rows], color=colour,
                       linewidth=width, marker=".", label=phases[number] if column == 3 else None)
        panel.set_xlabel("steps of the phase")
        panel.legend(frameon=False)
    figure.savefig(path, format="png", dpi=160)
