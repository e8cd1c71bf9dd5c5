# %% [markdown]
# # A tree of best tokens
#
# **How should one draft with heads that do not know what the others predict?**
#
# *What the target knows ahead* trained Medusa's heads: small networks that predict the tokens after
# the next one from a hidden state of the target. This lesson drafts with them, first as a chain and
# then as a tree. Nothing is drawn: a draft token is simply a head's best guess, or its second best.
#
# We need trees (*Several futures*) and draft tokens that were not drawn (*Copying from the past*).

# %%
import torch

import figures
from kit import learn_and_test, table, train
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.trees.shapes import grown_tree
from nanospec.methods.trees.top import TopTree
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.training.unrolled import whole_texts

torch.set_num_threads(1)
target, _, tokenizer = load_pair()
target.requires_grad_(False)
C, last = target.config.channels, target.config.layers - 1

# %% [markdown]
# The next cell trains three heads as before, for a few seconds (`learn_and_test` and `train`, in
# kit.py). To choose among trees, `drafted_by` computes the heads' distributions at every place of
# held-out text.

# %%
texts, (test, before_test, p_test) = learn_and_test(target, tokenizer, 40)
medusa = Medusa(target.config.vocab_size, C, [last], heads=3).attach(target)
train(medusa, texts, steps=120, ahead=3)


def drafted_by(model):
    """(3, B, places, V): what each head predicts at each place of the held-out pieces."""
    return whole_texts(model, test, before_test, 3).softmax(-1)

# %% [markdown]
# ## A chain of best guesses
#
# The oldest use of such heads is *blockwise parallel decoding* (Stern et al. 2018). It writes the
# greedy text, which is the target's likeliest token at each place (temperature 0).
#
# 1. Each head gives its best guess, and together these are a draft.
# 2. The target reads the draft in one call. Draft tokens are accepted as long as each is the
#    target's own best token.
# 3. The same call provides the hidden state for the next draft.

# %%
exact = load_pair(dtype=torch.float64).target           # float64: no ties by rounding
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in os.listdir(top):\n")


@torch.no_grad()
def blockwise(ids, count):
    """-> the greedy text after ids, how many draft tokens were accepted in each call."""
    text, draft, accepted = list(ids), [], []
    while len(text) < len(ids) + count:
        logits, hidden = exact(torch.tensor([text + draft]), layers=[last])
        best = logits[0].argmax(-1).tolist()                # best[i]: the token after token i
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
# Token for token this is the greedy text. Weak heads cost calls, and nothing else. The library's
# drafter does the same with a cache, in about as many calls:

# %%
in_exact = Medusa(target.config.vocab_size, C, [last], heads=3).attach(exact)
in_exact.load_state_dict(medusa.state_dict())
rounds = list(speculate(exact, ModelDrafter(in_exact, 3), ids, 24, temperature=0))
assert tokens_of(rounds) == greedy
print(f"the library: {len(rounds)} rounds, and one call to read the prompt")

# %% [markdown]
# ## Several guesses of each head
#
# A head is often wrong with its best guess and right with its second or third. So we take several
# of each head, which makes a tree. Every guess of head 1 is followed by guesses of head 2, and
# these are the same tokens everywhere, because head 2 does not know what head 1 predicted.
#
# A head's best token, its second best and so on have *ranks*. A draft token x that was not drawn is
# accepted with probability p_target(x) (*Copying from the past*). For each head we therefore
# measure how likely the target finds its i-th best token, on average.
#
# *Guess first:* is head 1's second-best token more often right than head 3's best?

# %%
ranked = drafted_by(medusa).topk(4).indices                # (3, B, places, 4): the best four tokens
accuracies = []
for k in range(3):
    p_of_rank = p_test[:, k:k + ranked.shape[2]].gather(-1, ranked[k])
    accuracies.append(p_of_rank.mean((0, 1)).tolist())
