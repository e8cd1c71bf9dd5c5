"""The pictures of the lessons. A lesson computes, and hands its numbers to the function that draws them."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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


def save(figure: Figure, name: str) -> None:
    """Write the picture to lessons/out/NAME.png, or to out/NAME.png where there is no lessons/, and say so."""
    out = Path("lessons/out") if Path("lessons").is_dir() else Path("out")
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=140)
    print(f"\npicture: {out / name}.png")


# Overview

def one_round(text: str, words: Sequence[str], chances: Sequence[float], accepted: int, replacement: str) -> None:
    """A round in three lines: what is drafted, what the target makes of it, the text after it. accepted < gamma."""
    figure, (axes,) = blank("the draft model proposes, the target decides: one round", 1)
    figure.set_size_inches(10.4, 3.8)
    gamma = len(words)
    lines = [[(text, BLUE, "")] + [(word, FAINT, "drafted") for word in words],
             [(f"min(1, p/q) = {chance:.2f}", GREEN if i < accepted else RED if i == accepted else FAINT,
               "accepted" if i < accepted else "rejected" if i == accepted else "never judged")
              for i, chance in enumerate(chances)],
             [(text, BLUE, "")] + [(word, GREEN, "") for word in words[:accepted]]
             + [(replacement, AMBER, "replacement")]]
    for height, line in zip((2, 1, 0), lines):
        first = gamma + 1 - len(line) if height == 1 else 0
        for place, (word, colour, mark) in enumerate(line, first):
            axes.barh(height, 0.94, 0.5, left=place, color=colour, hatch="//" * (mark == "rejected"), edgecolor="white")
            axes.text(place + 0.47, height, word, ha="center", va="center", color="white", fontsize=9,
                      fontweight="bold", bbox={"color": colour, "pad": 1})
            axes.text(place + 0.47, height - 0.37, mark, ha="center", va="center", color=INK, fontsize=8)
    axes.set(xlim=(0, gamma + 1), ylim=(-0.6, 2.5), xticks=[], yticks=[0, 1, 2],
             yticklabels=["the text after it", "one call of the target", f"{gamma} calls of the draft model"])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    save(figure, "overview")


# A distribution is a die

def draws(names: Sequence[str], probabilities: Sequence[float], shares: Sequence[float], sizes: Sequence[int],
          distances: Sequence[float]) -> None:
    """A distribution beside the shares of its draws; and how their distance shrinks with the number of draws."""
    figure, (left, right) = blank("a hundred times as many draws come not quite ten times as near", 2)
    bars(left, names, (probabilities, BLUE, "the distribution"), (shares, GREEN, f"{sizes[-1]:,} draws"))
    left.set_ylabel("probability")
    right.loglog(sizes, distances, color=GREEN, marker="o", linewidth=2, label="draws against the distribution")
    right.loglog(sizes, [distances[0] * (sizes[0] / n) ** 0.5 for n in sizes], color=FAINT, linestyle=":",
                 linewidth=2, label="1 / sqrt(draws)")
    right.set(xlabel="number of draws", ylabel="total variation")
    right.legend(frameon=False)
    save(figure, "a_distribution_is_a_die")


# One token per call, Ten for the price of one, The cache

def one_token_per_call(lengths: Sequence[float], without: Sequence[float], cached: Sequence[float], floor: float,
                       rate: float, most: float, points: Sequence[tuple[int, float, float]],
                       big: tuple[float, float]) -> None:
    """Milliseconds for the next token against the length of the text; and the roofline.

    floor: ms. rate: bytes a second. most: operations a second. points: (m, operations per byte, operations a second).
    big: a big matrix's bytes a second, and the operations a second that it reached with one token.
    """
    figure, (left, right) = blank("one token per call uses a small part of what a core can compute", 2)
    for taken, colour, mark, label in [(without, RED, "s", "reading everything again"),
                                       (cached, GREEN, "o", "with a cache")]:
        left.plot(lengths, taken, color=colour, marker=mark, linewidth=2, label=label)
    left.axhline(floor, color=BLUE, linestyle="--", linewidth=2, label="floor: bytes / bandwidth")
    left.set(xlabel="length of the text, tokens", ylabel="ms for the next token")
    left.set_ylim(0, 1.3 * max(*without, *cached, floor))
    x = [0.1 * 10 ** (i / 20) for i in range(51)]                       # operations per byte, 0.1 to 32
    for memory, colour, line, label in [(rate, BLUE, "-", "both limits, for the target"),
                                        (big[0], FAINT, ":", "both limits, for the big matrix")]:
        right.loglog(x, [min(most, memory * at) / 1e9 for at in x], color=colour, linestyle=line, linewidth=2,
                     label=label)
    right.loglog([at for _, at, _ in points], [high / 1e9 for _, _, high in points], color=GREEN, marker="o",
                 linewidth=2, label="the target, m tokens in a call")
    right.loglog([0.5], [big[1] / 1e9], color=INK, marker="s", linestyle="", label="the big matrix, one token")
    for m, at, high in points:
        right.annotate(f"m = {m}", (at, high / 1e9), xytext=(7, -12), textcoords="offset points", color=GREEN)
    lowest = min(0.1 * rate, 0.1 * big[0], *[high for _, _, high in points])
    right.set(xlabel="operations per byte", ylabel="billion operations per second",
              ylim=(0.5 * lowest / 1e9, 30 * most / 1e9))               # room for the legend
    for axis in (right.xaxis, right.yaxis):
        axis.set_major_formatter("{x:g}")
    for axes in (left, right):
        axes.legend(frameon=False, loc="upper left")
    save(figure, "one_token_per_call")


def ten_in_one_call(v: dict[int, float], moved: Sequence[float], place: int) -> None:
    """v(m) between its two limits; and how far each row's distribution moved when token `place` was replaced."""
    figure, (left, right) = blank("many tokens in one call cost less than a call each; no row sees what follows it", 2)
    sizes = list(v)
    left.loglog(sizes, sizes, color=RED, linestyle="--", linewidth=2, label="v = m: a call for each token")
    left.loglog(sizes, list(v.values()), color=GREEN, marker="o", linewidth=2, label="v(m), measured")
    left.axhline(1, color=BLUE, linestyle="--", linewidth=2, label="v = 1: further tokens are free")
    left.set(xlabel="m, tokens in one call", ylabel="v(m): time of the call / of a call on one token")
    left.yaxis.set_major_formatter("{x:g}")
    left.set_xticks(sizes, [m if m != 12 else "" for m in sizes])       # 10 and 12 stand too close
    left.minorticks_off()
    left.legend(frameon=False)
    right.bar(range(len(moved)), moved, color=[RED if row == place else AMBER for row in range(len(moved))])
    right.set(xlabel=f"row; token {place} was replaced", ylabel="total variation: old and new distribution",
              xticks=range(len(moved)), ylim=(0, 1.05))
    right.text(place / 2 - 0.5, 0.03, "rows before it:\nnot changed" if place else "", ha="center", color=INK)
    save(figure, "ten_for_the_price_of_one")


