# %% [markdown]
# # The same to the last bit
#
# **Does a target give the same probabilities in a call on five tokens as in a call on one?**
#
# *Why it is lossless* proved that drafts leave no trace in the text. The proof takes for granted
# that verification computes the very numbers that plain decoding would have computed. On paper it
# does. In a machine, numbers have a few digits, and a sum of many numbers depends on their order. A
# call on five tokens need not add in the order of a call on one.
#
# This lesson measures how much that is, shows where it comes from, and ends with a target for which
# it is nothing at all.

# %%
from copy import deepcopy

import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.int8 import can_quantise, hadamard, quantise
from nanospec.fast.steady import Steady, steady
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.model import GPT
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)
target, draft, tokenizer = pair = load_pair(dtype=torch.float32)

# %% [markdown]
# ## A sum has an order
#
# Here is one product of a row and a column, as there are millions in a call: 1,216 numbers times
# 1,216 numbers, and the sum of it. We add forwards, backwards, and as torch does. *Guess first:*
# how far are the three results apart, in a data type with seven digits?

# %%
chance = torch.Generator().manual_seed(1)
row, column = torch.randn(2, 1216, generator=chance)


def added(numbers):
    """One after the other, in the data type of the numbers."""
    total = numbers.new_zeros(())
    for number in numbers:
        total = total + number
    return total


ways = {"forwards": added(row * column), "backwards": added((row * column).flip(0)),
        "as torch does": row @ column}
table(["the sum", "float32"], [[name, f"{total.item():.6f}"] for name, total in ways.items()])

# %% [markdown]
# *Answer:* the last digits differ. That is harmless as long as the numbers keep their seven digits.
#
# But many models round on their way. In bfloat16 every number between two layers has 8 bits, which
# is less than three digits. Rounding swallows a small difference nearly always. Now and then,
# though, it falls just where one number is rounded up and the other one down. Then a difference in
# the seventh digit has become one in the third, and every layer after it adds its own.

# %%
x = torch.randn(1_000_000, generator=chance)
nearly = x * (1 + 1e-7 * torch.randn(x.shape, generator=chance))
tipped = (x.bfloat16() != nearly.bfloat16()).float().mean().item()
numbers = target.config.layers * (3 * target.config.channels + target.config.hidden)
print(f"\nrounded differently: {tipped * 1e6:.0f} of a million numbers; "
      f"of some {numbers:,} in a call on one token, {tipped * numbers:.1f}")

# %% [markdown]
# ## Alone, and with four others
#
# Now the target itself. It reads a text one token after the other, and then once more, five tokens
# in a call. Both times it gives its probabilities after each token. We compare them by their total
# variation, as in *Accept or replace*: how many tokens in a hundred would be others.
#
# *Guess first:* bfloat16 rounds, so its probabilities are not those of float32. That is the first
# column. Is the second column, which compares the rounded model with itself, a tenth of it, a
# hundredth, or zero?

# %%
ids = torch.tensor(held_out_prompts(pair, 1, 220))
READ = 140                                          # tokens that both read in one call, as a prompt


@torch.inference_mode()
def in_calls(model, size):
    """Probabilities after every token but the first READ, read `size` at a time: (N, V)."""
    cache, found = model.new_cache(1, ids.shape[1]), []
    model(ids[:, :READ], cache, READ, scored=0)
    cache.length += READ
    for begin in range(READ, ids.shape[1], size):
        logits = model(ids[:, begin:begin + size], cache, begin + size)
        found.append(logits[0].float().softmax(-1))
        cache.length += size
    return torch.cat(found)


def apart(p, q):
    return max(0.0, (1 - p.minimum(q).sum(-1)).mean().item())


models = {"float32": target, "bfloat16": deepcopy(target).bfloat16()}
in_float32, found = in_calls(target, 1), {}
for name, model in models.items():
    alone = in_calls(model, 1)
    found[name] = apart(alone, in_float32), apart(alone, in_calls(model, 5))
table(["the target in", "against float32", "alone against five in a call"],
      [[name, f"{a:.2%}", f"{b:.4%}"] for name, (a, b) in found.items()])

# %% [markdown]
# *Answer:* as much again: the model in bfloat16 is about as far from itself as it is from the model
# before it was rounded. A text that is written with speculation is then distributed as this target
# writes in calls on five tokens. That is one rounding away from how it writes in calls on one.
# (An older processor, which has no instructions for bfloat16, may add in the same order in both.
# Then the second column is zero there.)
#
# Is it a bug? No rule of speculation is broken, and a server that puts requests together does the
# same to its users. But such a text cannot be checked: when it differs at temperature 0, that may
# be rounding, or a bug.
#
# ## Whole numbers have no order
#
# Sums of whole numbers are exact, in any order. Processors multiply whole numbers of 8 bits faster
# than any others, so there is a reason to use them, too. Each row is rounded to -127 ... 127 times
# a scale of its own, and the scales are multiplied afterwards.


