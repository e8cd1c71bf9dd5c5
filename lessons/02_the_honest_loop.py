# %% [markdown]
# # 2. The honest loop
#
# **Why does a model write so slowly, and what is it waiting for?**
#
# Lesson 1 drew one token. A text is the same again and again: ask the model for the law, throw the die, append the
# token. No token can be drawn before the one in front of it is known, so 100 tokens need 100 calls of the model, one
# after the other. Such a call is a *pass*. Here is the loop in its most obvious form, then the library's, then what a
# pass waits for; all of it on one core, so that the figures can be compared.

# %%
from dataclasses import replace
from statistics import median

import torch

from kit import BLUE, FAINT, GREEN, INK, RED, OneRow, picture, save, table
from nanospec import GPT, load_pair
from nanospec.bench.roofline import bandwidth, matrix_rate, weight_bytes
from nanospec.fast.clock import median_seconds, step_seconds, timed
from nanospec.generate import generate
from nanospec.probs import probs

torch.set_num_threads(1)
target, draft, tokenizer = load_pair()
ids = tokenizer.encode("import os\nfor i in")


def loop(model, ids, new, chance):
    """Yield `new` tokens behind `ids`: behind 5 tokens, 3 new ones take passes over 5, 6 and 7 tokens."""
    ids = list(ids)
    for _ in range(new):
        with torch.inference_mode():
            logits = model(torch.tensor([ids]))                     # (1, T, V): a row a token, only the last is used
        token = chance.pick(probs(logits[0, -1]))                   # lesson 1
        ids.append(token)
        yield token


# %% [markdown]
# ## What it does twice
#
# It reads the whole text again for every token. `generate` in `nanospec/generate.py` keeps what it has read in a
# *cache* (lesson 4) and reads only the newest token. The same uniforms give the same text. (Compared in float64: two
# orders of adding up differ in their last digits, and a dart could land in between.)

# %%
exact = load_pair(dtype=torch.float64).target
assert list(loop(exact, ids, 16, OneRow(seed=2))) == list(generate(exact, ids, 16, seed=2))

new, group = 48, 8          # tokens; of each group the fastest, for what else a machine does can only add
text, without_cache = timed(loop(target, ids, new, OneRow(seed=2)))
with_cache = timed(generate(target, ids, new, seed=2))[1]           # seconds for each token
print(f"the prompt and {new} tokens behind it:\n\n{tokenizer.decode(ids + text)}")
starts = range(0, new, group)
slow, cached = ([1e3 * min(taken[at:at + group]) for at in starts] for taken in (without_cache, with_cache))
print(f"\na token among the first {group}: {slow[0]:5.1f} ms without a cache, {cached[0]:5.1f} ms with"
      f"\na token among the last {group}:  {slow[-1]:5.1f} ms without a cache, {cached[-1]:5.1f} ms with")

# %% [markdown]
# ## The floor
#
# With the cache a token costs about the same wherever it stands. It still needs every one of the model's *weights*,
# the numbers that training has set. They lie in memory, which hands out so many bytes a second and no more: its
# *bandwidth*. Bytes divided by bandwidth is a floor, however well the program is written.

# %%
weights = sum(weight.numel() for weight in target.parameters())
size = weights * target.dtype.itemsize                              # in float32, four bytes each
assert size == weight_bytes(target)                                 # nanospec/bench/roofline.py
rate, took = bandwidth(size, target.device), median(cached) / 1e3   # bytes a second, seconds a token
floor = size / rate

# %% [markdown]
# Our target is small, and well above its floor. Two measurements say why: its matrices times one vector each, since
# dozens of small products do not read as fast as one long sum; and all of its operations on next to no weights, which
# is what calling them costs. A big model is different: one matrix as it might have dozens of stays closer to its
# bytes, and so does a whole model (`python -m nanospec.bench large`).

# %%
matrices = [(weight, weight.new_ones(weight.shape[1])) for weight in target.parameters() if weight.dim() == 2]
products = median_seconds(lambda: [matrix @ vector for matrix, vector in matrices], target.device, repeats=15)
thin = GPT(replace(target.config, channels=40, hidden=108)).requires_grad_(False)           # its weights do not matter
called = step_seconds(thin, repeats=15)
big, vector, big_size = torch.ones(8192, 8192), torch.ones(8192), 4 * 8192 ** 2
big_rate, big_took = bandwidth(big_size, big.device), median_seconds(lambda: big @ vector, big.device, repeats=10)

