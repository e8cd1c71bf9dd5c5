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
# The training takes seconds, so this draft model stays weak. `python train_tiny.py --what mlp`
# trains a good one.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import figures
from kit import learn_and_test, read, table, train
from nanospec.files import load_pair
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.theory import acceptance
from nanospec.training.unrolled import whole_texts

# %% [markdown]
# ## The whole network
#
# x is a token and z is the state.
#
# - Begin: z = start(norm of the hidden states before the last token of the text). `start` is a
#   matrix.
# - Read the last token of the text, and later each draft token x: z = silu(norm(carry z + embedding
#   of x)). `carry` is a matrix, and `embedding` has a row for each x.
# - Predict the next token: logits = head z. `head` is a matrix.
#
# `norm` divides by the size of the numbers, so that they neither grow nor vanish on the way. `silu`
# makes a step nonlinear. Without it, many steps would amount to a single matrix.


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
# give both the same weights, let both draft four tokens after one text, and compare the logits. The
# library's `whole_texts(model, tokens, before, steps)` evaluates all places of a text at once, and
# for step k + 1 at place i it reads token i + k.

# %%
torch.manual_seed(0)
by_hand, library = Speculator(V, C, width), MLPSpeculator(V, C, [last], width=width).attach(target)
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
# ## Training
#
# The texts and labels are those of *What the target knows ahead*: step k + 1 at place i learns the
# distribution of token i + k + 1. What is new is that the model reads the true tokens i, i + 1,
# ..., i + k on its way.
#
# One detail matters in a short training. Hidden states are many numbers, and a small change of
# `start` moves the state far. So `start` begins at zero and takes steps that are ten times smaller
# (`slow`).

# %%
texts, (test, before_test, p_test) = learn_and_test(target, tokenizer, 40)


def new_speculator():
    torch.manual_seed(0)
    model = MLPSpeculator(V, C, [last], width=width).attach(target)
    nn.init.zeros_(model.start.weight)
    return model


mlp = train(new_speculator(), texts, steps=90, ahead=4, slow="start")
medusa = train(Medusa(V, C, [last], heads=2).attach(target), texts, steps=50, ahead=2)

# %% [markdown]
# ## Along the draft
#
# We measure beta = sum min(p_target, q_draft) on the held-out pieces, for each token of a draft.
# (The true tokens stand before it, as if all of them had been accepted.) The GPT that ships as
# draft model reads the whole text, so its beta does not depend on the depth.
#
# *Guess first:* Medusa's second head is much worse than its first. How good is the state after four
# tokens?


# %%
def betas_of(model, ahead):
    """The mean of beta for the first, second, ... draft token."""
    q_draft = whole_texts(model, test, before_test, ahead).softmax(-1)
    places = q_draft.shape[2]
    return [acceptance(p_test[:, k:k + places], q_draft[k]).mean().item() for k in range(ahead)]


with torch.no_grad():
    of_gpt = acceptance(p_test, gpt(test).softmax(-1)).mean().item()
betas = {"the state": betas_of(mlp, 4), "the draft GPT": [of_gpt] * 4,
         "Medusa": betas_of(medusa, 2)}
table(["draft token", "1st", "2nd", "3rd", "4th"],
      [[name, *(f"{beta:.2f}" for beta in found), *[""] * (4 - len(found))]
       for name, found in betas.items()], "mean beta on held-out text")

# %% [markdown]
# *Answer:* nearly as good as at first. Compare how the rows change from left to right. The state
# hardly falls. It has read every token before its place, so each step is as easy as the first. What
# it slowly loses is the hidden states, which get older. The GPT is better because it was trained
# for hours, so look at the slopes here and not at the heights.
#
# To see whether the state needs the hidden states at all, we give it zeros instead.

# %%
nothing = whole_texts(mlp, test, 0 * before_test, 1)[0].softmax(-1)
without = acceptance(p_test[:, :nothing.shape[1]], nothing).mean().item()
print(f"\nbeta of the first draft token: {betas['the state'][0]:.3f}; "
      f"with zeros for hidden states: {without:.3f}")


figures.the_state(betas)

# %% [markdown]
# ## Three things to know
#
# 1. A state that every draft token changes knows what precedes its place, so acceptance hardly
#    falls along the draft.
# 2. A step consists of two matrix products and the lookup of a row. There is no attention and no
#    cache.
# 3. The hidden states matter most for the first draft token (the third change below shows it), and
#    the tokens that were read matter for all.
#
# ## Change this and run again
#
# 1. Take the special treatment of `start` away: leave out `slow="start"` and the line with
#    `nn.init.zeros_`. What becomes of the first draft token, and what of the fourth?
# 2. Write `width = 512`. How do the four betas change, and the time of the training?
# 3. Write `whole_texts(mlp, test, 0 * before_test, 4)` in a line of your own and measure all four
#    betas. At which draft token do zeros in place of the hidden states cost least, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What a cheap step buys* asks how much worse such a draft model may be and still be
# faster.
