"""The pictures of lessons 44 to 46, one function for each."""

from collections.abc import Sequence

from matplotlib.colors import ListedColormap

from .picture import AMBER, BLUE, FAINT, GREEN, INK, MARK, RED, along_the_draft, bars, blank, save


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


# Practice on its own drafts

def practice_on_its_own_drafts(mask: Sequence[Sequence[bool]], places: int,
                               alphas: dict[str, Sequence[float]]) -> None:
    """mask: whether (step, place) attends to (step, place), `places` of each step. alphas: draft model ->
    its acceptance at draft token 1, 2, ..."""
    figure, (left, right) = blank("what it has practised on, it reads better", 2)
    steps = len(mask) // places
    shades = [[(1 if column < places else 2) * seen for column, seen in enumerate(line)] for line in mask]
    left.imshow(shades, cmap=ListedColormap(["#f3f4f6", BLUE, GREEN]), vmin=0, vmax=2, aspect="equal", zorder=3)
    for edge in range(steps * places + 1):
        for draw in (left.axhline, left.axvline):
            draw(edge - 0.5, color="white" if edge % places else INK, linewidth=1, zorder=4)
    middles = [places * step + (places - 1) / 2 for step in range(steps)]
    left.set_xticks(middles, [f"step {step}" for step in range(steps)])
    left.set_yticks(middles, [f"step {step}\nplaces 0 to {places - 1}" for step in range(steps)])
    left.tick_params(length=0)
    left.set_title("what each place attends to in unrolled training", loc="left", color=INK, fontsize=10)
    left.set_xlabel("step 0: the text, with the target's hidden states; the diagonals: its own states")
    left.grid(False)
    along_the_draft(right, alphas, (AMBER, RED, BLUE), "alpha")
    save(figure, "practice_on_its_own_drafts")
