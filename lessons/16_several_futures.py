# %% [markdown]
# # Several futures
#
# **If one call scores many tokens, why draft only one future?**
#
# So far a draft was a chain, in which each draft token follows the one before it. One rejection
# then costs all draft tokens after it. But a few more rows in a call cost little (*Ten for the
# price of one*). So let the draft model propose two tokens for the same place. If the first is
# rejected, the second may be accepted.
#
# Is that still lossless, and how can one call score two futures? The lesson builds on *Accept or
# replace* and on the walk.

# %%
import torch

import figures
from kit import OneRow, table
from nanospec.files import load_pair
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import TreeDraft, of_text
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

names = ["range", "items", "zip", "def"]                    # what may follow "for x in"
p_target = torch.tensor([.6, .3, .1, 0], dtype=torch.float64)
q_draft = torch.tensor([.2, .2, .5, .1], dtype=torch.float64)           # a bad draft

# %% [markdown]
# ## A second try
#
# Take the bad draft from *Why it is lossless*. One draft token is accepted with probability .5:
#
# | first try                         | range | items | zip | def | all |
# |-----------------------------------|-------|-------|-----|-----|-----|
# | p_target                          | .6    | .3    | .1  | 0   | 1   |
# | q_draft                           | .2    | .2    | .5  | .1  | 1   |
# | accepted: min(p_target, q_draft)  | .2    | .2    | .1  | 0   | .5  |
# | missing: p_target - accepted      | .4    | .1    | 0   | 0   | .5  |
#
# After a rejection we drew the replacement from what is missing, scaled to add up to 1. That
# residual distribution is [.8, .2, 0, 0] here.
#
# But accept or replace can make a token of *any* distribution from a draft token. So instead of
# drawing the replacement, try a second draft token. For this try, the residual distribution takes
# the place of p_target:
#
# | second try                        | range | items | zip | def | all |
# |-----------------------------------|-------|-------|-----|-----|-----|
# | residual distribution             | .8    | .2    | 0   | 0   | 1   |
# | q_draft                           | .2    | .2    | .5  | .1  | 1   |
# | accepted: min of the two          | .2    | .2    | 0   | 0   | .4  |
# | missing: residual - accepted      | .6    | 0     | 0   | 0   | .6  |
#
# The second draft token is accepted with probability .4. Only if it is rejected too do we draw a
# replacement, which is always "range" here. One of the two is accepted with probability .5 + .5 x
# .4 = .7.
#
# A program draws both draft tokens before the target is called, because one call scores both. If
# the first is accepted, the second is ignored.
#
# Draft tokens for the same place are called *children* of the token before that place. The code
# below takes any number of them, and is accept-or-replace in a loop.

# %%
def accept_one(children, p_target, dice):
    """children: [(token, q_draft that it was drawn from), ...], in the order of drawing
    -> (number of the accepted child, its token), or (None, the replacement)."""
    left = p_target
    for number, (x, q) in enumerate(children):                                  # NEW: a loop
        if dice.flip(left[x] / q[x]):
            return number, x
        left = (left - q).clamp(min=0)
        left = left / left.sum()        # NEW: the residual distribution is the next child's target
    return None, dice.pick(left)


half, wanted = torch.tensor([[.5, .5], [.2, .8]], dtype=torch.float64)
found, _ = walk(lambda dice: accept_one([(0, half), (1, half)], wanted, OneRow(dice)))
assert abs(found[0, 0] - .4) < 1e-12 and abs(found[1, 1] - .6) < 1e-12  # child 0, or else child 1

# %% [markdown]
# ## No token twice
#
# In the second table, "zip" has a residual probability of 0, so a second "zip" is a wasted try. The
# same holds for any draft token that was rejected before. It is better to draw the second draft
# token *without replacement*: remove the first one from q_draft, and rescale the rest so that its
# sum is 1 again. If "zip" was drawn, [.2, .2, .5, .1] becomes [.4, .4, 0, .2]. (*Independent* means
# that both are drawn from the same q_draft.)
#
# The rule stays as it is. It only needs the distribution that each child was drawn from, and
# `accept_one` divides by exactly that: report what you sample.

# %%
def draw_children(q_draft, count, dice, independent=False):
    """Draft tokens for one place -> [(token, the distribution that it was drawn from), ...]."""
    children, left = [], q_draft
    for _ in range(count):
        x = dice.pick(left)
        children.append((x, left))
        if not independent:
            left = left.clone()
            left[x] = 0
            left = left / left.sum()
    return children


