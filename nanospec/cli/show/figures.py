"""The house style of pictures: those of the lessons, of a training, and of docs/results/."""

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
