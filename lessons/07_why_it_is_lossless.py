# %% [markdown]
# # Why it is lossless
#
# **Why does the draft model leave no trace in the text?**
#
# In *Accept or replace*, a walk showed that the rule is exact, and this lesson explains why.
#
# *Lossless* means that every token comes out with exactly the probability that the target gives it.
# Nothing is lost, whatever the draft model proposes. Only the speed depends on the draft model.
#
# We look at the rule in three ways: as a picture, as a list of everything that can happen, and in
# the library's own code. To repeat it: a draft token is accepted with probability min(1, p_target /
# q_draft), and a rejected one is replaced by a draw from the residual, max(0, p_target - q_draft).

# %%
from collections import defaultdict
from math import prod

import torch

import figures
from kit import OneRow, page, table
from nanospec.draft import Draft
from nanospec.files import load_pair
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify

# %% [markdown]
# ## Four tokens, four draft models
#
# The text is "for x in", and four tokens may come next. The target never writes "def" there, so its
# probability is 0.
#
# Four draft models propose a token. One is perfect, one is good, one is bad, and the hopeless one
# always proposes "def".

# %%
names = ["range", "items", "zip", "def"]
p_target = torch.tensor([.6, .3, .1, 0], dtype=torch.float64)
q_drafts = {
    "perfect": torch.tensor([.6, .3, .1, 0], dtype=torch.float64),
    "good": torch.tensor([.55, .25, .2, 0], dtype=torch.float64),
    "bad": torch.tensor([.2, .2, .5, .1], dtype=torch.float64),
    "hopeless": torch.tensor([0, 0, 0, 1], dtype=torch.float64),
}


def accept_or_replace(p_target, q_draft, dice):
    """The same rule -> (was the draft token accepted, the token that comes out)."""
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):
        return True, x                                          # NEW: tells that it was accepted
    residual = (p_target - q_draft).clamp(min=0)
    return False, dice.pick(residual)                           # NEW: tells that it was not


# %% [markdown]
# ## Lay one distribution over the other
#
# Draw both distributions as bars, one over the other; a pencil is enough. There are three kinds of
# pieces:
#
# - The *overlap*: what both have, min(p_target, q_draft).
# - The *residual*: what only the target has, max(0, p_target - q_draft).
# - The *excess*: what only the draft model has, max(0, q_draft - p_target).
#
# Overlap + residual = p_target, and overlap + excess = q_draft. Each of the two distributions adds
# up to 1. The whole residual and the whole excess are therefore equally large: 1 - the whole
# overlap. (This is the total variation of the two.)
#
# *Guess first:* the bad draft model is [.2, .2, .5, .1]. How large is its overlap with p_target in
# total?

# %%
def pieces(p_target, q_draft):
    """Overlap, residual, excess: [.5, .5] and [.8, .2] give [.5, .2], [0, .3], [.3, 0]."""
    overlap = p_target.minimum(q_draft)
    return overlap, p_target - overlap, q_draft - overlap


lines = []
overlap, residual, excess = pieces(p_target, q_drafts["bad"])
columns = [overlap, residual, excess, overlap + residual, overlap + excess]
assert torch.equal(columns[3], p_target) and torch.equal(columns[4], q_drafts["bad"])
for y, name in enumerate(names):
    lines.append([name, *[f"{column[y]:.2f}" for column in columns]])
lines.append(["all", *[f"{column.sum():.2f}" for column in columns]])
table(["token", "overlap", "residual", "excess", "overlap + residual", "overlap + excess"],
      lines, "overlap + residual is p_target; overlap + excess is q_draft")

figures.laid_over(names, p_target, {kind: q_drafts[kind] for kind in ("good", "bad")})
print("to play with, in a browser:", page("exact"))

