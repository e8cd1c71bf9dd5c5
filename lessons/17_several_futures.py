# %% [markdown]
# # Several futures
#
# **If one call scores many tokens, why draft only one future?**
#
# So far a draft was a chain, in which each draft token follows the one before it. One rejection
# then costs all draft tokens after it. But a few more tokens in a call cost little (*Ten for the
# price of one*). So let the draft model propose two tokens for the same place. If the first is
# rejected, the second may be accepted.
#
# Is that still lossless, how can one call score two futures, and which tree of them is the fastest?
# The lesson builds on *Accept or replace*, on the walk, and on *How fast*.

# %%
import torch

import figures
from kit import OneRow, Quiet, table
from oracles import expected_of
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import step_seconds
from nanospec.files import load_pair
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.shapes import best_size, best_tree, shape
from nanospec.methods.trees.tree_draft import of_text
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)                                    # one core, as in "How fast"
names = ["range", "items", "zip", "def"]                    # what may follow "for x in"
p_target = torch.tensor([.6, .3, .1, 0], dtype=torch.float64)
q_draft = torch.tensor([.2, .2, .5, .1], dtype=torch.float64)           # a bad draft model

# %% [markdown]
# ## A second try
#
# Take the bad draft model from *Why it is lossless*. One draft token is accepted with probability
# .5:
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
# sum is 1 again. If "zip" was drawn, [.2, .2, .5, .1] becomes [.4, .4, 0, .2]. (Where no rest is
# left, the library draws evenly from the tokens that were not tried. *Independent* means that both
# are drawn from the same q_draft.)
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

# %%
lines = []
for name, found in walked.items():
    one_accepted = sum(weight for (child, _), weight in found.items() if child is not None)
    comes_out = {}
    for (_, token), weight in found.items():
        comes_out[token] = comes_out.get(token, 0) + weight
    off = distance(comes_out, dict(enumerate(p_target.tolist())))[1]
    lines.append([name, f"{one_accepted:.3f}", f"{off:.3f}"])
table(["rule", "one is accepted", "distribution off by"], lines)

# %% [markdown]
# *Answer:* with .78. The two wrong rules accept more, and the last column tells what it costs.
#
# ## A tree
#
# After an accepted child the same begins again, since it may have children of its own. All these
# tokens form a *tree* of nodes. Node 0 is the last token of the text, and every other node has a
# parent. A list of parents describes the tree: [-1, 0, 0, 1] are two children of node 0 and one
# child of node 1.
#
# The rule for a tree begins at node 0: accept one of its children, then a child of that child, and
# so on, until all children of a node are rejected. We call it the *node rule*, because it decides
# at one node after the other. The library's is `verify_tree`, in
# nanospec/methods/trees/node_rule.py.

# %%
def verify_by_hand(draft, p_target, dice):
    """p_target (n, V), the distribution after each node -> the last accepted node, what follows."""
    tokens, parents, q_draft = of_text(draft, 0)    # of the first text: methods/trees/tree_draft.py
    node = 0
    while True:
        nodes = [child for child in range(len(tokens)) if parents[child] == node]
        children = [(tokens[child], q_draft[child]) for child in nodes]
        number, token = accept_one(children, p_target[node], dice)
        if number is None:                                  # all rejected, or there were none
            return node, token
        node = nodes[number]

# %% [markdown]
# Is it lossless? We walk it in the library's loop, on models that are tables of two tokens.

# %%
def by_hand(draft, p_target, dice):
    """Our rule, as `speculate` calls a rule: tensors for one text."""
    node, token = verify_by_hand(draft, p_target[0], OneRow(dice))
    return torch.tensor([node]), torch.tensor([token])


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
# Now we use a tree of seven nodes on the real pair and look for a round that shows what a tree is
# for: the first child of node 0 is rejected and its sibling accepted. (On each level `TreeDrafter`
# draws all first children, then all second ones, and numbers them so. So nodes 4 and 5 change
# places.)

