# %% [markdown]
# # Temperature and greedy
#
# **What do temperature, top-k and greedy decoding do, and what becomes of the rule?**
#
# A text need not be drawn from the model's own distribution. Four settings change it before a
# token is drawn: temperature, top-k, top-p and min-p. Changing a distribution in this way is called
# *warping*. One function does all of it, for the target and the draft model alike: `probs`, in
# nanospec/probs.py.
#
# The rule of *Accept or replace* stays as it is, because it compares two distributions and does not
# ask how they were made. We also use `pick` and the round of *A draft and a bonus*.

# %%
from pathlib import Path

import torch

import figures
import kit
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)        # thousands of tiny calls: threads would wait for each other
names = ["A", "B", "C", "D"]
as_it_is = torch.tensor([0.50, 0.30, 0.15, 0.05], dtype=torch.float64)
logits = as_it_is.log()         # the softmax of these is as_it_is again

# %% [markdown]
# ## Temperature
#
# A model does not return probabilities. It returns a *logit* for each token, which may be any
# number, and `softmax` turns the logits into a distribution: it takes exp of each logit and divides
# by the sum.
#
# Temperature T first divides the logits by T. Since exp(x / T) is exp(x) to the power 1 / T, this
# raises each probability to the power 1 / T, and then divides all by their new sum. T = 0.5 is the
# power 2:
#
# | token | probability | squared | divided by the sum, 0.365 |
# |---|---|---|---|
# | A | 0.50 | 0.2500 | 0.685 |
# | B | 0.30 | 0.0900 | 0.247 |
# | C | 0.15 | 0.0225 | 0.062 |
# | D | 0.05 | 0.0025 | 0.007 |
#
# The likely token has grown, and all others have shrunk.
#
# *Guess first:* T = 2 is the power 1 / 2, the square root. Does D grow or shrink?


# %%
def by_powers(p, temperature):
    """Temperature without logits. [.5, .3, .15, .05] and 0.5 give [.685, .247, .062, .007]."""
    powers = p ** (1 / temperature)
    return powers / powers.sum()


def line_of(name, p):
    """A line of the table: the name, and a number for each token."""
    return [name] + [f"{share:.3f}" for share in p.tolist()]


lines = [line_of("as it is", as_it_is)]
for T in (0.5, 2):
    warped = probs(logits, temperature=T)
    assert torch.allclose(warped, by_powers(as_it_is, T))
    lines.append(line_of(f"T = {T}", warped))
table(["temperature", *names], lines)

# %% [markdown]
# *Answer:* it grows, from .05 to .12. A temperature above 1 makes a distribution flatter.
#
# ## Top-k, top-p and min-p
#
# All three forbid the unlikely tokens and divide what is left by its sum.
#
# - *Top-k* keeps the k likeliest tokens. With k = 2 these are A and B. Together they hold 0.80, so
#   A gets 0.50 / 0.80 = 0.625.
# - *Top-p* keeps the fewest tokens that together hold the share p. With p = 0.9, A and B are too
#   few, because they hold 0.80. A, B and C hold 0.95, so three tokens are kept.
# - *Min-p* m keeps the tokens that have at least m times the likeliest token's probability. With
#   m = 0.5 that is 0.5 x 0.50 = 0.25, so A and B are kept. Where no token is likely, more are kept.
#
# If several settings are given, temperature is applied first, then top-k, top-p and min-p.
#
# *Guess first:* with T = 0.5 and top-p 0.9 together, how many tokens are kept? (See the table
# above.)

# %%
cut = {"top-k 2": probs(logits, top_k=2),
       "top-p 0.9": probs(logits, top_p=0.9),
       "min-p 0.5": probs(logits, min_p=0.5),
       "T = 0.5, top-p 0.9": probs(logits, temperature=0.5, top_p=0.9)}
table(["what is kept", *names], [line_of(name, p) for name, p in cut.items()])

# %% [markdown]
# *Answer:* two. At T = 0.5 A and B hold .93 together, so they are enough.
#
# ## Greedy is T = 0, and that is no division
#
# *Greedy* decoding always takes the likeliest token. As the temperature falls, the distribution
# comes closer and closer to that, as the next table shows. In the end one token has probability 1
# and all others have 0. Such a distribution is called *one-hot*.

# %%
lines = [line_of(f"T = {T}", probs(logits, temperature=T)) for T in (1, 0.5, 0.25, 0.1, 0)]
table(["temperature", *names], lines)

