"""The pictures of lessons 24 to 32, one function for each."""

from collections.abc import Sequence

from .picture import AMBER, BLUE, FAINT, GREEN, INK, MARK, RED, along_the_draft, bars, blank, save


# A state that reads its draft

def the_state(betas: dict[str, Sequence[float]]) -> None:
    """Draft model -> beta of its 1st, 2nd, ... draft token."""
    figure, (axes,) = blank("a draft model that reads its draft hardly gets worse along it", 1)
    along_the_draft(axes, betas, (GREEN, RED, BLUE, AMBER), "beta")
    save(figure, "a_state_that_reads_its_draft")


# Drafting hidden states

def drafting_hidden_states(alphas: dict[str, Sequence[float]]) -> None:
    """alphas: draft model -> its acceptance at draft token 1, 2, ..."""
    figure, (axes,) = blank("a prediction made from predictions is worse", 1)
    along_the_draft(axes, alphas, (FAINT, GREEN, BLUE), "alpha")
    save(figure, "drafting_hidden_states")


# What to train on

def what_to_train_on(before: float, alphas: dict[str, Sequence[float]]) -> None:
    """alpha on code, which was learnt; and of each student, on every batch of the docstrings that come then."""
    figure, (axes,) = blank("the text changes and alpha falls; what was rejected teaches some of it back", 1)
    axes.axhline(before, color=INK, linestyle=":", linewidth=2, label="on code, before")
    for (name, line), colour in zip(alphas.items(), (RED, GREEN)):
        axes.plot(range(1, len(line) + 1), line, color=colour, marker=MARK[colour], linewidth=2, label=name)
    axes.set(xlabel="batch of four texts of docstrings", ylabel="alpha", ylim=(0, 1.4 * before), xticks=range(1, 21, 3))
    axes.legend(frameon=False)
    save(figure, "what_to_train_on")


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


# What a call reads

def what_a_call_reads(sizes: Sequence[int], loaded: dict[int, float], by_chance: dict[int, float],
                      batches: Sequence[int], gains: dict[int, Sequence[float]]) -> None:
    """Experts read by a call on each number of tokens; length of the texts -> the gain for each number of texts."""
    figure, (left, right) = blank("what draft tokens cost depends on what a call has to read", 2)
    for found, colour, name in (loaded, GREEN, "counted in text"), (by_chance, FAINT, "if each chose by chance"):
        left.plot(sizes, [found[m] for m in sizes], color=colour, marker=MARK[colour], linewidth=2, label=name)
    left.set(xlabel="tokens in a call", ylabel="experts that are read", xticks=sizes, ylim=(0, None))
    left.legend(frameon=False, loc="lower right")
    for (length, line), colour in zip(gains.items(), (RED, AMBER, BLUE, GREEN)):
        right.plot(range(len(line)), line, color=colour, marker=MARK[colour], linewidth=2, label=f"{length:,} tokens")
    right.axhline(1, color=INK, linewidth=1)
    right.set_xticks(range(len(batches)), [str(count) for count in batches])
    right.set(xlabel="texts at once", ylabel="times as fast as plain decoding, by count", ylim=(0, None))
    right.legend(frameon=False, loc="lower left", title="after")
    save(figure, "what_a_call_reads")


# What a user waits for

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
    middle.set(xlabel=f"requests come {loads[-1]}", ylabel="relative to plain decoding", ylim=(0, 2.2))
    middle.tick_params(axis="x", labelsize=7)
    bars(right, [f"{gamma}\n{c}" for c, gamma in gains], ([turn for turn, _ in gains.values()], FAINT, "in turn"),
         ([once for _, once in gains.values()], GREEN, "drafting while the target verifies"))
    right.set(ylabel="speed-up by the formula", xlabel="gamma, and c below it",
              ylim=(0, 1.35 * max(max(both) for both in gains.values())))
    save(figure, "what_a_user_waits_for")


# A budget for all

def budget(survivals: dict[str, Sequence[float]], least: float) -> None:
    """survivals: text -> of its 1st, 2nd, ... draft token. least: of those that are verified."""
    figure, (axes,) = blank("a budget goes to the draft tokens that are likeliest to survive", 1)
    count = len(next(iter(survivals.values())))
    bars(axes, [f"draft token {k}" for k in range(1, count + 1)], *(
        (found, colour, f"text {name}") for (name, found), colour in zip(survivals.items(), (GREEN, BLUE, AMBER))))
    axes.axhline(least, color=INK, linestyle="--")
    axes.set_ylabel("survival")
    save(figure, "a_budget_for_all")


# A block at once

def a_block_at_once(best: dict[float, Sequence[float]], betas: dict[str, Sequence[float]]) -> None:
    """best: temperature -> beta of a perfect marginal, drawn from, at each place. betas: at T = 1, of three."""
    figure, panels = blank("a block knows little of its later places; a chain sees its own tokens", 2)
    figure.set_size_inches(12, 4.4)
    for axes, lines, title in zip(panels, ({f"T = {t}": line for t, line in best.items()}, betas),
                                  ("drawn from a perfect marginal", "beside a table, and beside a chain, T = 1")):
        for (name, line), colour in zip(lines.items(), (AMBER, GREEN, BLUE)):
            axes.plot(range(1, len(line) + 1), line, color=colour, marker=MARK[colour], linewidth=2, label=name)
        axes.set_title(title, loc="left", color=INK, fontsize=10)
        axes.set(xlabel="place in the block", ylabel="beta: how often it is accepted", ylim=(0, 1.05),
                 xticks=range(1, len(line) + 1))
        axes.legend(frameon=False, loc="lower left")
    save(figure, "a_block_at_once")
