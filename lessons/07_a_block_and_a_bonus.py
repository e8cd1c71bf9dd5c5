# %% [markdown]
# # 7. A block and a bonus
#
# **One guess, kept or replaced, still costs one pass of the target. How do we check several guesses in one pass?**
#
# The draft writes a *block* of gamma guesses, the target scores all of them at once (about as dear as scoring one:
# lesson 3), and the coins of lesson 5 fall from left to right.

# %%
import inspect
from collections import defaultdict
from functools import cache

import torch

from kit import AMBER, BLUE, FAINT, GREEN, RED, OneRow, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import one_round, speculate, verify

torch.set_num_threads(1)        # thousands of tiny calls: threads would spend their time waiting for each other


@cache                          # of Python, not of attention: the walk asks for the same few texts thousands of times
def laws(model, *ids):
    """(len(ids), V): the law behind every prefix of ids. All is read again: slow, and nothing to go stale."""
    return probs(model(torch.tensor([ids]))[0]).double()


def round_by_hand(target, draft, ids, gamma, dice):
    """-> the guesses, how many of them stand, the token behind those: ([4, 7], 1, 5) has written 4, 5."""
    guesses, q_draft = [], []
    for _ in range(gamma):                                          # NEW: each guess sees the ones before it
        q_draft.append(laws(draft, *ids, *guesses)[-1])
        guesses.append(dice.pick(q_draft[-1]))
    p_target = laws(target, *ids, *guesses)[-gamma - 1:]             # NEW: one pass, gamma + 1 laws
    for i, x in enumerate(guesses):
        if not dice.flip(p_target[i, x] / q_draft[i][x]):
            residual = (p_target[i] - q_draft[i]).clamp(min=0)
            return guesses, i, dice.pick(residual)                  # NEW: the round ends at the first refusal
    return guesses, gamma, dice.pick(p_target[gamma])               # NEW: the bonus token


def write(play_round, target, draft, ids, gamma, new, dice):
    """Rounds until there are `new` tokens or more: ((4, 5), (0,)) is two target calls and three tokens."""
    rounds, text = [], list(ids)
    while len(text) < len(ids) + new:
        guesses, kept, token = play_round(target, draft, text, gamma, dice)
        rounds.append((*guesses[:kept], token))
        text += rounds[-1]
    return tuple(rounds)


# %% [markdown]
# *Why stop at the first refusal?* Guess 3 was drafted behind guess 2, and the target scored it there. Once guess 2 is
# replaced, both numbers speak of a text that no longer exists, and nothing is left to judge guess 3 by.
#
# *Why a bonus?* To judge gamma guesses the target reads them all, so its pass ends with a law for the token behind
# the last. Nobody guessed that token, nothing stands in its way: draw it. A pass yields 1 to gamma + 1 tokens.
#
# *Three tempting mistakes, and one rewriting.* Each exchanges one line of our round. The first three look harmless.
# The fourth is how `speculate.py` does without a branch: a guess of nothing, with probability 0, leaves the whole law.

# %%
EXCHANGED = {
    "goes on behind a refusal": ("return guesses, i, dice.pick(residual)", "guesses[i] = dice.pick(residual)"),
    "bonus from the draft": ("dice.pick(p_target[gamma])", "dice.pick(laws(draft, *ids, *guesses)[-1])"),
    "replacement from the last row": ("(p_target[i] - q_draft[i])", "(p_target[-1] - q_draft[i])"),
    "bonus as a residual": ("dice.pick(p_target[gamma])", "dice.pick((p_target[gamma] - 0 * q_draft[0]).clamp(min=0))")}
big, small, start = TableModel(3, seed=49, zeros=0.4), TableModel(3, seed=99, zeros=0.4), [1]
versions = {
    "a round, by hand": lambda dice: write(round_by_hand, big, small, start, 2, 4, OneRow(dice)),
    "nanospec/speculate.py": lambda dice: tuple(
        (*r.tokens[1:len(r.path) + 1], r.token) for r in speculate(big, ModelDrafter(small, 2), start, 4, dice=dice))}
for name, (old, new) in EXCHANGED.items():
    exec(inspect.getsource(round_by_hand).replace(old, new), names := dict(globals()))
    versions[name] = lambda dice, other=names["round_by_hand"]: write(other, big, small, start, 2, 4, OneRow(dice))