# %%
def rounded(rows):
    """Whole numbers, and the scale of each row."""
    scale = rows.abs().amax(-1, keepdim=True) / 127
    return (rows / scale).round(), scale


(a, of_row), (b, of_column) = rounded(row), rounded(column)
whole = {"forwards": added(a * b), "backwards": added((a * b).flip(0)), "as torch does": a @ b}
table(["the sum", "of whole numbers", "times both scales"],
      [[name, f"{total.item():.0f}", f"{(total * of_row * of_column).item():.6f}"]
       for name, total in whole.items()])
assert len({total.item() for total in whole.values()}) == 1

# %% [markdown]
# The three agree. They are further from the sum above, since 8 bits are few. In a transformer it is
# worse: a few channels are a hundred times as large as the others (Dettmers et al. 2022). The scale
# must fit them, and little is left for the rest. The remedy is to mix the channels first, by a
# matrix H that is orthogonal: (x H)(W H)^T = x W^T. After that no channel stands out (QuaRot,
# Ashkboos et al. 2024).

# %%
x, W = torch.randn(64, 64, generator=chance), torch.randn(64, 64, generator=chance)
x[:, 7] *= 100
W[:, 7] /= 100
H = hadamard(64)
errors = {}
for name, (left, right) in {"as they are": (x, W), "mixed": (x @ H, W @ H)}.items():
    (a, scale_a), (b, scale_b) = rounded(left), rounded(right)
    errors[name] = ((a @ b.T * scale_a * scale_b.T - x @ W.T).std() / (x @ W.T).std()).item()
table(["channels", "error of the product"], [[name, f"{e:.1%}"] for name, e in errors.items()])

# %% [markdown]
# `quantise` (nanospec/fast/int8.py) does this to every product of a model. What is left that has
# an order? Norms and gates go through each token alone. Attention remains: its kernel takes another
# product where there are few queries, and it divides the slots of the cache by how many there are.
# `steady` (nanospec/fast/steady.py) reads a few tokens or slots more where that would happen, and
# does not look at their answers.
#
# *Guess first:* with attention as it was, how far is the model in 8 bits from itself? And with
# both?

# %%
if can_quantise(torch.device("cpu")):
    models["int8"] = quantise(deepcopy(target))
    models["int8"].__class__ = GPT                          # attention as it was
    models["int8, steady"] = steady(quantise(deepcopy(target)))
    for name in ("int8", "int8, steady"):
        alone, five = (in_calls(models[name], size) for size in (1, 5))
        found[name] = apart(alone, in_float32), apart(alone, five)
        if isinstance(models[name], Steady):
            assert torch.equal(alone, five)
else:
    print("This processor has no exact products in 8 bits: the last two rows are left out.")
table(["the target in", "against float32", "alone against five in a call"],
      [[name, f"{a:.2%}", f"{b:.4%}"] for name, (a, b) in found.items()])
figures.the_same_to_the_last_bit(found)

# %% [markdown]
# *Answer:* attention alone was enough to lose what whole numbers had gained. With both, the
# difference is not a small number but zero: every bit is the same.
#
# ## What one sees of it
#
# At temperature 0 speculation should write the target's own text. Twelve prompts, 60 tokens each:
# how many of the texts are the same as without a draft?

# %%
NEW, prompts = 60, held_out_prompts(pair, 12, 90)
same = {}
for name, model in models.items():
    plain = [list(generate(model, ids, NEW, temperature=0)) for ids in prompts]
    fast = [tokens_of(speculate(model, ModelDrafter(draft, 4), ids, NEW, temperature=0))
            for ids in prompts]
    same[name] = sum(a == b for a, b in zip(plain, fast))
table(["the target in", "texts that are the same"],
      [[name, f"{count} of {len(prompts)}"] for name, count in same.items()])
assert same["float32"] == len(prompts)

# %% [markdown]
# ## Three things to know
#
# 1. The order of a sum is not part of a formula. Rounding between layers makes the difference as
#    large as rounding itself.
# 2. Sums of whole numbers are exact, so a row's product does not depend on the rows beside it.
# 3. Bit for bit is a property of every operation of a model together. One that depends on the call
#    is enough to lose it.
#
# ## Change this and run again
#
# 1. Compare calls on two tokens with calls on five, in bfloat16. Is that closer?
# 2. Let `nearly` differ by 1e-5 in place of 1e-7. How many numbers are rounded differently?
# 3. In the table of errors, do not divide `W[:, 7]` by 100. Why do the errors come closer?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Report what you sample* asks what happens when two distributions are mixed up.