# %% [markdown]
# *Answer:* .50. The smaller ones are .20, .20, .10 and 0.
#
# ## The proof, read from the picture
#
# Open `lessons/out/why_it_is_lossless.png`. Green is the overlap, orange the residual, and hatched
# red the excess. The dark frame is p_target.
#
# **Claim.** The token y comes out with probability p_target(y).
#
# **Proof.**
#
# 1. y is drafted with probability q_draft(y), and accepted with min(1, p_target(y) / q_draft(y)).
# 2. The product is min(q_draft(y), p_target(y)). So exactly the overlap is accepted: the green
#    piece.
# 3. What is drafted and not accepted is the excess: the red pieces, which together measure 1 -
#    the whole overlap.
# 4. So a replacement is drawn with probability 1 - the whole overlap. The orange pieces, the
#    residual, together have this size, too.
# 5. It is drawn in proportion to the orange pieces, so each orange piece is filled exactly. (For
#    "range" with the bad draft model: a replacement with probability .50, times its share .40 /
#    .50, gives .40.)
# 6. Green + orange = p_target(y).
#
# The draft model decides how large the green part is. The sum does not depend on it. Try it on the
# page that the cell has linked (it has five other tokens): drag the bars of q_draft until hardly
# anything is accepted, and then until everything is. The output stays where it is.
#
# ## Everything that can happen
#
# The same can be shown in numbers. A token comes about through a draft token, a coin, and perhaps a
# replacement. With four tokens there are few such ways, and we can write all of them down. The
# probability of a way is the product of the probabilities along it, and the probability of a token
# is the sum over all ways that end in it.

# %%
def ways(p_target, q_draft):
    """Every way to a token -> [(draft token, accepted, token, probabilities along the way), ...].
    [.5, .5] and [.8, .2] have three: 0 is accepted; 0 is rejected and 1 drawn; 1 is accepted.
    """
    residual = pieces(p_target, q_draft)[1]
    share = (residual / residual.sum()).tolist()                # the residual distribution
    found = []
    for x, (wanted, drafted) in enumerate(zip(p_target.tolist(), q_draft.tolist())):
        if wanted > 0 and drafted > 0:
            found.append((x, True, x, (drafted, min(1, wanted / drafted))))
        if drafted > wanted:                                    # only then can x be rejected
            for y, part in enumerate(share):
                if part > 0:
                    found.append((x, False, y, (drafted, 1 - wanted / drafted, part)))
    return found


# %% [markdown]
# Here are all ways of the bad draft model. Every line shows the probability of the draft token,
# times the coin, times (after a rejection) the replacement.
#
# *Guess first:* the draft model proposes "zip" most often. How often do "zip" and "def" come out?

# %%
print()
for y, name in enumerate(names):
    total = 0
    for x, accepted, token, along in ways(p_target, q_drafts["bad"]):
        if token == y:
            end = "accepted" if accepted else f"rejected, {name} drawn"
            product = " x ".join(f"{number:.2f}" for number in along)
            print(f"  {names[x] + ' drafted, ' + end:36} {product:18} = {prod(along):.2f}")
            total += prod(along)
    print(f"{name} comes out with {total:.2f}; its p_target is {p_target[y]:.2f}")

# %% [markdown]
# *Answer:* "zip" with .10 and "def" never, just as the target wants it.
#
# ## The same in the code that ships
#
# `walk` finds the ways without our help and calls them paths. It must find exactly the ways of our
# list, with the same probabilities.
#
# We let it walk two functions: `accept_or_replace` from above, and `verify` from
# `nanospec/speculate.py`. The function `library` only packs one draft token for `verify`; *A draft
# and a bonus* explains the shapes. After an accepted token `verify` draws one more. That is not
# part of our question, so we make that token certain, and it adds no path.

# %%
def library(p_target, q_draft, dice):
    """One draft token through `verify` -> (was it accepted, the token that comes out)."""
    x = dice.dice.pick(q_draft[None])               # dice.dice: the library's own, for many texts
    no_draft = torch.zeros_like(q_draft)            # node 0, the text's last token: not drafted
    certain = torch.zeros_like(p_target)
    certain[0] = 1.0                                # after an accepted draft token: always token 0
    draft = Draft(x.expand(1, 2), torch.stack([no_draft, q_draft])[None])
    accepted, token = verify(draft, torch.stack([p_target, certain])[None], dice.dice)
    return bool(accepted), int(x if accepted else token)


