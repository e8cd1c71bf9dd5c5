# %% [markdown]
# # One token per call
#
# **One token per call: where does the time go?**
#
# In *A distribution is a die* we drew one token from one distribution. To write a text, a program
# repeats this: it asks the model, draws a token, appends it and asks again. Asking the model once
# is a *call*, and a call of the target is a *target call*.
#
# No token can be drawn before the token to its left is known, so 100 tokens need 100 calls in
# sequence. This lesson writes the loop and then measures what a call waits for. Everything runs on
# one core, so that the times can be compared.

# %%
from statistics import median

import torch

import figures
from kit import OneRow, Quiet, table
from machine import bandwidth, weight_bytes
from nanospec.fast.clock import step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.probs import probs

torch.set_num_threads(1)
target, draft_model, tokenizer = load_pair()
ids = tokenizer.encode("import os\nfor i in")

# %% [markdown]
# ## The loop
#
# The model takes a text as token numbers and returns *logits*: after each token of the text, a
# score for every token that could follow it. `probs` turns such scores into a distribution. To
# continue the text we need only the scores after its last token.
#
# All random numbers come from the argument `dice`. `OneRow(seed=2)` from `kit.py` is such an
# object: its `pick` does what our `pick` did, but supplies the numbers u itself.
#
# `timed` runs the loop and returns the tokens together with the seconds that each of them took.


# %%
def loop(model, ids, new, dice):
    """Yield `new` tokens after `ids`: after 5 tokens, 3 new ones take calls on 5, 6, 7 tokens."""
    ids = list(ids)                                             # NEW
    for _ in range(new):                                        # NEW
        with torch.inference_mode():
            logits = model(torch.tensor([ids]))                 # (1, T, V): after each token
        p_target = probs(logits[0, -1])                         # (V,)
        token = dice.pick(p_target)
        ids.append(token)                                       # NEW
        yield token                                             # NEW


new = 48
quiet = Quiet(lambda: step_seconds(target, repeats=3))          # warns if the machine is busy
text, without_cache = timed(loop(target, ids, new, OneRow(seed=2)))
print(f"the prompt and {new} tokens after it:\n\n{tokenizer.decode(ids + text)}")

# %% [markdown]
# ## The loop reads everything again
#
# For every new token, the loop gives the model the whole text. To add 3 tokens to a text of 5, the
# model reads 5 + 6 + 7 = 18 tokens.
#
# `generate` in `nanospec/generate.py` avoids this. It keeps what the model has computed in a
# *cache* (built in *The cache*) and reads each token only once: first the prompt except for its
# last token, then one token per call. To add 3 tokens to a text of 5, it reads 4 + 1 + 1 + 1 = 7
# tokens.
#
# With the same dice, both must write the same text. We compare them in float64. In float32 the two
# calls add in different orders, so the probabilities differ in the last digits, and a number u
# between two ends of a piece that differ so little would draw two different tokens.
#
# To count the tokens we use a *hook*, a function that torch runs before every call of the model.
#
# *Guess first:* for 16 new tokens, does the loop read 2, 10 or 100 times as many tokens as
# `generate`?

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
print(f"\n16 tokens after {len(ids)}, the same text both times")
for name, counts in [("the loop", read_by_loop), ("generate", read_by_generate)]:
    print(f"{name} reads {sum(counts):3} tokens:", *counts)

# %% [markdown]
# *Answer:* about 10 times as many. It reads the whole text again for each token, so the factor
# grows with the text.
#
# ## What does that cost?
#
# Now we generate the same 48 tokens with `generate` and compare the times of both loops. Other
# programs on the machine can only add time, so we take the fastest of every 8 tokens.
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
# *Answer:* the one without a cache, where a call reads one token more each time. With a cache each
# call reads one token, however long the text has become. (On a busy machine both columns jump.)
#
# ## The floor: bytes divided by bandwidth
#
# With a cache, a call reads only one token. Why does it still take so long? It needs all *weights*
# of the model, the numbers that training has set. They lie in memory, and memory delivers only a
# limited number of bytes per second, its *bandwidth*.
#
# A worked number: 10 million weights of 4 bytes are 40 MB. A memory with 20 GB/s delivers them in
# 40 / 20,000 seconds, which is 2 ms. No program that fetches every weight for every token can be
# faster. We call these 2 ms the *floor*.
#
# `bandwidth` measures the memory of this machine by summing an array of the same size several
# times.
#
# *Guess first:* how many times its floor does a token of our target take?

# %%
weights = sum(weight.numel() for weight in target.parameters())
size = weights * target.dtype.itemsize                          # float32: four bytes each
assert size == weight_bytes(target)                             # lessons/machine.py
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
# *Answer:* several times its floor. Most of the rest goes into calling hundreds of small torch
# functions, each on little data. In a big model the matrices are large, and
# reading them takes nearly all of the time. There we may say: a call takes as long as its weights
# take to be read. (`python -m tests.release.large` times a big model.)
#
# And arithmetic? A weight that has reached the core does little work there: one multiplication and
# one addition for each token in the call. A core could do many times that while it waits for the
# next weight. The next lesson gives it more to do.
#
# In the picture (`lessons/out/one_token_per_call.png`) the time of the next token is drawn against
# the length of the text: without a cache, with one, and the floor below both.

# %%
figures.one_token_per_call([len(ids) + at + group / 2 for at in starts], slow, cached, 1e3 * floor)
quiet.tell("a token took 23 ms with a cache (one core of an AMD EPYC, Zen 3)")

# %% [markdown]
# ## Three things to know
#
# 1. Text is generated in a loop, in which each token takes one call and each call waits for the
#    token before it.
# 2. A call fetches all weights, and their bytes divided by the bandwidth give its floor.
# 3. A small model takes longer than that, since a call also has its torch functions to call.
#
# ## Change this and run again
#
# The times mean something only while the machine runs nothing else.
#
# 1. Write `torch.set_num_threads(2)`. Which lines change, and which hardly do?
# 2. Write `target = draft_model` right below the line with `load_pair()`. How much smaller is the
#    draft model, in weights? Is it faster by the same factor?
# 3. Write `load_pair(dtype=torch.bfloat16)` for the pair (not for `exact`). Each weight now has two
#    bytes, but does a token take half the time?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Ten for the price of one* puts ten tokens into one call and looks at the clock.
