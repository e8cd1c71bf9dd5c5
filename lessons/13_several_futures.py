# %% [markdown]
# # 13. Several futures
#
# **If one pass checks many tokens, why guess only one future?**
#
# In lesson 7 one refusal buries all the guesses behind it, and a few rows more in a pass cost little (lesson 3). So
# guess two tokens for the same place: if one falls, the other may stand. Is that still lossless, and does it pay?

# %%
import inspect

import torch

from kit import AMBER, GREEN, OneRow, picture, save, table
from nanospec import load_pair
from nanospec.bench.prompts import held_out_prompts
from nanospec.draft import Draft
from nanospec.drafters.tree import TreeDrafter
from nanospec.fast.autotune import settle
from nanospec.fast.clock import step_seconds
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate
from nanospec.topology import best_size, best_tree, expected_of, shape

torch.set_num_threads(1)            # as in lessons 9 and 12


# %% [markdown]
# ## Two guesses for one place
#
# After a refusal the token must come from the residual (lesson 6). But keep-or-replace makes a token of *any* law from
# a guess: so let the next guess try, with the residual, made a law again, as its target; and so on. Behind the one that
# stands, judge those guessed behind it in the same way: all of them form a *tree* of rows, each with a parent. Below
# the rule are two tempting mistakes: look whose guesses stand most often.

# %%
def judge(draft, p_target, dice, row=0):
    """p_target (n, V), the law behind every row -> the last row that stands behind `row`, the token after it. Of the
    children 0 and 1, both drawn from [.5, .5], the target [.2, .8] lets 0 stand with .4, otherwise 1 for sure."""
    (tokens, parents, q_draft), left = draft.of_text(0), p_target[row]          # nanospec/draft.py: one of B texts
    for child in [child for child in range(len(tokens)) if parents[child] == row]:                      # NEW
        x = tokens[child]
        if dice.flip(left[x] / q_draft[child, x]):
            return judge(draft, p_target, dice, child)
        left = (left - q_draft[child]).clamp(min=0)
        left = left / left.sum()                                                                        # NEW
    return row, dice.pick(left)


p_target, q_draft = torch.tensor([[.6, .3, .1, 0], [.2, .2, .5, .1]], dtype=torch.float64)      # lesson 6's bad draft
for name, count, again, *exchanged in [
        ("one guess", 1, False), ("two, drawn independently", 2, True), ("two, without replacement", 2, False),
        ("  forgets the refusal", 2, False, "left = left / left.sum()", "left = p_target[row]"),
        ("  tries the likeliest first", 2, False, "range(len(tokens))",
         "sorted(range(len(tokens)), key=lambda child: -left[tokens[child]])")]:
    exec(inspect.getsource(judge).replace(*exchanged or ("", "")), names := {})

    def play(dice, rule):
        tokens, drawn, law = [0], [0 * q_draft], q_draft                        # row 0: the token before this place
        for _ in range(count):
            tokens, drawn = tokens + [OneRow(dice).pick(law)], drawn + [law / law.sum()]
            law = law if again else law.index_fill(0, torch.tensor(tokens[-1]), 0)          # else: no token twice
        tree = Draft(torch.tensor([tokens]), torch.stack(drawn)[None], torch.tensor([[-1] + [0] * count]))
        row, token = rule(tree, p_target.repeat(1, count + 1, 1), dice)
        return (True, tokens[row]) if row else (False, int(token))
    found, library = (walk(lambda dice: play(dice, rule))[0] for rule in (
        lambda tree, p, dice: names["judge"](tree, p[0], OneRow(dice)), verify_tree))       # nanospec/rules/tree.py
    assert exchanged or distance(found, library)[1] < 1e-12
    off = sum(abs(found.get((True, y), 0) + found.get((False, y), 0) - p_target[y]) for y in range(4)) / 2
    stands = sum(weight for (stood, _), weight in found.items() if stood)
    print(f"{name:28} a guess stands with {stands:.3f}, the token's law is off by {off:.3f}")

# %% [markdown]
# ## A tree, and who sees whom
#
# One pass scores all rows, if each sees the text, its ancestors and itself, and stands where it would without the rest:
# its position is the number of others that it sees. Then its law is the one that a pass over its path alone gives.

# %%
exact, exact_draft, tokenizer = load_pair(dtype=torch.float64)
ids = tokenizer.encode("import os\n\ndef walk(top):\n    for name in")
first = next(speculate(exact, TreeDrafter(exact_draft, [-1, 0, 0, 1, 1, 2, 3]), ids, 9, seed=5))
tokens, root = torch.tensor([ids + first.tokens[1:]]), len(ids) - 1                # row 0 is the last token of the text
sees = torch.ones(len(tokens[0]), len(tokens[0])).tril() > 0
for row, parent in enumerate(first.parents[1:], root + 1):
    sees[row, :row] = sees[root + parent, :row]                                 # itself, and what its parent sees