def by_library(children, p_target, dice):
    """The same place as a draft for `verify_tree`, in nanospec/methods/trees/node_rule.py."""
    count = len(children)
    tokens = torch.tensor([[0] + [x for x, _ in children]])             # row 0: the token before
    q_draft = torch.stack([0 * p_target] + [q for _, q in children])[None]
    parents = torch.tensor([[-1] + [0] * count])                        # all are children of row 0
    draft, p_rows = TreeDraft(tokens, q_draft, parents), p_target.expand(1, count + 1, -1)
    row, token = verify_tree(draft, p_rows, dice.dice)
    return (int(row) - 1, int(tokens[0, row])) if row > 0 else (None, int(token))

# %% [markdown]
# ## Two wrong rules
#
# Both look sensible, and both accept more than the right rule does, which should make you
# suspicious.

# %%
def forget_the_rejection(children, p_target, dice):
    """The second child is tried as if the first had never been rejected."""
    for number, (x, q) in enumerate(children):
        if dice.flip(p_target[x] / q[x]):           # WRONG: p_target in place of what is left of it
            return number, x
    return None, dice.pick(p_target)                # WRONG: the same


def try_the_likeliest_first(children, p_target, dice):
    """The child that the target likes best is tried first, and may be the one drawn last."""
    left = p_target
    # WRONG: the second child's q depends on which token was drawn before it.
    by_taste = sorted(children, key=lambda child: -p_target[child[0]])
    for number, (x, q) in enumerate(by_taste):
        if dice.flip(left[x] / q[x]):
            return number, x
        left = (left - q).clamp(min=0)
        left = left / left.sum()
    return None, dice.pick(left)

# %% [markdown]
# ## Which of them is exact?
#
# We walk every outcome. The last column is the total variation between the distribution of the
# token and p_target.
#
# *Guess first:* with two independent children, one is accepted with probability .7. How often is it
# without replacement?

# %%
def walk_place(rule, count, independent=False):
    """-> {(the accepted child or None, token): probability}."""
    def play(dice):
        children = draw_children(q_draft, count, OneRow(dice), independent)
        return rule(children, p_target, OneRow(dice))
    return walk(play)[0]


cases = {"one child": (accept_one, 1),
         "two, independent": (accept_one, 2, True),
         "two, without replacement": (accept_one, 2),
         "WRONG: forget the rejection": (forget_the_rejection, 2),
         "WRONG: try the likeliest first": (try_the_likeliest_first, 2)}
walked = {name: walk_place(*case) for name, case in cases.items()}
for name, (rule, *how) in cases.items():
    if rule is accept_one:
        assert distance(walked[name], walk_place(by_library, *how))[1] < 1e-12

# %%
rows = []
for name, found in walked.items():
    one_accepted = sum(weight for (child, _), weight in found.items() if child is not None)
    comes_out = {}
    for (_, token), weight in found.items():
        comes_out[token] = comes_out.get(token, 0) + weight
    off = distance(comes_out, dict(enumerate(p_target.tolist())))[1]
    rows.append([name, f"{one_accepted:.3f}", f"{off:.3f}"])
table(["rule", "one is accepted", "distribution off by"], rows)

# %% [markdown]
# *Answer:* with .78.
#
# ## A tree
#
# After an accepted child the same begins again, since it may have children of its own. All these
# tokens form a *tree* of rows. Row 0 is the last token of the text, and every other row has a
# parent. A list of parents describes the tree: [-1, 0, 0, 1] are two children of row 0 and one
# child of row 1.
#
# The rule for a tree begins at row 0: accept one of its children, then a child of that child, and
# so on, until all children of a row are rejected. We call it the *node rule*, because it decides at
# one row (or node) after the other.

# %%
def verify_by_hand(draft, p_target, dice):
    """p_target (n, V), a distribution for each row -> the last accepted row, the token after it."""
    tokens, parents, q_draft = of_text(draft, 0)    # of the first text: methods/trees/tree_draft.py
    row = 0
    while True:
        rows = [child for child in range(len(tokens)) if parents[child] == row]
        children = [(tokens[child], q_draft[child]) for child in rows]
        number, token = accept_one(children, p_target[row], dice)
        if number is None:                                  # all rejected, or there were none
            return row, token
        row = rows[number]

# %% [markdown]
# Is it lossless? We walk it in the library's loop, on models that are tables of two tokens.