# %%
exact, exact_draft, tokenizer = load_pair(dtype=torch.float64)
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in")
drafter = TreeDrafter(exact_draft, [-1, 0, 0, 1, 1, 2, 3])
for seed in range(200):
    first = next(speculate(exact, drafter, ids, 9, seed=seed))
    if first.path[:1] == [2]:               # the accepted nodes begin with node 2
        break
print(f"\nseed {seed}: parents {first.parents}, accepted nodes {first.path}")

# %% [markdown]
# ## Which node attends to which
#
# One call of the target has to score all nodes of the tree. A node must get the distribution that
# it would get after its own path alone, where the *path* is what leads from the text to the node.
# Two things ensure this:
#
# 1. The *attention mask*: a node attends to the text, its ancestors and itself, and to no other
#    branch.
# 2. The *position*: a node stands as many places after node 0 as it is deep in the tree. Siblings
#    have the same position.
#
# *Guess first:* compare seven nodes in one call with each path in a call of its own. How far apart
# are the distributions, in float64?

# %%
tokens = torch.tensor([ids + first.tokens[1:]])             # node 0 is the last token of the text
root, slots = len(ids) - 1, tokens.shape[1]                 # a slot is a place in the cache
mask = torch.ones(slots, slots).tril() > 0                  # of the text: up to its own token
for node, parent in enumerate(first.parents[1:], root + 1):
    mask[node, :node] = mask[root + parent, :node]          # what its parent attends to, and itself
positions = mask.sum(1) - 1                                 # how many stand before it on its path

cache = exact.new_cache(1, slots)
together = probs(exact(tokens, cache, slots, positions[None], mask[None])[0, root:])
alone = torch.stack([probs(exact(tokens[:, seen])[0, -1]) for seen in mask[root:]])
gap = (together - alone).abs().max().item()
print(f"\nall nodes in one call, or each path in its own: the distributions differ by {gap:.0e}")
assert gap < 1e-12
assert (first.p_target - alone).abs().max() < 1e-12         # `one_round`, in nanospec/speculate.py

words = []
for node, seen in enumerate(mask[root:]):
    words.append(repr(tokenizer.decode(tokens[0, root:][seen[root:]].tolist())))
    print(f"  node {node}, parent {first.parents[node]:2}: {words[-1]}")
labels = [repr(tokenizer.decode([token])) for token in first.tokens]
figures.a_tree(labels, first.parents, first.path, repr(tokenizer.decode([first.token])),
               mask[root:, root - 2:].tolist())

# %% [markdown]
# *Answer:* by less than 1e-12, which is rounding.
#
# ## Long or wide?
#
# There are many trees with m nodes, and the chain is one of them. A long tree reaches far if all
# goes well. A wide one has a second child where the first is rejected. To choose, first count on
# real texts which of four children is accepted.
#
# *Guess first:* the first is accepted in more than half of the rounds. How often is it the second?

# %%
target, draft_model, _ = pair = load_pair()
autotune(target, draft_model)                                     # the fastest form of both models
rounds = []
for seed, prompt in enumerate(held_out_prompts(pair, 20)):
    rounds += speculate(target, TreeDrafter(draft_model, shape(4)), prompt, 20, seed=seed)
paths = [done.path for done in rounds]
accepted = [paths.count([child]) / len(paths) for child in (1, 2, 3, 4)]
shares = " ".join(f"{chance:.3f}" for chance in accepted)
print(f"\nthe first, second, third, fourth child is accepted: {shares}")

# %% [markdown]
# *Answer:* far less often. The line has all four shares.
#
# A node is accepted if its parent is, and if it is the accepted child there. So we multiply along
# the path, add up all nodes, and add 1 for the replacement or the bonus token. The result is the
# number of tokens of a round, if every place were like the average place.
#
# By hand, with accepted = [.6, .2], two children, and one child after each of them: 1 + .6 + .2 +
# .6 x .6 + .2 x .6 = 2.28. `best_tree` finds the tree of m nodes with the most tokens (arXiv
# 2402.12374).
#
# A round takes one draft step for each level of the tree, and one target call on m tokens. As
# always, v(m) is the time of that call and c the time of a draft step, both in target steps.

