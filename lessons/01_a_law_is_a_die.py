# %% [markdown]
# # 1. A law is a die
#
# **What does a language model hand us, and what do we do with it?**
#
# It hands us no word. It hands us a number for every token it knows: the probability that this token comes next.
# We call that list the model's *law*. Somebody has to throw the die, and this lesson builds the one that does.
# All of speculative decoding is about throwing it less often without anyone noticing.

# %%
import torch

from kit import BLUE, FAINT, GREEN, bars, picture, save, table
from nanospec import load_pair
from nanospec.probs import probs

target, draft, tokenizer = load_pair()
prompt = "import os\nfor i in"
ids = tokenizer.encode(prompt)
with torch.inference_mode():
    p_target = probs(target(torch.tensor([ids]))[0, -1]).double()           # (V,): the law of the next token

print(f"behind {prompt!r}, of {len(p_target)} tokens:")
best = p_target.topk(6).indices.tolist()
for token in best:                          # tokens are pieces of words: " r" is on its way to " range"
    print(f"  {tokenizer.decode([token])!r:12} {p_target[token]:.3f}")

# %% [markdown]
# ## Picking: one uniform number, one token
#
# Lay the probabilities end to end on a line from 0 to 1. Throw a dart: a number u, anywhere on that line with equal
# chance. Take the token whose piece it hits. `cumsum` finds the ends of the pieces.
#
# The comparison is strict: a token of probability 0 has a piece of no length, and must not be hit even by u = 0.

# %%
def pick(weights, u):
    """The first index whose cumulative weight exceeds u times the total: [2, 0, 6] and u = 0.25 give 2."""
    ends = weights.cumsum(0)
    return int((ends > u * ends[-1]).nonzero()[0])


def flip(prob, u):
    """A coin that falls True with probability prob: never at 0, always at 1."""
    return u < prob


assert pick(torch.tensor([2.0, 0.0, 6.0]), 0.25) == 2
assert pick(torch.tensor([0.0, 1.0]), 0.0) == 1
assert not flip(0, 0.0) and flip(1, 0.999)

# %% [markdown]
# ## Throw it 10,000 times
#
# The only random numbers of this lesson are these. Give `pick` the same ones again and it says the same tokens again:
# that is what a seed is.

# %%
throws = 10_000
chance = torch.Generator().manual_seed(1)
u = torch.rand(throws, generator=chance, dtype=torch.float64)
drawn = torch.tensor([pick(p_target, dart) for dart in u])
shares = torch.bincount(drawn, minlength=len(p_target)) / throws


# %% [markdown]
# ## How far apart are two laws?
#
# *Total variation*: half the sum of all differences. It is the probability mass that would have to be moved to turn
# one law into the other: 0 when they are the same, 1 when they have no token in common. It is the yardstick of this
# whole course.
#
# Draws never hit the law exactly. The distance shrinks like 1 / sqrt(number of draws), a little slower while there are
# tokens too rare to have come at all: for one digit more you need a hundred times as many. Remember that when somebody
# shows you two texts that look alike (lesson 11).


# %%
def total_variation(one, other):
    return (one - other).abs().sum().item() / 2


sizes = [100, 300, 1_000, 3_000, 10_000]
distances = [total_variation(torch.bincount(drawn[:n], minlength=len(p_target)) / n, p_target) for n in sizes]

rows = [[repr(tokenizer.decode([token])), f"{p_target[token]:.3f}", f"{shares[token]:.3f}"] for token in best]
rest = 1 - p_target[best].sum(), 1 - shares[best].sum()
table(["token", "law", f"share of {throws:,} throws"], rows + [["all others", f"{rest[0]:.3f}", f"{rest[1]:.3f}"]],
      f"total variation over all {len(p_target)} tokens: {distances[-1]:.3f}")

# %%
figure, (left, right) = picture("1. a law is a die", 2)
bars(left, [repr(tokenizer.decode([token])) for token in best],
     (p_target[best], BLUE, "the law"), (shares[best], GREEN, f"{throws:,} throws"))
left.set_ylabel("probability")
right.loglog(sizes, distances, color=GREEN, marker="o", linewidth=2, label="throws against the law")
right.loglog(sizes, [distances[0] * (sizes[0] / n) ** 0.5 for n in sizes], color=FAINT, linestyle=":", linewidth=2,
             label="1 / sqrt(throws)")
right.set_xlabel("number of throws")
right.set_ylabel("total variation")
right.legend(frameon=False)
save(figure, "01_a_law_is_a_die")

# %% [markdown]
# **Change this and run again.** Another `prompt`: where is the model sure, where is it not? `temperature=0.5` or `2`
# inside `probs(...)`: which way do the bars move? Replace `>` by `>=` in `pick`: which assert complains, and how often
# would you have noticed without it?
#
# Next: lesson 2 writes a text with this die. Exercises: 1 (pick), 2 (total variation).
