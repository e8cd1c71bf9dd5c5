"""The pictures of lessons 0 to 7, one function for each."""

from collections.abc import Sequence

from .picture import AMBER, BLUE, FAINT, GREEN, INK, RED, bars, blank, save


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


# One token per call

def one_token_per_call(lengths: Sequence[float], without: Sequence[float], cached: Sequence[float],
                       floor: float) -> None:
    """Milliseconds for the next token against the length of the text. floor: ms."""
    figure, (axes,) = blank("without a cache, each token takes longer than the one before it", 1)
    for taken, colour, mark, label in [(without, RED, "s", "reading everything again"),
                                       (cached, GREEN, "o", "with a cache")]:
        axes.plot(lengths, taken, color=colour, marker=mark, linewidth=2, label=label)
    axes.axhline(floor, color=BLUE, linestyle="--", linewidth=2, label="floor: bytes / bandwidth")
    axes.set(xlabel="length of the text, tokens", ylabel="ms for the next token",
             ylim=(0, 1.3 * max(*without, *cached, floor)))
    axes.legend(frameon=False, loc="upper left")
    save(figure, "one_token_per_call")


# Ten for the price of one

def ten_in_one_call(v: dict[int, float], moved: Sequence[float], place: int) -> None:
    """v(m) between its two limits; and how far each distribution moved when token `place` was replaced."""
    figure, (left, right) = blank("many tokens in one call cost less than a call each; none sees what follows it", 2)
    sizes = list(v)
    left.loglog(sizes, sizes, color=RED, linestyle="--", linewidth=2, label="v = m: a call for each token")
    left.loglog(sizes, list(v.values()), color=GREEN, marker="o", linewidth=2, label="v(m), measured")
    left.axhline(1, color=BLUE, linestyle="--", linewidth=2, label="v = 1: further tokens are free")
    left.set(xlabel="m, tokens in one call", ylabel="v(m): time of the call / of a call on one token")
    left.yaxis.set_major_formatter("{x:g}")
    left.set_xticks(sizes, [m if m != 12 else "" for m in sizes])       # 10 and 12 stand too close
    left.minorticks_off()
    left.legend(frameon=False)
    right.bar(range(len(moved)), moved, color=[RED if at == place else AMBER for at in range(len(moved))])
    right.set(xlabel=f"after token; token {place} was replaced", ylabel="total variation: old and new distribution",
              xticks=range(len(moved)), ylim=(0, 1.05))
    right.text(place / 2 - 0.5, 0.03, "before it:\nnot changed" if place else "", ha="center", color=INK)
    save(figure, "ten_for_the_price_of_one")


# The cache

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


# Rejection sampling

def tries(p_target: Sequence[float], q_draft: Sequence[float], C: float, overlaps: Sequence[float],
          Cs: Sequence[float]) -> None:
    """What rejection sampling throws away of four tokens; and C against the overlap, a dot for each place of a text."""
    figure, (left, right) = blank("one token that the draft model hardly knows makes all tokens try again", 2)
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


# Accept or replace

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


# Why it is lossless

def laid_over(names: Sequence[str], p_target: Sequence[float], q_drafts: dict[str, Sequence[float]]) -> None:
    """For each draft model: overlap, residual and excess of every token, stacked, and p_target as a frame."""
    figure, panels = blank("overlap + residual = p_target, whatever the draft model proposes", len(q_drafts))
    p_target = [float(p) for p in p_target]
    for axes, (kind, q_draft) in zip(panels, q_drafts.items()):
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
        axes.set_title(f"a {kind} draft model: {sum(overlap):.2f} accepted, {sum(excess):.2f} replaced", loc="left",
                       fontsize=10)
    panels[0].legend(frameon=False)
    save(figure, "why_it_is_lossless")
