# %% [markdown]
# # What the target knows ahead
#
# **Does the target already know the token after the next one?**
#
# The draft model so far was a second GPT that reads the whole text again. But the target has just
# read this text, with many layers, and what it found out is available for free. So we put a small
# network, a *head*, on top of the target and let it predict one token further. *Medusa* has several
# such heads, which all predict at once (Cai et al. 2024).
#
# This lesson trains three heads. It uses beta, the acceptance at one place (*Good where it
# matters*). The training takes seconds, so the heads stay weak;
# `python train_tiny.py --what medusa` trains good ones.

# %%
import torch
import torch.nn.functional as F

import figures
from kit import pieces_of, read, table
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.hydra import Hydra
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.theory import acceptance
from nanospec.training.unrolled import whole_texts

torch.set_num_threads(1)
target, _, tokenizer = load_pair()
target.requires_grad_(False)                    # the target is frozen: only the heads learn

# %% [markdown]
# ## The output of a layer
#
# The target is a stack of layers (`GPT.forward`, in nanospec/model.py). For each token, each layer
# computes C numbers, the *hidden state* of the token after this layer. (Papers on drafting often
# call them *features*.) Two more steps follow the last layer: a norm, and the *output head*, a
# matrix that turns the C numbers into V logits.
#
# `target(..., layers=[...])` also returns the hidden states of these layers. We do the last two
# steps by hand.

# %%
last = target.config.layers - 1                 # the number of the last layer
ids = torch.tensor([tokenizer.encode("for name in names:\n    print(name")])
with torch.no_grad():
    logits, hidden = target(ids, layers=[last])
    by_hand = target.head(target.norm(hidden[:, :, 0]))
gap = (by_hand - logits).abs().max().item()
print(f"\n{ids.shape[1]} tokens; hidden states {tuple(hidden.shape)}: texts, tokens, layers, C")
print(f"the output head on them, by hand: the logits differ by at most {gap:.0e}")
assert gap < 1e-3

# %% [markdown]
# ## A head for the token after next
#
# Consider the start of a round, and let x be the last token of the text. The target chose x in the
# round before but has not read it yet, so x has no hidden state. The token *before* x has one, and
# we call that hidden state, after the norm, h.
#
# - The output head on h has already told what x may be.
# - *Head 1* should predict the token after x, as seen from h: the token after next.
# - *Head 2* should predict the token after that one, and so on.
#
# Take the text `for name in names:` and let each word be one token. If x is `in`, then h belongs to
# `name`. Head 1 should predict `names`, and head 2 should predict `:`.
#
# A head changes h a little and leaves the rest to the target's own output head:
#
#     logits = output head of (h + silu(W h))
#
# W is a matrix with C rows and C columns, and it is all that is trained. silu(a) = a / (1 +
# exp(-a)) is a curve with silu(0) = 0. We begin with W = 0. *Guess first:* what does such a head
# predict?


# %%
def head(W, h):
    """Logits (..., V). W (C, C); h (..., C)."""
    return target.head(h + F.silu(h @ W.T))


C = target.config.channels
zero, h = torch.zeros(C, C), target.norm(hidden[:, :, 0])
assert torch.equal(head(zero, h), target.head(h))
guesses = head(zero, h)[0].argmax(-1).tolist()
print("\nW = 0: the head's best guess is the target's guess of the very next token")
for i in range(2, 6):
    print(f"  after {tokenizer.decode([ids[0, i]])!r}: {tokenizer.decode([guesses[i]])!r}")

medusa = Medusa(target.config.vocab_size, C, [last], heads=3).attach(target)    # the library's
with torch.no_grad():
    mine = 0.01 * torch.randn(C, C, generator=torch.Generator().manual_seed(1))
    medusa.blocks[1].weight.copy_(mine)
    assert (medusa.head(1, h) - head(mine, h)).abs().max() < 1e-3               # it counts from 0
    medusa.blocks[1].weight.zero_()

