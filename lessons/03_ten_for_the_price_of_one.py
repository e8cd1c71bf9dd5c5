# %% [markdown]
# # Ten for the price of one
#
# **Why do ten tokens in one call cost little more than one, and are the answers the same?**
#
# In *One token per call*, every call fetched all weights and did little with them. Suppose that
# something proposes the next ten tokens, the *draft tokens*. The target can read all ten in one
# call and return the distribution after each of them, and these distributions are what we need in
# order to accept or reject a draft token. This lesson asks what such a call costs and whether its
# answers can be trusted.

# %%
from math import log
from statistics import median
from time import perf_counter

import torch

import figures
from kit import Quiet, table
from nanospec.fast.clock import step_seconds
from nanospec.files import load_pair
from nanospec.probs import probs

torch.set_num_threads(1)                                        # one core, as before
target, draft_model, tokenizer = load_pair()

# %% [markdown]
# ## The price: v(m)
#
# We time calls on m tokens that follow a text of 256 tokens. That text is already in the cache, so
# a call reads only the m new tokens. Which tokens they are does not change the time, so we take
# zeros. (`cache.length` tells how many tokens the cache holds. *The cache* explains it.)
#
# v(m) is the time of a call on m tokens divided by the time of a call on one. If m tokens cost as
# much as m calls, v(m) is m. If further tokens are free, v(m) is 1.
#
# *Guess first:* is v(10) nearer to 1 or nearer to 10?


# %%
def call_on(m, context=256):
    """A call on m tokens after `context` others, ready to run: call_on(10)() gives (1, 10, V)."""
    cache = target.new_cache(1, context + m)
    cache.length += context                                     # as if the text had been read
    new = torch.zeros(1, m, dtype=torch.int64)
    return lambda: target(new, cache, context + m)              # looks at context + m tokens


context, sizes = 256, [1, 2, 5, 7, 10, 12, 16, 32, 64]
calls = {m: call_on(m, context) for m in sizes}
taken = {m: [] for m in sizes}
quiet = Quiet(lambda: step_seconds(target, repeats=3))          # warns if the machine is busy
with torch.inference_mode():
    for turn in range(8):       # alternately: a slow machine is slow for all sizes
        for m in sizes:
            began = perf_counter()
            calls[m]()
            taken[m].append(perf_counter() - began)

# %%
seconds = {m: median(taken[m][2:]) for m in sizes}              # the first two turns warm up
v = {m: seconds[m] / seconds[1] for m in sizes}
table(["m, tokens in the call", "ms", "v(m)", "ms, m calls", "ms a token"],
      [[m, f"{1e3 * seconds[m]:.2f}", f"{v[m]:.2f}", f"{1e3 * seconds[1] * m:.2f}",
        f"{1e3 * seconds[m] / m:.2f}"] for m in sizes],
      f"after {context} tokens; threads: {torch.get_num_threads()}, {target.dtype}")
print(f"a call on ten tokens takes {v[10]:.2f} times as long as a call on one; "
      f"ten calls take 10 times as long")

# %% [markdown]
# *Answer:* nearer to 1. Fetching the weights and calling torch's functions cost the same for one
# token and for ten.
#
# ## Where does the gain come from?
#
# Ten calls multiply each matrix by ten vectors, one at a time, and fetch the matrix each time. One
# call multiplies the matrix by a matrix of ten columns and fetches it only once. The results are
# the same. Where "ms a token" no longer falls, arithmetic has become the limit, and v(m) rises in
# proportion to m. On some machines that begins beyond the last line of the table. (*A full batch*
# computes where.)
#
# (v(2) may even come out slightly below 1, since torch uses different programs for one vector and
# for two.)

# %%
weight = target.head.weight                                     # (V, C)
x = torch.linspace(-1, 1, 10 * weight.shape[1]).view(10, -1)    # ten vectors
ten_times = torch.stack([weight @ vector for vector in x])
at_once = x @ weight.T
assert torch.allclose(ten_times, at_once, atol=1e-4)

# %% [markdown]
# ## Are the answers the same?
#
# Now we take ten tokens of a real text and compare one call on ten tokens with ten calls on one
# token. The result is ten distributions: number 0 is the one after the first of the ten tokens, and
# number 9 the one after the last. We use float64 again, so a difference above 1e-12 would be a
# mistake and not rounding.

# %%
exact = load_pair(dtype=torch.float64).target
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in os.listdir(top):\n"
                       "        yield os.path.join(top)")
prompt, ten = ids[:-10], ids[-10:]


@torch.inference_mode()
def distributions(*parts):
    """Read each part in one call, after the prompt -> (10, V): what follows each of ten tokens."""
    cache = exact.new_cache(1, len(ids))
    found = []
    for part in (prompt, *parts):
        found.append(probs(exact(torch.tensor([part]), cache)[0]))
        cache.length += len(part)                               # explained in "The cache"
    return torch.cat(found[1:])                                 # without those in the prompt


