# %% [markdown]
# # Copying from the past
#
# **Where do draft tokens come from when there is no draft model?**
#
# They can come from the text itself. Names recur, and so do the lines of a table and whole
# sentences. So look for an earlier occurrence of the last few tokens, and copy what followed them
# there. This takes hardly any time and needs no second model. It is called *prompt lookup* (Saxena
# 2023), and exercise 10 writes it.
#
# But such a draft token was not drawn from a distribution. Which q_draft should the rule use for
# it?
#
# The lesson builds on *Accept or replace* and on the trees of *Several futures*.

# %%
from collections import Counter

import torch

import figures
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.fast.clock import step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text

# %% [markdown]
# ## A copy of what followed
#
# Here is a text of words whose last word is "the", which occurred five times before. `PromptLookup`
# takes the latest of these places and copies the four words after it.
#
# A *drafter* of the library is told with `begin` that a text begins and with `read` that its prompt
# was read; its `propose` receives the whole text and returns a draft. (It also takes the
# temperature, the dice and a size, which a copier does not need.) Node 0 of a draft is the last
# token of the text, and the draft tokens are in the nodes after it.
#
# *Guess first:* which four words are copied?

# %%
words = "the cat sat . the dog ran . the cat hid . the dog ran . the cat ate . the".split()
names = sorted(set(words))                          # a word's number is its place in this list
text = Text([[names.index(word) for word in words]], 1, len(names))


def drafted(drafter):
    """The words that a drafter proposes after `words`."""
    drafter.begin(text)
    drafter.read(text, [0], None)
    nodes = drafter.propose(text, None, None, 0).tokens[0]
    return [names[token] for token in nodes[1:]]


print("\ncopied:", " ".join(drafted(PromptLookup(4, longest=1))))

# %% [markdown]
# *Answer:* "cat ate . the".
#
# ## A draft token that was not drawn
#
# Nothing was drawn: this token is proposed in every case and is *certain*. So q_draft is 1 at this
# token and 0 elsewhere, a *one-hot* distribution. With it, the rule needs no change at all. In
# the following table the draft token is token 0.
#
# | token | p_target | q_draft | accepted: min(1, p / q) | max(0, p - q) | residual distribution |
# |---|---|---|---|---|---|
# | 0 | .5 | 1 | .5 | 0 | 0 |
# | 1 | .3 | 0 | | .3 | .6 |
# | 2 | .2 | 0 | | .2 | .4 |
#
# Token 0 is accepted with probability .5 and rejected with probability .5. After a rejection, token
# 1 comes with .5 x .6 = .3 and token 2 with .5 x .4 = .2. Together this is p_target.
#
# In words: accept a certain token x with probability p_target(x). If it is rejected, draw from
# p_target without x.

# %%
p_target = torch.tensor([.5, .3, .2], dtype=torch.float64)
without = torch.tensor([0, .3, .2], dtype=torch.float64)        # p_target without token 0


def certain(dice):
    """Accept or replace the certain draft token 0 -> (is it accepted?, the token written)."""
    if dice.flip(p_target[0]):
        return True, 0
    return False, dice.pick(without)


def draw_and_compare(dice):
    """Draw from p_target as if there were no draft. Then look: was the draft right?"""
    token = dice.pick(p_target)
    return token == 0, token


# %% [markdown]
# **Claim.** Both functions have the same distribution.
#
# **Proof.**
#
# 1. `draw_and_compare` returns (True, 0) with probability p_target(0), and so does `certain`.
# 2. It returns (False, y) with probability p_target(y), for each y other than 0.
# 3. `certain` does so with probability (1 - p_target(0)) x p_target(y) / (1 - p_target(0)).
# 4. That is p_target(y), the same as in step 2.
#
# A certain draft token is therefore accepted exactly when the target would have written it anyway.
#
# ## Two wrong rules
#
# The first mistake draws the replacement from all of p_target. The second uses the past as q_draft:
# suppose that token 0 followed in 2 of 3 earlier places and token 1 in one of them. The mistake
# takes these shares for q_draft.
#
# *Guess first:* which token do both write too often?

# %%
counts = torch.tensor([2 / 3, 1 / 3, 0], dtype=torch.float64)