# %% [markdown]
# *Answer:* what the target's own output head makes of h: the very next token. silu(0) is 0, so
# nothing is added.
#
# ## Read once, learn often
#
# The target is frozen, so it has to read each training text only once. We take forty pieces of the
# standard library with 256 tokens each (`pieces_of`, in kit.py). `read` keeps the hidden states of
# the last layer *before* each token, and the target's distribution *after* each token. Six more
# pieces, for measuring, come from files that the target was not trained on.

# %%
train_texts, held_out = read_texts()
learn = pieces_of(tokenizer, train_texts[::7], 40)          # (40, 256) tokens
test = pieces_of(tokenizer, held_out[::2], 6)
before_learn, p_learn = read(target, learn)                 # (40, 256, 1, C), (40, 256, V)
before_test, p_test = read(target, test)
print(f"\n{learn.numel():,} tokens to learn from, {test.numel():,} to measure with")

# %% [markdown]
# ## Which token is the label?
#
# `before_learn[:, i]` is the hidden state before token i, so token i is our x. `p_learn[:, i]` is
# the target's distribution after token i, which is that of token i + 1.
#
# | place i = 2 | what it is |
# |---|---|
# | x | token 2 |
# | h | made from token 1 and all before it; the output head predicts token 2 |
# | label of head 1 | the distribution of token 3: `p_learn[:, 2]` |
# | label of head 2 | the distribution of token 4: `p_learn[:, 3]` |
# | label of head k | the distribution of token 2 + k: `p_learn[:, 2 + k - 1]` |
#
# It is easy to be one off and to take `p_learn[:, 1]` as the label of head 1. That is the
# distribution of token 2, of x itself.
#
# We compare a head that is not trained (W = 0) with both labels. *Guess first:* how much do the
# distributions have in common, measured as sum min?

# %%
with torch.no_grad():
    guessed = head(zero, target.norm(before_test[:, 1:, 0])).softmax(-1)       # places 1, 2, ...
right_label = acceptance(p_test[:, 1:], guessed).mean().item()
wrong_label = acceptance(p_test[:, :-1], guessed).mean().item()                    # one off
table(["label of head 1", "in common, before any training"],
      [["right: token i + 1", f"{right_label:.3f}"], ["WRONG: token i", f"{wrong_label:.3f}"]])
assert wrong_label > 0.999 > right_label

# %% [markdown]
# *Answer:* everything with the wrong label, and little with the right one. With the wrong label
# there is nothing to learn. The head is perfect from the start, because it predicts what the target
# knows already. As a draft model it is as bad as the first row shows. A loss that is too good to be
# true is the sign of a wrong label.
#
# ## A few seconds of training
#
# Each step takes eight pieces of 64 tokens and lets every head predict its distribution at every
# place. The loss is the cross-entropy with the label, -sum of p_target log(q_draft), which is
# smallest where q_draft equals p_target. AdamW, the optimizer, then moves each weight a little
# downhill. Its steps grow at first and get smaller in the second half.
#
# `whole_texts(model, tokens, before, 3)` (nanospec/training/unrolled.py) evaluates all places and
# three heads at once.


# %%
def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0)
    chance = torch.Generator().manual_seed(1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.01 * min(1, (step + 1) / 10, 2 - 2 * step / steps)
        rows = torch.randint(len(learn), (8,), generator=chance)
        at = int(torch.randint(256 - 63, (1,), generator=chance))
        part = slice(at, at + 64)
        labels = p_learn[rows, part]
        log_q = whole_texts(model, learn[rows, part], before_learn[rows, part], 3).log_softmax(-1)
        places, loss = log_q.shape[2], 0
        for k in range(3):                                  # head k + 1: the label is k places on
            loss = loss - (labels[:, k:k + places] * log_q[k]).sum(-1).mean() / 3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False)


train(medusa, 120)

