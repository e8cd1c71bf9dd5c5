"""The pictures of lessons 8 to 16, one function for each."""

from collections.abc import Sequence

from .picture import AMBER, BLUE, FAINT, GREEN, INK, RED, bars, blank, save


# A draft and a bonus

def round_by_round(rounds: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Every round as a line of (kind, word): draft tokens that were accepted, rejected or never judged, and the
    target's own token after them.
    """
    look = {"accepted": GREEN, "rejected": RED, "never judged": "white", "replacement": AMBER, "bonus": BLUE}
    figure, (axes,) = blank("a round ends at the first rejection, or with a bonus token", 1)
    gamma = len(rounds[0]) - 1
    for number, line in enumerate(rounds, start=1):
        for column, (kind, word) in enumerate(line):
            axes.barh(number, 0.95, left=column - 0.475, color=look[kind], edgecolor="#e6e9ed", label=kind,
                      hatch="///" if kind == "rejected" else "")
            axes.text(column, number, word, color=FAINT if kind == "never judged" else "white", ha="center",
                      va="center", bbox={"facecolor": look[kind], "edgecolor": "none", "pad": 2}, parse_math=False)
    axes.set(ylabel="round (one target call each)", yticks=range(1, len(rounds) + 1), ylim=(len(rounds) + 0.5, 0.5),
             xlim=(-0.5, gamma + 0.5), xticks=range(gamma + 1),
             xticklabels=[*(f"draft token {i + 1}" for i in range(gamma)), "target's token"])
    axes.grid(False)
    seen = dict(zip(*reversed(axes.get_legend_handles_labels())))
    shown = [kind for kind in look if kind in seen]
    axes.legend([seen[kind] for kind in shown], shown, ncols=5, frameon=False, loc="lower center",
                bbox_to_anchor=(0.5, 1))
    save(figure, "a_draft_and_a_bonus")


# Why the whole text is exact

def after_each_history(panels: Sequence[tuple[str, Sequence[tuple], Sequence[float]]]) -> None:
    """For each (title, histories, p_target): what follows each history, beside what the target has. A history is a
    triple of its words, how often it comes, and the shares of the tokens that follow it.
    """
    figure, axes = blank("what follows a history is the target's, or it is not", len(panels))
    for axis, (title, histories, p_target) in zip(axes, panels):
        bars(axis, [history.strip() for history, _, _ in histories],
             *(([float(shares[token]) for _, _, shares in histories], colour, f"token {token} follows")
               for token, colour in enumerate((BLUE, GREEN, AMBER))))
        for p, colour in zip(p_target, (BLUE, GREEN, AMBER)):
            axis.axhline(float(p), color=colour, linestyle="--", linewidth=1)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set(xlabel="history (a round ends at |)", ylabel="probability", ylim=(0, 1.1))
        axis.tick_params(axis="x", labelsize=8)
        axis.legend(frameon=False, loc="upper right", fontsize=8)
    save(figure, "why_the_whole_text_is_exact")


# Temperature and greedy

def settings(words: Sequence[str], heights: dict[str, Sequence[float]], before: str, names: Sequence[str],
             as_it_is: Sequence[float], top_k: Sequence[float], top_p: Sequence[float]) -> None:
    """heights: "T = 0" and so on -> the probabilities of `words`, after the text `before`. Then four tokens, cut."""
    figure, (left, right) = blank("temperature reshapes a distribution; top-k and top-p cut it off", 2)
    shades = BLUE, "#7b9dd9", "#b0c5e9", "#d2def2"
    series = [([*high, 1 - sum(high)], shade, name) for (name, high), shade in zip(heights.items(), shades)]
    bars(left, [*words, "all others"], *series)
    left.tick_params(axis="x", labelsize=8)
    left.set(ylabel="probability", xlabel=f"after {before!r}")
    bars(right, names, (as_it_is, FAINT, "as it is"), (top_k, GREEN, "top-k 2"), (top_p, AMBER, "top-p 0.9"))
    right.set(xlabel="the four tokens of the tables")
    for axes in left, right:
        axes.set_ylim(0, 1.15)
        axes.legend(frameon=False, ncols=4, loc="upper center")
    save(figure, "temperature_and_greedy")


# The same to the last bit

def the_same_to_the_last_bit(found: dict[str, tuple[float, float]]) -> None:
    """Data type -> total variation from float32, and of calls on one token from calls on five."""
    figure, (axes,) = blank("rounding, and a call's own share of it", 1)
    figure.set_size_inches(8, 4.2)
    against, apart = zip(*found.values())
    bars(axes, list(found), ([100 * part for part in against], BLUE, "from the target in float32"),
         ([100 * part for part in apart], AMBER, "alone, from five in a call"))
    axes.set(ylabel="tokens in a hundred that would be others")
    save(figure, "the_same_to_the_last_bit")


# Report what you sample

def reported(ways: Sequence[str], off_asked: Sequence[float], off_raw: Sequence[float], temperatures: Sequence[float],
             both: Sequence[float], only: Sequence[float], own: dict[float, float]) -> None:
    """How far each way is off; and alpha against temperature. own: temperature -> alpha on the target's own text."""
    figure, (left, right) = blank("report what you sample, and say on whose text alpha was measured", 2)
    bars(left, [way.replace(", ", ",\n").replace(" left", "\nleft") for way in ways],
         (off_asked, RED, "from what was asked"), (off_raw, FAINT, "from the raw target"))
    left.set_title("no red bar: the text is what was asked for", loc="left", fontsize=10)
    right.set_title("alpha against temperature depends on the text", loc="left", fontsize=10)
    left.set(ylabel="off by (total variation)", ylim=(0, 1.4 * max(*off_asked, *off_raw)))
    left.legend(frameon=False, loc="upper center", ncols=2)
    right.plot(temperatures, both, color=GREEN, marker="o", linewidth=2, label="human's text, both models at T")
    right.plot(temperatures, only, color=AMBER, marker="s", linestyle="--", linewidth=2,
               label="human's text, target at T, draft model at 1")
    right.plot(list(own), list(own.values()), color=BLUE, marker="^", linestyle=":", linewidth=2,
               label="the target's own text, both at T")
    right.set(xlabel="temperature T", ylabel="alpha", ylim=(0, 1.3), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    right.legend(frameon=False, loc="upper left")
    save(figure, "report_what_you_sample")


# How fast

def how_fast(gammas: Sequence[int], free: Sequence[float], real: Sequence[float], measured: Sequence[float],
             spread: Sequence[float], alpha: float, by_place: Sequence[float], errors: Sequence[float]) -> None:
    """Speed-ups against gamma: with v = 1, with v, by the clock +- spread; and beta of a round's 1st, 2nd, ... draft
    token.
    """
    figure, (left, right) = blank("each further draft token brings less: there is a best gamma", 2)
    left.plot(gammas, free, color=FAINT, linestyle=":", linewidth=2, label="formula, v = 1: verification is free")
    left.plot(gammas, real, color=BLUE, linestyle="--", linewidth=2, label="formula, with the v measured here")
    left.errorbar(gammas, measured, spread, color=GREEN, marker="o", linewidth=2,
                  label="by the clock, +- standard error")
    left.axhline(1, color=INK, linewidth=1)
    left.set(ylim=(0, 1.45 * max(*free, *real, *measured)), xticks=gammas, xlabel="gamma, draft tokens in a round",
             ylabel="times as fast as the target alone")
    left.legend(frameon=False, loc="upper left")
    names = ["1st", "2nd", "3rd", "4th"][:len(by_place)]
    right.errorbar(names, by_place, errors, color=GREEN, marker="o", linewidth=2, label="mean beta, +- standard error")
    right.axhline(alpha, color=BLUE, linestyle="--", linewidth=2, label="alpha: the formula has one for all")
    right.set(ylim=(max(0, min(by_place) - 0.2), min(1.05, max(by_place) + 0.2)), ylabel="beta",
              xlabel="draft token of the round, if it was judged")
    right.legend(frameon=False, loc="upper left")
    save(figure, "how_fast")


# Good where it matters

def code_map(lines: Sequence[str], grid: Sequence[Sequence[float]], kinds: Sequence[str],
             alpha: dict[str, Sequence[float]]) -> None:
    """lines: of a text; grid: beta of every character. alpha: a draft model -> its mean beta at each kind of place."""
    figure, (left, right) = blank("a draft model is right at some places and lost at others", 2)
    widest = max(map(len, lines))
    padded = [[*line, *[float("nan")] * (widest - len(line))] for line in grid]
    for y, line in enumerate(lines):
        for x, character in enumerate(line):
            left.text(x, y, character.strip(), family="monospace", fontsize=8.5, ha="center", va="center", color=INK,
                      parse_math=False)
    shown = left.imshow(padded, cmap="Oranges_r", vmin=-0.6, vmax=1, aspect="auto")
    left.set_axis_off()
    scale = figure.colorbar(shown, ax=left, location="bottom", aspect=50, pad=0.02,
                            label="beta: how often a draft token is accepted there")
    scale.ax.set_xlim(0, 1)
    colours = GREEN, FAINT, AMBER, BLUE
    bars(right, [kind.replace(" ", "\n") for kind in kinds],
         *((means, colour, name) for (name, means), colour in zip(alpha.items(), colours)))
    right.tick_params(axis="x", labelsize=8)
    right.set(ylim=(0, 1.25), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1], ylabel="mean beta, by what stands there")
    right.legend(frameon=False, loc="upper left", ncols=2)
    save(figure, "good_where_it_matters")


# How to test a sampler

def two_error_rates(p_right: Sequence[float], p_wrong: Sequence[float], n: int, sizes: Sequence[int],
                    power: dict[str, Sequence[float]], promised: dict[str, tuple[int, float]],
                    off: dict[str, float]) -> None:
    """p-values of a right sampler and a wrong one; and how often bugs are caught (power), by number of samples.

    promised: name -> (samples, share caught) where 99% are promised.
    """
    figure, (left, right) = blank("false alarms are chosen; a bug half as far off needs four times the samples", 2)
    *_, (_, wrong) = left.hist([p_right, p_wrong], bins=20, range=(0, 1), color=[GREEN, RED], edgecolor="white",
                               linewidth=0, label=["as it ships", "target-not-rolled-back"])
    for bar in wrong:
        bar.set_hatch("////")
    left.axhline(len(p_right) / 20, color=BLUE, linestyle="--", label="expected of a correct sampler")
    left.set(xlabel=f"p-value of {n} samples", ylabel=f"how many of {len(p_right):,} runs")
    left.legend(frameon=False)
    for (name, shares), colour, mark in zip(power.items(), (RED, AMBER, INK), "os^"):
        right.semilogx(sizes, shares, color=colour, marker=mark, linewidth=2, label=f"{name}: {off[name]:.2f} off")
    right.plot(*zip(*promised.values()), "D", color=BLUE, markersize=10, fillstyle="none", linestyle="none",
               label="here 99% were promised")
    right.set(xlabel="samples (texts of three tokens)", ylabel="share of 200 runs that catch the bug",
              ylim=(-0.03, 1.62), yticks=[0, .25, .5, .75, 1])
    right.legend(frameon=False, loc="upper left")
    save(figure, "how_to_test_a_sampler")


# Where it loses

def where_it_loses(alpha: Sequence[float], c: Sequence[float],
                   panels: Sequence[tuple[str, Sequence[Sequence[float]], Sequence[tuple]]]) -> None:
    """Predicted speed-up for each alpha and c, with the break-even line; a panel for each v.

    panels: (title, speed-up, a list for each alpha, dots); a dot is (name, alpha, c, verdict).
    """
    figure, places = blank("speculation loses below the line, and expensive calls raise the line", len(panels))
    look = {"wins": ("o", GREEN), "loses": ("X", RED), "unclear": ("s", AMBER)}
    for axes, (title, speed, dots) in zip(places, panels):
        filled = axes.contourf(c, alpha, speed, levels=[0, 0.5, 0.75, 1, 1.5, 2, 3, 6], colors=[
            "#e9b9b5", "#f1d2cf", "#f9ebe9", "#e3f2ea", "#bfe2cf", "#93cdae", "#5fb488"])
        axes.contour(c, alpha, speed, levels=[1], colors=INK, linewidths=2)
        axes.set_title(title, loc="left", color=INK, fontsize=10)
        axes.set_xlabel("c (a draft step in target steps)")
        taken = [(high, right - 0.02, right + 0.02) for _, high, right, _ in dots]      # nothing is written over these
        for name, high, right, verdict in sorted(dots, key=lambda dot: dot[1]):
            mark, colour = look[verdict]
            axes.plot(right, high, mark, color=colour, markeredgecolor=INK, markersize=9, clip_on=False)
            at, width = min(high, 0.94), 0.019 * len(name)
            begin = right + 0.03 if right + 0.03 + width < c[-1] else right - 0.03 - width
            while any(abs(at - y) < 0.055 and begin < end and start < begin + width for y, start, end in taken):
                at += 0.01
            taken.append((at, begin, begin + width))
            axes.annotate(name, (begin, at), fontsize=9, va="center",
                          bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 1})
    for verdict, (mark, colour) in look.items():
        places[-1].plot([], [], mark, color=colour, markeredgecolor=INK, label=verdict)
    places[-1].plot([], [], color=INK, linewidth=2, label="break even")
    places[-1].legend(frameon=False, loc="lower right")
    places[0].set_ylabel("alpha (mean acceptance)")
    figure.colorbar(filled, ax=places, label="predicted speed-up")
    save(figure, "where_it_loses")