# %% [markdown]
# No number can be divided by 0. At T = 0, `probs` therefore does not divide but writes down the
# one-hot distribution itself. Programs that divide by a tiny number instead fail in two ways, and
# rounding adds a third:
#
# 1. exp of a huge number is infinite, and infinity / infinity is *nan*: not a number.
# 2. float16 ends at 65,504, so the logits are infinite before `softmax` sees them. (torch's
#    `softmax` first subtracts the greatest logit from all logits, and infinity - infinity is nan.)
# 3. bfloat16 has about two decimal digits, and two logits that differ a little become the same
#    number. Then two tokens share the first place with 0.5 each, and what should be greedy is a
#    coin.
#
# We count these failures over 500 places of a text that neither model has seen, a file of this
# course.
#
# *Guess first:* at how many of the 500 places does the first way give nan?


# %%
def by_exp(x):
    """The formula of softmax, as it stands in books."""
    powers = (x / 1e-10).exp()                          # WRONG: exp overflows
    return powers / powers.sum(-1, keepdim=True)


def in_float16(x):
    """torch's softmax."""
    return (x.half() / 1e-10).softmax(-1)               # WRONG: x / 1e-10 overflows


def in_bfloat16(x):
    """torch's softmax, in the data type of many large models."""
    return (x.bfloat16() / 1e-10).softmax(-1)           # WRONG: two logits may have become equal


def by_probs(x):
    """No division: the first of the greatest logits has probability 1."""
    return probs(x.bfloat16(), temperature=0)


# %%
target, draft_model, tokenizer = load_pair()
ids = tokenizer.encode(Path(kit.__file__).read_text())[:500]
with torch.inference_mode():
    of_target = target(torch.tensor([ids]))[0]          # logits (500, V), one (V,) for each place

lines, counts = [], {}
for way in (by_exp, in_float16, in_bfloat16, by_probs):
    greedy = way(of_target)
    nan = int(greedy.isnan().any(-1).sum())
    torn = int((greedy.amax(-1) < 1).sum())             # no token has probability 1
    counts[way.__name__] = nan, torn
    lines.append([way.__name__, nan, torn])
table([f"of {len(ids)} places", "are nan", "have two first places"], lines)

# %% [markdown]
# *Answer:* at all 500 of them.
#
# ## The round, with other distributions
#
# In *A draft and a bonus*, the round called `probs` without settings. Now both models go through
# one function `warp`, which turns logits into a distribution with the settings that we want:
# `probs` becomes `warp`, in two places.


# %%
def draft_and_score(target, draft_model, ids, gamma, dice, warp):
    """-> gamma draft tokens; q_draft, gamma distributions; p_target, gamma + 1 of them."""
    tokens, q_draft = [], []
    for _ in range(gamma):
        logits = draft_model(torch.tensor([ids + tokens]))[0, -1]                     # (V,)
        q_draft.append(warp(logits))                                            # NEW
        tokens.append(dice.pick(q_draft[-1]))
    logits = target(torch.tensor([ids + tokens]))[0, -gamma - 1:]               # (gamma + 1, V)
    return tokens, q_draft, warp(logits)                                        # NEW


# %% [markdown]
# The rest is as before, and `warp` is only passed along.


# %%
def round_by_hand(target, draft_model, ids, gamma, dice, warp):
    """-> draft tokens, how many are accepted, and the token that follows those."""
    tokens, q_draft, p_target = draft_and_score(target, draft_model, ids, gamma, dice, warp)
    for i, x in enumerate(tokens):
        if not dice.flip(p_target[i, x] / q_draft[i][x]):
            residual = (p_target[i] - q_draft[i]).clamp(min=0)
            return tokens, i, dice.pick(residual)
    return tokens, gamma, dice.pick(p_target[gamma])


def write(target, draft_model, ids, gamma, new, dice, warp):
    """Rounds until `new` tokens or more are written: ((4, 5), (0,)) is two rounds, three tokens."""
    rounds, text = [], list(ids)
    while len(text) < len(ids) + new:
        tokens, accepted, token = round_by_hand(target, draft_model, text, gamma, dice, warp)
        rounds.append((*tokens[:accepted], token))
        text += rounds[-1]
    return tuple(rounds)


# %% [markdown]
# To see whether the rule is still exact, we *walk* again. Two small tables over 4 tokens stand in
# for the models, and they write three tokens with one draft token per round. "Off by" is the total
# variation from what the target alone writes with the same settings.
#
# *Guess first:* the fewer tokens are possible, the fewer paths there are. How many are there at T =
# 0?