# %% [markdown]
# ## The roofline
#
# The other limit is arithmetic. A weight that has arrived costs two operations a token, a multiplication and an
# addition. One token a pass is half an operation for each byte of float32, and a core can do more than that by the
# time the next byte is there. Put m tokens into one pass and each byte serves m of them. The *roofline* draws both
# limits: what the bytes allow, rising, and what the arithmetic allows, flat. The points are passes over m tokens.

# %%
most = matrix_rate(target.dtype, target.device)                     # operations a second, in a product of big matrices
per_byte = [2 * m / target.dtype.itemsize for m in (1, 4, 16)]
reached = [2 * weights * m / step_seconds(target, m, repeats=15) for m in (1, 4, 16)]
table(["quantity", "value", "times its floor"], [
    [f"bytes of {weights / 1e6:.1f} million weights, all needed for a token", f"{size / 1e6:.0f} MB", ""],
    ["bandwidth, reading that many bytes", f"{rate / 1e9:.1f} GB/s", ""],
    ["floor of a token: bytes / bandwidth", f"{1e3 * floor:.2f} ms", "1.0"],
    ["a token, with cache", f"{1e3 * took:.2f} ms", f"{took / floor:.1f}"],
    [f"its {len(matrices)} matrices times a vector, no more", f"{1e3 * products:.2f} ms", f"{products / floor:.1f}"],
    [f"its calls, on 1/{size / weight_bytes(thin):.0f} of the bytes", f"{1e3 * called:.2f} ms", ""],
    [f"one matrix of {big_size / 1e6:.0f} MB times a vector", f"{1e3 * big_took:.2f} ms",
     f"{big_took * big_rate / big_size:.1f}"],
    ["operations per byte, one token a pass", f"{per_byte[0]:.1f}", ""],
    ["operations per byte this core can do", f"{most / rate:.1f}", ""],
], f"threads: {torch.get_num_threads()}, {target.dtype}")

# %%
figure, (left, right) = picture("2. the honest loop", 2)
for taken, colour, label in [(slow, RED, "reading it all again"), (cached, GREEN, "with a cache")]:
    left.plot([len(ids) + at + group / 2 for at in starts], taken, color=colour, marker="o", linewidth=2, label=label)
left.axhline(1e3 * floor, color=BLUE, linestyle="--", linewidth=2, label="floor: bytes / bandwidth")
left.set(xlabel="length of the text, tokens", ylabel="ms for the next token", ylim=(0, None))
x = torch.logspace(-1, 1.5, 50).tolist()                            # operations per byte
for memory, colour, line, label in [(rate, BLUE, "-", "target"), (big_rate, FAINT, ":", "big matrix")]:
    right.loglog(x, [min(most, memory * at) / 1e9 for at in x], color=colour, linestyle=line, linewidth=2,
                 label=f"the most: bytes of the {label}")
right.loglog(per_byte, [high / 1e9 for high in reached], color=GREEN, marker="o", linewidth=2, label="target, m tokens")
right.loglog(0.5, big_size / 2 / big_took / 1e9, color=INK, marker="s", linestyle="", label="big matrix, one token")
for m, at, high in zip((1, 4, 16), per_byte, reached):
    right.annotate(f"m = {m}", (at, high / 1e9), xytext=(6, -12), textcoords="offset points", color=GREEN)
right.set(xlabel="operations per byte", ylabel="billion operations a second", ylim=(0.5, None))
for axis in (right.xaxis, right.yaxis):
    axis.set_major_formatter("{x:g}")
for axes in (left, right):
    axes.legend(frameon=False)
save(figure, "02_the_honest_loop")

# %% [markdown]
# **Change this and run again.** `torch.set_num_threads(2)`, on a machine with nothing else to do: which rows move?
# `target = draft` right after loading: it has a ninth of the weights; is it nine times as fast?
# `load_pair(dtype=torch.bfloat16)` for the pair halves its bytes: does that halve a token?
#
# Next: lesson 3 puts ten tokens into one pass and looks at the clock. Exercises: none yet.