def draw_again(dice):
    if dice.flip(p_target[0]):
        return True, 0
    return False, dice.pick(p_target)           # WRONG: token 0 gets a second chance


def judge_by_counts(dice):
    if dice.flip(p_target[0] / counts[0]):      # WRONG: token 0 is proposed in every case
        return True, 0
    return False, dice.pick((p_target - counts).clamp(min=0))


RULES = {"certain": certain, "draw and compare": draw_and_compare,
         "draw again": draw_again, "judge by counts": judge_by_counts}
lines = []
for name, rule in RULES.items():
    found, _ = walk(lambda dice: rule(OneRow(dice)))            # every outcome
    written = {y: found.get((True, y), 0.0) + found.get((False, y), 0.0) for y in range(3)}
    off = distance(written, dict(enumerate(p_target.tolist())))[1]
    lines.append([name, *(f"{number:.3f}" for number in (found[True, 0], *written.values(), off))])
table(["rule", "0 is accepted", "0 written", "1 written", "2 written", "off by"], lines,
      "walked; off by: total variation from [.5, .3, .2]")

# %% [markdown]
# *Answer:* token 0, the one that was drafted.
#
# The second mistake is tempting, so look at it again. The rule divides by q_draft because it
# believes that token 0 is proposed with probability 2/3. But token 0 is proposed in every case. The
# past may *choose* a draft token, but it must not *judge* it.
#
# ## From one place to all places
#
# `PromptLookup` looks at one earlier place. *Suffix decoding* (Oliaro et al. 2024) looks at all of
# them. After "the" came "cat" 3 times of 5, and "dog" 2 times of 5.
#
# | words | share |
# |---|---|
# | cat | 3/5 = .6 |
# | dog | 2/5 = .4 |
# | cat ate | .6 x 1/3 = .2 (sat, hid and ate, once each) |
# | dog ran | .4 x 2/2 = .4 |
# | dog ran . | .4 x 2/2 = .4 |
#
# The *share* of a draft token is computed along its path. It begins at 1. Each word multiplies it
# by a fraction: of all earlier places where the path before that word stands, how many went on with
# the word? Take the token of the greatest share, then the next greatest, and so on. `best_first`
# does this, along one path or as a tree, where several draft tokens may follow the same word.

# %%
def best_first(text, tree):
    """After the last word of text, the greatest share first: (share, the words up to here)."""
    candidates = [(1.0, [])]                        # a share, and the words after the text
    while candidates:
        share, path = candidates.pop(0)
        yield share, path
        tail = text[-1:] + path                     # where else does this stand?
        places = [i for i in range(len(text) - len(tail)) if text[i:i + len(tail)] == tail]
        after = Counter(text[i + len(tail)] for i in reversed(places))      # the latest place first
        for word, times in after.most_common(None if tree else 1):
            candidates.append((share * times / len(places), path + [word]))
        candidates.sort(key=lambda candidate: candidate[0], reverse=True)


# %% [markdown]
# The sum of the shares is a forecast: it tells how many draft tokens are accepted if the target
# goes on as the text did before. Compare four draft tokens on a path with four in a tree.
#
# *Guess first:* which forecast is higher?

# %%
lines, forecast = [], {}
for kind in "path", "tree":
    found = list(best_first(words, tree=kind == "tree"))[1:5]       # the first is where we stand
    forecast[kind] = sum(share for share, _ in found)
    lines.append([kind, *(f"{' '.join(path)!r} {share:.1f}" for share, path in found),
                  f"{forecast[kind]:.1f}"])
    theirs = SuffixDrafter(4, longest=1, tree=kind == "tree")   # nanospec/methods/copies/suffix.py
    assert drafted(theirs) == [path[-1] for _, path in found]
table(["", "first", "second", "third", "fourth", "forecast"], lines)

# %% [markdown]
# *Answer:* that of the tree. The path has bet on "cat" and must continue after it, while the tree
# has both words.
#
# ## How much is there to copy?
#
# Now we turn to real texts. By the claim above we may draw and compare: the target writes a text
# alone, and draft tokens are accepted as far as they agree with that text. So one text is enough to
# judge every drafter that copies, and the next function does this. A draft may be a tree, and
# `parents` tells which node each draft token follows.

