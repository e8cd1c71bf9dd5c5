# %% [markdown]
# # What the target knows ahead
#
# **Does the target already know the token after the next one?**
#
# A draft model of lesson 8 is a second GPT. It reads the whole text again.
# But the target has just read this text, with many layers. What it found out is there, for nothing.
# So put a small network, a *head*, on top of the target, and let it say one token more.
# *Medusa* has several such heads (Cai et al. 2024). All of them speak at once.
#
# This lesson trains three heads. You need lesson 12 (beta, without dice), lesson 15 (trees) and
# lesson 19 (draft tokens that nobody drew).
# The training here takes seconds, so the heads stay weak.
# `python train_tiny.py --what medusa` trains good ones.

# %%
import torch
import torch.nn.functional as F

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.draft_models.hydra import Hydra
from nanospec.draft_models.medusa import Medusa
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.generate import generate
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance
from nanospec.training.whole import before_tokens, whole_texts
from nanospec.trees.shapes import grown_tree
from nanospec.trees.top import TopTree

torch.set_num_threads(1)
target, _, tokenizer = load_pair()
target.requires_grad_(False)                    # the target is frozen: only the heads learn

# %% [markdown]
# ## What a layer puts out
#
# The target is a stack of layers (`GPT.forward`, in nanospec/model.py).
# For each token, each layer puts out C numbers: the token's *hidden state* after this layer.
# (Papers on drafting often call them *features*.)
# After the last layer come two more steps: a norm, and the *output head*.
# The output head is one matrix. It makes V logits out of C numbers.
#
# `target(..., layers=[...])` also hands back the hidden states of these layers.
# Let us do the last two steps by hand.

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
# Think of a round. The last token of the text is x. It is new: the target has chosen it in the
# round before, and has not read it yet. So x has no hidden state.
# The token *before* x has one. Let h be this hidden state after the norm.
#
# - The output head on h has said what x may be. That is known already.
# - *Head 1* shall say what comes behind x: the token after next, as seen from h.
# - *Head 2* shall say the token behind that one, and so on.
#
# Take the text `for name in names:`, and let each word be one token.
# If x is `in`, then h belongs to `name`. Head 1 should say `names`. Head 2 should say `:`.
#
# What is a head? It changes h a little, and leaves the rest to the target's own output head:
#
# logits = output head of (h + silu(W h))
#
# W is a matrix with C rows and C columns. It is all that is trained.
# silu(a) = a / (1 + exp(-a)) is a curve with silu(0) = 0.
# So begin with W = 0. *Guess first:* what does such a head say?

# %%
def head(W, h):
    """Logits (..., V). W (C, C); h (..., C)."""
    return target.head(h + F.silu(h @ W.T))


C = target.config.channels
zero, h = torch.zeros(C, C), target.norm(hidden[:, :, 0])
assert torch.equal(head(zero, h), target.head(h))
says = head(zero, h)[0].argmax(-1).tolist()
print("\nW = 0: the head's best guess is the target's guess of the very next token")
for i in range(2, 6):
    print(f"  behind {tokenizer.decode([ids[0, i]])!r}: {tokenizer.decode([says[i]])!r}")

medusa = Medusa(target.config.vocab_size, C, [last], heads=3).attach(target)    # the library's
with torch.no_grad():
    mine = 0.01 * torch.randn(C, C, generator=torch.Generator().manual_seed(1))
    medusa.blocks[1].weight.copy_(mine)
    assert (medusa.head(1, h) - head(mine, h)).abs().max() < 1e-3               # it counts from 0
    medusa.blocks[1].weight.zero_()

# %% [markdown]
# ## Read once, learn often
#
# The target is frozen, so it has to read each training text only once.
# We take forty pieces of the standard library, of 256 tokens each.
# We keep the hidden states of the last layer, and the target's distribution behind each token.
# Six more pieces come from files that the target was not trained on. They are for the measuring.

