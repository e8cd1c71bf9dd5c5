# %% [markdown]
# # A state that reads its draft
#
# **How can a draft model look far ahead for almost nothing?**
#
# Medusa's heads cost little, but they get worse quickly with depth because they do not know the
# tokens in between (*What the target knows ahead*). A GPT as a draft model knows those tokens, but
# for each of them it runs attention over the whole text.
#
# The *MLP speculator* (Wertheimer et al. 2024) lies between the two. (An *MLP*, a multilayer
# perceptron, consists of matrices with a nonlinear function between them.) It has a *state*, a list
# of numbers, and nothing else: no attention and no cache. The state begins with the target's hidden
# states, and each draft token changes it.
#
# We build it, measure how far ahead it sees, and ask with the formula of *How fast* what its cheap
# steps are worth. The training takes seconds, so it stays weak; `python -m training mlp` trains a
# good one.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import figures
from kit import Quiet, learn_and_test, new_speculator, read, table, train
from nanospec.fast.clock import draft_seconds, step_seconds
from nanospec.files import load_pair
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.draft_models.unrolled import whole_texts
from nanospec.theory import acceptance, best_gamma, speedup

# %% [markdown]
# ## The whole network
#
# x is a token and z is the state.
#
# - Begin: z = start(norm of h). h is the hidden state of the token before the last one, which the
#   target has read last. `start` is a matrix.
# - Read the last token of the text, and later each draft token x: z = silu(norm(carry z + embedding
#   of x)). `carry` is a matrix, and `embedding` has a vector for each x.
# - Predict the next token: logits = head z. `head` is a matrix.
#
# `norm` divides by the size of the numbers, so that they neither grow nor vanish on the way. `silu`
# bends the numbers. Without it, a step would do little more than a matrix does.

# %%
class Speculator(nn.Module):
    def __init__(self, V, hidden, width):
        super().__init__()
        self.start = nn.Linear(hidden, width, bias=False)
        self.carry = nn.Linear(width, width, bias=False)
        self.embedding, self.norm = nn.Embedding(V, width), nn.RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, V, bias=False)

    def step(self, z, x):
        """State and token -> the next state, and the logits of the token after x."""
        z = F.silu(self.norm(self.carry(z) + self.embedding(x)))
        return z, self.head(z)


torch.set_num_threads(1)
target, gpt, tokenizer = load_pair()
target.requires_grad_(False)
V, C, last, width = target.config.vocab_size, target.config.channels, target.config.layers - 1, 128

# %% [markdown]
# The library has the same network as `MLPSpeculator` (nanospec/methods/draft_models/mlp.py). We
# give both the same weights, let both read four tokens of one text, step by step, and compare the
# logits. For step k + 1 at place i, `whole_texts` reads token i + k.

# %%
library, by_hand = new_speculator(target, width), Speculator(V, C, width)      # in kit.py
library.load_state_dict(by_hand.state_dict())
tokens = torch.randint(V, (1, 12))
with torch.no_grad():
    before, _ = read(target, tokens)                                # (1, 12, 1, C)
    whole = whole_texts(library, tokens, before, 4)                 # (4, 1, 9, V)
    place, gap = 5, 0.0
    z = by_hand.start(F.rms_norm(before[0, place, 0], (C,), eps=1e-5))
    for k in range(4):
        z, logits = by_hand.step(z, tokens[0, place + k])
        gap = max(gap, (logits - whole[k, 0, place]).abs().max().item())
print(f"\nby hand and the library: the logits differ by at most {gap:.0e}")
assert gap < 1e-3

# %% [markdown]
# ## Along the draft
#
# The texts and labels are those of *What the target knows ahead*: step k + 1 at place i learns the
# distribution of token i + k + 1, and the model reads the true tokens i, i + 1, ..., i + k on its
# way.
#
# We measure beta = sum min(p_target, q_draft) on the held-out pieces, for each token of a draft.
# (The true tokens stand before it, as if all of them had been accepted.) The GPT that ships as
# draft model reads the whole text, so its beta does not depend on the depth.
#
# *Guess first:* Medusa's second head is much worse than its first. How good is the state after four
# tokens?

