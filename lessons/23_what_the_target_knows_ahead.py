# %% [markdown]
# # What the target knows ahead
#
# **Does the target already know the token after the next one?**
#
# The draft model so far was a second GPT that reads the whole text again. But the target has just
# read this text, with many layers, and what it found out is available for free. So we put a small
# network, a *head* (not one of attention's), on top of the target and let it predict one token
# further. *Medusa* has several such heads, which all predict at once (Cai et al. 2024).
#
# This lesson trains three heads for some seconds, measures what they know, and drafts with them. It
# uses beta, the acceptance at one place (*Good where it matters*), trees (*Several futures*), and
# draft tokens that were not drawn (*Copying from the past*).

# %%
import torch
import torch.nn.functional as F

import figures
from kit import pieces_of, read, table
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.medusa import Hydra, Medusa
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.methods.trees.drawn import TopTree
from nanospec.methods.trees.shapes import grown_tree
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, prefix, tokenizer = load_pair(draft_model="prefix")   # prefix: a draft model, see below
target.requires_grad_(False)                    # the target is frozen: only the heads learn

# %% [markdown]
# ## The output of a layer
#
# The target is a stack of layers (`GPT.forward`, in nanospec/model.py). For each token, each layer
# computes C numbers, the *hidden state* of the token after this layer. (Papers on drafting often
# call them *features*.) Two more steps follow the last layer: a *norm*, which divides the numbers
# by their size, and the *output head*, a matrix that turns the C numbers into V logits.
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
# W is a matrix of C x C weights, and it is all that is trained. silu(a) = a / (1 +
# exp(-a)) is a curve with silu(0) = 0. We begin with W = 0. *Guess first:* what does such a head
# predict?

# %%
def head(W, h):
    """Logits (..., V). W (C, C); h (..., C)."""
    return target.head(h + F.silu(h @ W.T))


C = target.config.channels
zero, h = torch.zeros(C, C), target.norm(hidden[:, :, 0])
assert torch.equal(head(zero, h), target.head(h))
medusa = Medusa(target.config.vocab_size, C, [last], heads=3).attach(target)    # the library's
with torch.no_grad():
    mine = 0.01 * torch.randn(C, C, generator=torch.Generator().manual_seed(1))
    medusa.blocks[1].weight.copy_(mine)
    assert (medusa.head(1, h) - head(mine, h)).abs().max() < 1e-3               # it counts from 0
    medusa.blocks[1].weight.zero_()

# %% [markdown]
# *Answer:* what the target's own output head makes of h: the very next token, x itself. silu(0) is
# 0, so nothing is added.
#
# ## Which token is the label?
#
# The target is frozen, so it has to read each training text only once. We take forty pieces of the
# standard library with 256 tokens each (`pieces_of` and `read`, in kit.py), and six more, for
# measuring, from files that the target was not trained on.
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
# distribution of token 2, of x itself. We compare a head that is not trained (W = 0) with both
# labels.
#
# *Guess first:* how much do the distributions have in common, measured as sum min?

# %%
train_texts, held_out = read_texts()
learn = pieces_of(tokenizer, train_texts[::7], 40)          # (40, 256) tokens
test = pieces_of(tokenizer, held_out[::2], 6)
before_learn, p_learn = read(target, learn)                 # (40, 256, 1, C), (40, 256, V)
before_test, p_test = read(target, test)
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
# knows already. A loss that is too good to be true is the sign of a wrong label.
#
# ## A few seconds of training
#
# Each step takes eight pieces of 64 tokens and lets every head predict its distribution at every
# place. The loss is the cross-entropy with the label, -sum of p_target log(q_draft), which is
# smallest where q_draft equals p_target. AdamW, the optimizer, then moves each weight a little
# downhill. `whole_texts(model, tokens, before, 3)`, of unrolled.py with the draft models, evaluates
# all places and three heads at once.

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
# Now measure the heads on texts that are new to them, by mean beta: the mean of sum min(p_target,
# q_draft), the probability that a token drawn from the head would be accepted. For comparison there
# is a draft model that knows nothing of the text and proposes the mean distribution everywhere.
#
# *Guess first:* compare head 1 with heads 2 and 3. Do they get better or worse, and how fast?

