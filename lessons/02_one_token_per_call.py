# %% [markdown]
# # 2. One token per call
#
# **Why does a model write so slowly, and what is it waiting for?**
#
# Lesson 1 drew one token from one distribution.
# A text is the same again and again: ask the model, draw a token, append it, ask again.
# To ask the model once is a *call*. A call of the target is a *target call*.
#
# Nobody can draw a token before the token in front of it is known.
# So 100 tokens need 100 calls, one after the other.
# This lesson writes that loop. Then it measures what a call waits for.
# All of it runs on one core of the machine, so that the times can be compared.

# %%
from dataclasses import replace
from statistics import median

import torch

import figures
from kit import OneRow, Quiet, table
from nanospec import GPT
from nanospec.bench.roofline import bandwidth, matrix_rate, weight_bytes
from nanospec.fast.clock import median_seconds, step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.probs import probs

torch.set_num_threads(1)
target, draft, tokenizer = load_pair()
ids = tokenizer.encode("import os\nfor i in")

# %% [markdown]
# ## The loop
#
# The model takes a text as token numbers. It answers with *logits*: one row of scores per token.
# Row t scores every token that could follow token t.
# `probs` makes a distribution of a row.
# To write on, we need only the last row: it stands behind the last token.
#
# The function takes `dice`. All random numbers come from there.
# `OneRow(seed=2)` of `kit.py` is such an object.
# Its `pick` is lesson 1's `pick`, and it brings its own numbers u.
#
# `timed` runs the loop. It gives the tokens, and the seconds that each of them took.


# %%
def loop(model, ids, new, dice):
    """Yield `new` tokens behind `ids`: behind 5 tokens, 3 new ones take calls on 5, 6, 7 tokens."""
    ids = list(ids)                                             # NEW
    for _ in range(new):                                        # NEW
        with torch.inference_mode():
            logits = model(torch.tensor([ids]))                 # (1, T, V): a row for each token
        p_target = probs(logits[0, -1])                         # (V,)
        token = dice.pick(p_target)
        ids.append(token)                                       # NEW
        yield token                                             # NEW


new = 48
quiet = Quiet(lambda: step_seconds(target, repeats=3))          # is the machine busy? It says so
text, without_cache = timed(loop(target, ids, new, OneRow(seed=2)))
print(f"the prompt and {new} tokens behind it:\n\n{tokenizer.decode(ids + text)}")

# %% [markdown]
# ## The loop reads everything again
#
# The loop gives the model the whole text for every new token.
# Behind 5 tokens, 3 new ones make it read 5 + 6 + 7 = 18 tokens.
#
# `generate` in `nanospec/generate.py` does not. It keeps what the model has computed, in a *cache*.
# (Lesson 4 builds a cache.) It reads each token once: first the prompt but for its last token,
# then one token per call.
# Behind 5 tokens, 3 new ones make it read 4 + 1 + 1 + 1 = 7 tokens.
#
# With the same dice, both must write the same text. We compare them in float64.
# In float32 the two ways of adding up differ in the last digits.
# A number u could fall just between, and two different tokens would be drawn.
#
# A *hook* counts for us: torch runs it before every call of the model.
#
# *Guess first:* 16 new tokens. Does the loop read 2, 10 or 100 times as many tokens as `generate`?

# %%
exact = load_pair(dtype=torch.float64).target
read = []                       # how many tokens each call of `exact` reads
hook = exact.register_forward_pre_hook(lambda model, given: read.append(given[0].shape[1]))
by_loop = list(loop(exact, ids, 16, OneRow(seed=2)))
read_by_loop = list(read)
read.clear()
by_generate = list(generate(exact, ids, 16, seed=2))
read_by_generate = list(read)
hook.remove()

assert by_loop == by_generate
print(f"\n16 tokens behind {len(ids)}, the same text both times")
for name, counts in [("the loop", read_by_loop), ("generate", read_by_generate)]:
    print(f"{name} reads {sum(counts):3} tokens:", *counts)

# %% [markdown]
# ## What does that cost?
#
# Now the 48 tokens once more, with `generate`, and the seconds of both ways.
# Other programs on this machine can only add time.
# So we take the fastest of every 8 tokens.
#
# *Guess first:* which of the two columns grows with the text?

# %%
_, with_cache = timed(generate(target, ids, new, seed=2))

group = 8
starts = range(0, new, group)
slow = [1e3 * min(without_cache[at:at + group]) for at in starts]
cached = [1e3 * min(with_cache[at:at + group]) for at in starts]
table(["new tokens", "ms for one, without a cache", "ms for one, with a cache"],
      [[f"{at + 1} to {at + group}", f"{one:.1f}", f"{other:.1f}"]
       for at, one, other in zip(starts, slow, cached)])

# %% [markdown]
# ## The floor: bytes divided by bandwidth
#
# With a cache, a call reads one token. Why does it still take so long?
# It needs all *weights* of the model. These are the numbers that training has set.
# They lie in memory. Memory hands out only so many bytes per second: its *bandwidth*.
#
# A worked number: 10 million weights of 4 bytes are 40 MB.
# A memory with 20 GB/s hands out 40 MB in 40 / 20,000 seconds, that is 2 ms.
# No program is faster, as long as it fetches every weight for every token.
# We call these 2 ms the *floor*.
#
# `bandwidth` measures the memory of this machine: it adds up that many numbers, several times.
#
# *Guess first:* how many times its floor does a token of our target take?

