# %% [markdown]
# # 15. Copying from the past
#
# **Where do guesses come from when there is no draft?**
#
# From the text. Names come again, and so do the lines of a table and whole sentences: look where the last few tokens
# stood before, and guess what followed them there (exercise 10; *prompt lookup*, Saxena 2023). That takes microseconds
# and no second model. But nobody drew such a guess: which q_draft shall the rule of lesson 5 judge it by?

# %%
from collections import Counter

import torch

from kit import AMBER, BLUE, FAINT, GREEN, INK, OneRow, bars, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.fast.clock import step_seconds, timed
from nanospec.generate import generate
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text

# %% [markdown]
# ## A guess that nobody drew
#
# No die was thrown, so the guess is *certain*: q_draft is 1 at x, 0 elsewhere. Then min(1, p_target(x) / q_draft(x)) is
# p_target(x), and max(0, p_target - q_draft) is p_target without x. In other words: draw from p_target, and see whether
# the guess was right. Both have one law, of what is written and of what is kept. Below them two mistakes: to draw from
# all of p_target after a refusal, and to judge the guess by how often it came in the past.

# %%
p_target, counts = (torch.tensor(law, dtype=torch.float64) for law in ([.5, .3, .2], [2 / 3, 1 / 3, 0]))
without, above = p_target * torch.tensor([0, 1, 1]), (p_target - counts).clamp(min=0)       # the guess is token 0
RULES = {                                                                                   # -> (is it kept, token)
    "certain": lambda dice: (True, 0) if dice.flip(p_target[0]) else (False, dice.pick(without)),
    "draw and compare": lambda dice: ((token := dice.pick(p_target)) == 0, token),
    "draw again": lambda dice: (True, 0) if dice.flip(p_target[0]) else (False, dice.pick(p_target)),
    "judge by counts": lambda dice: (True, 0) if dice.flip(p_target[0] / counts[0]) else (False, dice.pick(above))}
for name, rule in RULES.items():
    law, _ = walk(lambda dice: rule(OneRow(dice)))              # every way the dice can fall: lesson 5
    written = {y: law.get((True, y), 0.0) + law.get((False, y), 0.0) for y in range(3)}
    print(f"{name:16} keeps token 0 with {law[True, 0]:.3f}, writes {[round(p, 3) for p in written.values()]}, off by "
          f"{distance(written, dict(enumerate(p_target.tolist())))[1]:.3f}")

# %% [markdown]
# ## From one place to all of them
#
# Where the last tokens stood several times, count what followed (*suffix decoding*, Oliaro et al. 2024). A guess is as
# likely as its *share* of those places, times the share of what leads to it. Take the likeliest, then the likeliest of
# what is left: along one path, or as a tree, which hedges. The shares add up to the guesses that the past promises.

# %%
def best_first(text, tree):
    """Guesses behind the last word of text, the likeliest first: (share, the words up to it)."""
    heap = [(-1.0, [])]
    while heap:
        minus_share, path = heap.pop(0)
        yield -minus_share, path
        tail = text[-1:] + path
        places = [i for i in range(len(text) - len(tail)) if text[i:i + len(tail)] == tail]
        after = Counter(text[i + len(tail)] for i in reversed(places))          # of equals the one that came last
        heap = sorted(heap + [(minus_share * times / len(places), path + [word])
                              for word, times in after.most_common(None if tree else 1)])


words = "the cat sat . the dog ran . the cat hid . the dog ran . the cat ate . the".split()
names = sorted(set(words))
text = Text([[names.index(word) for word in words]], 1, len(names))
for kind, theirs in ("path", SuffixDrafter(4, longest=1)), ("tree", SuffixDrafter(4, longest=1, tree=True)):
    shares, paths = zip(*list(best_first(words, kind == "tree"))[1:5])          # [0] is where one stands: no guess yet
    print(f"a {kind}:", *(f"{' '.join(w)!r} {p:.2f}" for p, w in zip(shares, paths)), f"-> {sum(shares):.2f} promised")
    theirs.begin(text, [0], None)                               # nanospec/drafters/suffix.py guesses the same
    assert [names[x] for x in theirs.propose(text, None, None, 0).tokens[0, 1:]] == [path[-1] for path in paths]

# %% [markdown]
# ## How much is there to copy?
#
# Draw and compare, once more: the target writes a text alone, and guesses stand as far as the text agrees. So one text
# judges every copier, also one who was handed past texts: here, both prompts as they were continued at temperature 0.
# Beside them the draft that ships, four steps a round. The law: nanospec/rules/tree.py, walked over several rounds.

