# %% [markdown]
# # 6. Why it is lossless
#
# **The draft decides what is guessed. Why does its taste leave no trace in the text?**
#
# Lesson 5 left a promise behind: keep a guess with probability min(1, p_target / q_draft), otherwise draw from the
# residual max(0, p_target - q_draft), and what comes out has the law p_target. *Lossless* means this: every token
# keeps the very probability the target gives it. Here is why: as a picture, as a list, and in the library's own code.

# %%
from collections import defaultdict
from math import prod

import torch

from kit import BLUE, GREEN, INK, RED, OneRow, picture, save, table
from nanospec import load_pair
from nanospec.draft import Draft
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify

names = ["range", "items", "zip", "def"]                    # behind "for x in"; the target forbids the last
p_target = torch.tensor([.6, .3, .1, 0], dtype=torch.float64)
drafts = {"perfect": [.6, .3, .1, 0], "good": [.55, .25, .2, 0], "bad": [.2, .2, .5, .1], "hopeless": [0, 0, 0, 1]}
drafts = {kind: torch.tensor(law, dtype=torch.float64) for kind, law in drafts.items()}


def keep_or_replace(p_target, q_draft, dice):
    """[.5, .5], [.8, .2]: guess 0 is kept with .625 or replaced by 1, guess 1 always kept -> (was it kept, token)."""
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):
        return True, x                                                                          # NEW: says if kept
    return False, dice.pick((p_target - q_draft).clamp(min=0))


# %% [markdown]
# ## Lay one law over the other
#
# They share the *overlap*, min(p_target, q_draft). What the target has above it, the draft has left uncovered: the
# residual. What the draft has above it, it guesses too often: call that its excess. A token is guessed and kept with
# probability q_draft min(1, p_target / q_draft) = min(q_draft, p_target): the overlap is kept, the excess is refused.
#
# Each law is 1 in all, so each stands out above the overlap by the same amount, 1 - overlap, their total variation
# (lesson 1). What was refused fills the gap exactly. A draw from the residual deals it out in the gap's own
# proportions, and overlap + residual = p_target, token by token.

# %%
def pieces(p_target, q_draft):
    """Overlap, residual, excess: [.5, .5] and [.8, .2] give [.5, .2], [0, .3], [.3, 0]."""
    return p_target.minimum(q_draft), (p_target - q_draft).clamp(min=0), (q_draft - p_target).clamp(min=0)


print("the bad draft  kept + over = draft   kept + left = target     (over: the excess; left: the residual)")
for name, kept, left, over in zip([*names, "all"], *([*it, it.sum()] for it in pieces(p_target, drafts["bad"]))):
    print(f"{name:>13}  {kept:.2f} + {over:.2f} = {kept + over:.2f}    {kept:.2f} + {left:.2f} = {kept + left:.2f}")

# %% [markdown]
# ## Everything that can happen
#
# A guess, a coin, perhaps a replacement: few enough ways to write them all down. The probability of a way is the
# product of the odds along it, the probability of a token the sum over all ways that end in it.

# %%
def ways(p_target, q_draft):
    """Every way to a token -> (guess, was it kept, token, odds along it); [.5, .5] and [.8, .2] have three."""
    residual = pieces(p_target, q_draft)[1]
    share = (residual / residual.sum()).tolist()
    for x, (wanted, guessed) in enumerate(zip(p_target.tolist(), q_draft.tolist())):
        if guessed > 0 and wanted > 0:
            yield x, True, x, (guessed, min(1, wanted / guessed))
        if guessed > wanted:
            odds = guessed, 1 - wanted / guessed
            yield from ((x, False, y, (*odds, part)) for y, part in enumerate(share) if part > 0)


for y, name in enumerate(names):
    ending = [way for way in ways(p_target, drafts["bad"]) if way[2] == y]
    for x, kept, _, odds in ending:
        what = f"{names[x]} guessed, {'kept' if kept else f'refused, {name} drawn'}"
        print(f"  {what:34}{' x '.join(f'{odd:.2f}' for odd in odds):18} = {prod(odds):.2f}")
    print(f"{name} comes out with {sum(prod(odds) for *_, odds in ending):.2f}; p_target says {p_target[y]:.2f}")

