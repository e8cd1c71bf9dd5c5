# %% [markdown]
# # 1. A distribution is a die
#
# **What does a language model hand us, and what do we do with it?**
#
# A language model does not hand us a word.
# It hands us a number for every token that it knows: the probability that this token comes next.
# All these numbers together are a *distribution*. They add up to 1.
# Somebody has to draw a token from it, as one throws a die. This lesson builds that function.
#
# All of speculative decoding is about one thing: to ask the big model less often, and to draw
# tokens with the very same probabilities.

# %%
import torch

import figures
from kit import table
from nanospec.files import load_pair
from nanospec.probs import probs

target, draft, tokenizer = load_pair()      # this lesson uses the target only: the big model
prompt = "import os\nfor i in"
ids = tokenizer.encode(prompt)
with torch.inference_mode():
    p_target = probs(target(torch.tensor([ids]))[0, -1]).double()           # (V,)

print(f"behind {prompt!r}, of {len(p_target)} tokens:")
best = p_target.topk(6).indices.tolist()
names = [repr(tokenizer.decode([token])) for token in best]
for token, name in zip(best, names):        # tokens are pieces of words: " r" may become " range"
    print(f"  {name:12} {p_target[token]:.3f}")

# %% [markdown]
# ## One uniform number, one token
#
# Lay the probabilities end to end on a line from 0 to 1. Each token has its piece of the line.
# Now take a number u, anywhere on that line with equal chance.
# The token whose piece it hits is drawn.
# `cumsum` finds the ends of the pieces.
#
# The comparison is strict. A token of probability 0 has a piece of no length.
# Not even u = 0 may hit it.
#
# *Guess first:* weights [2, 0, 6] and u = 0.25. The pieces end at 2, 2 and 8. Which index is drawn?

# %%
def pick(weights, u):
    """The first index whose cumulative weight exceeds u * total: [2, 0, 6] and 0.25 give 2."""
    ends = weights.cumsum(0)
    return int((ends > u * ends[-1]).nonzero()[0])


def flip(prob, u):
    """True with probability prob: never at 0, always at 1. We call it a coin."""
    return u < prob


assert pick(torch.tensor([2.0, 0.0, 6.0]), 0.25) == 2
assert pick(torch.tensor([0.0, 1.0]), 0.0) == 1
assert not flip(0, 0.0) and flip(1, 0.999)

# %% [markdown]
# ## Draw 10,000 times
#
# These are the only random numbers of this lesson.
# Give `pick` the same numbers again, and it draws the same tokens. That is what a seed is for.

# %%
draws = 10_000
chance = torch.Generator().manual_seed(1)
u = torch.rand(draws, generator=chance, dtype=torch.float64)
drawn = torch.tensor([pick(p_target, number) for number in u])
shares = torch.bincount(drawn, minlength=len(p_target)) / draws

# %% [markdown]
# ## How far apart are two distributions?
#
# *Total variation* is half the sum of all differences.
# It is the probability that has to be moved to turn one distribution into the other.
# It is 0 when they are equal. It is 1 when they have no token in common.
# This whole course measures with it.
#
# Draws never hit the distribution exactly.
# The distance shrinks about like 1 / sqrt(number of draws).
# (A little more slowly, while there are tokens too rare to have come at all.)
#
# *Guess first:* 100 draws are about 0.3 off. How far off are 10,000?
# Remember the answer when somebody shows you two texts that look alike (lesson 13).


# %%
def total_variation(one, other):
    """[.5, .5] and [.8, .2] are .3 apart."""
    return (one - other).abs().sum().item() / 2


sizes = [100, 300, 1_000, 3_000, 10_000]
distances = [total_variation(torch.bincount(drawn[:n], minlength=len(p_target)) / n, p_target)
             for n in sizes]

rows = [[name, f"{p_target[token]:.3f}", f"{shares[token]:.3f}"]
        for name, token in zip(names, best)]
rows.append(["all others", f"{1 - p_target[best].sum():.3f}", f"{1 - shares[best].sum():.3f}"])
table(["token", "probability", f"share of {draws:,} draws"], rows)
table(["draws", "total variation"], [[f"{n:,}", f"{far:.3f}"] for n, far in zip(sizes, distances)])

figures.draws(names, p_target[best], shares[best], sizes, distances)

# %% [markdown]
# ## Three things to know
#
# 1. A model hands us a distribution. A uniform number and `pick` make a token of it.
# 2. One decision takes one uniform number. The same numbers give the same text.
# 3. Total variation says how far apart two distributions are. Samples alone measure it badly.
#
# ## Change this and run again
#
# 1. Try another `prompt`. Where is the model sure, and where is it not?
# 2. Write `temperature=0.5`, then `temperature=2`, inside `probs(...)`. Which way do the bars move?
# 3. Replace `>` by `>=` in `pick`. Which assert complains? Would you have noticed without it?
#
# The answers are in `lessons/answers/01_a_distribution_is_a_die.md`.
#
# Next: lesson 2 writes a text with this die. Exercises: 1 (pick), 2 (total variation).