positions = sees.sum(1) - 1
laws = probs(exact(tokens, exact.new_cache(1, len(sees)), len(sees), positions[None], sees[None])[0, root:])
alone = torch.stack([probs(exact(tokens[:, seen])[0, -1]) for seen in sees[root:]])
words = [repr(tokenizer.decode(tokens[0, root:][seen[root:]].tolist())) for seen in sees[root:]]
print(f"\nin one pass, or each by itself: the laws are {(laws - alone).abs().max():.0e} apart", *words, sep="\n  ")
assert max((law - alone).abs().max() for law in (laws, first.p_target)) < 1e-12     # `one_round`, nanospec/speculate.py

# %% [markdown]
# ## Coverage against compute
#
# A row brings a token if its path is kept: the chance of its parent's path, times the chance that it is the child that
# stands. Count which of four children stands, and the best tree of m rows follows (nanospec/topology.py, arXiv
# 2402.12374). Its pass costs v(m), lesson 3; or 1, nearly, on a GPU where a large target waits for its weights.

# %%
target, draft, _ = pair = load_pair()
settle(target, draft)                                               # as in lesson 9
rounds = [done for seed, prompt in enumerate(held_out_prompts(pair, 20))
          for done in speculate(target, TreeDrafter(draft, shape(4)), prompt, 20, seed=seed)]
accepted = [sum(done.path == [child] for done in rounds) / len(rounds) for child in (1, 2, 3, 4)]
print("\nthe first, second, third, fourth child stands:", *(f"{chance:.3f}" for chance in accepted))
sizes = [2, 4, 6, 8, 16, 32]
tries = [[step_seconds(model, m, 128, repeats=1) for model, m in [(draft, 1), *((target, m) for m in [1, *sizes])]]
         for turn in range(4)]
draft_step, *passes = map(min, zip(*tries))
step, *passes = [min(passes[i:]) for i in range(len(passes))]           # never dearer than a pass over more rows
c, columns = draft_step / step, {
    "v(m)": [took / step for took in passes], "chain": [expected_of([*range(-1, m - 1)], accepted) for m in sizes],
    "wide": [expected_of([-1] + [row // 4 for row in range(m - 1)], accepted) for m in sizes],      # four for every row
    "best": [best_tree(accepted, m)[0] for m in sizes]}
for where, v in ("here", columns["v(m)"]), ("free", [1] * len(sizes)):          # a draft step a level, and a pass
    columns[f"chain, {where}"] = [n / ((m - 1) * c + price) for m, n, price in zip(sizes, columns["chain"], v)]
    columns[f"best, {where}"] = [best_size(accepted, {m: price}, c, range(2, m + 1))[1] for m, price in zip(sizes, v)]
table(["m, rows", *columns], [[m, *(f"{x:.2f}" for x in row)] for m, *row in zip(sizes, *columns.values())],
      f"tokens a round, then times as fast as the target alone: here, and if rows were free; c = {c:.2f}")
figure, (left, right) = picture("13. several futures", 2)
left.imshow(sees[root:, root - 2:].numpy(), cmap="Greens", vmax=1.5, aspect="auto", zorder=3)
left.set(yticks=range(len(words)), yticklabels=words, xticks=[], xlabel="what it sees of the text and the seven rows")
for (name, speeds), colour, style in zip([*columns.items()][4:], (AMBER, GREEN) * 2, ("-", "-", ":", ":")):
    right.semilogx(sizes, speeds, base=2, color=colour, linestyle=style, marker="o", linewidth=2, label=name)
right.set(xticks=sizes, xticklabels=sizes, xlabel="m, rows in a pass", ylabel="times as fast as the target alone")
right.legend(frameon=False)
save(figure, "13_several_futures")

# %% [markdown]
# So a second guess for a place is lossless, but one more at the end of a chain is worth more, until that end is too far
# off to be reached. There the tree begins to gain on the chain; whether that pays is up to what rows cost.
#
# **Change this and run again.** `temperature=0` in `rounds`: which children still stand? `c, columns = .5, {`, a dear
# draft: where is the tree ahead now? Draft `best_tree(accepted, 16)[1]` as in `rounds`: is the table's promise kept?
#
# Next: lesson 14 asks how close a rule can come to the best there is. Exercises: 13 (the node rule).
