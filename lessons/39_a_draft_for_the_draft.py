# %% [markdown]
# # A draft for the draft
#
# **When does a third level pay?**
#
# The draft model writes its tokens one by one. That is plain decoding again, only smaller, so it
# can be done by speculation, too: a third, still smaller model drafts for the draft model.
#
# - The *lowest* model drafts for the middle one.
# - The *middle* model verifies that draft, and what it has written is the draft for the target.
# - The *target* verifies this draft, as usual.
#
# This is called a stack; in some papers a cascade of drafts, which is not the cascade of *Mixing on
# purpose* (Chen et al. 2023; TriForce, Sun et al. 2024). The lesson uses *Accept or replace*,
# *Report what you sample*, the formula of *How fast*, and the copies of *Copying from the past*.

# %%
from functools import lru_cache

import torch

import figures
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.cli.bench.prompts import repetitive_prompts
from nanospec.fast.clock import step_seconds
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.stack import Stack
from nanospec.probs import residual
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance, expected_tokens

torch.set_num_threads(1)
target, middle, tokenizer = pair = load_pair()

# %% [markdown]
# ## Which q_draft does the target need?
#
# Three tables stand for the three models. The lowest one draws a token. The middle one accepts it
# or replaces it from its residual. So two distributions were involved, and the target's coin needs
# *one* number, q_draft(x). *Guess first:* which one?
#
# - the middle model's distribution
# - the lowest model's, because it has drawn the token
# - the lowest model's where its token was accepted, and the middle model's where it was replaced


# %%
TARGET, MIDDLE, LOWEST = (TableModel(3, seed, zeros=0.4) for seed in (8, 58, 108))
START, NEW = (1, 0, 1), 3


@lru_cache(maxsize=None)
def after(model, text):
    """(V,): the model's distribution of the token after this text, a tuple."""
    return model(torch.tensor([text]))[0, -1].softmax(-1)


def draft_token(text, dice, report):
    """A token of the middle model, for which the lowest drafts, and the q that is reported."""
    q_lowest, q_middle = after(LOWEST, text), after(MIDDLE, text)
    x = dice.pick(q_lowest)
    threshold = min(1.0, float(q_middle[x] / q_lowest[x]))
    stands = dice.flip(threshold)
    x = x if stands else dice.pick(residual(q_middle, q_lowest))
    q = {"middle": q_middle, "lowest": q_lowest, "whose it is": q_lowest if stands else q_middle}
    return x, q[report], (threshold, stands)


# %% [markdown]
# *Answer:* the middle model's, whichever of the two has drawn the token.
#
# Above that is the ordinary round: coins from left to right, and then a replacement or a bonus
# token.
#
# There is one more way to be wrong, which is to use a random number twice. The middle model has
# drawn u between 0 and 1, and its coin accepted if u was below its threshold. Now let the target's
# coin look at the same u. `again` computes how often it accepts then.


# %%
def again(chance, first, stands):
    """u is below the threshold `first` if the middle accepted, else above: how often below
    `chance`?
    """
    return min(1.0, chance / first) if stands else max(0.0, chance - first) / (1 - first)


def three_levels(dice, report="middle", same_u=False):
    """NEW tokens, with two draft tokens in each round."""
    text, dice = START, OneRow(dice)
    while len(text) < len(START) + NEW:
        ahead, draft = text, []
        for _ in range(2):
            draft.append(draft_token(ahead, dice, report))
            ahead += draft[-1][:1]
        for x, q, below in draft:
            p = after(TARGET, text)
            # min(1, p / q); a wrong report may have q = 0 at x
            chance = float(p[x] / q[x]) if p[x] < q[x] else float(p[x] > 0)
            if not dice.flip(again(chance, *below) if same_u else chance):
                text += (dice.pick(residual(p, q)),)
                break
            text += (x,)
        else:
            text += (dice.pick(after(TARGET, text)),)
    return text[len(START):len(START) + NEW]


# %%
right, off = target_distribution(TARGET, START, NEW), {}
for name, how in {"the middle model's": {}, "the lowest model's": {"report": "lowest"},
                  "of the model that wrote it": {"report": "whose it is"},
                  "the middle's, one u for both coins": {"same_u": True}}.items():
    found, paths = walk(lambda dice: three_levels(dice, **how))
    off[name] = distance(found, right)[1]
table(["q_draft that is reported", "off from the target"],
      [[name, f"{tv:.1e}"] for name, tv in off.items()], f"{NEW} tokens, every path walked")
