# %% [markdown]
# # A block at once
#
# **Can all draft tokens be drafted in one pass?**
#
# A chain of gamma draft tokens takes gamma passes of the draft model in sequence, because each pass
# needs the token that the previous one has drafted. A *block drafter* makes a single pass. It is
# given the text and gamma empty places, and predicts for every place which tokens may stand there
# (DFlash: Chen, Liang, Liu 2026).
#
# The price is that no place knows what was drawn at the place before it. This lesson asks what that
# costs and what can be done about it. It trains nothing, but computes what a *perfect* block
# drafter would predict.

# %%
from itertools import product

import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, gpt, tokenizer = load_pair()
V = target.config.vocab_size

# %% [markdown]
# ## A fork
#
# Someone asks: "May I come in?" The target answers "of course" or "no problem", each half of the
# time, and nothing else. Here is p(first word, second word).

# %%
first, second = ["of", "no"], ["course", "problem"]
p = torch.tensor([[0.5, 0.0],
                  [0.0, 0.5]], dtype=torch.float64)

# %% [markdown]
# A block drafter gives for each place the probability of each word there, whatever precedes it.
# Such a distribution of one place is called a *marginal*: a sum over all the other places. Then
# every place is drawn on its own.
#
# *Guess first:* how often is the draft an answer that the target could give?

# %%
q_1, q_2 = p.sum(1), p.sum(0)
drawn = q_1[:, None] * q_2                                  # each place on its own
table(["draft", "drafted", "target"],
      [[f"{first[i]} {second[j]}", f"{drawn[i, j]:.2f}", f"{p[i, j]:.2f}"]
       for i, j in product(range(2), range(2))])
beta_1 = acceptance(p.sum(1), q_1).item()
beta_2 = sum(q_1[i] * acceptance(p[i] / p[i].sum(), q_2) for i in range(2)).item()
print(f"\nbeta: {beta_1:.2f} at the first place, {beta_2:.2f} at the second")

# %% [markdown]
# *Answer:* half of the time. Both marginals are perfect, and yet half of the drafts are nonsense
# ("of problem"). The first word is always accepted, the second one half of the time.
#
# The text stays exact. The target sees "of" before the second place, and the rule compares the
# target's distribution after "of" with the one that was really drawn from. A block drafter loses
# speed, never the distribution. We walk a small block drafter:

# %%
big = TableModel(3, seed=5)
found, paths = walk(lambda dice: tuple(tokens_of(speculate(
    big, ModelDrafter(small_learned("dflash", big), 2), [0, 1], 2, dice=dice, top_k=2))))
