# %% [markdown]
# # A state that cannot go back
#
# **How is a rejected draft token taken back if a layer keeps a state and no slots?**
#
# *The cache* took draft tokens back by lowering a number. That works because attention keeps a slot
# for each token, and no slot depends on what comes after it. In newer models, such as Mamba and
# Qwen3-Next, most layers keep no slots. They keep one state of a fixed size, and every token that
# they read changes it. Their memory does not grow with the text, and their calls do not get slower.
#
# But a rejected draft token has changed the state as well. This lesson shows what goes wrong, and
# two ways back. All numbers are float64, so a difference above 1e-12 is a mistake.

# %%
import copy

import torch

import figures
from kit import table
from recurrent import small_recurrent
from nanospec import ModelDrafter
from nanospec.generate import generate
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)

# %% [markdown]
# ## By hand: one state
#
# Each token has a query, a key and a value, as in attention. The state S is a matrix of 8 x 8
# numbers. A token adds a quarter of the product of its key and its value to S, and what was there
# before is multiplied by 3/4, which is called its decay. The answer to a query is the query times
# S. This is linear attention with a decay (RetNet, Sun et al. 2023).
#
# We read ten tokens of a text. Then we read four draft tokens, of which two are accepted, and we
# ask for the answer after the twelve tokens of the text.

# %%
chance = torch.Generator().manual_seed(4)
w_query, w_key, w_value = torch.randn(3, 8, 8, generator=chance, dtype=torch.float64)
tokens = torch.randn(14, 8, generator=chance, dtype=torch.float64)      # 10 + 4 draft tokens


def read(S, some):
    """The state after these tokens (T, 8), and all states on the way: (8, 8) each."""
    passed = []
    for x in some:
        S = 0.75 * S + 0.25 * (x @ w_key)[:, None] * (x @ w_value)
        passed.append(S)
    return S, passed


nothing = torch.zeros(8, 8, dtype=torch.float64)
before, _ = read(nothing, tokens[:10])                      # the text
after, passed = read(before, tokens[10:])                   # the draft, all four
right, _ = read(nothing, tokens[:12])                       # what should be there now
query = tokens[11] @ w_query

# %% [markdown]
# *Guess first:* with which state should the next round begin? The code tries five ways. Which of
# them are right?

# %%
subtracted = after
for x in (tokens[13], tokens[12]):                          # the rejected ones, from the last on
    subtracted = (subtracted - 0.25 * (x @ w_key)[:, None] * (x @ w_value)) / 0.75
ways = {"the state after the draft": after,
        "the state before the round": before,
        "before the round, accepted tokens read again": read(before, tokens[10:12])[0],
        "a state kept for each draft token: the second": passed[1],
        "the state after the draft, two tokens subtracted": subtracted}
gaps = {name: (query @ S - query @ right).abs().max().item() for name, S in ways.items()}
table(["after the round", "the answer is off by"],
      [[name, f"{gap:.0e}"] for name, gap in gaps.items()])
assert [gap < 1e-12 for gap in gaps.values()] == [False, False, True, True, True]

# %% [markdown]
# *Answer:* the last three. The first two lines are bugs that have shipped. In the first, the state
# has read rejected tokens. In the second, it lacks the accepted ones. With either of them a model
# goes on writing, and no error is raised.
#
# The third and the fourth line are the two ways that are used.
#
# - *Replay*: keep the state before the round, and read the accepted tokens again.
# - *Snapshots*: keep the state after each node of the draft, and take the one that is needed.
#
# The last line works for this layer alone. Each subtraction divides by the decay and makes rounding
# errors larger. Other layers compute their decay from the token, and where it is 0, this way
# divides by zero.
#
# ## A model with such layers
#
# `Recurrent` (lessons/recurrent.py) is a language model in which every layer keeps a state, except
# those that are told to attend. It answers as a GPT does, so it can be a target or a draft model,
# and `speculate` does not know of it. How does it learn what was accepted? As every target does:
# before each call, `cache.length` says how many tokens count. The model takes the latest state that
# has read no more than these, and reads again what is missing.
#
# Nothing is trained here. The target has random weights, three layers with states and one that
# attends, and the draft model is the target with a little noise. First the proof: we walk two
# tokens of a smaller pair, for both ways.