# %%
assert abs(expected_of(shape(2, 1), [.6, .2]) - 2.28) < 1e-12
sizes = [2, 4, 6, 8, 16, 32]
a_round = {"chain": [expected_of([node - 1 for node in range(m)], accepted) for m in sizes],
           "best tree": [best_tree(accepted, m)[0] for m in sizes]}     # tokens, for each size
quiet = Quiet(lambda: step_seconds(target, repeats=3))
best_of = {m: float("inf") for m in [1, *sizes]}            # the shortest of four times
draft_step = float("inf")
for turn in range(4):
    draft_step = min(draft_step, step_seconds(draft_model, 1, 128, repeats=1))
    for m in best_of:
        best_of[m] = min(best_of[m], step_seconds(target, m, 128, repeats=1))
step = min(best_of.values())
c = draft_step / step
v = [min(best_of[more] for more in sizes if more >= m) / step for m in sizes]   # v(m) never falls

# %% [markdown]
# Speed is the tokens of a round divided by its time, relative to the target alone. The table has it
# twice: with v(m) as measured *here*, and as if nodes were *free*, v(m) = 1. For the best tree, the
# size m is given, and the depth is chosen for speed.
#
# *Guess first:* nodes are free, and m goes from 8 to 32. What happens to the chain, and what to the
# tree?

# %%
columns = {"v(m)": v} | a_round
for where, prices in ("here", v), ("free", [1] * len(sizes)):
    chain, best = [], []
    for m, emitted, price in zip(sizes, a_round["chain"], prices):
        chain.append(emitted / ((m - 1) * c + price))               # m - 1 draft steps, one call
        _, speed = best_size(accepted, {m: price}, c, range(2, m + 1))      # tries all these depths
        best.append(speed)
    columns[f"chain, {where}"], columns[f"tree, {where}"] = chain, best
lines = [[m, *(f"{column[i]:.2f}" for column in columns.values())] for i, m in enumerate(sizes)]
table(["m, nodes", *columns], lines,
      f"first tokens a round; then times as fast as the target alone. c = {c:.2f}")
for where in "here", "free":
    fastest = [max(columns[f"{kind}, {where}"]) for kind in ("chain", "tree")]
    print(f"{where}: the fastest chain {fastest[0]:.2f}, the fastest tree {fastest[1]:.2f} times")
quiet.tell("c was 0.10, v(5) 1.24 and v(7) 1.34 (one core of an Intel Xeon)")

# %% [markdown]
# *Answer:* the chain gets slower: its end is hardly ever reached, and each of its tokens costs a
# draft step. The tree goes on gaining.
#
# A chain is a tree too, so the best tree is never slower than the chain of the same size. With few
# nodes it *is* the chain, because one more token at the end is worth more than a second child. From
# some length on, second children bring more. Whether that pays depends on what a node costs:
# compare "here" with "free".
#
# ## Three things to know
#
# 1. After a rejection, the residual distribution is the target of the next child, and that is
#    lossless. The rule divides by the distribution that each child was drawn from.
# 2. In one call, each node attends to the text, its ancestors and itself. Its depth decides its
#    position.
# 3. With few nodes, long is better, and with many nodes a tree. Each level costs a draft step, and
#    each node a token in the target's call.
#
# ## Change this and run again
#
# 1. Add `"four, without replacement": (accept_one, 4)` to `cases`. Guess first how often one is
#    accepted: there are four tokens, and all of them are tried.
# 2. Write `positions = torch.arange(slots)`, as if the nodes were a chain, and take out `assert gap
#    < 1e-12`. How far apart are the distributions now, and which nodes are still right?
# 3. Write `temperature=0` in the call of `speculate` that fills `rounds`. Which children are still
#    accepted, and why?
# 4. Write `c = 0.5` below the line that computes c, for an expensive draft model. Where is the tree
#    ahead now?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Block verification* judges all draft tokens of a chain together. Exercises: 13 (the node
# rule).