# %%
def betas(q_draft):
    """(3, B, places, V) -> the mean of beta for each head."""
    places = q_draft.shape[2]
    return [acceptance(p_test[:, k:k + places], q_draft[k]).mean().item() for k in range(3)]


def show(found):
    table(["beta of", "draft token 1", "2", "3"],
          [[name, *(f"{beta:.2f}" for beta in line)] for name, line in found.items()])


of_medusa = whole_texts(medusa, test, before_test, 3).softmax(-1)
found = {"the mean distribution": betas(p_learn.mean((0, 1)).expand_as(of_medusa)),
         "Medusa's heads": betas(of_medusa)}
show(found)

# %% [markdown]
# *Answer:* they get worse, and fast. Head 1 is far above the mean, so the target does know
# something ahead. Head 2 is little better than the mean, and head 3 no better.
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
# Hydra gets 80 steps where Medusa had 120. The last line of the table is `prefix`, which ships with
# this project. It reads hidden states and tokens, too, but those of the whole text, and it was
# trained far longer.
#
# *Guess first:* how high does beta get with reading, and with training?

# %%
hydra = train(Hydra(target.config.vocab_size, C, [last], heads=3).attach(target), 80)
found["Hydra's heads"] = betas(whole_texts(hydra, test, before_test, 3).softmax(-1))
with torch.no_grad():
    before = before_tokens(target(test, layers=prefix.layers)[1])
    found["prefix, trained longer"] = betas(whole_texts(prefix, test, before, 3).softmax(-1))
show(found)
assert min(found["prefix, trained longer"]) > 2 * found["Medusa's heads"][0]
figures.heads(found)

# %% [markdown]
# *Answer:* reading the tokens in between helps heads 2 and 3 most, since they lacked most of what
# they had to know: their beta more than doubles, and that of head 1 grows by less. Trained
# far longer, a draft model that reads the whole text is accepted more than twice as often as
# Medusa's first head, at every token. So yes: with the tokens in between, the target's hidden
# states are enough to draft from. The lessons after this one build on that.
#
# The left panel of the picture shows what each head sees, and the right panel shows beta. The price
# of reading is that these heads work one after the other, while Medusa's heads all work at once.
# What can be done with heads that know nothing of one another?
#
# ## A tree of best tokens
#
# Take several guesses of each head. This makes a tree: every guess of head 1 is followed by guesses
# of head 2, and these are the same tokens everywhere, because head 2 does not know what head 1
# predicted. Nothing is drawn, and a draft token x that was not drawn is accepted with probability
# p_target(x). So for each head we measure the probability that the target gives to the head's best
# token, to its second best, and so on.
#
# *Guess first:* is head 1's second-best token more often right than head 3's best?

# %%
ranked = of_medusa.topk(4).indices                      # (3, B, places, 4): the best four tokens
accuracies = []
for k in range(3):
    p_of_rank = p_test[:, k:k + ranked.shape[2]].gather(-1, ranked[k])
    accuracies.append(p_of_rank.mean((0, 1)).tolist())
table(["p_target of the", "best", "2nd", "3rd", "4th"],
      [[f"tokens of head {k}", *(f"{share:.3f}" for share in shares)]
       for k, shares in enumerate(accuracies, 1)])
assert accuracies[0][1] > accuracies[2][0]

# %% [markdown]
# *Answer:* yes. What head 1 finds second best is worth more than the favourite of a head that looks
# three tokens ahead.
#
# (A head ranks its own guesses, not always as the target would: a third may be worth more than the
# second.) An *accuracy* is one of the numbers just printed. Medusa takes the probability of a node
# to be the product along its path. With accuracies .6 and .2 for head 1, and .5 and .1 for head 2:
#
# | node | probability |
# |---|---|
# | the best of head 1 | .6 |
# | after it, the best of head 2 | .6 x .5 = .3 |
# | the second best of head 1 | .2 |
# | after it, the best of head 2 | .2 x .5 = .1 |
#
# Take the nodes with the greatest probability, one after the other. No node has a greater
# probability than its parent, so the nodes taken always form a tree. Three nodes give 1 + .6 + .3 +
# .2 = 2.1 tokens per round, where the 1 is the token that always comes. `grown_tree`
# (nanospec/methods/trees/shapes.py) does this.
#
# The product is only a promise, because it assumes that the guesses along a path are independent.
# To check it, we count at each place of the held-out text which nodes agree with the text, as if
# the target had written it.