assert off["the middle model's"] < 1e-12 < 0.01 < min([*off.values()][1:])

# %% [markdown]
# Only the first is exact, because after accept or replace, a token has the distribution of the
# *middle* model, and the model that proposed it leaves no trace. So the target must be told the
# middle model's distribution.
#
# The last line reports the right q and uses u twice. A token that has just been accepted had a
# small u, so it is accepted again too often.
#
# | | between the levels |
# |---|---|
# | the committed text | shared: no level may continue from a token that the target has rejected |
# | random numbers | one for each decision, on every level: none serves two of them |
# | caches | each model has its own: keys and values are made with its own weights |
#
# ## What a token costs
#
# Let plain decoding cost 1 per token, and let c be the cost of a step of the middle model. If the
# lowest model drafts g tokens for it, the middle model needs one call for all of them, and by Eq. 1
# that call brings 1 + alpha + ... + alpha^g tokens. So the third level makes c smaller. An inner
# round also pays for verification, c v(g + 1) instead of c. Nothing else changes for the target.
#
# We take the draft GPT as the middle model. The lowest one is a table that tells how often token b
# followed token a in the training text, which costs next to nothing.


# %%
def bigrams(texts, smooth=0.02):
    """(V, V): for each token a, the distribution after it."""
    ids, V = to_ids(texts, tokenizer), target.config.vocab_size
    counts = torch.zeros(V, V).index_put_((ids[:-1], ids[1:]), torch.ones(()), accumulate=True)
    counts += smooth * counts.sum(0) / counts.sum() * V         # where a token is rarely seen
    return counts / counts.sum(-1, keepdim=True)


