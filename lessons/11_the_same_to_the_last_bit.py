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
# So "lossless" has a limit in floating point. This lesson measures how far away it is, and ends
# with a target for which there is none.

# %%
from copy import deepcopy

import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.int8 import can_quantise, quantise
from nanospec.fast.steady import Steady
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)
target, draft_model, tokenizer = pair = load_pair(dtype=torch.float32)

# %% [markdown]
# ## A sum has an order
#
# Here is one product of two vectors, as there are thousands in a call. Each vector has as many
# numbers as the target has channels. They are multiplied in pairs, and the products are added. We
# add forwards, backwards, and as torch does. *Guess first:* how far are the three results apart, in
# a data type with seven digits?

# %%
chance = torch.Generator().manual_seed(1)
a, b = torch.randn(2, target.config.channels, generator=chance)


def added(numbers):
    """One after the other, in the data type of the numbers."""
    total = numbers.new_zeros(())
    for number in numbers:
        total = total + number
    return total


ways = {"forwards": added(a * b), "backwards": added((a * b).flip(0)),
        "as torch does": a @ b}
table(["the sum", "float32"], [[name, f"{total.item():.6f}"] for name, total in ways.items()])
of_a_call = sum(weight.shape[0] for weight in target.parameters() if weight.dim() == 2)
print(f"a call on one token has {of_a_call:,} such products of two vectors")

# %% [markdown]
# *Answer:* the last digits differ. That is harmless as long as the numbers keep their seven digits.
#
# But many models round on their way. In bfloat16 a number between two layers keeps 8 binary digits,
# which is less than three decimal ones. Two numbers that differ in the seventh digit are nearly
# always rounded to the same number. Now and then, though, the border between up and down lies
# between them: one is rounded up, and the other down. Then they differ in the third digit, and
# every layer after it adds its own.

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
# variation (*A distribution is a die*): of a hundred tokens, how many would have to change.
#
# *Guess first:* bfloat16 rounds, so its probabilities are not those of float32. That is the first
# column. Is the second column, which compares the rounded model with itself, as large, a tenth of
# it, or zero?

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
# *Answer:* as large. The model in bfloat16 is about as far from itself as it is from the model
# before it was rounded: about half a percent both times, with the pair in the clone. So there are
# two distributions of a text: that of this target in calls on one token, which is plain decoding,
# and that in calls on five, which is speculation. They are about as far apart as one rounding to
# bfloat16 moves the model. (An older processor, which has no instructions for bfloat16, may add in
# the same order in both. Then the second column is zero there.)
#
# Is it a bug? No rule of speculation is broken, and a server that puts several requests into one
# call does the same to its users. But such a text cannot be checked: when it differs at temperature
# 0, that may be rounding, or a bug. That is why the proofs of this project use float64.
#
# ## Whole numbers have no order
#
# Sums of whole numbers are exact, in any order. Many processors multiply whole numbers of 8 bits
# faster than others, so there is a reason to use them, too: each vector is rounded to -127 ... 127
# times a scale of its own.
#
# `quantise` (nanospec/fast/int8.py) does this to every product of a model. What is left that has an
# order? All other operations but attention go through each token alone. Attention remains: with few
# queries torch multiplies in another way there, and it cuts the cache into pieces whose size
# depends on how many slots there are. So `quantise` also makes the model steady
# (nanospec/fast/steady.py): it reads a few tokens or slots more where that would happen, and does
# not look at their answers.
#
# *Guess first:* how far is the model in 8 bits from float32, and how far from itself?

# %%
if can_quantise(torch.device("cpu")):
    name = "int8, steady"
    models[name] = quantise(deepcopy(target))
    alone, five = (in_calls(models[name], size) for size in (1, 5))
    found[name] = apart(alone, in_float32), apart(alone, five)
    if isinstance(models[name], Steady):
        assert torch.equal(alone, five)
else:
    print("This processor has no exact products in 8 bits: the last line is left out.")
table(["the target in", "against float32", "alone against five in a call"],
      [[name, f"{a:.2%}", f"{b:.4%}"] for name, (a, b) in found.items()])
figures.the_same_to_the_last_bit(found)

# %% [markdown]
# *Answer:* from float32 it is somewhat further than bfloat16 is. From itself it is not a small
# number but zero: every bit is the same.
#
# ## What one sees of it
#
# At temperature 0 speculation should write the target's own text. Twelve prompts, 60 tokens each:
# how many of the texts are the same as without a draft? In bfloat16 a text may become another one
# where two tokens are nearly equally likely. Such places are rare, so all twelve may be the same.
#
# Above temperature 0 only the distribution is promised. *How close a rule can come* has a rule by
# which one seed gives one text at every temperature.

# %%
NEW, prompts = 60, held_out_prompts(pair, 12, 90)
same = {}
for name, model in models.items():
    plain = [list(generate(model, ids, NEW, temperature=0)) for ids in prompts]
    fast = [tokens_of(speculate(model, ModelDrafter(draft_model, 4), ids, NEW, temperature=0))
            for ids in prompts]
    same[name] = sum(a == b for a, b in zip(plain, fast))
table(["the target in", "texts that are the same"],
      [[name, f"{count} of {len(prompts)}"] for name, count in same.items()])
assert same["float32"] == len(prompts)

# %% [markdown]
# ## Three things to know
#
# 1. The order of a sum is not part of a formula. Rounding between layers makes the difference as
#    large as rounding itself, so "lossless" holds up to the rounding of the target.
# 2. Sums of whole numbers are exact, so a vector's product does not depend on its neighbours.
# 3. Bit for bit is a property of every operation of a model together. One that depends on the call
#    is enough to lose it.
#
# ## Change this and run again
#
# 1. Compare calls on two tokens with calls on five, in bfloat16. Is that closer?
# 2. Let `nearly` differ by 1e-5 in place of 1e-7. How many numbers are rounded differently?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Report what you sample* asks what happens when two distributions are mixed up.