one_call = distributions(ten)
ones = [[token] for token in ten]
ten_calls = distributions(*ones)
gap = (one_call - ten_calls).abs().max().item()
print(f"\nlargest difference of a probability, one call on ten tokens against ten calls on one: "
      f"{gap:.1e}")
assert gap < 1e-12

# %% [markdown]
# ## Why are they the same? Attention, with a mask
#
# In a transformer, only *attention* lets one token look at others. Each token asks with a *query*
# and offers a *key* and a *value*; all three are vectors. The product of a query and a key is an
# *attention score*. `softmax` turns the scores of one query into shares that add up to 1, and the
# answer is the mean of the values, weighted with these shares. (Each score is divided by the square
# root of D, the length of a key, so that longer vectors do not produce larger scores.)
#
# A worked number: two keys have the scores 0 and log 3, so their shares are 1/4 and 3/4. With the
# values 0 and 8 the answer is 1/4 * 0 + 3/4 * 8 = 6.
#
# An *attention mask* says which tokens a token attends to: itself and those before it. Every other
# token gets the score minus infinity and thereby the share 0.


# %%
def attend(queries, keys, values, attention_mask=None):
    """queries (..., n, D), keys and values (..., S, D) -> (..., n, D): means of the values."""
    scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5        # (..., n, S)
    if attention_mask is not None:                                              # (n, S) bool
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    return scores.softmax(-1) @ values


query, two_keys = torch.tensor([[1.0]]), torch.tensor([[0.0], [log(3)]])
answer = attend(query, two_keys, torch.tensor([[0.0], [8.0]]))
assert abs(answer.item() - 6) < 1e-6

# %% [markdown]
# ## The mask of the library
#
# Here are four tokens in one call, after three tokens of a text. The cache has a *slot* for each
# token, a place for its key and its value.
#
# *Guess first:* to how many of the 7 tokens does the first of the four attend?

# %%
cache = exact.new_cache(1, 7)
cache.length += 3
mask = cache.causal_mask(cache.next_slots(4), 7)[0]             # (4, 7), nanospec/cache.py
print("\ntokens 3 to 6, and to which of the tokens 0 to 6 each of them attends (o):")
for line in mask.tolist():
    print("  ", " ".join("o" if seen else "." for seen in line))

# %% [markdown]
# *Answer:* to four of them: the three tokens before it, and itself.
#
# With this mask, each token gets what it would get in a call on only the tokens that it attends to.
# We check this with `attend` on random vectors: one call with the mask against four calls without.

# %%
chance = torch.Generator().manual_seed(3)
keys, values = torch.randn(2, 7, 8, generator=chance, dtype=torch.float64)      # of all seven
queries = torch.randn(4, 8, generator=chance, dtype=torch.float64)              # of the last four
together = attend(queries, keys, values, mask)
for i in range(4):
    seen = 4 + i                                                # tokens 0 to 3 + i
    alone = attend(queries[i:i + 1], keys[:seen], values[:seen])
    assert (alone - together[i]).abs().max() < 1e-12

# %% [markdown]
# ## What if one of the ten is wrong?
#
# The distribution after a token cannot know what follows it. Other tokens may stand there, or none
# at all. To see this, we replace one of the ten tokens and ask again in one call. Total variation
# measures how far each distribution moves.
#
# *Guess first:* which distributions move if we replace token 6 of the tokens 0 to 9?

# %%
place = 6
other = (ten[place] + 1) % exact.config.vocab_size              # any other token
wrong = ten[:place] + [other] + ten[place + 1:]
moved = ((distributions(wrong) - one_call).abs().sum(-1) / 2).tolist()
table(["after token", *map(str, range(10))], [["moved by", *[f"{far:.2g}" for far in moved]]],
      f"total variation; token {place} was replaced")
assert max(moved[:place], default=0) < 1e-12 < min(moved[place:])

# %% [markdown]
# *Answer:* 6 to 9: the one after the replaced token, and all later ones. The others do not move at
# all.
#
# A wrong draft token does no harm to the distributions before it, and they can be used. Those from
# the wrong token onward belong to a different text and must be thrown away. This is all that
# speculative decoding needs from the target.
#
# ## The picture
#
# On the left, v(m) lies between the lines "a call for each token" and "further tokens are free". On
# the right you see which distributions a replaced token moves.

# %%
figures.ten_in_one_call(v, moved, place)
quiet.tell("v(5) was 1.40 and v(7) 1.46 (one core of an AMD EPYC, Zen 3)")

# %% [markdown]
# ## Three things to know
#
# 1. v(m) is the time of a call on m tokens divided by that of a call on one, and it stays well
#    below m.
# 2. One call on ten tokens gives the same distributions as ten calls on one.
# 3. The distribution after a token depends on this token and those before it. A wrong token spoils
#    the distribution after it and all later ones.
#
# ## Change this and run again
#
# 1. Write `context = 4096`: a longer text, the same weights. Does v(10) fall or rise?
# 2. Write `target = draft_model` right below the line with `load_pair()`. Is the v(m) of a small
#    model better, worse, or about the same?
# 3. Write `place = 0`, then `place = 9`. How many distributions move?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *The cache* builds the cache that this lesson has used.