# %% [markdown]
# The next function adds up our list and walks the rules. Its assert demands one path for each way,
# and the same probability for every end. An end is a pair: whether the draft token was accepted,
# and which token comes out.

# %%
def compare(p_target, q_draft, rules):
    """-> (P(accepted), overlap, number of ways, total variation from p_target)."""
    found, ends = ways(p_target, q_draft), defaultdict(float)
    for _, accepted, token, along in found:
        ends[accepted, token] += prod(along)
    for rule in rules:
        walked, paths = walk(lambda dice: rule(p_target, q_draft, OneRow(dice)))
        assert paths == len(found) and distance(walked, ends)[1] < 1e-15
        ends.update(walked)                             # the table shows what was walked last
    comes_out = {y: ends[True, y] + ends[False, y] for y in range(len(p_target))}
    p_accepted = sum(ends[True, y] for y in range(len(p_target)))
    off = distance(comes_out, dict(enumerate(p_target.tolist())))[1]
    return p_accepted, pieces(p_target, q_draft)[0].sum().item(), len(found), off


# %% [markdown]
# We apply it to the four draft models, and to our own pair of models after two prompts. The pair
# has 1,024 tokens, too many to walk `verify` in a lesson, so there we only add up our list. In
# addition we walk the pair restricted to the target's 6 likeliest tokens.
#
# Two draft models are special:
#
# - The hopeless draft model: nothing is accepted. The residual is p_target, as if nothing had been
#   drafted.
# - The perfect draft model: everything is accepted. The residual is empty, and nothing is ever
#   drawn from it.
#
# *Guess first:* is any line off, and how often is the good draft model's token accepted?

# %%
target, draft_model, tokenizer = load_pair()
cases = [(kind, p_target, q_draft) for kind, q_draft in q_drafts.items()]
for prompt in "for x in", "import os\n\ndef":
    ids = torch.tensor([tokenizer.encode(prompt)])
    with torch.inference_mode():
        of_target, of_draft = target(ids)[0, -1].double(), draft_model(ids)[0, -1].double()
    six = of_target.topk(6).indices
    cases.append((f"the pair, {prompt!r}, top 6", probs(of_target[six]), probs(of_draft[six])))
    cases.append((f"the pair, {prompt!r}, all", probs(of_target), probs(of_draft)))

lines = []
for name, wanted, proposed in cases:
    rules = [accept_or_replace, library] if len(wanted) < 10 else []
    p_accepted, overlap, count, off = compare(wanted, proposed, rules)
    assert off < 1e-12 and abs(p_accepted - overlap) < 1e-12
    lines.append([name, f"{p_accepted:.4f}", f"{overlap:.4f}", f"{count:,}", f"{off:.1g}"])
table(["draft model", "P(accepted)", "overlap", "ways", "off by"], lines,
      "off by: total variation from p_target (1e-16 is rounding)")

# %% [markdown]
# *Answer:* no line is off, except for the rounding of the last digit. The good draft model's token
# is accepted with .90, its overlap: .55 + .25 + .10.
#
# ## Three things to know
#
# 1. The overlap is accepted, the excess is rejected, and replacements fill the residual.
# 2. Excess and residual are equally large, so the sum is exactly p_target with any draft model.
# 3. A bad draft model costs speed, but it never costs quality.
#
# ## Change this and run again
#
# 1. In the last cell, write `compare(proposed, wanted, rules)`, so that target and draft model
#    change places, and see which columns change.
# 2. In `accept_or_replace`, write `dice.flip(0.9 * p_target[x] / q_draft[x])`. It accepts less, but
#    is it safer? (And why does it stop at the perfect draft model?)
# 3. Put `q_drafts["hair"] = p_target.nextafter(p_target + 1)` before the line `cases = ...`. It is
#    p_target, but greater by a hair. Which rule stops with an error, and what saves `verify`?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A draft and a bonus* drafts several tokens at once. Exercises: 4 (the residual).
