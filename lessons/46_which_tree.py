# %% [markdown]
# # Which tree
#
# **A draft may be long, or wide: which one is faster?**
#
# In *Several futures* a draft was a tree, with several draft tokens for the same place and more
# after each of them. There are many trees with m rows, and the chain is one of them. A long tree
# reaches far if all goes well. A wide one has a second child where the first is rejected. This
# lesson counts which child is accepted, computes what a tree brings, and divides by its cost.
#
# The formula, c and v(m) come from *How fast*.

# %%
import torch

import figures
from kit import Quiet, table
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import step_seconds
from nanospec.files import load_pair
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.shapes import best_size, best_tree, expected_of, shape
from nanospec.speculate import speculate

torch.set_num_threads(1)                                    # one core, as in "How fast"

# %% [markdown]
# ## Which child is accepted?
#
# First we count on real texts which of four children is accepted.
#
# *Guess first:* the first is accepted in more than half of the rounds. How often is it the second?

# %%
target, draft, _ = pair = load_pair()
autotune(target, draft)                                     # the fastest form of both models
rounds = []
for seed, prompt in enumerate(held_out_prompts(pair, 20)):
    rounds += speculate(target, TreeDrafter(draft, shape(4)), prompt, 20, seed=seed)
paths = [done.path for done in rounds]
accepted = [paths.count([child]) / len(paths) for child in (1, 2, 3, 4)]
shares = " ".join(f"{chance:.3f}" for chance in accepted)
print(f"\nthe first, second, third, fourth child is accepted: {shares}")

# %% [markdown]
# *Answer:* far less often. The line has all four shares.
#
# ## Tokens of a round
#
# A row is accepted if its parent is, and if it is the accepted child there. So we multiply along
# the path, add up all rows, and add 1 for the replacement or the bonus token. The result is the
# number of tokens of a round, if every place were like the average place.
#
# By hand, with accepted = [.6, .2], two children, and one child after each of them: 1 + .6 + .2 +
# .6 x .6 + .2 x .6 = 2.28.
#
# We compare three kinds of trees with m rows:
#
# - *chain*: each row has one child.
# - *wide*: each row has four children.
# - *best*: the tree with the most tokens (nanospec/methods/trees/shapes.py, from arXiv 2402.12374).

# %%
assert abs(expected_of(shape(2, 1), [.6, .2]) - 2.28) < 1e-12
sizes = [2, 4, 6, 8, 16, 32]
a_round = {"chain": [], "wide": [], "best": []}             # tokens of a round, for each size
for m in sizes:
    a_round["chain"].append(expected_of([row - 1 for row in range(m)], accepted))
    a_round["wide"].append(expected_of([-1] + [row // 4 for row in range(m - 1)], accepted))
    a_round["best"].append(best_tree(accepted, m)[0])

# %% [markdown]
# ## What rows cost
#
# v(m) is the time of a target call on m tokens, and c the time of a draft step, both in target
# steps. A round with a tree takes one draft step for each level of the tree, and one target call on
# m tokens.

# %%
quiet = Quiet(lambda: step_seconds(target, repeats=3))
best_of = {m: float("inf") for m in [1, *sizes]}            # the shortest of four times
draft_step = float("inf")
for turn in range(4):
    draft_step = min(draft_step, step_seconds(draft, 1, 128, repeats=1))
    for m in best_of:
        best_of[m] = min(best_of[m], step_seconds(target, m, 128, repeats=1))
step = min(best_of.values())
c = draft_step / step
v = [min(best_of[more] for more in sizes if more >= m) / step for m in sizes]   # v(m) never falls

# %% [markdown]
# Speed is the tokens of a round divided by its time, relative to the target alone. The table has it
# twice: with v(m) as measured *here*, and as if rows were *free*, v(m) = 1. (On a GPU, rows are
# nearly free while the call waits for the weights of a large target.) For "best", the size m is
# given, and the depth is chosen for speed.
#
# *Guess first:* rows are free, and m goes from 8 to 32. What happens to the chain, and what to the
# tree?

# %%
columns = {"v(m)": v} | a_round
for where, prices in ("here", v), ("free", [1] * len(sizes)):
    chain, best = [], []
    for m, emitted, price in zip(sizes, a_round["chain"], prices):
        chain.append(emitted / ((m - 1) * c + price))               # m - 1 draft steps, one call
        _, speed = best_size(accepted, {m: price}, c, range(2, m + 1))      # tries all these depths
        best.append(speed)
    columns[f"chain, {where}"], columns[f"best, {where}"] = chain, best

# %%
rows = [[m, *(f"{column[i]:.2f}" for column in columns.values())] for i, m in enumerate(sizes)]
table(["m, rows", *columns], rows,
      f"chain, wide, best: tokens a round. then: times as fast as the target alone. c = {c:.2f}")
speeds = {name: column for name, column in columns.items() if "," in name}
for where in "here", "free":
    chain, best = max(speeds[f"chain, {where}"]), max(speeds[f"best, {where}"])
    print(f"{where}: the fastest chain {chain:.2f}, the fastest tree {best:.2f} times")
figures.trees_against_chains(sizes, speeds)
quiet.tell("v(8) was 1.20, v(32) 1.56, c 0.17, the fastest chain 1.30 and the fastest tree 1.47 "
           "(one core of an example machine)")

# %% [markdown]
# *Answer:* the chain gets slower: its end is hardly ever reached, and each of its tokens costs a
# draft step. The tree goes on gaining.
#
# A chain is a tree too, so the best tree is never slower than the chain of the same size. With few
# rows it *is* the chain, because one more token at the end is worth more than a second child. The
# end of a long chain is rarely reached, and from some length on second children bring more. Whether
# that pays depends on what rows cost.
#
# ## Three things to know
#
# 1. To compute what a tree brings, multiply along each row's path, add up all rows, and add 1.
# 2. With few rows, long is better. With many rows, a tree is better.
# 3. Each level of the tree costs a draft step, and each token a row in the target's call. A tree
#    pays where rows are cheap or the draft is expensive.
#
# ## Change this and run again
#
# 1. Write `temperature=0` in the call of `speculate` that fills `rounds`. Which children are still
#    accepted, and why?
# 2. Write `c = 0.5` below the line that computes c, for an expensive draft. Where is the tree ahead
#    now?
# 3. Does the best tree keep the table's promise? Add a cell at the end. Fill `rounds` as before,
#    with `TreeDrafter(draft, best_tree(accepted, 16)[1])`, and print the mean of
#    `len(done.path) + 1`.
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Block verification* judges all draft tokens of a chain together.