# %%
texts, (test, before_test, p_test) = learn_and_test(target, tokenizer, 40)
mlp = train(new_speculator(target, width), texts, steps=90, ahead=4)
medusa = train(Medusa(V, C, [last], heads=2).attach(target), texts, steps=50, ahead=2)


def betas_of(model, ahead, before):
    """The mean of beta for the first, second, ... draft token."""
    q_draft = whole_texts(model, test, before, ahead).softmax(-1)
    places = q_draft.shape[2]
    return [acceptance(p_test[:, k:k + places], q_draft[k]).mean().item() for k in range(ahead)]


with torch.no_grad():
    of_gpt = acceptance(p_test, gpt(test).softmax(-1)).mean().item()
betas = {"the state": betas_of(mlp, 4, before_test),
         "with zeros for hidden states": betas_of(mlp, 4, 0 * before_test),
         "Medusa": betas_of(medusa, 2, before_test), "the draft GPT": [of_gpt] * 4}
table(["draft token", "1st", "2nd", "3rd", "4th"],
      [[name, *(f"{beta:.2f}" for beta in found), *[""] * (4 - len(found))]
       for name, found in betas.items()], "mean beta on held-out text")
figures.the_state(betas)

# %% [markdown]
# *Answer:* nearly as good as at first. The state's beta hardly falls, because it has read every
# draft token before its place. Only the hidden states get older. The line with zeros shows what
# they are worth: most for the first draft token, and less for the later ones. The GPT was trained
# far longer, so look at the slopes here and not at the heights.
#
# ## What a step costs
#
# Count multiplications by hand. The product of a vector with a matrix takes one for each weight.
#
# - The state: carry z takes width x width, and head z takes width x V. The embedding is the lookup
#   of a vector and takes no multiplication.
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
# *Answer:* ten times by the count, and less by the clock, as a rule: divide the two lines. The
# products shrink with the count. Starting each operation and drawing the token do not.
#
# ## Is it worth it?
#
# A draft of gamma tokens gives a speed-up of
# (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1)). Cheap steps make gamma c small, so
# that a longer draft may pay. But a lower alpha takes tokens away, most of all from a long draft.
# We measure v(9), draw a straight line from v(1) = 1, and take the mean of the betas as alpha.

# %%
more = max(0, step_seconds(target, tokens=9) / step - 1) / 8          # what one more token costs


def v(m):
    return 1 + more * (m - 1)


def best_speed(alpha, c):
    """-> the best gamma, and the speed-up that the formula gives for it."""
    gamma = best_gamma(alpha, c, v, most=16)
    return gamma, speedup(alpha, gamma, c, v(gamma + 1))


alphas = {name: sum(betas[name]) / 4 for name in c}
points = {name: (c[name], alphas[name], *best_speed(alphas[name], c[name])) for name in c}
for percent in range(100):                              # how good would the state have to be?
    gamma, speed = best_speed(percent / 100, c["the state"])
    if speed >= points["the draft GPT"][3]:
        points["the state, to be as fast"] = c["the state"], percent / 100, gamma, speed
        break
table(["draft model", "c", "alpha", "best gamma", "speed-up by the formula"],
      [[name, f"{cost:.3f}", f"{alpha:.2f}", gamma, f"{speed:.2f}"]
       for name, (cost, alpha, gamma, speed) in points.items()])
quiet.tell("c was 0.10 for the draft GPT (one core of an Intel Xeon)")

# %% [markdown]
# Read the last line: with this alpha the state would be as fast as the GPT, although it is accepted
# less often. After a few seconds of training it is far below that alpha.
#
# ## Three things to know
#
# 1. A state that every draft token changes knows what precedes its place, so acceptance hardly
#    falls along the draft. A step is two matrix products and the lookup of a vector, without
#    attention or cache.
# 2. The count of multiplications is not the clock. Small operations cost what it costs to start
#    them.
# 3. The formula tells how much accuracy a cheap step may lose before it stops paying.
#
# ## Change this and run again
#
# 1. Write `width = 512`. How do the four betas change, the multiplications, c, and the time of the
#    training?
# 2. Write `more = 0` below the line that computes it, as if verifying were free. What becomes of
#    the best gamma, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Drafting hidden states* lets the draft model predict the target's hidden states
# themselves. What may go wrong in a draft model without anyone noticing is in *Mistakes that no
# text shows*.