# %% [markdown]
# ## The same, walked, and in the code that ships
#
# `walk` (lesson 5) finds the paths without our help. It must count as many and come to the same law: for the function
# above, and for `verify` in nanospec/speculate.py with a draft of one token. And the draft may be as bad as it likes.
# The hopeless one always guesses "def", which the target forbids: nothing is kept, the residual is all of p_target, as
# if there were no draft. The perfect one leaves no residual, and nothing is ever drawn from it: no coin falls.

# %%
def library(p_target, q_draft, dice):
    """One guess through `verify`. What would follow a kept one is made certain here, and so adds no path."""
    x = dice.dice.pick(q_draft[None])
    draft = Draft(x.expand(1, 2), torch.stack([0 * q_draft, q_draft])[None])            # row 0 is no draft token
    rows = torch.stack([p_target, torch.eye(len(p_target), dtype=torch.float64)[0]])[None]
    accepted, token = verify(draft, rows, dice.dice)
    return bool(accepted), int(x if accepted else token)


cases, rows = [(kind, p_target, q_draft) for kind, q_draft in drafts.items()], []
target, draft, tokenizer = load_pair()
for prompt in "for x in", "import os\n\ndef":
    with torch.inference_mode():
        logits = [model(torch.tensor([tokenizer.encode(prompt)]))[0, -1].double() for model in (target, draft)]
    cases += [(f"the pair, {prompt!r}, top 6", *(probs(row[logits[0].topk(6).indices]) for row in logits)),
              (f"the pair, {prompt!r}, all", *map(probs, logits))]
for name, wanted, guessed in cases:
    law, found = defaultdict(float), list(ways(wanted, guessed))
    for _, kept, token, odds in found:
        law[kept, token] += prod(odds)
    for rule in (keep_or_replace, library) if len(wanted) < 10 else ():                     # all 1,024: by hand only
        walked, paths = walk(lambda dice: rule(wanted, guessed, OneRow(dice)))
        assert paths == len(found) and distance(walked, law)[1] < 1e-15
        law.update(walked)                                  # the table shows what `verify` does, where it was walked
    stood, off = sum(law[True, y] for y in range(len(wanted))), distance(
        {y: law[True, y] + law[False, y] for y in range(len(wanted))}, dict(enumerate(wanted.tolist())))[1]
    rows.append([name, f"{stood:.4f}", f"{pieces(wanted, guessed)[0].sum():.4f}", f"{len(found):,}", f"{off:.1g}"])
table(["draft", "P(kept)", "overlap", "paths", "law off by"], rows, "off: total variation from p_target")
figure, panels = picture("6. why it is lossless", 2)
for axes, kind in zip(panels, ("good", "bad")):
    kept, left, over = (piece.numpy() for piece in pieces(p_target, drafts[kind]))
    for part, floor, colour, label in ((kept, 0 * kept, GREEN, "overlap: guessed and kept"),
                                       (left, kept, BLUE, "residual: drawn after a refusal"),
                                       (over, kept, RED, "excess: guessed and refused")):
        drawn = axes.bar(names, part, 0.7, floor, color=colour, label=label)
        axes.bar_label(drawn, [f"{mass:.2f}" if mass > 0 else "" for mass in part], label_type="center", color="white")
    axes.bar(names, p_target.tolist(), 0.7, fill=False, edgecolor=INK, lw=2, label="overlap + residual = p_target")
    axes.set(ylim=(0, .75), ylabel="probability", xlabel="overlap + excess = q_draft")
    axes.set_title(f"a {kind} draft: {kept.sum():.2f} kept, {over.sum():.2f} replaced", loc="left", fontsize=10)
panels[0].legend(frameon=False)
save(figure, "06_why_it_is_lossless")

# %% [markdown]
# **Change this and run again.** In `cases`, swap p_target and q_draft: which columns stay as they are? In
# `keep_or_replace`, `flip(0.9 * p_target[x] / q_draft[x])`: a stricter check, so a safer one? (It falls over at the
# perfect draft: why?) `drafts["hair"] = p_target.nextafter(p_target + 1)`: which rule falls over, what saves `verify`?
#
# Next: lesson 7 guesses several tokens at once. Exercises: 3 (keep or replace), 4 (the residual).
