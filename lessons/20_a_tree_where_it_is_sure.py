# %% [markdown]
# # A tree where it is sure
#
# **Must the draft tree be the same at every place?**
#
# *Several futures* looked for the one tree that is best on average, but no place is average. After
# "import" the draft model may be sure of the next five tokens, and a long tree is right there.
# After "=" many tokens are likely, and a wide tree is right. EAGLE-2 (Li et al. 2024, arXiv
# 2406.16858) grows a different tree after every text.
#
# We use trees, and draft tokens that were not drawn (*Copying from the past*).

# %%
import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.files import load_pair
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text

torch.set_num_threads(1)                                    # nothing is timed here
target, draft_model, tokenizer = pair = load_pair()

# %% [markdown]
# ## How sure?
#
# The *confidence* of a node is the product of the draft model's probabilities along its path. It
# estimates how likely the whole path is to be accepted, before the target is asked.
#
# The draft is made in two phases:
#
# 1. *Expand.* On every level, the 2 most confident nodes get 2 children each, the likeliest tokens.
# 2. *Rerank.* Of all nodes that were made, the 8 most confident are the draft.
#
# We do this by hand. `expected(path)` is what the draft model expects after the text and a path.

# %%
ids = tokenizer.encode("class Stack:\n    def __init__(self, items):\n        self")


@torch.no_grad()
def expected(path):
    return draft_model(torch.tensor([ids + list(path)]))[0, -1].softmax(-1)           # (V,)


def expand(width, depth):
    """[(confidence, path)] of all nodes that are made, level by level."""
    made, level = [], [(1.0, ())]
    for _ in range(depth):
        children = []
        for sure, path in level:
            best = expected(path).topk(width)
            for share, token in zip(best.values.tolist(), best.indices.tolist()):
                children.append((sure * share, (*path, token)))
        made += children
        level = sorted(children, reverse=True)[:width]
    return made


# %% [markdown]
# *Guess first:* the text ends in "self". Will the tree be long or wide?

# %%
made = expand(width=2, depth=5)
chosen = [path for _, path in sorted(made, reverse=True)[:8]]
print()
for sure, path in sorted(made, key=lambda node: node[1]):   # a child below its parent
    mark = "*" if path in chosen else " "
    print(f"  {mark} {sure:.3f} {'    ' * (len(path) - 1)}{tokenizer.decode(path[-1:])!r}")
print("  * the draft: the 8 most confident nodes")

# %% [markdown]
# *Answer:* both. It has more than one beginning, and it is long where the draft model is sure.
#
# A child is never more confident than its parent. So if a node is chosen, all nodes on its path are
# chosen, too, and the chosen nodes form a tree.
#
# The library's drafter, nanospec/methods/trees/dynamic_tree.py, proposes the same tree. It reads a
# whole level in one call of the draft model.

# %%
def paths_of(draft_tokens, parents):
    """Of every node but the first, the draft tokens from the text down to it."""
    paths = [()]
    for token, parent in zip(draft_tokens[1:], parents[1:]):
        paths.append((*paths[parent], token))
    return paths[1:]


text, drafter = Text([ids], 9, draft_model.config.vocab_size), DynamicTree(draft_model, 8, 2)
drafter.begin(text)
drafter.read(text, [0], None)
with torch.no_grad():
    proposal = drafter.propose(text, None, None, len(ids) + 8)
draft_tokens, parents, q_draft = of_text(proposal, 0)
assert sorted(paths_of(draft_tokens, parents)) == sorted(chosen)

# %% [markdown]
# ## Is it lossless?
#
# No token was drawn, because the proposed tokens follow from the text alone. So every q_draft is
# one-hot. The node rule accepts the first child x of a node with probability p_target(x), and a
# later one so, too, after the tokens of the rejected siblings were taken out of p_target and the
# rest was made to add up to 1. The confidence chooses, but it must not
# judge. We walk it, with tables of three tokens.

# %%
assert all(sorted(q.tolist())[-2:] == [0, 1] for q in q_draft[1:])
big, small = TableModel(3, seed=5), TableModel(3, seed=6)
found, walked = walk(lambda dice: tuple(tokens_of(speculate(
    big, DynamicTree(small, 4, 2), [0, 1], 3, dice=dice))))
off = distance(found, target_distribution(big, [0, 1], 3))[1]
print(f"\ntrees by confidence: {walked} paths walked, the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# ## Long here, wide there
#
# Take four held-out texts with 40 tokens each. How long is the longest path of each draft? All
# drafts have 8 draft tokens, and no path has more than 5.

# %%
prompts = held_out_prompts(pair, 4)


def rounds_of(make, temperature):
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, make(), ids, 40, temperature=temperature, seed=seed)
    return rounds


def tree_of_8():
    return DynamicTree(draft_model, 8, 2)


trees = rounds_of(tree_of_8, 0)
longest = [max(map(len, paths_of(done.tokens, done.parents))) for done in trees]
table(["longest path", *range(1, 6)], [["drafts", *(longest.count(n) for n in range(1, 6))]])

# %% [markdown]
# ## Does it pay?
#
# We compare with a chain of 5 draft tokens, for which the draft model is called equally often, five
# times per round. What counts here is tokens per call of the target.
#
# *Guess first:* the tree has more guesses for each place. Is it as far ahead at T = 1 as at T = 0?

# %%
def chain_of_5():
    return ModelDrafter(draft_model, 5)


def per_call(rounds):
    return len(tokens_of(rounds)) / len(rounds)


chains = [rounds_of(chain_of_5, T) for T in (0, 1)]
calls = {"a chain of 5, drawn": [per_call(rounds) for rounds in chains],
         "a tree of 8, chosen": [per_call(trees), per_call(rounds_of(tree_of_8, 1))]}