# %%
def replay(drafter, ids, new):
    """The calls of a target that writes `new` behind ids: guesses, how many of them stand, its own token."""
    text = Text([ids], len(new), tokenizer.vocab_size)
    drafter.begin(text, [0], None)
    while future := new[int(text.length) - len(ids):]:
        (_, *guesses), (_, *parents), _ = drafter.propose(text, None, None, 0).of_text(0)
        paths = [[]]
        for token, parent in zip(guesses, parents):
            paths.append(paths[parent] + [token])
        kept = max(len(path) for path in paths if path == future[:len(path)])
        yield guesses, kept, future[kept:kept + 1]
        text.commit(torch.tensor([future[:kept + 1]]), len(future[:kept + 1]))


torch.set_num_threads(1)        # one text, small steps: a second thread would mostly wait
target, draft, tokenizer = load_pair()
ids = {"table": tokenizer.encode("TABLE = (\n    " + " ".join(f"0x{i:02x}," for i in range(32))),
       "class": tokenizer.encode('class Thermometer:\n    """Keeps readings of a sensor."""\n\n    def __init__(self')}
texts = {(kind, T): list(generate(target, ids[kind], 40, T, seed=1)) for kind in ids for T in (0, 1)}
copiers = {"lookup": lambda _: PromptLookup(8), "suffix, path": lambda _: SuffixDrafter(8),
           "suffix, tree": lambda _: SuffixDrafter(8, tree=True), "tree, past": lambda old: SuffixDrafter(8, old, True)}
small, start, rates, rest = TableModel(3, seed=5), [0, 1, 2, 0], {}, {}
for name, copier in copiers.items():
    drafter, small_one = copier([ids[kind] + texts[kind, 0] for kind in ids]), copier([start])
    rates[name] = [len(new) / len(list(replay(drafter, ids[kind], new))) for (kind, T), new in texts.items()]
    _, took = timed(replay(drafter, ids["table"], texts["table", 1]))
    real = list(speculate(target, drafter, ids["table"], 40, seed=1))                           # the rule, with coins
    assert len(real) == len(list(replay(drafter, ids["table"], tokens_of(real))))
    law, _ = walk(lambda dice: tuple(tokens_of(speculate(small, small_one, start, 4, .7, dice=dice, rule=verify_tree))))
    rest[name] = sum(took) / len(took), f"{distance(law, target_distribution(small, start, 4, temperature=.7))[1]:.0e}"
real = [list(speculate(target, ModelDrafter(draft, 4), ids[kind], 40, T, seed=1)) for kind, T in texts]
rates["draft"], rest["draft"] = [40 / len(rounds) for rounds in real], (4 * step_seconds(draft), "lesson 7")
table(["who guesses", *(f"{kind}, T = {T}" for kind, T in texts), "ms to guess", "law off by"], [
    [name, *(f"{rate:.2f}" for rate in rates[name]), f"{1000 * took:.2f}", off] for name, (took, off) in rest.items()],
    "tokens per target call; what the guesses of one call take; total variation of four tokens, walked")
figure, (left, right) = picture("15. copying from the past", 2)
for y, (guesses, kept, own) in zip(range(1, 15), replay(PromptLookup(8), ids["table"], texts["table", 1])):
    for x, token in enumerate(guesses[:kept] + own):
        left.barh(y, 0.95, left=x - 0.475, color=GREEN if x < kept else BLUE)
        left.text(x, y, repr(tokenizer.decode([token])), color="white", ha="center", va="center", fontsize=8)
left.set(ylim=(y + .5, .5), yticks=range(1, y + 1), xticks=[], ylabel="call", xlabel="table, T = 1; green: copied")
bars(right, [f"{kind}\nT = {T}" for kind, T in texts], *zip(rates.values(), (GREEN, FAINT, INK, BLUE, AMBER), rates))
right.set_ylabel("tokens per target call; the target alone has 1")
save(figure, "15_copying_from_the_past")

# %% [markdown]
# So: a guess may come from anywhere, if the rule is told how. Where a text repeats itself, copying beats the draft and
# costs next to nothing; where it does not, little is kept, and all of it had to be scored (lesson 9).
#
# **Change this and run again.** `counts` = [.5, .3, .2], the target's own law: is it at least fair to judge by that?
# `PromptLookup(8, earliest=True)`: which column suffers most? Hand the past `texts[kind, 1]`, the very texts that are
# to be written at T = 1: what do those columns promise, and why must a past have been drawn with dice of its own?
#
# Next: lesson 16 asks how far ahead to guess. Exercises: 15 (certain guesses).