def slots(rounds: Sequence[tuple[int, int, Sequence[str]]], first: int) -> None:
    """The target's slots as each round leaves them: (length before, length after, the tokens of all slots).

    first: the slots before this one are not drawn.
    """
    figure, (axes,) = blank("taking tokens back lowers one number: the rejected ones stay, and are written over", 1)
    figure.set_size_inches(11.6, 3.8)
    labels = {BLUE: "read in an earlier round", GREEN: "read now, part of the text", RED: "read now, rejected: stale"}
    for number, (before, after, names) in enumerate(rounds):
        for slot in range(first, len(names)):
            colour = BLUE if slot < before else GREEN if slot < after else RED
            axes.barh(number, 1, 0.62, left=slot - 0.5, color=colour, edgecolor="white", label=labels.pop(colour, None),
                      hatch="//" * (colour == RED))
            axes.text(slot, number, repr(names[slot]), ha="center", va="center", fontsize=8, color="white",
                      fontweight="bold", bbox={"color": colour, "pad": 1})
        for at, line, label in (before, ":", "length before"), (after, "-", "length after"):
            axes.vlines(at - 0.5, number - 0.4, number + 0.4, INK, line, linewidth=3, label=label * (not number))
    axes.set(xticks=range(first, max(len(names) for _, _, names in rounds)), xlabel="slot", ylim=(2.6, -0.6),
             yticks=range(len(rounds)),
             yticklabels=[f"round {number}: {after - before - 1} of {len(names) - before - 1} accepted"
                          for number, (before, after, names) in enumerate(rounds, 1)])
    axes.grid(False)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.46, 1.16))
    save(figure, "the_cache")


# Rejection sampling, Accept or replace, Why it is lossless, A draft and a bonus

def tries(p_target: Sequence[float], q_draft: Sequence[float], C: float, overlaps: Sequence[float],
          Cs: Sequence[float]) -> None:
    """What rejection sampling throws away of four tokens; and C against the overlap, a dot for each place of a text."""
    figure, (left, right) = blank("one token that the draft hardly knows makes all tokens try again", 2)
    names = [f"token {x}" for x in range(len(p_target))]
    drafted = [C * float(q) for q in q_draft]
    left.bar(names, drafted, 0.7, color="white", edgecolor=RED, hatch="///", label="drafted and rejected")
    left.bar(names, [float(p) for p in p_target], 0.7, color=GREEN, edgecolor=RED, label="drafted and accepted")
    left.hlines([float(q) for q in q_draft], [x - 0.35 for x in range(len(names))],
                [x + 0.35 for x in range(len(names))], color=AMBER, linewidth=4, label="q_draft: drafted in one try")
    left.set(ylabel="draft tokens for one that is accepted", ylim=(0, 1.4 * max(drafted)))
    left.set_title(f"four tokens: {C:.0f} tries each", loc="left", fontsize=10)
    right.scatter(overlaps, Cs, color=RED, s=16, label="C, a dot for each place of the text")
    grid = [0.1 + 0.9 * i / 50 for i in range(51)]
    right.plot(grid, [1 / x for x in grid], ":", color=FAINT, linewidth=2, label="1 / overlap: C is never below")
    right.set(yscale="log", ylim=(0.7, 1e6), ylabel="C, tries per token", xlabel="overlap of p_target and q_draft")
    right.set_title("a real text: a vocabulary of 1,024 tokens", loc="left", fontsize=10)
    for axes in left, right:
        axes.legend(frameon=False, loc="upper left")
    save(figure, "rejection_sampling")


def replacements(p_target: Sequence[float], q_draft: Sequence[float]) -> None:
    """Accepted draft tokens and replacements, stacked: replaced from the residual distribution, and from p_target."""
    figure, panels = blank("draw the replacement from what is missing, not from everything", 2)
    p_target, q_draft = [float(p) for p in p_target], [float(q) for q in q_draft]
    names = [f"token {x}" for x in range(len(p_target))]
    accepted = [min(pair) for pair in zip(p_target, q_draft)]
    rejected = 1 - sum(accepted)
    missing = [p - part for p, part in zip(p_target, accepted)]
    redrawn = [rejected * p for p in p_target]
    for axes, added, title in [(panels[0], missing, "accept or replace: every bar is filled, none overflows"),
                               (panels[1], redrawn, "accept or redraw (wrong): too much here, too little there")]:
        axes.bar(names, accepted, 0.7, color=GREEN, label="draft token accepted")
        axes.bar(names, added, 0.7, accepted, color=AMBER, label="replacement")
        axes.bar(names, p_target, 0.7, fill=False, edgecolor=INK, linewidth=2, label="p_target")
        axes.set(ylabel="probability", ylim=(0, 1.25 * max(p_target)))
        axes.set_title(title, loc="left", fontsize=10)
    panels[0].legend(frameon=False)
    save(figure, "accept_or_replace")


