# %% [markdown]
# # A distribution is a die
#
# **What does a language model give us, and what do we do with it?**
#
# A language model does not give us a word. It gives us one number for every token that it knows:
# the probability that this token comes next. Together these numbers are a *distribution*, and they
# add up to 1. To write text, a program must draw a token from the distribution, as one throws a
# die. This lesson builds the function that does so.
#
# Speculative decoding asks the big model less often and still draws tokens with exactly these
# probabilities.

# %%
import torch

import figures
from kit import table
from nanospec.files import load_pair
from nanospec.probs import probs

target, draft_model, tokenizer = load_pair()      # this lesson uses the target only: the big model
prompt = "import os\nfor i in"
ids = tokenizer.encode(prompt)
with torch.inference_mode():
    p_target = probs(target(torch.tensor([ids]))[0, -1]).double()           # (V,)

print(f"after {prompt!r}, out of {len(p_target)} tokens:")
best = p_target.topk(6).indices.tolist()
names = [repr(tokenizer.decode([token])) for token in best]
for token, name in zip(best, names):        # tokens are pieces of words: " r" may become " range"
    print(f"  {name:12} {p_target[token]:.3f}")

# %% [markdown]
# ## One uniform number, one token
#
# Lay the probabilities end to end on a line from 0 to 1, so that each token owns a piece of the
# line. Then take a number u that is uniform on that line, and draw the token whose piece it hits.
# `cumsum` finds where the pieces end.
#
# We take the first piece that ends above u. If it could end at u, then u = 0 would draw a token of
# probability 0, whose piece has length 0.
#
# A decision between two outcomes needs only one comparison. We call it a *coin*: it falls on a
# uniform number u, and says yes if u is below its *threshold*, the probability of yes. Everything
# that makes random decisions is called *dice*.
#
# *Guess first:* take the numbers [2, 0, 6] (*weights*: they need not add up to 1) and u = 0.25. The
# pieces end at 2, 2 and 8, so which index is drawn?

# %%
def pick(weights, u):
    """The first index whose cumulative weight exceeds u * total: [2, 0, 6] and 0.25 give 2."""
    ends = weights.cumsum(0)
    return int((ends > u * ends[-1]).nonzero()[0])


def flip(threshold, u):
    """A coin that fell on u: true with probability threshold, so never at 0 and always at 1."""
    return u < threshold


assert pick(torch.tensor([2.0, 0.0, 6.0]), 0.25) == 2
assert pick(torch.tensor([0.0, 1.0]), 0.0) == 1
assert not flip(0, 0.0) and flip(1, 0.999)

# %% [markdown]
# *Answer:* index 2. u falls on 0.25 * 8 = 2. The pieces of index 0 and index 1 end there, too, and
# an end must lie beyond it.
#
# ## Draw 10,000 times
#
# These are the only random numbers of this lesson. If `pick` gets the same numbers again, it draws
# the same tokens, and that is the purpose of a seed.

# %%
draws = 10_000
chance = torch.Generator().manual_seed(1)
u = torch.rand(draws, generator=chance, dtype=torch.float64)
drawn = torch.tensor([pick(p_target, number) for number in u])
shares = torch.bincount(drawn, minlength=len(p_target)) / draws

# %% [markdown]
# ## How far apart are two distributions?
#
# *Total variation* is half the sum of all differences. It is the probability that must be moved to
# turn one distribution into the other: 0 if they are equal, and 1 if they have no token in common.
# The whole course measures with it.
#
# The shares of a sample never match the distribution exactly. The distance shrinks roughly like 1 /
# sqrt(number of draws), and somewhat more slowly as long as the rarest tokens have not appeared at
# all.
#
# *Guess first:* 100 draws are about 0.2 off. How far off are 10,000? Remember the answer when
# someone shows you two similar texts as a proof that a sampler is right (*How to test a sampler*).


# %%
def total_variation(one, other):
    """[.5, .5] and [.8, .2] are .3 apart."""
    return (one - other).abs().sum().item() / 2


sizes = [100, 300, 1_000, 3_000, 10_000]
distances = [total_variation(torch.bincount(drawn[:n], minlength=len(p_target)) / n, p_target)
             for n in sizes]

lines = [[name, f"{p_target[token]:.3f}", f"{shares[token]:.3f}"]
         for name, token in zip(names, best)]
lines.append(["all others", f"{1 - p_target[best].sum():.3f}", f"{1 - shares[best].sum():.3f}"])
table(["token", "probability", f"share of {draws:,} draws"], lines)
table(["draws", "total variation"], [[f"{n:,}", f"{far:.3f}"] for n, far in zip(sizes, distances)])

figures.draws(names, p_target[best], shares[best], sizes, distances)

# %% [markdown]
# *Answer:* still more than two hundredths. With a hundred times as many draws the distance is some
# eight times smaller, and not even ten.
#
# ## Three things to know
#
# 1. A model returns a distribution, and a uniform number and `pick` turn it into a token.
# 2. One decision uses one uniform number, so the same numbers give the same text.
# 3. Total variation measures how far apart two distributions are, and a sample estimates it badly.
#
# ## Change this and run again
#
# 1. Try another `prompt`. Where is the model sure, and where is it not?
# 2. Write `temperature=0.5`, then `temperature=2`, inside `probs(...)`. Which way do the bars move?
# 3. Replace `>` by `>=` in `pick`. Which assert complains, and would you have noticed without it?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *One token per call* writes a text with this die. Exercises: 1 (pick), 2 (total
# variation).