# %%
big = TableModel(4, seed=33, zeros=0.5)
small = TableModel(4, seed=83, zeros=0.5)
settings = {"as it is": {}, "T = 0.5": {"temperature": 0.5}, "T = 2": {"temperature": 2},
            "top-k 2": {"top_k": 2}, "top-p 0.9": {"top_p": 0.9}, "min-p 0.5": {"min_p": 0.5},
            "T = 0": {"temperature": 0}}
paths_of, off_of = {}, {}
for name, setting in settings.items():
    def play(dice):
        """One text of three tokens, on one path."""
        rounds = write(big, small, [1], 1, 3, OneRow(dice), lambda x: probs(x, **setting))
        return sum(rounds, ())[:3]                      # (a, b), (c,) together: (a, b, c)

    found, paths_of[name] = walk(play)
    off_of[name] = distance(found, target_distribution(big, [1], 3, **setting))[1]
    assert off_of[name] < 1e-12
table(["sampling", "paths", "off by"],
      [[name, f"{paths_of[name]:,}", "< 1e-12"] for name in settings])

# %% [markdown]
# *Answer:* one, because every decision is certain.
#
# ## Greedy needs no case of its own
#
# At T = 0 both distributions are one-hot, so the draft token is the draft model's best token.
#
# | | it is also the target's best | it is not |
# |---|---|---|
# | p_target(x) / q_draft(x) | 1 / 1 = 1 | 0 / 1 = 0 |
# | the draft token is | always accepted | always rejected |
# | the residual distribution is | not needed | 1 at the target's best token |
# | the token that comes out | the target's best | the target's best |
#
# A bonus token is the target's best token too. No decision is left to chance, which is why the walk
# found one path. The text is the greedy text, token for token.
#
# We compare in float64. With fewer digits, a call on five tokens rounds differently from a call on
# one, and where two tokens are nearly equal, that can change which of them is the best.
#
# *Guess first:* we write 32 tokens with 4 draft tokens per round. How many calls are needed at
# least, and how many at most?

# %%
exact = load_pair(dtype=torch.float64)
prompt = tokenizer.encode("def area(radius):\n")
plain = list(generate(exact.target, prompt, 32, temperature=0))
done = list(speculate(exact.target, ModelDrafter(exact.draft_model, 4), prompt, 32, temperature=0))
with torch.inference_mode():
    rounds = write(exact.target, exact.draft_model, prompt, 4, 32, OneRow(),
                   lambda x: probs(x, temperature=0))
by_hand = list(sum(rounds, ()))[:32]
assert plain == tokens_of(done) == by_hand
for played in done:              # what the target adds is its best token, replacement or bonus
    assert played.token == played.p_target[len(played.path)].argmax()
print("\n32 greedy tokens, the same from generate, from speculate and by hand:")
print(tokenizer.decode(plain))
print(f"\ntarget calls: {len(plain)} one token at a time, {len(rounds)} in rounds (7 to 32 can be)")
assert 7 <= len(rounds) <= 32

# %%
sure = probs(of_target).amax(-1)
place = int((sure - 0.35).abs().argmin())               # where the target is neither sure nor lost
best = of_target[place].topk(5).indices
labels = [repr(tokenizer.decode([token])) for token in best.tolist()]
before = tokenizer.decode(ids[place - 7:place + 1])
heights = {f"T = {T}": probs(of_target[place], T)[best].tolist() for T in (0, 0.5, 1, 2)}
figures.settings(labels, heights, before, names, as_it_is.tolist(),
                 cut["top-k 2"].tolist(), cut["top-p 0.9"].tolist())

# %% [markdown]
# *Answer:* 7 at least, because a round writes 5 tokens at most, and 32 at most, if each round
# writes one. The count of this text lies between them.
#
# ## Three things to know
#
# 1. Temperature raises probabilities to the power 1 / T, and top-k, top-p and min-p forbid
#    unlikely tokens. `probs` does all of it for both models, and the rule stays as it is.
# 2. Greedy decoding is T = 0: a one-hot distribution, and not a division by a tiny number.
# 3. At T = 0 nothing is left to chance. The text written in rounds is the greedy text, token for
#    token.
#
# ## Change this and run again
#
# 1. Add `"top-k 1": {"top_k": 1}` to `settings`. How many paths does it have, and what is it
#    therefore?
# 2. Write 1e-2 for 1e-10 in `by_exp`, `in_float16` and `in_bfloat16`. Is one of them right now?
# 3. In `draft_and_score`, write `q_draft.append(probs(logits))`, so that the draft model stays at T
#    = 1. Is the text at T = 0 still the greedy one? How many calls does it take now?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *The same to the last bit* asks how exact a text can be if numbers are rounded.