def laid_over(names: Sequence[str], p_target: Sequence[float], drafts: dict[str, Sequence[float]]) -> None:
    """For each draft: overlap, residual and excess of every token, stacked, and p_target as a frame."""
    figure, panels = blank("overlap + residual = p_target, whatever the draft proposes", len(drafts))
    p_target = [float(p) for p in p_target]
    for axes, (kind, q_draft) in zip(panels, drafts.items()):
        pairs = [(p, float(q)) for p, q in zip(p_target, q_draft)]
        overlap = [min(p, q) for p, q in pairs]
        residual = [max(0.0, p - q) for p, q in pairs]
        excess = [max(0.0, q - p) for p, q in pairs]
        parts = [(overlap, [0.0] * len(names), GREEN, "overlap: drafted and accepted"),
                 (residual, overlap, AMBER, "residual: drawn after a rejection"),
                 (excess, overlap, RED, "excess: drafted and rejected")]
        for heights, floor, colour, label in parts:
            drawn = axes.bar(names, heights, 0.7, floor, color=colour, label=label, edgecolor="white", linewidth=0,
                             hatch="//" * (colour == RED))
            numbers = axes.bar_label(drawn, [f"{mass:.2f}" if mass > 1e-9 else "" for mass in heights],
                                     label_type="center", color="white")
            for number in numbers:
                number.set_bbox({"color": colour, "pad": 1} if number.get_text() else None)
        axes.bar(names, p_target, 0.7, fill=False, edgecolor=INK, linewidth=2, label="frame: p_target")
        axes.set(ylim=(0, 0.75), ylabel="probability", xlabel="token (overlap + excess = q_draft)")
        axes.set_title(f"a {kind} draft: {sum(overlap):.2f} accepted, {sum(excess):.2f} replaced", loc="left",
                       fontsize=10)
    panels[0].legend(frameon=False)
    save(figure, "why_it_is_lossless")