# %% [markdown]
# To see how often each head is right, we use two measures, on texts that are new to it:
#
# - *best guess*: how often the head's likeliest token is the target's likeliest token.
# - *beta*: sum min(p_target, q_draft), the probability that a token drawn from the head would be
#   accepted.
#
# For comparison there is a draft that knows nothing of the text and proposes the mean distribution
# everywhere.
#
# *Guess first:* compare head 1 with heads 2 and 3. Do they get better or worse, and how fast?


# %%
def measure(q_draft):
    """(3, B, places, V) -> the shares of right best guesses, the means of beta: 3 each."""
    places, best, beta = q_draft.shape[2], [], []
    for k in range(3):
        p_target = p_test[:, k:k + places]
        best.append((p_target.argmax(-1) == q_draft[k].argmax(-1)).double().mean().item())
        beta.append(acceptance(p_target, q_draft[k]).mean().item())
    return best, beta


def drafted_by(model):
    return whole_texts(model, test, before_test, 3).softmax(-1)


drafts = {"Medusa's heads": drafted_by(medusa)}
drafts["the mean distribution"] = p_learn.mean((0, 1)).expand_as(drafts["Medusa's heads"])
found = {name: measure(q_draft) for name, q_draft in drafts.items()}


def show(found):
    table(["", *(f"{what}, {k}" for what in ("best guess", "beta") for k in (1, 2, 3))],
          [[name, *(f"{share:.2f}" for share in best + beta)]
           for name, (best, beta) in found.items()])


show(found)

# %% [markdown]
# *Answer:* they get worse, and fast. So the target does know something about the token after next:
# head 1 is far above the mean, but this knowledge falls off fast. Head 2 is much nearer to the
# mean, and head 3 nearer still.
#
# The reason is that a head knows nothing of the tokens in between. After `for` may come `name`,
# `line` or `i`, and what comes two tokens later depends on which. Head 1 does not even know x,
# although x is there to be read. It has to mix everything that may come, and a mixture of many
# distributions is flat.
#
# ## Heads that read
#
# *Hydra* (Ankner et al. 2024) gives each head the tokens in between: head 1 also reads x, head 2
# reads x and the first draft token, and so on. Its formula differs from Medusa's in one place:
#
#     logits = output head of (h + silu(W [h, x, draft tokens so far]))
#
# A token is read as its row in the target's embedding table, so W gets wider with each head. A
# training step takes longer, and Hydra gets 80 steps where Medusa had 120.
#
# *Guess first:* which heads gain most?

# %%
hydra = train(Hydra(target.config.vocab_size, C, [last], heads=3).attach(target), 80)
found["Hydra's heads"] = measure(drafted_by(hydra))
show(found)
figures.heads({name: beta for name, (_, beta) in found.items()})

# %% [markdown]
# *Answer:* heads 2 and 3, which lacked most of what they had to know.
#
# The left panel of the picture shows what each head sees, and the right panel shows beta. Hydra's
# heads fall less, because each of them knows the tokens before its place. (`test` has the true
# tokens in between, where a draft has draft tokens.) The price is that Hydra's heads work one after
# the other, while Medusa's heads all work at once.
#
# ## Three things to know
#
# 1. The hidden states of the target's last layer contain some information about later tokens. A
#    head turns it into draft tokens with two matrix products.
# 2. The label of head 1 is the token after x, not x. A loss that is too good to be true means a
#    wrong label.
# 3. A head that does not read the tokens in between gets worse quickly with depth.
#
# ## Change this and run again
#
# 1. In `train`, write `one_less = max(0, k - 1)` above the loss, and take
#    `labels[:, one_less:one_less + places]`. Now heads 1 and 2 share a label. Which columns of the
#    table show it?
# 2. In `head`, leave out `h +`. What does a head predict before any training, and how does that
#    show in the table of the two labels?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A tree of best tokens* drafts with these heads.
