"""The pictures of lessons 44 and 45, one function for each."""

from collections.abc import Sequence

from .picture import AMBER, BLUE, FAINT, GREEN, INK, MARK, RED, bars, blank, save


# Which loss

def losses(p_target: Sequence[float], fits: dict[str, Sequence[float]]) -> None:
    """A target with two humps; for each loss, the best student that has only one."""
    figure, panels = blank("a student that is too small must choose, and each loss chooses differently", len(fits))
    figure.set_size_inches(12, 4.2)
    for axes, (name, q_draft), colour in zip(panels, fits.items(), (AMBER, BLUE, RED)):
        both = [min(p, q) for p, q in zip(p_target, q_draft)]
        axes.fill_between(range(len(both)), both, color=GREEN, alpha=0.35, label=f"both: alpha = {sum(both):.2f}")
        axes.plot(p_target, color=INK, linewidth=2, label="p_target")
        axes.plot(q_draft, color=colour, linewidth=2, linestyle="--", label="q_draft")
        axes.set_title(name, loc="left", color=INK, fontsize=10)
        axes.set(xlabel="token", ylim=(0, 1.7 * max(max(p_target), *map(max, fits.values()))))
        axes.legend(frameon=False, loc="upper right")
    panels[0].set_ylabel("probability")
    save(figure, "which_loss")


# Numbers that mislead

def numbers_that_mislead(lengths: dict[int, tuple[float, float, float]],
                         mixed: dict[int, tuple[float, float, float]]) -> None:
    """gamma -> acceptance length, acceptance rate, alpha. gamma -> tokens of a round, really and by two alphas."""
    figure, (left, right) = blank("one draft model: its rate falls, and one alpha promises too much", 2)
    for row, colour, name in (1, RED, "acceptance rate"), (2, BLUE, "alpha"):
        left.plot(list(lengths), [numbers[row] for numbers in lengths.values()], color=colour, marker=MARK[colour],
                  label=name)
    left.set(xlabel="gamma", ylim=(0, 1), xscale="log", xticks=list(lengths), xticklabels=list(lengths))
    left.legend(frameon=False)
    bars(right, [f"gamma {gamma}" for gamma in mixed], *(
        ([numbers[row] for numbers in mixed.values()], colour, name)
        for row, (colour, name) in enumerate(((GREEN, "really"), (FAINT, "by alpha over the text"),
                                              (AMBER, "by alpha of judged tokens")))))
    right.set_ylabel("tokens of a round, half easy, half hard")
    save(figure, "numbers_that_mislead")