# %%
def replay(drafter, ids, new):
    """The rounds of a target that writes `new` after ids, if it has this drafter.

    Each round: (the draft tokens, how many are accepted, [the target's own token]).
    """
    text = Text([ids], len(new), tokenizer.vocab_size)
    drafter.begin(text)
    drafter.read(text, [0], None)
    future = new
    while future:
        nodes, parents, _ = of_text(drafter.propose(text, None, None, 0), 0)
        tokens, paths = nodes[1:], [[]]             # paths: of each node, the draft tokens up to it
        for token, parent in zip(tokens, parents[1:]):
            paths.append(paths[parent] + [token])
        accepted = max(len(path) for path in paths if path == future[:len(path)])
        yield tokens, accepted, future[accepted:accepted + 1]
        written, future = future[:accepted + 1], future[accepted + 1:]
        text.commit(torch.tensor([written]), len(written))


# %% [markdown]
# We use two prompts, a table of numbers, which repeats itself, and the beginning of a class. The
# target continues each at temperature 0 and at temperature 1.
#
# Four drafters copy, and the last one also has a *past*: both prompts with their continuations at
# temperature 0, from which it may copy, too. For comparison there is the draft model that ships,
# with gamma 4.

# %%
torch.set_num_threads(1)        # one text, small steps: a second thread would mostly wait
target, draft_model, tokenizer = load_pair()
table_of_numbers = "TABLE = (\n    " + " ".join(f"0x{i:02x}," for i in range(32))
a_class = 'class Thermometer:\n    """Keeps readings of a sensor."""\n\n    def __init__(self'
ids = {"table": tokenizer.encode(table_of_numbers), "class": tokenizer.encode(a_class)}
both = [(kind, T) for kind in ids for T in (0, 1)]
texts = {(kind, T): list(generate(target, ids[kind], 40, T, seed=1)) for kind, T in both}
past = [ids[kind] + texts[kind, 0] for kind in ids]

copiers = {"lookup": lambda past: PromptLookup(8),              # each makes a fresh drafter
           "suffix, path": lambda past: SuffixDrafter(8),
           "suffix, tree": lambda past: SuffixDrafter(8, tree=True),
           "tree, past": lambda past: SuffixDrafter(8, past, tree=True)}

# %% [markdown]
# *Guess first:* in which column does the draft model win, and in which do the copies?

# %%
rates = {}
for name, copier in copiers.items():
    drafter = copier(past)
    rates[name] = [len(new) / len(list(replay(drafter, ids[kind], new)))
                   for (kind, T), new in texts.items()]
rates["draft model"] = []
for kind, T in texts:
    rounds = list(speculate(target, ModelDrafter(draft_model, 4), ids[kind], 40, T, seed=1))
    rates["draft model"].append(40 / len(rounds))
table(["drafter", *(f"{kind}, T = {T}" for kind, T in texts)],
      [[name, *(f"{rate:.2f}" for rate in line)] for name, line in rates.items()],
      "tokens per target call; the target alone has 1")

# %% [markdown]
# *Answer:* the copies at T = 0, where the text repeats itself, and the draft model at T = 1. With
# the pair in the clone, in November 2026, lookup brought 5.71 and 3.08 tokens a call in the table,
# where the draft model brought 3.33 at both temperatures. In the class it brought 2.86 and 1.18,
# and the draft model 1.25 and 1.74: at T = 0 so small a target soon repeats itself, in a class as
# well.
#
# Why should one build suffix decoding, if it is behind lookup in the table and equal to it in the
# class? In a single short text there are few earlier places. Most often there is one, and then
# counting changes nothing. Where there are several, lookup takes the latest after the longest
# match, and in a table of numbers that is a better guide than a majority. Counting pays when there
# are many places, and these come from a *past*: with it the class at T = 0 rises from 2.86 to 6.67,
# because the very same text comes again. A server that answers similar requests all day has such a
# past.
#
# ## Asking the target itself
#
# Can one draft without a second model where the text does *not* repeat itself? In *lookahead
# decoding* (Fu et al. 2024) the target drafts for itself. A few guessed tokens ride along in each
# of its calls. The target returns what it would write after them, and its answers are the guesses
# of the next call. In this way short pieces of text grow that the target has written itself, though
# after a guessed beginning, and they are collected. When the text reaches the first token of such a
# piece, the rest is drafted. These tokens were not drawn either, so each q_draft is one-hot and the
# rule is the same.
#
# The price is longer calls: the target reads all guesses, too.
#
# *Guess first:* does it bring more than the copies, and more than the draft model?