train_texts, held_out = read_texts()
lowest = bigrams(train_texts[::10])
cut = [tokenizer.encode(text[len(text) // 2:][:1600])[:257] for text in held_out]
some = torch.tensor([ids for ids in cut if len(ids) == 257][:12])
with torch.inference_mode():
    p_of = {"target": target(some).softmax(-1), "middle": middle(some).softmax(-1),
            "lowest": lowest[some]}
pairs = {(2, 1): ("target", "middle"), (2, 0): ("target", "lowest"), (1, 0): ("middle", "lowest")}
alpha = {levels: acceptance(p_of[i], p_of[j]).mean().item() for levels, (i, j) in pairs.items()}
table(["verifier", "drafter", "alpha"],
      [[i, j, f"{alpha[levels]:.2f}"] for levels, (i, j) in pairs.items()])

# %% [markdown]
# ## When does it pay?
#
# A token of model i costs a step, or its part of a round in which a cheaper model j drafts for i.
# What j's tokens cost does not depend on i, so `best_stack` goes up from the cheapest model, finds
# for each what is best below it, and tries every gamma with these alphas. As in *A block at once*,
# we take round numbers: v(m) = 1 + 0.05 (m - 1), and c = 0.12 for the draft GPT. The table shows
# other values of c as well.
#
# *Guess first:* how much does a third level gain at c = 0.12, and how much at 0.5?

# %%
FREE = 0.002                                            # a look into the table


def v(tokens):
    return 1 + 0.05 * (tokens - 1)


def best_stack(steps, alpha, v, most=16):
    """What a token of the last model costs in the best stack, and its (model, gamma), from above.

    steps[i]: what a step of model i costs. alpha(i, j): how often i accepts what j drafts.
    """
    best = []
    for i, step in enumerate(steps):
        found = [(step, [])]
        for j in range(i):
            drafting, below = best[j]
            for gamma in range(1, most + 1):
                tokens = expected_tokens(alpha(i, j), gamma)
                cost = (gamma * drafting + step * v(gamma + 1)) / tokens
                found.append((cost, [(j, gamma), *below]))
        best.append(min(found, key=lambda stack: stack[0]))
    return best[-1]


# %%
def ways(c, alpha):
    """Speed-ups: the middle model alone, the lowest alone, the best of all; and its levels."""
    two = [best_stack([cost, 1], lambda i, j: alpha[2, j_of], v)[0]
           for j_of, cost in ((1, c), (0, FREE))]
    cost, levels = best_stack([FREE, c, 1], lambda i, j: alpha[i, j], v)
    return 1 / two[0], 1 / two[1], 1 / cost, levels


lines = []
for c in (0.03, 0.06, 0.12, 0.25, 0.5):
    only_middle, only_lowest, best, levels = ways(c, alpha)
    names = [f"{gamma} of the {('lowest', 'middle')[model]}" for model, gamma in levels]
    lines.append([c, f"{only_middle:.2f}", f"{only_lowest:.2f}", f"{best:.2f}",
                  f"{best / max(only_middle, only_lowest) - 1:+.0%}", ", by ".join(names)])
table(["c", "middle drafts", "lowest drafts", "best", "gain", "the best draft"], lines,
      "times as fast as plain decoding, by the formula")

# %% [markdown]
# *Answer:* a few percent at 0.12. At 0.5 nothing: there the lowest model drafts better alone.
#
# Read the column "gain". Where the middle model is cheap, there is little left to save. Where it
# costs half a target step, it is not needed: the lowest model drafts for the target, and there are
# two levels again. A third level pays in between, and not much.
#
# ## What the formula leaves out
#
# A round of the middle model is more than a step. It reads several tokens, flips coins and rolls
# back. Suppose that it takes r of its plain steps. Then the rule is short:
#
# **A third level pays if a round of the middle model brings more than r tokens.**
#
# We count this with the pair that ships. The lowest level is a copier, as in
# `nanospec demo --drafter stack`. *Guess first:* in ordinary code, how many tokens does a call of
# the draft GPT bring if a copier drafts for it?

# %%
counted, shown = {}, []
for kind, prompts in (("held-out code", some[:4, :64].tolist()),
                      ("code that repeats itself", repetitive_prompts(pair))):
    for name, make in (("chain", lambda: ModelDrafter(middle, 4)),
                       ("stack", lambda: Stack(middle, PromptLookup(4), 4))):
        rounds = [done for ids in prompts
                  for done in speculate(target, make(), ids, 32, temperature=0)]
        calls = sum(done.steps for done in rounds)
        counted[kind, name] = len(tokens_of(rounds)) / len(rounds), 4 * len(rounds) / calls
        shown.append([kind, name, *(f"{number:.2f}" for number in counted[kind, name])])
table(["text", "drafter", "tokens per target call", "draft tokens per GPT call"], shown, "T = 0")
r = step_seconds(middle, 5) / step_seconds(middle, 1)
print(f"\na call of the GPT on 5 tokens takes {r:.2f} times a call on one; the coins come on top")

# %% [markdown]
# *Answer:* little more than one.
#
# A target call brings the same with two levels as with three, because the draft is the same. (At T
# = 1 it is the same on average.) What has changed is how often the GPT is called for it. Compare
# the last column with r: a call of the GPT must bring more than r tokens, or the third level loses.
#
# Would a better lowest model help? For the picture we imagine two that also cost nothing. The
# middle model accepts their tokens with 0.6 and 0.8. A model that drafts well for the middle model
# also drafts well for the target: we assume 0.6 and 0.8 times the middle model's own alpha.
#
# *Guess first:* does the third level gain more, the better the lowest model is?

# %%
costs = [0.01 * i for i in range(2, 46)]
knows = {"our bigrams": alpha, **{
    name: alpha | {(1, 0): known, (2, 0): known * alpha[2, 1]}
    for name, known in (("a better model", 0.6), ("a very good one", 0.8))}}
gains = {}
for name, of_levels in knows.items():
    found = [ways(c, of_levels) for c in costs]
    gains[f"{name}: the middle accepts {of_levels[1, 0]:.2f}"] = [
        best / max(two) - 1 for *two, best, _ in found]
figures.a_draft_for_the_draft(costs, gains, 0.12)

# %% [markdown]
# *Answer:* yes, but only up to a point. The better the lowest model is, the sooner the middle one
# becomes unnecessary. A third level pays more where the lowest model is good for the middle one
# *alone*. TriForce is built in this way: its middle model is the target itself with a small part of
# its cache.
#
# ## Three things to know
#
# 1. A draft may be written in any way, as long as the distribution of its tokens is reported. In a
#    stack this is the middle model's distribution.
# 2. The levels share the committed text, but neither caches nor random numbers.
# 3. A third level makes c smaller. It pays where c is neither small nor large, and where a round of
#    the middle model brings more tokens than it takes steps.
#
# ## Change this and run again
#
# 1. Write `LOWEST = MIDDLE` below the three tables. Which lines of the first table become exact?
# 2. Let calls on several tokens be free: `return 1` in `v`. What does that do to the gains?
# 3. Count at T = 1: `temperature=1`. Both columns change, but which of the two changes by chance
#    alone?
#
# The answers are in the file of the same name in `lessons/answers/`.