# %%
weights = sum(weight.numel() for weight in target.parameters())
size = weights * target.dtype.itemsize                          # float32: four bytes each
assert size == weight_bytes(target)                             # nanospec/bench/roofline.py
rate = bandwidth(size, target.device)                           # bytes per second
floor = size / rate                                             # seconds
took = median(cached) / 1e3                                     # seconds per token, with a cache
table(["quantity", "value"], [
    ["weights", f"{weights / 1e6:.1f} million"],
    ["bytes of the weights", f"{size / 1e6:.0f} MB"],
    ["bandwidth, reading that many bytes", f"{rate / 1e9:.1f} GB/s"],
    ["floor of a token: bytes / bandwidth", f"{1e3 * floor:.2f} ms"],
    ["a token, with a cache", f"{1e3 * took:.2f} ms"],
], f"threads: {torch.get_num_threads()}, {target.dtype}")
print(f"a token takes {took / floor:.1f} times its floor")

# %% [markdown]
# ## What keeps a small model above its floor?
#
# Three measurements look for the reason.
#
# 1. All matrices of the target, each times one vector, and nothing else.
#    Dozens of small products do not read as fast as one long sum.
# 2. A *thin* model: as many layers as the target, but hardly any weights.
#    It calls the same torch functions. Its time is the price of calling them.
# 3. One big matrix times one vector. Big models have dozens of such matrices.
#    (`python -m nanospec.bench large` times a whole big model. That takes minutes.)
#
# *Guess first:* which of the three is closest to its floor?

# %%
matrices = [(weight, weight.new_ones(weight.shape[1]))
            for weight in target.parameters() if weight.dim() == 2]
products = median_seconds(lambda: [matrix @ vector for matrix, vector in matrices],
                          target.device, repeats=15)

config = target.config
thin = GPT(replace(config, channels=8 * config.heads, hidden=config.hidden // 8))
called = step_seconds(thin.requires_grad_(False), repeats=15)   # its weights do not matter
thin_floor = weight_bytes(thin) / rate

big, vector = torch.ones(8192, 8192), torch.ones(8192)
big_size = 4 * 8192 ** 2
big_rate = bandwidth(big_size, big.device)
big_took = median_seconds(lambda: big @ vector, big.device, repeats=10)

# %%
rows = [["a token of the target", size, took, floor],
        [f"its {len(matrices)} matrices times a vector", size, products, floor],
        ["a token of the thin model", weight_bytes(thin), called, thin_floor],
        ["one big matrix times a vector", big_size, big_took, big_size / big_rate]]
table(["what is timed", "MB", "ms", "floor, ms", "times its floor"],
      [[name, f"{amount / 1e6:.1f}", f"{1e3 * seconds:.2f}", f"{1e3 * least:.2f}",
        f"{seconds / least:.1f}"] for name, amount, seconds, least in rows])
print(f"to call the torch functions, on hardly any weights, takes {called / took:.0%} "
      f"of a token's time")

# %% [markdown]
# ## The other limit: arithmetic
#
# A weight that has arrived in the core does little work there.
# It takes part in one multiplication and one addition: 2 operations per token.
# A weight of float32 has 4 bytes. One token per call is 2 / 4 = half an operation per byte.
#
# Now put m tokens into one call. Each weight is fetched once and serves all m tokens.
# That is m / 2 operations per byte. So a call has two limits:
#
# - bytes: no more than (operations per byte) times (bytes per second);
# - arithmetic: no more than what the core can compute at all.
#
# *Guess first:* one token per call. Which of the two limits is lower?

# %%
most = matrix_rate(target.dtype, target.device)                 # operations per second
sizes = [1, 4, 16]                                              # m, tokens in one call
per_byte = [2 * m / target.dtype.itemsize for m in sizes]
reached = [2 * weights * m / step_seconds(target, m, repeats=15) for m in sizes]
table(["tokens in a call", "operations per byte", "limit: bytes", "limit: arithmetic", "reached"],
      [[m, f"{each:.1f}", f"{each * rate / 1e9:.1f}", f"{most / 1e9:.1f}", f"{got / 1e9:.1f}"]
       for m, each, got in zip(sizes, per_byte, reached)], "in billion operations per second")
print(f"the limits meet at {most / rate:.1f} operations per byte, "
      f"that is {most / rate * target.dtype.itemsize / 2:.0f} tokens in a call")

# %% [markdown]
# ## The picture
#
# Left: the time of the next token, against the length of the text.
# Right: both limits in one picture. It is called a *roofline*, for its shape.
# Where the roof slopes, a call waits for bytes. Where it is flat, a call waits for arithmetic.

# %%
figures.one_token_per_call([len(ids) + at + group / 2 for at in starts], slow, cached, 1e3 * floor,
                           rate, most, list(zip(sizes, per_byte, reached)),
                           (big_rate, big_size / 2 / big_took))
quiet.tell("a token 5.1 ms with a cache, 2.1 times its floor (one core, 14 million weights)")

# %% [markdown]
# ## Three things to know
#
# 1. A text is a loop. Each token takes one call, and each call waits for the token before it.
# 2. A call fetches all weights. Bytes divided by bandwidth is its floor.
# 3. With one token in a call, a core computes only a small part of what it could.
#
# ## Change this and run again
#
# Times need a quiet machine: nothing else should run.
#
# 1. Write `torch.set_num_threads(2)`. Which rows change, and which hardly?
# 2. Write `target = draft` right below the line with `load_pair()`. How much smaller is the draft
#    model, in weights? Is it faster by the same factor?
# 3. Write `load_pair(dtype=torch.bfloat16)` for the pair (not for `exact`). Each weight now has two
#    bytes. Does a token take half the time?
#
# The answers are in `lessons/answers/02_one_token_per_call.md`.
#
# Next: lesson 3 puts ten tokens into one call and looks at the clock. Exercises: none yet.