# %%
for name, snapshots in (("replay", None), ("snapshots", 3)):
    # 3 tokens, one layer, a seed, which layers attend, how many states are kept
    small, its_draft = (small_recurrent(3, 1, seed, (), snapshots) for seed in (1, 2))
    found, paths = walk(lambda dice: tuple(tokens_of(speculate(
        small, ModelDrafter(its_draft, 2), [0, 1], 2, dice=dice, top_k=2))))
    off = distance(found, target_distribution(small, [0, 1], 2, top_k=2))[1]
    print(f"{name}: {paths} paths, the text is off by {off:.0e}")
    assert off < 1e-12

# %% [markdown]
# ## What each way costs
#
# Now we count, for several draft lengths gamma. Tokens are all those that the target's layers read
# for 48 new tokens, divided by the number of rounds. Bytes are those of the states that a text
# keeps. (Seconds would say little: a real model reads again in a fast kernel, and this one in a
# loop.)
#
# *Guess first:* with gamma = 8, which way needs more memory, and how many times as much? Which one
# reads more tokens, and at most how many more in a round?


# %%
def pair(snapshots):
    """The target, and a draft model that is nearly the same."""
    target = small_recurrent(8, 4, 5, (3,), snapshots)
    draft_model, noise = copy.deepcopy(target), torch.Generator().manual_seed(6)
    for weight in draft_model.parameters():
        weight += 0.1 * weight.std(correction=0) * torch.randn(
            weight.shape, generator=noise, dtype=weight.dtype)
    return target, draft_model


def counted(gamma, snapshots):
    """Bytes of states, tokens read in a round, and tokens written in a round."""
    target, draft_model = pair(snapshots)
    caches, new_cache = [], target.new_cache            # to look into its cache afterwards
    target.new_cache = lambda rows, slots: caches.append(new_cache(rows, slots)) or caches[-1]
    prompt, new = [1, 2, 3, 4, 5], 48
    done = list(speculate(target, ModelDrafter(draft_model, gamma), prompt, new, temperature=0))
    assert tokens_of(done) == list(generate(target, prompt, new, temperature=0))
    read = sum(len(one.tokens) for one in done) + caches[0].again
    return caches[0].states[0].nbytes, read / len(done), new / len(done)


costs = {(gamma, name): counted(gamma, gamma + 1 if name == "snapshots" else None)
         for gamma in (1, 2, 4, 8) for name in ("snapshots", "replay")}
table(["gamma", "way", "bytes of states", "tokens read in a round", "tokens written in a round"],
      [[gamma, name, f"{size:,}", f"{read:.2f}", f"{written:.2f}"]
       for (gamma, name), (size, read, written) in costs.items()])
assert all(costs[gamma, "snapshots"][1] == gamma + 1 <= costs[gamma, "replay"][1]
           for gamma in (1, 2, 4, 8))

# %% [markdown]
# *Answer:* snapshots need 9 states where replay needs 2, 4.5 times as much. Replay reads more
# tokens, at most as many more as it writes. Snapshots read gamma + 1 tokens in a round, as a target
# with slots does, and need a state for each of them. Replay always keeps two states, that of the
# text before the round and that after it. In a round after a rejection it reads the accepted tokens
# again, and the token before them. Each token of the text is read again at most once. So it never
# reads more tokens again than it has written.
#
# Which is better depends on the machine. A layer of Qwen3-Next has a state of 32 x 128 x 128
# numbers. A slot of one of its layers that attend has 2 x 2 x 256 numbers. So a single state is as
# large as 512 slots, and snapshots write one for each node of the draft. Real programs have shipped
# both ways; *Snakes and Ladders* (Wu et al. 2024) describes replay inside each layer. A draft
# *tree* is harder, because a node needs the state of its parent (STree, Wu et al. 2025).
# `Recurrent` refuses trees.

# %%
figures.states_kept(costs)

# %% [markdown]
# ## Three things to know
#
# 1. A state has read every token of the draft. Lowering a length takes nothing out of it.
# 2. Replay keeps the state before the round and reads accepted tokens again. Snapshots keep a state
#    for each node of the draft and read nothing again.
# 3. The loop of speculative decoding does not change. `length` tells the model what was accepted.
#
# ## Change this and run again
#
# 1. Let `counted` keep too few states: write `gamma` in place of `gamma + 1`. Is the text still
#    right, and what does it cost?
# 2. Make the draft model worse: 0.3 in place of 0.1. What becomes of the tokens that replay reads?
# 3. In the first table, let the decay be 0.01 instead of 0.75 (and 0.99 instead of 0.25). Which
#    line stops being right, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
