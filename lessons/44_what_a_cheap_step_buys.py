# %% [markdown]
# # What a cheap step buys
#
# **How much less accurate may a draft model be if its steps cost almost nothing?**
#
# *A state that reads its draft* built a draft model without attention. It is less accurate than the
# GPT that ships as draft model, and its steps are cheaper. Which of the two makes decoding faster?
# The formula of *How fast* answers this, and it also tells how good the cheap model would have to
# be.

# %%
import torch

import figures
from kit import Quiet, learn_and_test, new_speculator, table, train
from nanospec.fast.clock import draft_seconds, step_seconds
from nanospec.files import load_pair
from nanospec.theory import acceptance, best_gamma, speedup
from nanospec.training.unrolled import whole_texts

torch.set_num_threads(1)
target, gpt, tokenizer = load_pair()
target.requires_grad_(False)
V, width = target.config.vocab_size, 128

# %% [markdown]
# ## Two draft models
#
# We train the state again, for a few seconds (`new_speculator`, in kit.py). Then we measure the
# mean of beta = sum min(p_target, q_draft) for both draft models on held-out text, over four draft
# tokens, and take it as alpha.

# %%
texts, (test, before_test, p_test) = learn_and_test(target, tokenizer, 40)
mlp = train(new_speculator(target, width), texts, steps=90, ahead=4, slow="start")
q_draft = whole_texts(mlp, test, before_test, 4).softmax(-1)                    # (4, B, places, V)
places = q_draft.shape[2]
betas = [acceptance(p_test[:, k:k + places], q_draft[k]).mean().item() for k in range(4)]
with torch.no_grad():
    of_gpt = acceptance(p_test, gpt(test).softmax(-1)).mean().item()
alphas = {"the state": sum(betas) / 4, "the draft GPT": of_gpt}
print("\nalpha:", ", ".join(f"{name} {alpha:.2f}" for name, alpha in alphas.items()))

# %% [markdown]
# ## What a step costs
#
# Count multiplications by hand. The product of a vector with a matrix takes one for each weight.
#
# - The state: carry z takes width x width, and head z takes width x V. The embedding is the lookup
#   of a row and takes no multiplication.
# - The draft GPT: each weight once. (Its embedding matrix is its output head, too.) Attention over
#   the text comes on top.
#
# c is the time of a draft step in target steps, as always.
#
# *Guess first:* by how much is a step of the state cheaper by the count, and by how much by the
# clock?

# %%
operations = {"the state": width * width + width * V,
              "the draft GPT": sum(weight.numel() for weight in gpt.parameters())}
of_target = sum(weight.numel() for weight in target.parameters())
quiet = Quiet(lambda: step_seconds(target, repeats=3))
step = step_seconds(target)
seconds = {"the state": draft_seconds(mlp), "the draft GPT": step_seconds(gpt)}
quiet.look()
c = {name: seconds[name] / step for name in seconds}
table(["a step of", "multiplications", "in target steps", "by the clock: c"],
      [[name, f"{count:,}", f"{count / of_target:.3f}", f"{c[name]:.3f}"]
       for name, count in operations.items()])

# %% [markdown]
# *Answer:* by more by the count than by the clock. Compare the last two columns. By the clock the
# state gains less than by the count, because a small product takes hardly any time. What remains is
# starting each operation, and drawing the token.
#
# ## Is it worth it?
#
# A draft of gamma tokens gives (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1)). Cheap
# steps help twice: gamma c gets smaller, and a longer draft pays. But a lower alpha takes tokens
# away, most of all from a long draft.
#
# v(m) is the time of a target call on m tokens, in target steps. We measure v(9) and draw a
# straight line from v(1) = 1.

# %%
more = max(0, step_seconds(target, tokens=9) / step - 1) / 8          # what one more token costs


def v(m):
    return 1 + more * (m - 1)


def best_speed(alpha, c):
    """-> the best gamma, and the speed-up that the formula gives for it."""
    gamma = best_gamma(alpha, c, v, most=16)
    return gamma, speedup(alpha, gamma, c, v(gamma + 1))


points = {name: (c[name], alphas[name], *best_speed(alphas[name], c[name])) for name in c}
for percent in range(100):                              # how good would the state have to be?
    gamma, speed = best_speed(percent / 100, c["the state"])
    if speed >= points["the draft GPT"][3]:
        points["the state, to tie with it"] = c["the state"], percent / 100, gamma, speed
        break
table(["draft model", "c", "alpha", "best gamma", "speed-up by the formula"],
      [[name, f"{cost:.3f}", f"{alpha:.2f}", gamma, f"{speed:.2f}"]
       for name, (cost, alpha, gamma, speed) in points.items()])
quiet.tell("c was 0.03 for the state and 0.16 for the draft GPT (one core of an example machine)")

# %% [markdown]
# Read the last row: with this alpha the state would be as fast as the GPT, although it accepts less
# often. After a few seconds of training it is far below that alpha. After 500 steps of
# `train_tiny.py --what mlp` it gained 1.25 at temperature 0, where the GPT gained 1.48
# (docs/results/draft-models.md).
#
# The picture shows the speed-up against c, with a line for each alpha. Moving left along a line
# means cheaper steps. Moving down means fewer accepted tokens.

# %%
costs = [i / 100 for i in range(31)]
lines = {alpha: [best_speed(alpha, cost)[1] for cost in costs] for alpha in (.3, .5, .7, .9)}
figures.cheap_steps(costs, lines,
                    {name: (cost, speed) for name, (cost, _, _, speed) in points.items()})

# %% [markdown]
# ## Three things to know
#
# 1. A cheap step helps twice: the draft costs less, and a longer draft pays.
# 2. The count of multiplications is not the clock. Small operations cost what it costs to start
#    them.
# 3. The formula tells how much accuracy a cheap step may lose before it stops paying.
#
# ## Change this and run again
#
# 1. Write `width = 512`. How do the multiplications, c and alpha change?
# 2. Write `more = 0` below the line that computes it, as if verifying were free. What becomes of
#    the best gamma, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Drafting hidden states* lets the draft model predict the target's hidden states
# themselves.