# %%
expected, example = grown_tree([[.6, .2], [.5, .1]], 4)     # 4 nodes: three, and node 0
assert example == [-1, 0, 0, 1] and abs(expected - 2.1) < 1e-12
places = test.shape[1] - 3                                  # where three tokens follow
right = [ranked[k, :, :places] == test[:, k + 1:k + 1 + places, None] for k in range(3)]


def counted(tree):
    """Tokens in a round, a mean over all places; 1 for the token that always comes."""
    agrees, depth = [right[0][..., 0] | True], [0]          # node 0 is the text itself
    for node, parent in enumerate(tree[1:], 1):
        rank = tree[1:node].count(parent)                   # how many elder siblings it has
        agrees.append(agrees[parent] & right[depth[parent]][..., rank])
        depth.append(depth[parent] + 1)
    return sum(nodes.double().mean().item() for nodes in agrees)


chain_tokens = 1 + accuracies[0][0] * (1 + accuracies[1][0] * (1 + accuracies[2][0]))
expected, tree = grown_tree(accuracies, 9)
promised = {"a chain of three": ([-1, 0, 1, 2], chain_tokens), "a tree of eight": (tree, expected)}
table(["tokens in a round", "promised", "counted"],
      [[name, f"{tokens:.2f}", f"{counted(shape):.2f}"]
       for name, (shape, tokens) in promised.items()])
assert counted(tree) > counted([-1, 0, 1, 2])

# %% [markdown]
# The two columns are close, so the promise is good enough here, and the tree is ahead
# of the chain in both. `TopTree` (nanospec/methods/trees/drawn.py) drafts such a tree.
#
# Is the text still the target's? No draft token was drawn, so each q_draft is one-hot, and the node
# rule (*Several futures*) is exact for such drafts, too. By hand: p_target is [.5, .3, .2], the
# best guess is token 1, and the second best is token 0.
#
# | what happens | probability |
# |---|---|
# | token 1 is accepted | .3 |
# | token 1 is rejected; token 0 is accepted with .5 / .7 | .7 x .5 / .7 = .5 |
# | both are rejected; only token 2 is left | .7 x .2 / .7 = .2 |
#
# Each token comes out with its probability in p_target. Now we walk it, first with a table of three
# tokens as the target, then with a small GPT that has real hidden states.

# %%
print()
for name, small in ("a table", TableModel(3, seed=5, zeros=0)), ("a small GPT", small_gpt(3, 2, 5)):
    drafter = TopTree(small_learned("medusa", small), [-1, 0, 0, 1])
    walked, _ = walk(lambda dice: tuple(tokens_of(speculate(small, drafter, [0, 1], 3, dice=dice))))
    off = distance(walked, target_distribution(small, [0, 1], 3))[1]
    print(f"{name}: the distribution of three tokens is off by {off:.0e}")
    assert off < 1e-12

# %% [markdown]
# ## Three things to know
#
# 1. The target's hidden states tell something of later tokens, and a head turns it into draft
#    tokens with two matrix products. A head that reads the tokens in between knows more.
# 2. The label of head 1 is the token after x, not x. A loss that is too good to be true means a
#    wrong label.
# 3. Heads that work at once draft a whole tree without any further call. The best tree takes the
#    nodes with the greatest product of accuracies, and it is lossless: nothing was drawn.
#
# ## Change this and run again
#
# 1. In `train`, write `one_less = max(0, k - 1)` above the loss, and take `labels[:,
#    one_less:one_less + places]`. Now heads 1 and 2 share a label. Which columns of the table show
#    it?
# 2. In `head`, leave out `h +`, and take out the asserts before the training and the one after the
#    table of the two labels. What does a head predict before any training, and what does that table
#    show?
# 3. Write `grown_tree(accuracies, 33)`. Where do the new nodes go, to the side or further down? How
#    many more tokens does a round bring?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* the draft model of *A state that reads its draft* knows its own draft tokens and costs
# next to nothing. Exercises: 17 (Medusa's tree).
