# %% [markdown]
# # 3. Ten for the price of one
#
# **What does it cost to ask a model about ten tokens at once, and are the answers the same?**
#
# In lesson 2 each token cost a pass, and a pass fetched every weight to do half an operation with each of its bytes. If
# somebody guessed the next ten tokens, one pass could give the laws behind all of them. What would such a pass cost?

# %%
from statistics import median
from time import perf_counter

import torch

from kit import BLUE, GREEN, RED, picture, save, table
from nanospec import load_pair
from nanospec.fast.clock import median_seconds
from nanospec.probs import probs

torch.set_num_threads(1)                                            # as in lesson 2
target, draft, tokenizer = load_pair()
context, sizes = 256, [1, 2, 4, 6, 8, 10, 12, 16, 32, 64]           # NEW


def a_pass(m):                                                      # NEW
    """A pass over m tokens behind 256 others, ready to run: a_pass(10)() gives logits (1, 10, V)."""
    cache = target.new_cache(1, context + m)
    cache.length += context                                         # what the slots hold does not change the time
    return lambda: target(torch.zeros(1, m, dtype=torch.int64), cache, context + m)


taken, passes = {m: [] for m in sizes}, {m: a_pass(m) for m in sizes}
with torch.inference_mode():
    for turn in range(8):           # sizes in turns: when the machine is slow for a while, it is slow for all of them
        for m in sizes:
            began = perf_counter()
            passes[m]()
            taken[m].append(perf_counter() - began)
seconds = {m: median(taken[m][2:]) for m in sizes}                  # the first two turns warm up
v = {m: seconds[m] / seconds[1] for m in sizes}                     # v(m): a pass over m tokens / over one

# %% [markdown]
# v(m) is what we call it from here on. It stays well below m, because weights fetched once serve all the tokens: a
# matrix times one vector, ten times, becomes a matrix times a matrix, once. In the end it begins to rise like m,
# when no longer the fetching but the arithmetic sets the pace: the flat part of the roofline.

# %%
weight, x = target.head.weight, torch.linspace(-1, 1, 10 * 320).view(10, 320)
assert torch.allclose(torch.stack([weight @ row for row in x]), x @ weight.T, atol=1e-4)

# %% [markdown]
# ## Are the answers the same?
#
# Ten tokens of a text, in one pass and one at a time, in float64: what differs should be rounding and nothing else.

# %%
exact = load_pair(dtype=torch.float64).target
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in os.listdir(top):\n        yield os.path.join(top)")
prompt, block = ids[:-10], ids[-10:]


@torch.inference_mode()
def laws(*parts):
    """The laws behind each token of the parts, which follow the prompt: one pass a part, (10, V) for 10 tokens."""
    cache, out = exact.new_cache(1, len(ids)), []
    for part in (prompt, *parts):
        out.append(probs(exact(torch.tensor([part]), cache)[0]))
        cache.length += len(part)
    return torch.cat(out[1:])


one_pass, ten_passes = laws(block), laws(*[[token] for token in block])
gap = (one_pass - ten_passes).abs().max().item()
print(f"largest difference of a probability, one pass over ten tokens against ten passes over one: {gap:.1e}\n")
assert gap < 1e-12

# %% [markdown]
# ## Why they are
#
# Only attention lets tokens look at one another, and it has a *mask*: a token sees itself and what stands before it.
# Its row cannot know whether the tokens behind it are right, or wrong, or not there yet. Here is the mask of four
# tokens behind three (o: sees), and then what moves if one token of the ten is replaced by another.

# %%
cache = exact.new_cache(1, 7)
cache.length += 3
print("tokens 3 to 6, and which of the tokens 0 to 6 each of them sees:")
for row in cache.sees(cache.next_slots(4), 7)[0].tolist():          # nanospec/cache.py
    print("  ", " ".join("o" if seen else "." for seen in row))

place = 6                                                           # from 0
wrong = block[:place] + [(block[place] + 1) % 1024] + block[place + 1:]
moved = ((laws(wrong) - one_pass).abs().sum(-1) / 2).tolist()       # total variation (lesson 1), for each row
print(f"\ntoken {place} of the ten replaced; the laws of rows 0 to 9 moved by:", *[f"{far:.2g}" for far in moved], "\n")
assert max(moved[:place], default=0) < 1e-12 < min(moved[place:])

# %% [markdown]
# ## Checking is attention
#
# A pass over guesses is attention with ten rows of *queries* where writing has one, over the same *keys* and *values*
# of the text. What makes attention cheaper makes checking cheaper. Two such things, on attention alone: a *fused*
# kernel, which does not carry its scores to memory and back (on a GPU that is a long way; look whether it matters
# here), and fewer heads of keys and values, so fewer bytes to read (our target has one for its five heads of queries).

# %%
def attend(q, k, v):
    """q (..., n, D), k and v (..., S, D) -> (..., n, D): each query's mean of the values; of a single one, that one."""
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


fused, text = torch.nn.functional.scaled_dot_product_attention, 4096
for name, kernel, kv_heads in [("by hand", attend, 16), ("fused", fused, 16), ("fused", fused, 2)]:
    keys, values = torch.linspace(-1, 1, 2 * kv_heads * text * 64).view(2, 1, kv_heads, text, 64)
    queries = torch.linspace(-1, 1, 16 * 10 * 64).view(1, kv_heads, -1, 64)     # heads that share keys: more queries
    assert torch.allclose(attend(queries, keys, values), fused(queries, keys, values), atol=1e-5)
    took = median_seconds(lambda: kernel(queries, keys, values), keys.device, repeats=9)
    print(f"attention alone, 10 tokens, {text} keys, {kv_heads:2} heads of them, {name:7} {1e3 * took:6.2f} ms")

table(["m, tokens in the pass", "ms", "v(m)", "ms, m passes", "ms a token"],
      [[m, f"{1e3 * seconds[m]:.2f}", f"{v[m]:.2f}", f"{1e3 * seconds[1] * m:.2f}", f"{1e3 * seconds[m] / m:.2f}"]
       for m in sizes], f"behind {context} tokens; threads: {torch.get_num_threads()}, {target.dtype}")

# %%
figure, (left, right) = picture("3. ten for the price of one", 2)
left.loglog(sizes, sizes, color=RED, linestyle="--", linewidth=2, label="v = m: one pass each")
left.loglog(sizes, [v[m] for m in sizes], color=GREEN, marker="o", linewidth=2, label="v(m), measured")
left.axhline(1, color=BLUE, linestyle="--", linewidth=2, label="v = 1: the price of one")
left.set(xlabel="m, tokens in one pass", ylabel="v(m), in passes over one token")
left.yaxis.set_major_formatter("{x:g}")
left.set_xticks(sizes, [m if m != 8 else "" for m in sizes])
right.bar(range(10), moved, color=GREEN)
right.set(xlabel=f"row of the block; token {place} was replaced", ylabel="total variation of its law", xticks=range(10))
left.legend(frameon=False)
save(figure, "03_ten_for_the_price_of_one")

# %% [markdown]
# **Change this and run again.** `context = 4096`: a longer text, the same weights; does v(10) fall or rise?
# `target = draft` after loading: has a small model a better v, or a worse one? `place = 0`, then 9: how many rows move?
#
# Next: lesson 4 opens the cache that this one used. Exercises: none yet.
