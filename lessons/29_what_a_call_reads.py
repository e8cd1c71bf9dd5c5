# %% [markdown]
# # What a call reads
#
# **What if five tokens read more bytes than one, or if most bytes read are not weights?**
#
# Verification is cheap because a call reads the weights once for all of its tokens (*Ten for the
# price of one*), and it stops being cheap in a full batch (*A full batch*). Both sentences are
# about a model that reads all of its weights for every token, and little else. There is one kind of
# model and one kind of text that differ, and both are common.
#
# - A *mixture of experts* reads only some of its weights for each token, and others for the next
#   one. Then v(m) rises from the second token on.
# - A *long text* has a large cache. Every call reads the keys and values of all its texts, and no
#   text shares them with another one. Then a large batch does not end the gain.
#
# This lesson counts bytes and multiplications. It measures no time, so its numbers are the same on
# every machine.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import figures
from kit import table, windows
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.theory import speedup

torch.set_num_threads(1)                                    # nothing is timed here
target, _, tokenizer = load_pair()
C = target.config.channels

# %% [markdown]
# ## A layer of experts
#
# In the layers of a GPT every token goes through the same MLP. Here the MLP is cut into many small
# ones, the *experts*. A small matrix, the *router*, says which of them are for this token: of 32
# experts the 4 that it likes best. Their outputs are added, each with its weight (Shazeer et al.
# 2017; Mixtral, Jiang et al. 2024).
#
# One call on m tokens reads each expert that any of the m tokens has chosen, and it reads it once.

# %%
EXPERTS, CHOSEN = 32, 4


class Experts(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.router = nn.Linear(C, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, width, C) / C ** 0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, C, width) / width ** 0.5)

    def forward(self, x):
        """(m, C) -> (m, C), and the experts that had to be read."""
        weights, which = self.router(x).softmax(-1).topk(CHOSEN)        # (m, CHOSEN) each
        out, loaded = torch.zeros_like(x), which.unique().tolist()
        for expert in loaded:
            chose, slot = torch.where(which == expert)                   # its tokens
            hidden = F.silu(x[chose] @ self.up[expert].T)
            out[chose] += weights[chose, slot, None] * (hidden @ self.down[expert].T)
        return out, loaded

# %% [markdown]
# The tokens are those of held-out code, and the layer reads the target's hidden states from the
# middle of its layers. Their mean is subtracted, and all are scaled to the same length. (Our router
# is random and was not trained, but similar tokens still get similar experts. By chance, a token
# misses a given expert with 1 - 4/32, and m tokens miss it with (1 - 4/32)^m.)
#
# *Guess first:* one token loads 4 experts of 32. How many do five tokens of one text load?