def round_by_round(rounds: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Every round as a row of (kind, word): draft tokens that were accepted, rejected or never judged, and the
    target's own token after them.
    """
    look = {"accepted": GREEN, "rejected": RED, "never judged": "white", "replacement": AMBER, "bonus": BLUE}
    figure, (axes,) = blank("a round ends at the first rejection, or with a bonus token", 1)
    gamma = len(rounds[0]) - 1
    for number, row in enumerate(rounds, start=1):
        for column, (kind, word) in enumerate(row):
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


# Temperature and greedy, Report what you sample, How fast, Good where it matters

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
               label="human's text, target at T, draft at 1")
    right.plot(list(own), list(own.values()), color=BLUE, marker="^", linestyle=":", linewidth=2,
               label="the target's own text, both at T")
    right.set(xlabel="temperature T", ylabel="alpha", ylim=(0, 1.3), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    right.legend(frameon=False, loc="upper left")
    save(figure, "report_what_you_sample")


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


def code_map(lines: Sequence[str], grid: Sequence[Sequence[float]], kinds: Sequence[str],
             alpha: dict[str, Sequence[float]]) -> None:
    """lines: of a text; grid: beta of every character. alpha: a draft -> its mean beta at each kind of place."""
    figure, (left, right) = blank("a draft is right at some places and lost at others", 2)
    widest = max(map(len, lines))
    padded = [[*row, *[float("nan")] * (widest - len(row))] for row in grid]
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


# How to test a sampler, Where it loses, Copying from the past

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


def where_it_loses(alpha: Sequence[float], c: Sequence[float],
                   panels: Sequence[tuple[str, Sequence[Sequence[float]], Sequence[tuple]]]) -> None:
    """Predicted speed-up for each alpha and c, with the break-even line; a panel for each v.

    panels: (title, speed-up, a row for each alpha, dots); a dot is (name, alpha, c, verdict).
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


def copying(calls: Sequence[tuple[Sequence[str], int]], places: Sequence[str],
            rates: dict[str, Sequence[float]]) -> None:
    """calls: the tokens of each round, and how many were copied. rates: drafter -> tokens per call, for each place."""
    figure, (left, right) = blank("where a text repeats itself, one call writes many copied tokens", 2)
    for y, (pieces, accepted) in enumerate(calls, start=1):
        for x, piece in enumerate(pieces):
            own = x >= accepted
            left.barh(y, 0.9, left=x - 0.45, color="white" if own else GREEN, edgecolor=BLUE if own else GREEN,
                      label="the target's own" if own else "copied")
            left.text(x, y, piece, color=BLUE if own else "white", ha="center", va="center", fontsize=8,
                      parse_math=False)
    left.set(ylim=(len(calls) + 0.5, 0.5), yticks=range(1, len(calls) + 1), xticks=[], ylabel="target call",
             xlabel="tokens written by a call")
    left.grid(False)
    seen = dict(zip(*reversed(left.get_legend_handles_labels())))
    left.legend(seen.values(), seen, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    bars(right, places, *zip(rates.values(), (GREEN, FAINT, INK, BLUE, AMBER), rates))
    right.axhline(1, color=INK, linewidth=1)
    right.set_ylabel("tokens per target call (the target alone: 1)")
    save(figure, "copying_from_the_past")


# Several futures, Which tree, Block verification, How close a rule can come

def a_tree(labels: Sequence[str], parents: Sequence[int], path: Sequence[int], token: str,
           mask: Sequence[Sequence[bool]]) -> None:
    """A round's tree, with what became of every row; beside it, which slots each row attends to: the text's last two
    tokens before row 0, and the rows. token: what was drawn after the last accepted row."""
    figure, (left, right) = blank("one rejection does not end the draft: another child of that place was accepted", 2)
    depth, heights, leaves = [0] * len(labels), [0.0] * len(labels), 0
    children = [[row for row, parent in enumerate(parents) if parent == above] for above in range(len(labels))]
    for row in range(1, len(labels)):
        depth[row] = depth[parents[row]] + 1
    stack = [0]                                             # from the top down; leaves get a line of their own each
    while stack:
        row = stack.pop()
        if not children[row]:
            heights[row], leaves = -float(leaves), leaves + 1
        stack += reversed(children[row])
    for row in reversed(range(len(labels))):
        if children[row]:
            heights[row] = sum(heights[child] for child in children[row]) / len(children[row])
    last = [0, *path][-1]
    for row, label in enumerate(labels):
        elder = children[parents[row]] if row else []
        taken = next((child for child in elder if child in path), None)
        if row == 0 or row in path:
            colour, what = GREEN, "accepted" if row else "the text"
        elif parents[row] in (0, *path) and (taken is None or row < taken):
            colour, what = RED, "rejected"
        else:
            colour, what = FAINT, "not looked at"
        if row:
            left.plot([depth[parents[row]], depth[row]], [heights[parents[row]], heights[row]], color=colour, zorder=1)
        left.text(depth[row], heights[row], f"{row}: {label}\n{what}", color=colour, ha="center", va="center", zorder=2,
                  fontsize=9, fontweight="bold" if colour == GREEN else "normal",
                  bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round"})
    new = -float(leaves)
    left.plot([depth[last], depth[last] + 1], [heights[last], new], color=BLUE, linestyle=":", zorder=1)
    left.text(depth[last] + 1, new, f"{token}\n" + ("replacement" if children[last] else "bonus token"), color=BLUE,
              ha="center", va="center", fontsize=9, zorder=2,
              bbox={"facecolor": "white", "edgecolor": BLUE, "boxstyle": "round"})
    left.set(xlim=(-0.5, max(depth) + 0.6 + (depth[last] == max(depth))), ylim=(new - 0.6, 0.6), xticks=[], yticks=[])
    left.spines[["left", "bottom"]].set_visible(False)
    left.grid(False)
    right.imshow(mask, cmap="Greens", vmax=1.5, aspect="auto", zorder=3)
    right.set_yticks(range(len(labels)), [f"{row}: {label}" for row, label in enumerate(labels)])
    right.set_xticks(range(len(mask[0])), ["...", "text", *range(len(labels))])
    right.set(xlabel="the end of the text, and the rows; filled: the row on the left attends to it")
    save(figure, "several_futures")


def block_verification(drafts: Sequence[str], parts: dict[str, Sequence[float]],
                       accepted_of: dict[str, Sequence[float]]) -> None:
    """parts: for every draft of two tokens, how often it is drafted, and accepted by either rule. accepted_of: of each
    rule, draft tokens accepted on average for gamma = 1, 2, ..."""
    figure, (left, right) = blank("judged as a whole, more tokens of the same drafts are accepted", 2)
    named = zip(parts, parts.values(), (FAINT, GREEN, BLUE))
    bars(left, drafts, *((heights, colour, name) for name, heights, colour in named))
    left.set(xlabel="draft of two tokens", ylabel="probability")
    for (name, means), colour in zip(accepted_of.items(), (BLUE, GREEN)):
        right.plot(range(1, len(means) + 1), means, color=colour, marker=MARK[colour], linewidth=2, label=name)
    right.set(xlabel="gamma, draft tokens in a round", ylabel="draft tokens accepted, on average")
    right.legend(frameon=False)
    save(figure, "block_verification")


def ceilings(chain: dict[str, Sequence[float]], place: dict[str, Sequence[float]]) -> None:
    """chain: draft tokens accepted on average for gamma = 1, 2, ...; place: how often one of k draft tokens of a place
    is accepted. A name that ends in "ceiling" is the most that any rule accepts."""
    figure, (left, right) = blank("the better rule comes nearer to its ceiling; none passes it", 2)
    kinds = {"without replacement": (INK, GREEN), "independent": (RED, BLUE, AMBER), "": (INK, GREEN, BLUE)}
    for axes, means in (left, chain), (right, place):
        colours = {}
        for name in reversed(means):                        # a ceiling first, then the rules below it
            kind = name.rpartition(", ")[0]
            colour = next(colours.setdefault(kind, iter(kinds.get(kind, (FAINT,)))))
            axes.plot(range(1, len(means[name]) + 1), means[name], ":" if name.endswith("ceiling") else "-",
                      marker=MARK[colour], linewidth=2, color=colour, label=name)
        axes.legend(frameon=False)
    left.set(xlabel="gamma, draft tokens in a round", ylabel="draft tokens accepted, on average")
    right.set(xlabel="k, draft tokens for one place", ylabel="probability that one is accepted", xticks=range(1, 6))
    save(figure, "how_close_a_rule_can_come")


# A tree where it is sure

def confident_tree(rows: Sequence[tuple[Sequence[int], float, str, bool]]) -> None:
    """All rows that were made: (path of tokens, confidence, the last token, is the row part of the draft?)."""
    figure, (axes,) = blank("the tree grows where the draft model is sure", 1)
    figure.set_size_inches(10.4, 4.6)
    below = {(): [path for path, *_ in rows if len(path) == 1]}
    for above, *_ in rows:
        below[above] = [path for path, *_ in rows if path[:-1] == above and path]
    heights, stack, leaves = {}, [()], 0
    while stack:                                            # from the top down; leaves get a line of their own each
        path = stack.pop()
        if not below[path]:
            heights[path], leaves = -float(leaves), leaves + 1
        stack += reversed(below[path])
    for path in sorted(below, key=len, reverse=True):
        if below[path]:
            heights[path] = sum(heights[child] for child in below[path]) / len(below[path])
    for path, sure, word, chosen in [((), 1.0, "the text", True), *rows]:
        colour = GREEN if chosen else FAINT
        if path:
            axes.plot([len(path) - 1, len(path)], [heights[path[:-1]], heights[path]], color=colour, zorder=1)
        axes.text(len(path), heights[path], f"{word}  {sure:.3f}" if path else word, color=colour, ha="center",
                  va="center", fontsize=9, fontweight="bold" if chosen else "normal", zorder=2, parse_math=False,
                  bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round"})
    axes.set(xlim=(-0.5, max(map(len, below)) + 0.5), yticks=[], xticks=range(1, max(map(len, below)) + 1))
    axes.set_xlabel("level; each row has its confidence; in bold: the most confident rows are the draft")
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    save(figure, "a_tree_where_it_is_sure")


# What a stopping rule may see, When to stop

def thrown_away(names: Sequence[str], p_target: Sequence[float], kept: dict[str, Sequence[float]],
                thrown: dict[str, Sequence[float]]) -> None:
    """What each token is made of: {what became of the draft token: a height for each token}, without and with a token
    that is thrown away."""
    figure, panels = blank("throw a draft token away because of what it is, and it comes out too seldom", 2)
    colours = {"accepted": GREEN, "rejected": AMBER, "thrown away": BLUE}
    labels = {"accepted": "draft token accepted", "rejected": "rejected: from the residual distribution",
              "thrown away": "thrown away: from p_target"}
    for axes, parts in zip(panels, (kept, thrown)):
        floor = [0.0] * len(names)
        for case, heights in parts.items():
            drawn = axes.bar(names, heights, 0.7, floor, color=colours[case], label=labels[case], edgecolor="white",
                             hatch=HATCH[BLUE] if case == "thrown away" else None)
            for label in axes.bar_label(drawn, [f"{height:.2f}" if height > 0.04 else "" for height in heights],
                                        label_type="center", color="white"):
                if label.get_text():                        # readable on the hatches
                    label.set_bbox({"facecolor": colours[case], "edgecolor": "none", "pad": 1.5})
            floor = [below + height for below, height in zip(floor, heights)]
        axes.bar(names, p_target, 0.7, fill=False, edgecolor=INK, linewidth=2, label="p_target")
        for x, (height, wanted) in enumerate(zip(floor, p_target)):
            right = abs(height - wanted) < 0.005
            axes.annotate(f"{height:.2f}" if right else f"{height:.2f}, not {wanted:.2f}",
                          (x, max(height, wanted)), xytext=(0, 4), textcoords="offset points",
                          ha="center", color=INK, fontweight="bold")
        axes.set(ylim=(0, 1.5 * max(p_target)), ylabel="probability that it comes out")
    panels[0].set_title("nothing is thrown away: every bar fills its frame", loc="left", fontsize=10)
    panels[1].set_title(f"\"{names[0]}\" is thrown away", loc="left", fontsize=10)
    panels[1].legend(frameon=False, loc="upper right")
    save(figure, "what_a_stopping_rule_may_see")


def when_to_stop(fixed: Sequence[tuple[float, float]], rules: dict[str, tuple[float, float]]) -> None:
    """(cost, tokens) of a mean round with gamma = 1, 2, 3, ..., and by each stopping rule; goodput among them."""
    figure, (axes,) = blank("a longer round writes more tokens, and costs more", 1)
    axes.plot(*zip(*fixed), color=FAINT, marker="o", linewidth=1, label=f"gamma 1 to {len(fixed)}")
    for gamma, point in enumerate(fixed, 1):
        axes.annotate(str(gamma), point, xytext=(0, -14), textcoords="offset points", ha="center", color=FAINT)
    for (name, point), colour in zip(rules.items(), (AMBER, BLUE, INK, GREEN)):
        axes.plot(*point, color=colour, marker=MARK[colour], markersize=10, linestyle="", label=name)
    cost, tokens = rules["goodput"]
    costs = [0.9 * min(at for at, _ in fixed), 1.03 * max(at for at, _ in fixed)]
    axes.plot(costs, [at * tokens / cost for at in costs], color=GREEN, linestyle=":", label="as fast as goodput")
    axes.margins(y=0.12)
    axes.set(xlabel="cost of a round, in target steps", ylabel="tokens of a round")
    axes.legend(frameon=False, loc="lower right")
    save(figure, "when_to_stop")


# Drafting hidden states, What to train on

def drafting_hidden_states(mask: Sequence[Sequence[bool]], places: int, alphas: dict[str, Sequence[float]]) -> None:
    """mask: whether row (step, place) attends to column (step, place), `places` of each step. alphas: draft model ->
    its acceptance at draft token 1, 2, ..."""
    figure, (left, right) = blank("a prediction made from predictions is worse, and less so after training on them", 2)
    steps = len(mask) // places
    shades = [[(1 if column < places else 2) * seen for column, seen in enumerate(row)] for row in mask]
    left.imshow(shades, cmap=ListedColormap(["#f3f4f6", BLUE, GREEN]), vmin=0, vmax=2, aspect="equal", zorder=3)
    for edge in range(steps * places + 1):
        for draw in (left.axhline, left.axvline):
            draw(edge - 0.5, color="white" if edge % places else INK, linewidth=1, zorder=4)
    middles = [places * step + (places - 1) / 2 for step in range(steps)]
    left.set_xticks(middles, [f"step {step}" for step in range(steps)])
    left.set_yticks(middles, [f"step {step}\nplaces 0 to {places - 1}" for step in range(steps)])
    left.tick_params(length=0)
    left.set_title("what each row attends to in unrolled training", loc="left", color=INK, fontsize=10)
    left.set_xlabel("step 0: the text, with the target's hidden states; the diagonals: its own states")
    left.grid(False)
    for (name, row), colour in zip(alphas.items(), (FAINT, GREEN, AMBER, RED, BLUE)):
        right.plot(range(1, len(row) + 1), row, color=colour, marker=MARK[colour], linewidth=2, label=name)
    right.set(xlabel="draft token", ylabel="alpha on held-out text", xticks=range(1, len(row) + 1), ylim=(0, 1))
    right.legend(frameon=False, loc="upper right")
    save(figure, "drafting_hidden_states")


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
    save(figure, "what_to_train_on")


# Draft models on hidden states: heads, a tree of guesses, a state, what cheap steps buy, mistakes

def heads(betas: dict[str, Sequence[float]]) -> None:
    """What each head of Medusa and of Hydra sees; and drafter -> beta of head 1, 2, ..."""
    figure, (left, right) = blank("what lies in between must be read: Medusa's heads fall faster than Hydra's", 2)
    count = len(next(iter(betas.values())))
    columns = ["hidden states\nbefore x", "x", *(f"draft\ntoken {k}" for k in range(1, count + 1))]
    for line in range(2 * count):
        kind, k = ("Medusa", "Hydra")[line // count], line % count + 1
        for column in range(len(columns)):
            seen = column == 0 or kind == "Hydra" and column <= k
            predicts = column == k + 1
            colour = GREEN if seen else AMBER if predicts else FAINT
            left.add_patch(Rectangle((column - 0.46, line - 0.4), 0.92, 0.8, color=colour,
                                     alpha=1.0 if seen or predicts else 0.2))
            left.text(column, line, "reads" if seen else "predicts" if predicts else "", color="white", ha="center",
                      va="center", fontsize=9)
    left.axhline(count - 0.5, color=INK, linewidth=1)
    left.set(xlim=(-0.5, len(columns) - 0.5), ylim=(2 * count - 0.5, -0.5), xticks=range(len(columns)),
             yticks=range(2 * count),
             yticklabels=[f"{kind}, head {k}" for kind in ("Medusa", "Hydra") for k in range(1, count + 1)])
    left.set_xticklabels(columns, fontsize=8)
    left.grid(False)
    for name, colour, line in zip(sorted(betas), (GREEN, BLUE, AMBER, FAINT), ("-", "-", "-", ":")):
        right.plot(range(1, count + 1), betas[name], color=colour, linestyle=line, marker=MARK[colour], linewidth=2,
                   label=name)
    right.set(xlabel="draft token", ylabel="beta on held-out text", xticks=range(1, count + 1),
              ylim=(0, 1.25 * max(map(max, betas.values()))))
    right.legend(frameon=False)
    save(figure, "what_the_target_knows_ahead")


def the_state(betas: dict[str, Sequence[float]]) -> None:
    """Draft model -> beta of its 1st, 2nd, ... draft token."""
    figure, (axes,) = blank("a draft model that reads its draft hardly gets worse along it", 1)
    for (name, found), colour in zip(betas.items(), (GREEN, RED, BLUE, AMBER)):
        axes.plot(range(1, len(found) + 1), found, color=colour, marker=MARK[colour], linewidth=2, label=name)
    axes.set(xlabel="draft token", ylabel="beta on held-out text", xticks=range(1, 1 + max(map(len, betas.values()))),
             ylim=(0, 1))
    axes.legend(frameon=False, loc="upper right")
    save(figure, "a_state_that_reads_its_draft")


def what_shows_a_mistake(gaps: dict[str, Sequence[float]]) -> None:
    """Reader -> the greatest difference that each of three checks finds."""
    figure, (axes,) = blank("the text is exact with every reader; two other checks tell the wrong ones", 1)
    checks = ["the text", "token by token", "after some rounds"]
    bars(axes, checks, *(([max(gap, 1e-17) for gap in found], colour, name) for (name, found), colour in zip(
        gaps.items(), (GREEN, RED, AMBER))))
    axes.set_yscale("log")
    axes.set_ylabel("greatest difference of a probability")
    save(figure, "mistakes_that_no_text_shows")


# Many requests

def many_requests(rows: Sequence[int], lockstep: dict[float, Sequence[float]], own_pace: dict[float, float],
                  names: Sequence[str], timetable: Sequence[Sequence[str]]) -> None:
    """alpha -> tokens of a row in a round, for each number of rows, and at its own pace. timetable: for each step, what
    each name does: "reads 15, writes 2", "waits" or "has left"."""
    figure, (left, right) = blank("waiting for the slowest row loses what the draft has brought", 2)
    figure.set_size_inches(12.4, 4.6)
    for alpha, colour in zip(lockstep, (AMBER, BLUE, GREEN)):
        left.plot(rows, lockstep[alpha], color=colour, marker=MARK[colour], markersize=5, linewidth=2,
                  label=f"alpha {alpha}, in lockstep")
        left.axhline(own_pace[alpha], color=colour, linestyle=":", linewidth=2)
    left.plot([], [], color=INK, linestyle=":", linewidth=2, label="each row at its own pace")
    left.set(xlabel="rows in the batch", ylabel="tokens of a row in a round", ylim=(0, 1.45 * max(own_pace.values())))
    left.legend(frameon=False, ncols=2, loc="upper right")
    for step, line in enumerate(timetable, 1):
        for height, does in enumerate(line):
            colour = GREEN if "writes" in does else BLUE if "reads" in does else None
            if colour:
                right.barh(height, 0.94, 0.8, left=step - 0.47, color=colour)
            right.text(step, height, does.replace(", ", "\n") if colour else does.replace(" ", "\n"), ha="center",
                       va="center", fontsize=8, color="white" if colour else INK, fontweight="bold")
    right.set_title("one goes on writing while another's long prompt is read in pieces", loc="left", color=INK,
                    fontsize=10)
    right.set(xlabel="step", xlim=(0.4, len(timetable) + 0.6), ylim=(len(names) - 0.4, -0.6), yticks=range(len(names)),
              xticks=range(1, len(timetable) + 1), yticklabels=names)
    right.grid(False)
    right.tick_params(length=0)
    save(figure, "many_requests")


# A full batch

def full_batch(calls: dict[str, Sequence[tuple[int, float]]], roof: dict[int, float],
               gains: dict[int, Sequence[tuple[int, float, float]]]) -> None:
    """calls: name -> (tokens in a call, its seconds). roof: tokens in a call -> the fewest seconds. gains: gamma ->
    (rows, predicted, measured)."""
    figure, (left, right) = blank("draft tokens are free until the batch is full", 2)
    figure.set_size_inches(12.4, 4.6)
    left.loglog(list(roof), [tokens / seconds for tokens, seconds in roof.items()], color=INK, linewidth=2,
                label="the roof: reading, then multiplying")
    for (name, points), colour in zip(calls.items(), (BLUE, GREEN, AMBER)):
        left.loglog([tokens for tokens, _ in points], [tokens / seconds for tokens, seconds in points], color=colour,
                    marker=MARK[colour], linewidth=1.5, label=name)
    left.set(xlabel="tokens in a call", ylabel="tokens computed in a second")
    left.legend(frameon=False, loc="lower right")
    for (gamma, points), colour in zip(gains.items(), (GREEN, AMBER)):
        rows, predicted, measured = zip(*points)
        places = range(len(rows))
        right.plot(places, measured, color=colour, marker=MARK[colour], linewidth=2, label=f"gamma {gamma}, measured")
        right.plot(places, predicted, color=colour, linestyle="--", linewidth=2, label=f"gamma {gamma}, by the formula")
        right.set_xticks(places, [str(count) for count in rows])
    right.axhline(1, color=INK, linewidth=1)
    right.set(xlabel="texts at once", ylabel="tokens a second over those of plain decoding")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, loc="lower left")
    save(figure, "a_full_batch")


def what_a_call_reads(sizes: Sequence[int], loaded: dict[int, float], by_chance: dict[int, float],
                      batches: Sequence[int], gains: dict[int, Sequence[float]]) -> None:
    """Experts read by a call on each number of tokens; length of the texts -> the gain for each number of texts."""
    figure, (left, right) = blank("what draft tokens cost depends on what a call has to read", 2)
    for found, colour, name in (loaded, GREEN, "counted in text"), (by_chance, FAINT, "if each chose by chance"):
        left.plot(sizes, [found[m] for m in sizes], color=colour, marker=MARK[colour], linewidth=2, label=name)
    left.set(xlabel="tokens in a call", ylabel="experts that are read", xticks=sizes, ylim=(0, None))
    left.legend(frameon=False, loc="lower right")
    for (length, row), colour in zip(gains.items(), (RED, AMBER, BLUE, GREEN)):
        right.plot(range(len(row)), row, color=colour, marker=MARK[colour], linewidth=2, label=f"{length:,} tokens")
    right.axhline(1, color=INK, linewidth=1)
    right.set_xticks(range(len(batches)), [str(count) for count in batches])
    right.set(xlabel="texts at once", ylabel="times as fast as plain decoding, by count", ylim=(0, None))
    right.legend(frameon=False, loc="lower left", title="after")
    save(figure, "what_a_call_reads")


def what_a_user_waits_for(found: dict[tuple[str, int], Sequence[float]],
                          gains: dict[tuple[float, int], tuple[float, float]]) -> None:
    """(load, gamma) -> time to the first token, per token, longest pause, throughput. (c, gamma) -> the speed-up if
    draft and target work in turn, and at the same time."""
    figure, (left, middle, right) = blank("each text grows faster, and yet a full server loses by a long draft", 3)
    loads, gammas = (list(dict.fromkeys(names)) for names in zip(*found))
    kinds = [(gamma, colour, f"gamma {gamma}" if gamma else "plain decoding")
             for gamma, colour in zip(gammas, (FAINT, BLUE, GREEN))]
    bars(left, [f"requests come\n{load}" for load in loads], *(
        ([found[load, gamma][1] for load in loads], colour, name) for gamma, colour, name in kinds))
    left.set_ylabel("time per token")
    bars(middle, ["first token", "per token", "longest pause", "throughput"], *(
        ([ours / plain for ours, plain in zip(found[loads[-1], gamma], found[loads[-1], 0])], colour, name)
        for gamma, colour, name in kinds))
    middle.set(xlabel=f"requests come {loads[-1]}", ylabel="in units of plain decoding's", ylim=(0, 2.2))
    middle.tick_params(axis="x", labelsize=7)
    bars(right, [f"{gamma}\n{c}" for c, gamma in gains], ([turn for turn, _ in gains.values()], FAINT, "in turn"),
         ([once for _, once in gains.values()], GREEN, "drafting while the target verifies"))
    right.set(ylabel="speed-up by the formula", xlabel="gamma, and c below it",
              ylim=(0, 1.35 * max(max(both) for both in gains.values())))
    save(figure, "what_a_user_waits_for")


def budget(survivals: dict[str, Sequence[float]], least: float) -> None:
    """survivals: text -> of its 1st, 2nd, ... draft token. least: of those that are verified."""
    figure, (axes,) = blank("a budget goes to the draft tokens that are likeliest to survive", 1)
    count = len(next(iter(survivals.values())))
    bars(axes, [f"draft token {k}" for k in range(1, count + 1)], *(
        (found, colour, f"text {name}") for (name, found), colour in zip(survivals.items(), (GREEN, BLUE, AMBER))))
    axes.axhline(least, color=INK, linestyle="--")
    axes.set_ylabel("survival")
    save(figure, "a_budget_for_all")


# A look back

def a_look_back(seen: Sequence[Sequence[float]], places: Sequence[str], draft_tokens: Sequence[str],
                betas: dict[str, dict[bool, Sequence[float]]]) -> None:
    """seen: for each draft token, how much it looks at each place of the text. betas: draft model -> of places where
    the next token can be copied, and of others -> of its 1st, 2nd, ... draft token."""
    figure, (left, right) = blank("a draft token that looks back can copy", 2)
    figure.set_size_inches(12.4, 4.6)
    most = max(map(max, seen))
    for row, weights in enumerate(seen):
        for place, weight in enumerate(weights):
            left.barh(row, 1, 0.9, left=place - 0.5, color=GREEN, alpha=weight / most)
        place = weights.index(max(weights))
        left.text(place + 0.9, row, repr(places[place]), color=INK, va="center", fontsize=11, parse_math=False)
    left.set(xlabel="place in the text", xlim=(-0.5, len(places) - 0.5),
             ylim=(len(seen) - 0.5, -0.5), yticks=range(len(seen)), yticklabels=draft_tokens, ylabel="draft token")
    left.grid(False)
    left.set_title("where each draft token looks; what stands at the darkest place", loc="left", color=INK, fontsize=10)
    for (name, found), colour in zip(betas.items(), (GREEN, AMBER)):
        for kind, line, where in (True, "-", "can be copied"), (False, ":", "other places"):
            right.plot(range(1, len(found[kind]) + 1), found[kind], color=colour, linestyle=line,
                       marker=MARK[colour], linewidth=2, label=f"{name}, {where}")
    right.set(xlabel="draft token", ylabel="beta on held-out text", ylim=(0, 1.05),
              xticks=range(1, 1 + len(found[kind])))
    right.legend(frameon=False, loc="lower left")
    save(figure, "a_look_back")


# A block at once

def a_block_at_once(best: dict[float, Sequence[float]], betas: dict[str, Sequence[float]]) -> None:
    """best: temperature -> beta of a perfect marginal, drawn from, at each place. betas: at T = 1, of three."""
    figure, panels = blank("a block knows little of its later places; a chain sees its own tokens", 2)
    figure.set_size_inches(12, 4.4)
    for axes, lines, title in zip(panels, ({f"T = {t}": row for t, row in best.items()}, betas),
                                  ("drawn from a perfect marginal", "beside a table, and beside a chain, T = 1")):
        for (name, row), colour in zip(lines.items(), (AMBER, GREEN, BLUE)):
            axes.plot(range(1, len(row) + 1), row, color=colour, marker=MARK[colour], linewidth=2, label=name)
        axes.set_title(title, loc="left", color=INK, fontsize=10)
        axes.set(xlabel="place in the block", ylabel="beta: how often it is accepted", ylim=(0, 1.05),
                 xticks=range(1, len(row) + 1))
        axes.legend(frameon=False, loc="lower left")
    save(figure, "a_block_at_once")


# Mixing on purpose

def mixing_on_purpose(cascades: dict[str, dict[float, tuple[float, float]]],
                      cuts: dict[float, tuple[float, float]]) -> None:
    """Deferral rule -> threshold -> (right, accepted); and the target's, by its top-p."""
    figure, (axes,) = blank("a cascade buys acceptance with quality", 1)
    figure.set_size_inches(9, 5)
    lines = {**{f"cascade {name}, from the left a =": some for name, some in cascades.items()},
             "the target, from below top-p": cuts}
    for (name, some), colour in zip(lines.items(), (AMBER, BLUE, RED, GREEN)):
        right, accepted = zip(*some.values())
        axes.plot(accepted, right, color=colour, marker=MARK[colour], linewidth=2,
                  label=f"{name} {', '.join(map(str, some))}")
    axes.set(xlabel="how often a draft token is accepted", ylabel="how often the next token is the author's")
    axes.legend(frameon=False)
    save(figure, "mixing_on_purpose")


# A draft for the draft

def a_draft_for_the_draft(costs: Sequence[float], gains: dict[str, Sequence[float]], here: float) -> None:
    """Lowest model -> at each c of the middle model, what the third level gains, 0.1 for a tenth. here: a c."""
    figure, (axes,) = blank("a third level helps little: a cheap model needs none, an expensive one is left out", 1)
    figure.set_size_inches(9.4, 5)
    for (name, some), colour, line in zip(gains.items(), (AMBER, BLUE, GREEN), ("-", "--", "-.")):
        axes.plot(costs, [100 * gain for gain in some], color=colour, linestyle=line, linewidth=2, label=name)
    axes.axvline(here, color=INK, linestyle=":", linewidth=1)
    top = 145 * max(map(max, gains.values()))
    axes.annotate("our draft GPT", (here, 0.94 * top), xytext=(3, 0), textcoords="offset points", color=INK)
    axes.set(xlabel="c of the middle model (its step in target steps)", xlim=(0, costs[-1]), ylim=(0, top),
             ylabel="gain over the best two levels, %, by the formula")
    axes.legend(title="lowest model", alignment="left", frameon=False, loc="upper right")
    save(figure, "a_draft_for_the_draft")


# Copy or ask

def copy_or_ask(matches: Sequence[int], copies: dict[float, Sequence[float]], chains: dict[float, float]) -> None:
    """At each T, tokens for a target step's time: of a copy after each match, and of the draft model's chain."""
    figure, (axes,) = blank("a long match beats the draft model's word, where texts repeat themselves", 1)
    figure.set_size_inches(9.4, 5)
    for (T, some), colour in zip(copies.items(), (GREEN, AMBER)):
        axes.plot(matches, some, color=colour, linewidth=2, label=f"a copy, T = {T:g}")
        axes.axhline(chains[T], color=colour, linestyle="--", linewidth=1.5, label=f"the chain, T = {T:g}")
    axes.axhline(1, color=INK, linestyle=":", linewidth=1, label="plain decoding")
    axes.set(xlabel="tokens that agree", ylabel="tokens for a target step's time", ylim=(0, None))
    axes.legend(frameon=False, loc="center right")
    save(figure, "copy_or_ask")


# Into the world

def into_the_world(found: dict[str, Sequence[int]]) -> None:
    """Of each way to write a text: how many tokens stood there after each call of the target."""
    figure, (axes,) = blank("the same gamma, the same rounds: two programs agree call by call", 1)
    styles = (FAINT, "-", 3), (AMBER, "-", 3), (GREEN, "-", 5), (BLUE, ":", 3)
    for (name, grown), (colour, line, width) in zip(found.items(), styles):
        axes.step(range(len(grown) + 1), [0, *grown], where="post", color=colour, linestyle=line, linewidth=width,
                  label=name)
    axes.set(xlabel="calls of the target", ylabel="tokens written")
    axes.legend(frameon=False)
    save(figure, "into_the_world")


def a_model_that_people_know(betas: dict[str, Sequence[float]], calls: dict[str, tuple[float, float]]) -> None:
    """Request -> acceptance at draft token 1, 2, ...; and its tokens per call with the draft model and with copies."""
    figure, (left, right) = blank("SmolLM2: what is easy to foresee", 2)
    for (kind, column), colour in zip(betas.items(), (BLUE, AMBER, GREEN)):
        left.plot(range(1, len(column) + 1), column, marker=MARK[colour], color=colour, label=kind)
    left.set(ylim=(0, 1), xlabel="draft token of a round", ylabel="how often it is accepted",
             xticks=range(1, 1 + max(map(len, betas.values()))))
    left.legend(frameon=False)
    bars(right, list(calls), ([both[0] for both in calls.values()], BLUE, "draft model"),
         ([both[1] for both in calls.values()], AMBER, "copies"))
    right.set_ylabel("tokens per call of the target")
    save(figure, "a_model_that_people_know")


# What the text may be

def what_the_text_may_be(alpha: dict[tuple[str, float], float]) -> None:
    """(who is masked, T) -> alpha."""
    figure, (axes,) = blank("a grammar helps the draft if the draft knows it", 1)
    names = list(dict.fromkeys(name for name, _ in alpha))
    bars(axes, [f"T = {T}" for T in (0, 1)], *(([alpha[name, T] for T in (0, 1)], colour, name)
                                               for name, colour in zip(names, (FAINT, GREEN, AMBER))))
    axes.set(ylim=(0, 1.25), yticks=[i / 5 for i in range(6)],
             ylabel="alpha, how often a draft token is accepted")
    save(figure, "what_the_text_may_be")


# Another vocabulary

def another_vocabulary(cuts: dict[str, list[tuple[str, bool]]]) -> None:
    """Tokenizer -> the tokens of one line, and whether each is a token of the other tokenizer, too."""
    figure, (axes,) = blank("one line, two tokenizers: dotted tokens are not in the other one", 1)
    figure.set_size_inches(10.4, 2.6)
    for height, tokens in enumerate(reversed(cuts.values())):
        left = 0
        for text, shared in tokens:
            axes.barh(height, len(text) - 0.1, 0.5, left=left, color=GREEN if shared else AMBER,
                      hatch="" if shared else "..", edgecolor="white")
            axes.text(left + len(text) / 2, height - 0.42, text.replace(" ", "·"), ha="center", va="center", color=INK,
                      family="monospace", fontsize=9)
            left += len(text)
    axes.set(ylim=(-0.7, 1.5), xticks=[], yticks=range(len(cuts)), yticklabels=[*reversed(cuts)])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    save(figure, "another_vocabulary")


# A state that cannot go back

def states_kept(costs: dict[tuple[int, str], tuple[int, float, float]]) -> None:
    """(gamma, way) -> bytes of states, tokens read in a round, tokens written in a round."""
    figure, (left, right) = blank("two ways back: more memory, or more tokens", 2)
    figure.set_size_inches(12, 4.4)
    for way, colour in (("snapshots", BLUE), ("replay", GREEN)):
        of_way = [(gamma, *found) for (gamma, name), found in costs.items() if name == way]
        gammas, sizes, read, _ = zip(*of_way)
        left.plot(gammas, [size / 1e3 for size in sizes], color=colour, marker=MARK[colour], linewidth=2, label=way)
        right.plot(gammas, read, color=colour, marker=MARK[colour], linewidth=2, label=way)
    left.set(xlabel="gamma: draft tokens in a round", ylabel="kB of states for a text", ylim=(0, None))
    right.set(xlabel="gamma: draft tokens in a round", ylabel="tokens that the target reads in a round", ylim=(0, None))
    left.legend(frameon=False)
    save(figure, "a_state_that_cannot_go_back")


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