table(["p_target of the", "best", "2nd", "3rd", "4th"],
      [[f"tokens of head {k}", *(f"{share:.3f}" for share in shares)]
       for k, shares in enumerate(accuracies, 1)])

# %% [markdown]
# *Answer:* yes. What head 1 finds second best is worth more than the favourite of a head that looks
# three tokens ahead.
#
# Medusa takes the probability of a row to be the product along its path. With accuracies .6 and .2
# for head 1, and .5 and .1 for head 2:
#
# | row | probability |
# |---|---|
# | the best of head 1 | .6 |
# | after it, the best of head 2 | .6 x .5 = .3 |
# | the second best of head 1 | .2 |
# | after it, the best of head 2 | .2 x .5 = .1 |
#
# Take the rows with the greatest probability, one after the other. No row has a greater probability
# than its parent, so the rows taken always form a tree. Three rows give 1 + .6 + .3 + .2 = 2.1
# tokens per round, where the 1 is the token that always comes. `grown_tree`
# (nanospec/methods/trees/shapes.py) does this.

# %%
expected, example = grown_tree([[.6, .2], [.5, .1]], 4)     # 4 rows: three, and row 0
assert example == [-1, 0, 0, 1] and abs(expected - 2.1) < 1e-12

chain_tokens = 1 + accuracies[0][0] * (1 + accuracies[1][0] * (1 + accuracies[2][0]))
expected, tree = grown_tree(accuracies, 9)
print("\nthe parents of the best tree of eight draft tokens:", tree)
assert expected > chain_tokens

# %% [markdown]
# This number is only a promise, because it assumes that the guesses along a path are independent.
# To check it, we count on the held-out text and treat that text as written by the target. A draft
# token that was not drawn is accepted exactly when it is what the target writes, so we check at
# each place which rows of the tree agree with the text. A row agrees if its parent does and its own
# token does.

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
# Compare the two columns: the independence is not quite true, but the tree is ahead of the chain in
# both.
#
# `TopTree` (nanospec/methods/trees/top.py) drafts such a tree. The next cell shows a round with it.
# *Guess first:* rows 1 and 2 hold different tokens. Which tokens follow each of them?

# %%
drafter = TopTree(in_exact, tree)
first = next(speculate(exact, drafter, ids, 9, temperature=0))
print()
for row in range(len(tree)):
    children = [tokenizer.decode([first.tokens[child]]) for child in range(len(tree))
                if first.parents[child] == row]
    if children:
        print(f"after row {row}, {tokenizer.decode([first.tokens[row]])!r}: {children}")
print(f"accepted rows {first.path}, then {tokenizer.decode([first.token])!r}")
assert tokens_of(speculate(exact, drafter, ids, 24, temperature=0)) == greedy

# %% [markdown]
# *Answer:* the same tokens after both. Head 2 does not know which of the two was taken.
#
# ## Why it is lossless
#
# No draft token was drawn. Is the text still the target's, at temperature 1? It is, because each
# q_draft is one-hot, and the node rule of *Several futures* needs no more.
#
# Here is one place by hand. p_target is [.5, .3, .2], the best guess is token 1, and the second
# best is token 0:
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

# %%
figures.best_tokens(accuracies, {"a chain of three": (chain_tokens, counted(chain)),
                                  "a tree of eight": (expected, counted(tree))})

# %% [markdown]
# ## Three things to know
#
# 1. Heads that work at once can draft a whole tree without any further call.
# 2. All rows of one depth have the same children. The best tree takes the rows with the greatest
#    product of accuracies.
# 3. A tree of best tokens is lossless: nothing was drawn, so each q_draft is one-hot.
#
# ## Change this and run again
#
# 1. Write `grown_tree(accuracies, 33)`. Where do the new rows go, to the side or further down? How
#    many more tokens does a round bring?
# 2. Train for 10 steps in place of 120. What becomes of the greedy text, of the number of calls,
#    and of the tree?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* the draft model of *A state that reads its draft* knows its own draft tokens and costs
# next to nothing. Exercises: 17 (Medusa's tree).