# %%
torch.manual_seed(0)
layer, texts = Experts(), windows(tokenizer, read_texts()[1], 8)
with torch.no_grad():
    x = target(texts, layers=[target.config.layers // 2])[1][:, :, 0]      # (8, 128, C)
    x = F.rms_norm(x - x.mean((0, 1)), (C,))
    together, alone = layer(x[0, 10:15])[0], torch.cat([layer(one[None])[0] for one in x[0, 10:15]])
assert (together - alone).abs().max() < 1e-4                # one call, or five: the same answers

sizes, loaded = [1, 2, 3, 5, 9, 17], {}
with torch.no_grad():
    for m in sizes:
        found = [len(layer(text[at:at + m])[1]) for text in x for at in range(0, 100, 10)]
        loaded[m] = sum(found) / len(found)
by_chance = {m: EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** m) for m in sizes}
table(["tokens in a call", *sizes],
      [["experts read, in text", *(f"{loaded[m]:.1f}" for m in sizes)],
       ["if each chose by chance", *(f"{by_chance[m]:.1f}" for m in sizes)]])
assert loaded[1] == CHOSEN < loaded[2] < loaded[5]

# %% [markdown]
# *Answer:* about 14, where chance would load 16. Neighbours choose some of the same experts.
#
# ## What that does to v
#
# Let what all tokens share (attention, norms, the router) be as large as four experts. Then a call
# on one token reads 4 + 4, and a call on m tokens reads 4 + the experts loaded. While reading takes
# the time, v(m) is the second divided by the first: v(5) = (4 + 13.9) / 8 = 2.2. There a
# dense model has v(m) = 1.
#
# And with many texts in the batch? Sixty-four texts load nearly all experts in plain decoding, too.
# Then draft tokens load nothing new.
#
# *Guess first:* alpha is .7 and c is .05. What does speculation gain with one text, in a dense
# model and in this one?

# %%
SHARED, ALPHA, c, gammas = 4, 0.7, 0.05, (1, 2, 4, 8)


def read_by(rows, m):
    """What a call reads, in experts: of `rows` texts, m tokens of each; texts choose by chance."""
    return SHARED + EXPERTS * (1 - (1 - loaded[m] / EXPERTS) ** rows)


gains = {"dense, one text": [speedup(ALPHA, gamma, c, 1) for gamma in gammas]}
for rows in (1, 4, 16, 64):
    gains[f"experts, texts: {rows}"] = [
        speedup(ALPHA, gamma, c, read_by(rows, gamma + 1) / read_by(rows, 1)) for gamma in gammas]
table(["gamma", *gammas],
      [[name, *(f"{gain:.2f}" for gain in line)] for name, line in gains.items()],
      "times as fast as plain decoding, by the formula, while reading is what takes the time")
best_of = {name: max(line) for name, line in gains.items()}
assert best_of["experts, texts: 1"] < best_of["experts, texts: 64"] <= best_of["dense, one text"]

# %% [markdown]
# *Answer:* 2.31 in the dense model, and 1.22 in this one. With one text every draft token brings
# new experts, so a short draft is the best, and it gains little. With many texts the experts
# are read anyway, and with 64 of them the whole gain is back. (The table counts reading only. In a
# still larger batch, multiplying ends the gain.)
#
# ## A long text
#
# Now a dense model of round numbers: 8 billion weights, and for each token of a text a cache of
# 65,536 numbers, all of two bytes. A call of B texts with m tokens each, after L tokens, has
#
# - to read: the weights once, and the cache of every text once;
# - to multiply: 2 operations for each weight and token; and for each earlier token 2 for each
#   number of the query, and 2 more for the value, in 32 layers with 4,096 channels (four heads
#   share a key).
#
# The machine does 300 operations in the time in which it reads a byte, a round number, too. As in
# *A full batch*, a call takes as long as the longer of the two.
#
# *Guess first:* 256 texts, gamma 4. What is v(5) after 100 tokens, and what is it after 32,000?

# %%
WEIGHTS, CACHED, OPERATIONS = 8e9, 65_536, 300


def call(texts, m, length):
    """Its time, in that of reading a byte."""
    reading = 2 * WEIGHTS + 2 * CACHED * texts * length
    multiplying = texts * m * (2 * WEIGHTS + 4 * 32 * 4096 * length)
    return max(reading, multiplying / OPERATIONS)


lengths, batches = (100, 500, 1_000, 32_000), (1, 8, 32, 128, 256, 512)
v5 = {length: [call(B, 5, length) / call(B, 1, length) for B in batches] for length in lengths}
of_length = {length: [speedup(ALPHA, 4, c, v) for v in line] for length, line in v5.items()}
for what, found in ("v(5)", v5), ("gain", of_length):
    table([f"{what}, texts:", *batches],
          [[f"after {length:,} tokens", *(f"{it:.2f}" for it in line)]
           for length, line in found.items()])
assert v5[100][4] > 3 > 1.01 > v5[32_000][4]
figures.what_a_call_reads(sizes, loaded, by_chance, batches, of_length)

# %% [markdown]
# *Answer:* 3.54 after 100 tokens, a full batch, and 1 after 32,000. There a call spends its time on
# reading keys and values. They are as many for five tokens as for one, and no other text shares
# them, so a larger batch does not help plain decoding, and it does not end the gain. Between the
# two lengths the cache takes over from the weights.
#
# Two things are left out. The draft model reads the long text as well, so c rises, unless it looks
# at a part of the text only (MagicDec, Chen et al. 2024). And such caches must fit into memory.
#
# The picture shows the experts that a call reads, and the gain for texts of each length.
#
# ## Three things to know
#
# 1. While reading takes the time, a draft token is free if it brings nothing new to read. In a
#    mixture of experts it brings experts.
# 2. With many texts the experts are read anyway, so the gain comes back, until the batch is so
#    large that multiplying takes the time.
# 3. In long texts, reading the cache takes the time, and it is not shared. Then a large batch does
#    not end the gain.
#
# ## Change this and run again
#
# 1. Write `EXPERTS, CHOSEN = 32, 1`, and then 16 for the 1. Where do draft tokens cost more, with
#    one text and with sixteen?
# 2. Write `OPERATIONS = 30`, for a machine that multiplies slowly, and take out the last `assert`.
#    For which batches and lengths does speculation still gain?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What a user waits for* looks at the seconds of one request.