# %% [markdown]
# *Every path, over several rounds.* Lesson 6 walked one token; here it is four, in two to four rounds with gamma 2,
# from two tables over 3 tokens, and beside them the law of the *first* token alone. "Off by" is the total variation
# (lesson 1) from what the target writes alone, and no estimate. Watch the first token, and who looks fastest.
#
# With this lesson `nanospec/speculate.py` is complete. It writes many texts at once, so it flips all coins and counts
# those before the first refusal. Printed below: each step, our line and under it the library's.

# %%
for ours, function, theirs in [
        ("guesses.append(", ModelDrafter.propose, "tokens.append("), ("p_target = ", one_round, "out = target("),
        ("if not dice.flip(", verify, "stands = "), ("return guesses, i", verify, "accepted = "),
        ("residual = ", verify, "return accepted, "), ("return guesses, gamma", verify, "row, behind = ")]:
    for where, begins in (round_by_hand, ours), (function, theirs):
        line, = [line for line in inspect.getsource(where).splitlines() if line.strip().startswith(begins)]
        print(f"{where.__name__:14} {line.split('  #')[0].strip()}")
rows = []
for name, play in versions.items():
    (outcomes, paths), first, four, written, calls = walk(play), defaultdict(float), defaultdict(float), 0, 0
    for rounds, probability in outcomes.items():
        tokens = sum(rounds, ())                        # whichever rounds they came in
        first[tokens[:1]] += probability
        four[tokens[:4]] += probability
        written, calls = written + probability * len(tokens), calls + probability * len(rounds)
    off = [distance(law, target_distribution(big, start, n))[1] for law, n in ((first, 1), (four, 4))]
    rows.append([name, f"{paths:,}", f"{written / calls:.2f}", *("< 1e-12" if d < 1e-12 else f"{d:.3f}" for d in off)])

# %%
target, draft, tokenizer = load_pair()
ids = tokenizer.encode("def area(radius):\n")
LOOK = {"accepted": GREEN, "rejected": RED, "never judged": "white", "replacement": AMBER, "bonus": BLUE}
figure, (axes,) = picture("7. a block and a bonus", 1)
for number, done in enumerate(speculate(target, ModelDrafter(draft, 4), ids, 33, seed=4), start=1):
    kinds = (["accepted"] * len(done.path) + ["rejected"] + ["never judged"] * 4)[:4]
    kinds += ["replacement" if done.rejected else "bonus"]
    words = [repr(tokenizer.decode([token])) for token in [*done.tokens[1:], done.token]]
    if number <= 4:
        print(f"round {number}:", "  ".join(f"{kind} {word}" for kind, word in zip(kinds, words)))
    for column, (kind, word) in enumerate(zip(kinds, words)):
        axes.barh(number, 0.95, left=column - 0.475, color=LOOK[kind], ec="#e6e9ed", label=kind,
                  hatch="///" if kind == "rejected" else "")
        axes.text(column, number, word, color=FAINT if kind == "never judged" else "white", ha="center", va="center",
                  bbox={"facecolor": LOOK[kind], "edgecolor": "none", "pad": 2}, parse_math=False)
table(["version", "paths", "tokens per target call", "first token off by", "four tokens off by"], rows)
axes.set(ylabel="round, one target call each", yticks=range(1, number + 1), ylim=(number + 0.5, 0.5), xlim=(-0.5, 4.5),
         xticks=range(5), xticklabels=["guess 1", "guess 2", "guess 3", "guess 4", "the target's token"])
axes.grid(False)
seen = dict(zip(*reversed(axes.get_legend_handles_labels())))
axes.legend([seen[kind] for kind in LOOK], LOOK, ncols=5, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
save(figure, "07_a_block_and_a_bonus")

# %% [markdown]
# So: draft a block, score it in one call, stop at the first refusal, and take the bonus when there is none. A test of
# the first token alone passes two of our three mistakes; the one that looks fastest is fast because it never stops.
#
# **Change this and run again.** Give the draft the target's own table (`seed=49` twice): which mistakes are left? Seeds
# 5 and 55: which mistake does this pair not show? Last exchange: `return guesses, gamma, dice.pick(p_target[gamma])`
# becomes `return guesses, gamma - 1, guesses[-1]`, no bonus: what changes, the text or the speed?
#
# Next: lesson 8 turns the temperature. Exercises: 5 (the first rejection in a block), 6 (the bonus token).