table(["tokens per target call", "T = 0", "T = 1"],
      [[name, *(f"{count:.2f}" for count in line)] for name, line in calls.items()])

# %% [markdown]
# *Answer:* no. At T = 0 the tree is ahead, because it only matters whether the target's favourite
# is among the draft tokens, and two guesses for a place are better than one. At T = 1 less of its
# lead is left, and over so few texts chance may decide which of the two is ahead.
#
# The reason is the coin. A draft token that was *drawn* from q_draft is accepted with sum
# min(p_target, q_draft). A token x that was *chosen* is accepted with p_target(x). The next cell
# measures both at the first draft token.

# %%
drawn, chosen_best = [], []
for done in chains[1]:
    drawn.append(done.p_target[0].minimum(done.q_draft[1]).sum().item())
    chosen_best.append(done.p_target[0, done.q_draft[1].argmax()].item())
print(f"\nat T = 1, the first draft token is accepted with {sum(drawn) / len(drawn):.2f} if drawn, "
      f"with {sum(chosen_best) / len(chosen_best):.2f} if chosen")

words = [repr(tokenizer.decode(path[-1:])) for _, path in made]
figures.confident_tree([(path, sure, word, path in chosen)
                        for (sure, path), word in zip(made, words)])

# %% [markdown]
# ## As large as it pays
#
# Eight draft tokens were chosen by hand. Each of them adds its confidence to the expected number of
# tokens, and it makes the call longer. So take the nodes in the order of their confidence,
# and as many of them as give the most tokens for the time. Not drafting is one of the choices.
#
# This can be done anew in every round. In place of the confidence one may also take how often the
# best node, the second best and so on were accepted in earlier rounds. We make up two machines: one
# that writes a single text, where a token more costs 2% of a call, and a full server, where 32
# texts share a call that takes no longer up to 50 tokens, and then longer with each.
#
# *Guess first:* after "import torch\nimport" a good many tokens are likely. Does the full server
# draft there?

# %%
def size_that_pays(sures, cost):
    """How many of the most confident nodes to draft, and tokens for the time with these, with all.
    cost(w): the time of a round with w draft tokens."""
    pays = [(1 + sum(sures[:w])) / cost(w) for w in range(len(sures) + 1)]
    return pays.index(max(pays)), max(pays), pays[-1]


drafting = 0.1                                  # the draft model's five calls, in target calls
machines = {"one text": lambda w: 1 + 0.02 * w + drafting * (w > 0),
            "a full server": lambda w: max(1, 32 * (w + 1) / 50) + drafting * (w > 0)}
lines, sizes = [], {}
for place in "class A:\n    def __init__(self", "import torch\nimport", "x = ", "for i in range":
    ids = tokenizer.encode(place)
    best = sorted((sure for sure, _ in expand(width=2, depth=5)), reverse=True)[:8]
    found = [size_that_pays(best, cost) for cost in machines.values()]
    sizes[place] = [size for size, *_ in found]
    lines.append([repr(place)])
    for size, gain, of_all in found:
        lines[-1] += [size, f"{gain:.2f}", f"{of_all:.2f}"]
table(["after", "one text: draft", "gain", "with 8", "full: draft", "gain", "with 8"], lines,
      "the gain is tokens for the time, in units of plain decoding; estimated by confidence")
assert all(full <= one for one, full in sizes.values())

# %% [markdown]
# *Answer:* with the pair in the clone the full server drafts one token or none, where a single text
# gets five to eight. With eight the server would need more than twice the time for a token.
# Whatever the pair, a full server never drafts more than a single text does: each further node
# makes its round longer by a greater share.
#
# Is it exact? The size follows from the text alone: no token of the tree was drawn, and the
# target has not been asked. We walk it, with costs at which sizes differ.

# %%
class AsLargeAsItPays(DynamicTree):
    """For one text: of `count` nodes those that pay, where a token more costs a third of a call."""
    seen = set()

    def _chosen(self, text, depth, tokens, parents, sures):
        count, best = self.most, sures[0].exp().sort(descending=True).values
        size, *_ = size_that_pays(best[:count].tolist(), lambda w: 1 + w / 3)
        self.most = max(1, size)
        self.seen.add(self.most)
        try:
            return super()._chosen(text, depth, tokens, parents, sures)
        finally:
            self.most = count


found, walked = walk(lambda dice: tuple(tokens_of(speculate(
    big, AsLargeAsItPays(small, 4, 2), [0, 1], 3, dice=dice))))
sized_off = distance(found, target_distribution(big, [0, 1], 3))[1]
print(f"\ntrees of {sorted(AsLargeAsItPays.seen)} draft tokens: {walked} paths walked, "
      f"the text is off by {sized_off:.0e}")
assert sized_off < 1e-12 and len(AsLargeAsItPays.seen) > 1

# %% [markdown]
# ## Three things to know
#
# 1. A node's confidence is the product of the draft model's probabilities along its path. The most
#    confident nodes always form a tree, and what a call costs says how many of them pay.
# 2. The confidence chooses and never judges. Nothing is drawn, so every q_draft is one-hot and the
#    text is exact.
# 3. Chosen tokens are good at T = 0. At T = 1, drawn ones are accepted more often.
#
# ## Change this and run again
#
# 1. Grow the tree with `expand(width=4, depth=3)` and `DynamicTree(draft_model, 8, 4)`. How does
#    the tree change, and how often is the draft model called in both cases?
# 2. In `expand`, write `(share, (*path, token))` in place of `(sure * share, ...)`. Why is the
#    choice no longer a tree? (An assert fails.)
# 3. In the last table, write 0.5 wherever T is 1. Which is ahead now?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What a stopping rule may see* asks what a rule that stops a draft early may look at.