off = distance(found, target_distribution(big, [0, 1], 2, top_k=2))[1]
print(f"\n{paths} paths walked, the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# ## A table of transitions
#
# Now draw from left to right. Before the second place is drawn, add one line of a table M to its
# logits: the line of the word that was drawn before it. DSpark (2026) does this, with a product of
# two thin matrices as its table. A line tells how much likelier each word is after this one than
# elsewhere:
#
#     M[a, b] = log p(b after a) - log p(b)
#
# This is no pass of a model, only the lookup of a line.

# %%
after = p / p.sum(1, keepdim=True)                          # (2, 2): p(second | first)
M = (after / q_2).clamp(min=1e-30).log()
corrected = (q_2.log() + M).softmax(-1)                     # [i]: after first word i
beta_2 = sum(q_1[i] * acceptance(after[i], corrected[i]) for i in range(2)).item()
print(f"\nwith the table, beta at the second place is {beta_2:.2f}")
assert beta_2 > 1 - 1e-6

# %% [markdown]
# Now q_draft of the second word depends on the first one, and this is the q_draft that the rule
# must get.
#
# ## A perfect marginal
#
# We return to the target that ships. Which marginals would a block drafter predict that has learnt
# all there is to learn? Let the target itself write many futures of one text. At place k, take the
# mean of its distributions over all futures. This is the marginal: all that can be known about
# place k when the places before it are unknown. (For each future we leave it out of its own mean.)
#
# A block drafter that is trained with cross-entropy approaches this marginal. At the first place
# that is the target's own distribution, so its beta is 1 there.

# %%
PLACES, FUTURES = 6, 64


@torch.inference_mode()
def futures_of(ids, temperature, seed):
    """N texts after `ids`: tokens (N, PLACES + 1), the last of `ids` first; p (places, N, V)."""
    N, T, dice = FUTURES, len(ids), torch.Generator().manual_seed(seed)
    cache, read = target.new_cache(N, T + PLACES), target.new_cache(1, T - 1)
    target(torch.tensor([ids[:-1]]), read, T - 1)
    cache.put(list(range(N)), read)                         # the text is read once, for all futures
    cache.length += T - 1
    tokens, found = [torch.tensor([ids[-1]] * N)], []
    for k in range(PLACES):
        found.append(Sampling(temperature)(target(tokens[-1][:, None], cache, T + k)[:, 0]))
        cache.length += 1
        tokens.append(torch.multinomial(found[-1], 1, generator=dice)[:, 0])
    return torch.stack(tokens, 1), torch.stack(found).double()


def marginals(p_target):
    """(places, N, V): for each future, the mean over the others."""
    return (p_target.sum(1, keepdim=True) - p_target) / (FUTURES - 1)


# %% [markdown]
# What can be done with a marginal? A token may be drawn from it, or its likeliest token may be
# taken. That token was not drawn, so it is accepted with p_target of it (*Copying from the past*).
# DFlash does this.
#
# *Guess first:* a token is drawn from a perfect marginal, at T = 1. How often is it accepted at the
# second place, and how often at the sixth?

# %%
texts = [tokenizer.encode(text[len(text) // 3:][:800])[:64] for text in read_texts()[1][:12]]
futures, drawn_of, likeliest_of = {}, {}, {}
for temperature in (1.0, 0.7, 0.4):
    futures[temperature] = [futures_of(ids, temperature, seed) for seed, ids in enumerate(texts)]
    drawn, likeliest = [], []                               # of each text, beta at each place
    for _, p_target in futures[temperature]:
        q_draft = marginals(p_target)
        best = q_draft.argmax(-1, keepdim=True)
        drawn.append(acceptance(p_target, q_draft).mean(1))
        likeliest.append(p_target.gather(-1, best)[..., 0].mean(1))
    drawn_of[temperature] = torch.stack(drawn).mean(0).tolist()
    likeliest_of[temperature] = torch.stack(likeliest).mean(0).tolist()
for what, found in ("drawn", drawn_of), ("the likeliest", likeliest_of):
    table([what, *range(1, PLACES + 1)],
          [[f"T = {warm}", *(f"{beta:.2f}" for beta in line)] for warm, line in found.items()],
          "beta of a perfect marginal, at each place")
assert all(line == sorted(line, reverse=True) for line in drawn_of.values())

# %% [markdown]
# *Answer:* about two times of three at the second place, and one time of four at the sixth. If
# tokens are drawn from it, the first one is always accepted. Then beta falls, and faster in a
# warmer text. At T = 1 the futures part at once, and the marginal is a mean of many continuations.
# At T = 0 there is only one future, and a perfect block drafter would always be right. So block
# drafters are at their best where texts are easy to foresee.
#
# The likeliest token is worse at the first places and falls less. At T = 0.4 it has nearly caught
# up in the end. Yet the marginal is not always the best distribution for acceptance. Suppose that
# the target answers "of course" nine times of ten. At the second place the marginal [.9, .1] is
# accepted with .9 x .9 + .1 x .1 = .82, and [1, 0] with .9. A loss that aims at acceptance (*Which
# loss*) finds such distributions. But none of them knows which way the text went.
#
# ## How much does the table bring here?
#
# We count pairs of tokens in the training text. That gives a table M without any training.

# %%
counted = torch.tensor(tokenizer.encode("".join(read_texts()[0])[:4_000_000]))
pairs = torch.bincount(counted[:-1] * V + counted[1:], minlength=V * V).view(V, V).float()
alone = (pairs.sum(0) + 0.1) / (pairs.sum() + 0.1 * V)      # nothing is impossible
after = (pairs + alone) / (pairs.sum(1, keepdim=True) + 1)
M = 0.75 * (after.log() - alone.log()).double()             # not all: the block knows much of it

# %% [markdown]
# For each future, the line of the table is that of the token before the place. For comparison we
# evaluate the draft GPT on the same futures.

# %%
of_gpt, with_table = [], []
for (tokens, p_target), ids in zip(futures[1.0], texts):
    q_draft = marginals(p_target)
    for k in range(1, PLACES):
        q_draft[k] = (q_draft[k].clamp(min=1e-30).log() + M[tokens[:, k]]).softmax(-1)
    with_table.append(acceptance(p_target, q_draft).mean(1))
    with torch.inference_mode():
        some = min(16, FUTURES)                             # enough for a mean
        whole = torch.cat([torch.tensor([ids[:-1]]).expand(some, -1), tokens[:some, :-1]], 1)
        q_gpt = gpt(whole)[:, -PLACES:].double().softmax(-1).transpose(0, 1)
    of_gpt.append(acceptance(p_target[:, :some], q_gpt).mean(1))
betas = {"perfect marginal": drawn_of[1.0],
         "the same and table": torch.stack(with_table).mean(0).tolist(),
         "the draft GPT": torch.stack(of_gpt).mean(0).tolist()}
table(["place, T = 1", *range(1, PLACES + 1)],
      [[name, *(f"{beta:.2f}" for beta in line)] for name, line in betas.items()])

# %% [markdown]
# Compare the three lines. The draft GPT reads every token that it has drafted, so its beta need not
# fall from place to place. The marginal begins at 1 and is far below the GPT at the third place.
# With a table of counts it falls more slowly.
#
# ## Does it pay?
#
# The tokens per target call are 1 + beta_1 + beta_1 beta_2 + ... (A product of means is only close
# to the truth.) For the costs we take round numbers, and some later lessons take the same: c = 0.12
# for a step of the draft GPT, and v(m) = 1 + 0.05 (m - 1). *How fast* measures both on your
# machine. We assume that a block costs 0.20 target steps in all.

# %%
def tokens_per_call(line, gamma):
    return 1 + sum(torch.tensor(line[:k]).prod().item() for k in range(1, gamma + 1))


def v(m):
    return 1 + 0.05 * (m - 1)


speed = {name: [tokens_per_call(line, gamma)
                / ((0.12 * gamma if "GPT" in name else 0.20) + v(gamma + 1))
                for gamma in range(1, PLACES + 1)] for name, line in betas.items()}
table(["gamma", *range(1, PLACES + 1)],
      [[name, *(f"{value:.2f}" for value in line)] for name, line in speed.items()],
      "times as fast as plain decoding, by the formula")

# %% [markdown]
# Compare the best gamma of each line. But the first two lines are of a *perfect* drafter: a trained
# one does not know the target's own distribution at the first place. docs/results/ has what a real
# one reached here.
#
# In the library, these are `DFlash` and `DSpark` in nanospec/methods/draft_models/dflash.py. All
# places of a block attend to each other and to the target's hidden states of the text before it.
# `python -m training dspark` trains one.

# %%
figures.a_block_at_once(drawn_of, betas)

# %% [markdown]
# ## Three things to know
#
# 1. A block drafter draws each place without knowing the place before it. The text stays exact.
#    What it loses is acceptance, and more of it from place to place.
# 2. The loss is in the text, not in the network: the warmer the text, the less can be known ahead.
# 3. A table of transitions gives much of it back, for the lookup of a line.
#
# ## Change this and run again
#
# 1. Let the target answer "of course" nine times of ten, as above. What is beta at the second place
#    with the marginal? Then write `q_2 = torch.tensor([1.0, 0.0]).double()`.
# 2. Set FUTURES = 4. Why does beta become smaller, and has the perfect drafter become worse?
# 3. In the table, write 0.0 instead of 0.75, then 2.0. What happens, and is the text still exact?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Mixing on purpose* gives up that every token is the target's. Exercises: 20 (a block,
# drawn).
