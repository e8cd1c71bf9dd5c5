"""Pictures of a training, from its history: what each look at the held-out text has found."""

from collections.abc import Sequence
from pathlib import Path

from nanospec.cli.show.figures import AMBER, BLUE, GREEN, blank


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