# %%
def by_hand(draft, p_target, dice):
    """Our rule, as `speculate` calls a rule: tensors for one text."""
    row, token = verify_by_hand(draft, p_target[0], OneRow(dice))
    return torch.tensor([row]), torch.tensor([token])


def one_text(dice):
    """Two tokens after token 0, with a tree of two children and one grandchild."""
    drafter = TreeDrafter(small, [-1, 0, 0, 1], independent=True)
    return tuple(tokens_of(speculate(big, drafter, [0], 2, dice=dice, rule=by_hand)))


big, small = TableModel(2, seed=5, zeros=0), TableModel(2, seed=6, zeros=0)
found, paths = walk(one_text)
off = distance(found, target_distribution(big, [0], 2))[1]
print(f"\na tree, by hand: {paths} paths walked, the distribution of the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# Now we use a tree of seven rows on the real pair and look for a round that shows what a tree is
# for: the first child of row 0 is rejected and its sibling accepted. (`TreeDrafter` numbers the
# rows in the order of drawing, so two of them change places.)

# %%
exact, exact_draft, tokenizer = load_pair(dtype=torch.float64)
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in")
drafter = TreeDrafter(exact_draft, [-1, 0, 0, 1, 1, 2, 3])
for seed in range(200):
    first = next(speculate(exact, drafter, ids, 9, seed=seed))
    if first.path[:1] == [2]:               # the accepted rows begin with row 2
        break
print(f"\nseed {seed}: parents {first.parents}, accepted rows {first.path}")

# %% [markdown]
# ## Which row attends to which
#
# One call of the target has to score all rows of the tree. A row must get the distribution that it
# would get after its own path alone, where the *path* is what leads from the text to the row. Two
# things ensure this:
#
# 1. The *attention mask*: a row attends to the text, its ancestors and itself, and to no other
#    branch.
# 2. The *position*: a row stands as many places after row 0 as it is deep in the tree. Siblings
#    have the same position.
#
# *Guess first:* compare seven rows in one call with each path in a call of its own. How far apart
# are the distributions, in float64?

# %%
tokens = torch.tensor([ids + first.tokens[1:]])             # row 0 is the last token of the text
root, slots = len(ids) - 1, tokens.shape[1]                 # a slot is a place in the cache
mask = torch.ones(slots, slots).tril() > 0                  # of the text: up to its own token
for row, parent in enumerate(first.parents[1:], root + 1):
    mask[row, :row] = mask[root + parent, :row]             # what its parent attends to, and itself
positions = mask.sum(1) - 1                                 # how many stand before it on its path

cache = exact.new_cache(1, slots)
together = probs(exact(tokens, cache, slots, positions[None], mask[None])[0, root:])
alone = torch.stack([probs(exact(tokens[:, seen])[0, -1]) for seen in mask[root:]])
gap = (together - alone).abs().max().item()
print(f"\nall rows in one call, or each path in its own: the distributions differ by {gap:.0e}")
assert gap < 1e-12
assert (first.p_target - alone).abs().max() < 1e-12         # `one_round`, in nanospec/speculate.py

words = []
for row, seen in enumerate(mask[root:]):
    words.append(repr(tokenizer.decode(tokens[0, root:][seen[root:]].tolist())))
    print(f"  row {row}, parent {first.parents[row]:2}: {words[-1]}")
labels = [repr(tokenizer.decode([token])) for token in first.tokens]
figures.a_tree(labels, first.parents, first.path, repr(tokenizer.decode([first.token])),
               mask[root:, root - 2:].tolist())

# %% [markdown]
# *Answer:* by less than 1e-12, which is rounding.
#
# ## Three things to know
#
# 1. After a rejection, the residual distribution is the target of the next child, and that is
#    lossless.
# 2. Drawn without replacement, no token is tried twice. The rule divides by the distribution that
#    each child was drawn from.
# 3. In one call, each row attends to the text, its ancestors and itself. Its depth decides its
#    position.
#
# ## Change this and run again
#
# 1. Add `"four, without replacement": (accept_one, 4)` to `cases`. Guess first how often one is
#    accepted: there are four tokens, and all of them are tried.
# 2. Write `positions = torch.arange(slots)`, as if the rows were a chain, and take out
#    `assert gap < 1e-12`. How far apart are the distributions now, and which rows are still right?
# 3. Write `q_draft = p_target`. What is left for a second child to do, and which rule is still
#    wrong?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Which tree* asks which tree is the best. Exercises: 13 (the node rule).