# %%
def pieces_of(texts, count):
    """(count, 256) tokens, each piece from the start of a method."""
    found = []
    for text in texts:
        at = text.find("\n    def ", len(text) // 3)
        ids = tokenizer.encode(text[at:at + 1500])[:256] if at >= 0 else []
        if len(ids) == 256 and len(found) < count:
            found.append(ids)
    return torch.tensor(found)


@torch.no_grad()
def read(tokens):
    """-> hidden states before each token (B, T, 1, C), the distribution behind each (B, T, V)."""
    logits, hidden = target(tokens, layers=[last])
    return before_tokens(hidden), logits.softmax(-1)        # before the first token: zeros


train_texts, held_out = read_texts()
learn, test = pieces_of(train_texts[::7], 40), pieces_of(held_out[::2], 6)
before_learn, p_learn = read(learn)
before_test, p_test = read(test)
print(f"\n{learn.numel():,} tokens to learn from, {test.numel():,} to measure with")

# %% [markdown]
# ## Which token is the label?
#
# `before[:, i]` is the hidden state before token i. So token i is our x.
# `p_learn[:, i]` is the target's distribution behind token i: of token i + 1.
#
# | place i = 2 | what it is |
# |---|---|
# | x | token 2 |
# | h | made from token 1 and all before it; the output head says token 2 |
# | label of head 1 | the distribution of token 3: `p_learn[:, 2]` |
# | label of head 2 | the distribution of token 4: `p_learn[:, 3]` |
# | label of head k | the distribution of token 2 + k: `p_learn[:, 2 + k - 1]` |
#
# It is easy to be one off. Take `p_learn[:, 1]` as the label of head 1.
# That is the distribution of token 2, of x itself.
#
# We compare a head that is not trained (W = 0) with both labels.
# *Guess first:* how much do the distributions have in common, as sum min?

# %%
with torch.no_grad():
    said = head(zero, target.norm(before_test[:, 1:, 0])).softmax(-1)       # places 1, 2, ...
right_label = acceptance(p_test[:, 1:], said).mean().item()
wrong_label = acceptance(p_test[:, :-1], said).mean().item()                    # one off
table(["label of head 1", "in common, before any training"],
      [["right: token i + 1", f"{right_label:.3f}"], ["WRONG: token i", f"{wrong_label:.3f}"]])
assert wrong_label > 0.999 > right_label

# %% [markdown]
# With the wrong label there is nothing to learn. The head is perfect from the start.
# It says what the target knows already. As a draft model it is as bad as in the first line.
# A loss that is too good to be true is the sign of a wrong label.
#
# ## A training of some seconds
#
# At each step: take eight pieces of 64 tokens. Let each head say its distribution at every place.
# The loss is the cross-entropy with the label: -sum of p_target log(q_draft).
# It is smallest where q_draft is p_target. AdamW then moves each weight a little downhill.
# The steps grow at first, and get smaller in the second half.
#
# `whole_texts(model, tokens, before, 3)` answers for all places and for three heads at once.
# (nanospec/training/whole.py)

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
# How often is each head right? Two measures, on the texts that are new to it:
#
# - *best guess*: is the head's likeliest token the target's likeliest token?
# - *beta*: sum min(p_target, q_draft), as in lesson 12. It says how often a token that is drawn
#   from the head would be accepted.
#
# For comparison: a draft that knows nothing of the text. It says the mean distribution everywhere.
#
# *Guess first:* head 1 against head 2 and head 3. Do they get better or worse, and how fast?

# %%
def measure(q_draft):
    """(3, B, places, V) -> the shares of right best guesses, the means of beta: 3 each."""
    places, best, beta = q_draft.shape[2], [], []
    for k in range(3):
        p_target = p_test[:, k:k + places]
        best.append((p_target.argmax(-1) == q_draft[k].argmax(-1)).double().mean().item())
        beta.append(acceptance(p_target, q_draft[k]).mean().item())
    return best, beta


def said_of(model):
    return whole_texts(model, test, before_test, 3).softmax(-1)


drafts = {"Medusa's heads": said_of(medusa)}
drafts["the mean distribution"] = p_learn.mean((0, 1)).expand_as(drafts["Medusa's heads"])
found = {name: measure(q_draft) for name, q_draft in drafts.items()}


def show(found):
    table(["", *(f"{what}, {k}" for what in ("best guess", "beta") for k in (1, 2, 3))],
          [[name, *(f"{share:.2f}" for share in best + beta)]
           for name, (best, beta) in found.items()])


show(found)

# %% [markdown]
# So the target does know something about the token after next: head 1 is far above the mean.
# But what it knows falls fast. Head 2 is much nearer to the mean, and head 3 nearer still.
#
# Why? A head knows nothing of the tokens in between.
# Behind `for` may come `name`, `line` or `i`. What comes two tokens later depends on which.
# Head 1 does not even know x, although x is there to be read!
# So it has to mix all that may come. A mixture of many distributions is flat.
#
# ## Heads that read
#
# *Hydra* (Ankner et al. 2024) gives each head the tokens in between: head 1 also reads x, head 2
# reads x and the first draft token, and so on. Its formula differs from Medusa's in one place:
#
# logits = output head of (h + silu(W [h, x, draft tokens so far]))
#
# A token is read as its row in the target's embedding table. So W gets wider with each head.
# A step of its training takes longer, so it gets 80 steps where Medusa had 120.
#
# *Guess first:* which heads gain most?

# %%
hydra = train(Hydra(target.config.vocab_size, C, [last], heads=3).attach(target), 80)
found["Hydra's heads"] = measure(said_of(hydra))
show(found)
figures.heads({name: beta for name, (_, beta) in found.items()})

# %% [markdown]
# Look at the picture. On the left stands what each head sees. On the right stands beta.
# Hydra's heads fall less. All of them know the tokens that they stand behind.
# (`test` has the true tokens in between. A draft has draft tokens there.)
#
# The price: Hydra's heads speak one after the other. Medusa's heads speak at once.
#
# ## A chain of best guesses
#
# The oldest use of such heads is *blockwise parallel decoding* (Stern et al. 2018).
# It writes the greedy text: temperature 0, the target's likeliest token at each place.
#
# 1. Each head says its best guess. Together they are a draft.
# 2. The target reads the draft in one call. It accepts as long as each draft token is its own best.
# 3. The same call has made the hidden state for the next draft.

# %%
exact = load_pair(dtype=torch.float64).target           # float64: no ties by rounding (lesson 9)
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in os.listdir(top):\n")


@torch.no_grad()
def blockwise(ids, count):
    """-> the greedy text behind ids, how many draft tokens were accepted in each call."""
    text, draft, accepted = list(ids), [], []
    while len(text) < len(ids) + count:
        logits, hidden = exact(torch.tensor([text + draft]), layers=[last])
        best = logits[0].argmax(-1).tolist()                # best[i]: the token behind token i
        end = len(text) - 1                                 # the place of the last token
        for token in draft:
            if token != best[end]:                          # not what the target would write
                break
            end += 1
        accepted.append(end - len(text) + 1)
        text += draft[:accepted[-1]] + [best[end]]
        h = target.norm(hidden[0, end, 0].float())          # that of the token before the last one
        draft = [int(medusa.head(k, h).argmax()) for k in range(3)]
    return text[len(ids):len(ids) + count], accepted


greedy = list(generate(exact, ids, 24, temperature=0))
text, accepted = blockwise(ids, 24)
print(f"\ngreedy text: {tokenizer.decode(greedy)!r}")
print(f"draft tokens accepted in each of {len(accepted)} calls: {accepted}")
assert text == greedy

# %% [markdown]
# Token for token it is the greedy text. Weak heads cost calls, and nothing else.
# The library's drafter does the same with a cache, in about as many calls:

# %%
in_exact = Medusa(target.config.vocab_size, C, [last], heads=3).attach(exact)
in_exact.load_state_dict(medusa.state_dict())
rounds = list(speculate(exact, ModelDrafter(in_exact, 3), ids, 24, temperature=0))
assert tokens_of(rounds) == greedy
print(f"the library: {len(rounds)} rounds, and one call to read the prompt")

# %% [markdown]
# ## Several guesses of each head
#
# A head is often wrong with its best guess, and right with its second or third.
# So take several of each head: a tree (lesson 15).
# Behind every guess of head 1 stand guesses of head 2. They are the same tokens everywhere, because
# head 2 does not know what head 1 said.
#
# Nothing is drawn. The tokens are a head's best, second best, and so on: they have *ranks*.
# By lesson 19, a draft token x that nobody drew is accepted with probability p_target(x).
# So count for each head: how likely does the target find its i-th best token, on average?
#
# *Guess first:* is head 1's second-best token more often right than head 3's best?

# %%
ranked = said_of(medusa).topk(4).indices                # (3, B, places, 4): the best four tokens
accuracies = []
for k in range(3):
    p_of_rank = p_test[:, k:k + ranked.shape[2]].gather(-1, ranked[k])
    accuracies.append(p_of_rank.mean((0, 1)).tolist())
table(["p_target of the", "best", "2nd", "3rd", "4th"],
      [[f"tokens of head {k}", *(f"{share:.3f}" for share in shares)]
       for k, shares in enumerate(accuracies, 1)])

# %% [markdown]
# Medusa takes the chance of a row to be the product along its path.
# With accuracies .6 and .2 for head 1, and .5 and .1 for head 2:
#
# | row | chance |
# |---|---|
# | the best of head 1 | .6 |
# | behind it, the best of head 2 | .6 x .5 = .3 |
# | the second best of head 1 | .2 |
# | behind it, the best of head 2 | .2 x .5 = .1 |
#
# Take the rows with the greatest chance, one after the other.
# No row has a greater chance than its parent. So the rows that were taken are always a tree.
# Three rows give 1 + .6 + .3 + .2 = 2.1 tokens in a round. (The 1 is the token that always comes.)
# `grown_tree` (nanospec/trees/shapes.py) does that.

# %%
expected, example = grown_tree([[.6, .2], [.5, .1]], 4)     # 4 rows: three, and row 0
assert example == [-1, 0, 0, 1] and abs(expected - 2.1) < 1e-12

chain_tokens = 1 + accuracies[0][0] * (1 + accuracies[1][0] * (1 + accuracies[2][0]))
expected, tree = grown_tree(accuracies, 9)
print("\nthe parents of the best tree of eight draft tokens:", tree)
assert expected > chain_tokens

# %% [markdown]
# That is a promise. It takes the guesses along a path to be independent. Are they?
# Let us count. By lesson 19, a draft token that nobody drew is accepted just when it is what the
# target writes. So take the held-out text as written by the target, and look at each place:
# which rows of the tree agree with the text? A row agrees if its parent does, and its own token.

# %%
places = test.shape[1] - 3                                  # where three tokens follow
right = [ranked[k, :, :places] == test[:, k + 1:k + 1 + places, None] for k in range(3)]


def counted(tree):
    """Tokens in a round, a mean over all places; 1 for the token that always comes."""
    agrees, depth = [right[0][..., 0] | True], [0]          # row 0 is the text itself
    for row, parent in enumerate(tree[1:], 1):
        rank = tree[1:row].count(parent)                    # how many elder siblings it has
        agrees.append(agrees[parent] & right[depth[parent]][..., rank])
        depth.append(depth[parent] + 1)
    return sum(rows.double().mean().item() for rows in agrees)


chain = [-1, 0, 1, 2]
table(["tokens in a round", "promised", "counted"],
      [["a chain of three", f"{chain_tokens:.2f}", f"{counted(chain):.2f}"],
       ["a tree of eight", f"{expected:.2f}", f"{counted(tree):.2f}"]])
assert counted(tree) > counted(chain)

# %% [markdown]
# The promise is not far off. And the tree is ahead of the chain in both columns.
#
# `TopTree` (nanospec/trees/top.py) drafts such a tree. Here is a round with it.
# *Guess first:* rows 1 and 2 hold different tokens. What stands behind each of them?

# %%
drafter = TopTree(in_exact, tree)
first = next(speculate(exact, drafter, ids, 9, temperature=0))
print()
for row in range(len(tree)):
    children = [tokenizer.decode([first.tokens[child]]) for child in range(len(tree))
                if first.parents[child] == row]
    if children:
        print(f"behind row {row}, {tokenizer.decode([first.tokens[row]])!r}: {children}")
print(f"accepted rows {first.path}, then {tokenizer.decode([first.token])!r}")
assert tokens_of(speculate(exact, drafter, ids, 24, temperature=0)) == greedy

# %% [markdown]
# ## Why it is lossless
#
# No draft token was drawn. Is the text still the target's, at temperature 1?
# Yes: each q_draft is one-hot, and the rule of lesson 15 needs no more.
# One place by hand. p_target is [.5, .3, .2].
# The best guess is token 1, the second best is token 0:
#
# | what happens | probability |
# |---|---|
# | token 1 is accepted | .3 |
# | token 1 is rejected; token 0 is accepted with .5 / .7 | .7 x .5 / .7 = .5 |
# | both are rejected; only token 2 is left | .7 x .2 / .7 = .2 |
#
# Each token comes out as often as p_target says.
# Now walk (lesson 5). First a table of three tokens is the target, then a small GPT with real
# hidden states.

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
# 1. The hidden states of the target's last layer say a little about tokens further on. A head makes
#    draft tokens of it, with two products. The label of head 1 is the token behind x, not x.
# 2. A head that does not read the tokens in between falls fast with depth. All rows of one depth
#    have the same children.
# 3. A tree of best tokens is lossless: nothing was drawn, so each q_draft is one-hot.
#
# ## Change this and run again
#
# 1. In `train`, write `one_less = max(0, k - 1)` above the loss, and take
#    `labels[:, one_less:one_less + places]`. Now heads 1 and 2 share a label.
#    Which columns of the table tell you? Does the greedy text change?
# 2. Write `grown_tree(accuracies, 33)`. Where do the new rows go: to the side, or further down?
#    How many tokens more does a round bring?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# Next: lesson 24 builds a draft model that reads its own draft, and costs next to nothing.
# Exercises: 17 (Medusa's tree).