# %%
ahead = {}                          # of each text: tokens per target call, tokens in a call
for kind, T in texts:
    rounds = list(speculate(target, Lookahead(), ids[kind], 40, T, seed=1))
    read = sum(len(done.tokens) for done in rounds)
    ahead[kind, T] = 40 / len(rounds), read / len(rounds)
table(["lookahead", *(f"{kind}, T = {T}" for kind, T in texts)],
      [["tokens per target call", *(f"{tokens:.2f}" for tokens, _ in ahead.values())],
       ["tokens in a call", *(f"{read:.1f}" for _, read in ahead.values())]])
for i, (tokens, _) in enumerate(ahead.values()):
    assert tokens < max(line[i] for line in rates.values())

# %% [markdown]
# *Answer:* no. In each column a copy or the draft model brings more tokens. Lookahead does worst in
# the class at temperature 1: what it has collected are the target's likeliest tokens, and the text
# goes another way.
#
# ## What it costs, and that it is exact
#
# The real rule flips coins. It is the node rule, `verify_tree`, with one-hot q_draft. We make two
# checks for each drafter:
#
# - `speculate` writes a text with coins, and a replay of that text must have equally many rounds.
# - The walk finds the exact distribution of four tokens, over several rounds, of a small table.
#
# The table also shows how long one draft takes, beside four calls of the draft model.

# %%
small, start, small_past = TableModel(3, seed=5), [0, 1, 2, 0], [[0, 1, 2, 0]]
truth, cost, off = target_distribution(small, start, 4, temperature=0.7), {}, {}
for name, copier in copiers.items():
    drafter = copier(past)
    _, took = timed(replay(drafter, ids["table"], texts["table", 1]))
    cost[name] = 1000 * sum(took) / len(took)
    with_coins = list(speculate(target, drafter, ids["table"], 40, seed=1))
    assert len(with_coins) == len(list(replay(drafter, ids["table"], tokens_of(with_coins))))

    drafter = copier(small_past)
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(
        small, drafter, start, 4, temperature=0.7, dice=dice, rule=verify_tree))))
    off[name] = distance(found, truth)[1]
table(["drafter", "ms for a draft", "off by"],
      [[name, f"{cost[name]:.2f}", f"{off[name]:.0e}"] for name in copiers]
      + [["draft model", f"{4000 * step_seconds(draft_model):.2f}", "-"]],
      "off by: total variation of four tokens from the target alone, walked")

# %% [markdown]
# In the picture, the left panel shows the rounds of `PromptLookup` in the table at temperature 1.
# Full boxes were copied, and empty boxes came from the target. The right panel shows the rates from
# above.

# %%
calls = []
for tokens, accepted, own in list(replay(PromptLookup(8), ids["table"], texts["table", 1]))[:14]:
    pieces = [repr(tokenizer.decode([token])) for token in tokens[:accepted] + own]
    calls.append((pieces, accepted))
figures.copying(calls, [f"{kind}\nT = {T}" for kind, T in texts], rates)

# %% [markdown]
# ## Three things to know
#
# 1. A draft token may come from anywhere. If it was not drawn, its q_draft is one-hot: accept it
#    with p_target(x), and replace it from p_target without x.
# 2. The past chooses the draft tokens, but it must not be reported as q_draft.
# 3. Copies cost next to nothing. They gain much where a text repeats itself and little elsewhere,
#    and the target still has to score all of them.
#
# ## Change this and run again
#
# 1. Write `counts` = [.5, .3, .2], the target's own distribution. Is the rule `judge_by_counts`
#    exact now?
# 2. Write `PromptLookup(8, earliest=True)` in `copiers`. Which column loses most?
# 3. Write `texts[kind, 1]` for `texts[kind, 0]` in `past`. These are the very texts that will be
#    written at temperature 1. What do these columns show now? Why must a past have been drawn with
#    dice of its own?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A tree where it is sure* grows a different tree at every place. Exercises: 15 (certain
# drafts).
