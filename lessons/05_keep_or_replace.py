# %% [markdown]
# # 5. Keep or replace
#
# **The draft has guessed a token. How does its guess become a token of the target's law?**
#
# A guess is drawn from q_draft, the small model's law; the text must be distributed as p_target, the big one's, which
# the pass that checks the guess (lesson 3) has computed by now. We could forget the guess, draw from p_target, be
# right, and have gained nothing: only behind a guess that is *kept* has the target already scored the next ones
# (lesson 7). So the rule must be exact, and keep the first guess as often as it can.

# %%
import torch

from kit import AMBER, FAINT, GREEN, RED, OneRow, picture, save, table
from nanospec import Dice, load_pair
from nanospec.draft import Draft
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify

p_target = torch.tensor([.50, .30, .15, .05], dtype=torch.float64)
q_draft = torch.tensor([.35, .10, .35, .20], dtype=torch.float64)

# %% [markdown]
# ## The old rule: refuse, and try again
#
# *Rejection sampling*: stretch the draft's law by C = max p_target / q_draft, until it covers the target's everywhere.
# Keep a guess x with probability p_target(x) / (C q_draft(x)), else forget it and guess again. A try ends in a kept x
# with probability p_target(x) / C, so in the right proportions, and in any kept token with 1 / C: C tries on average.

# %%
def try_again(p_target, q_draft, dice, most=10_000):
    """Guess until one is kept -> that token (None if none of `most` was), and the number of tries.
    p_target [.5, .5], q_draft [.8, .2]: C = 2.5; a guessed 0 is kept with probability .25, a guessed 1 always."""
    C = (p_target / q_draft).max()
    for tries in range(1, most + 1):
        x = dice.pick(q_draft)
        if dice.flip(p_target[x] / (C * q_draft[x])):
            return x, tries
    return None, most


C = (p_target / q_draft).max().item()
tries = [try_again(p_target, q_draft, OneRow(seed=seed))[1] for seed in range(1_000)]

# %% [markdown]
# ## The new rule: refuse, and replace
#
# The old coin is divided by C everywhere, for the sake of the one token where p_target / q_draft is greatest. Leave C
# out: keep with probability min(1, p_target(x) / q_draft(x)). Now what the draft guesses too seldom comes out too
# seldom, and a refusal makes up for exactly that: the replacement is drawn from the *residual* max(0, p_target -
# q_draft) (Leviathan et al. 2022, Chen et al. 2023). Below it, what one would have written alone: ask the target.

# %%
def keep_or_replace(p_target, q_draft, dice):
    """p_target [.5, .5], q_draft [.8, .2]: 0 is kept with .625, 1 always; the residual is [0, .3], so 1 replaces."""
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):                     # a coin above 1 falls True, always
        return x
    return dice.pick((p_target - q_draft).clamp(min=0))


def keep_or_redraw(p_target, q_draft, dice):
    """WRONG, and has shipped: p_target [.5, .5] with q_draft [.8, .2] comes out as [.65, .35]."""
    x = dice.pick(q_draft)
    return x if dice.flip(p_target[x] / q_draft[x]) else dice.pick(p_target)


library = Dice(range(100))      # `verify`, in nanospec/speculate.py, thrown with the same dice, says the same tokens
library.refill(3)
x = library.pick(q_draft.expand(100, 4))
draft = Draft(torch.stack([x, x], 1), torch.stack([0 * q_draft, q_draft]).expand(100, 2, 4))   # row 0 is no draft token
accepted, token = verify(draft, p_target.expand(100, 2, 4), library)
by_hand = [keep_or_replace(p_target, q_draft, OneRow(seed=seed)) for seed in range(100)]
assert by_hand == torch.where(accepted == 1, x, token).tolist()

# %% [markdown]
# ## Which of them is exact?
#
# No sampling here: `walk`, in nanospec/proof/walk.py, runs a function again and again with dice that let every outcome
# of every throw have its turn, and adds up the probabilities of all ways to each answer. Trying again has no longest
# way: stopped after k tries, it is undecided with probability (1 - 1/C)^k. (1e-16 is a float's last digit.)

# %%
for k in 1, 2, 3, 5:
    law, _ = walk(lambda dice: try_again(p_target, q_draft, OneRow(dice), k)[0])
    open_ = law.pop(None)
    off = distance({x: weight / (1 - open_) for x, weight in law.items()}, dict(enumerate(p_target.tolist())))[1]
    print(f"try again, {k} at most: undecided {open_:.4f}, (1 - 1/C)^{k} = {(1 - 1 / C) ** k:.4f}; else {off:.1g} off")
offs = [off]                                                    # total variation (lesson 1) from p_target
for rule in keep_or_replace, keep_or_redraw:
    for pair in torch.tensor([[.5, .5], [.8, .2]], dtype=torch.float64), (p_target, q_draft):
        law, _ = walk(lambda dice: rule(*pair, OneRow(dice)))
        print(f"{rule.__name__}: {pair[0].tolist()} comes out as {[round(law[token], 4) for token in sorted(law)]}")
    offs.append(distance(law, dict(enumerate(p_target.tolist())))[1])

# %% [markdown]
# ## On a real text
#
# Four tokens are kind to C. Among a thousand, a single one of which the draft has never thought makes C explode,
# however seldom the target wants it. Keep-or-replace keeps sum min(p_target, q_draft) of its guesses, and no exact rule
# keeps more: y is kept at most as often as it is guessed, q_draft(y), or as it may come out at all, p_target(y).

# %%
target, draft, tokenizer = load_pair()
ids = tokenizer.encode('''import os\n\ndef total_size(folder):
    """Return how many bytes the files in a folder hold."""
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))\n''')
with torch.inference_mode():
    p_text, q_text = (probs(model(torch.tensor([ids]))[0]).double() for model in (target, draft))   # (T, V), all places
kept_text = p_text.minimum(q_text).sum(-1)
C_text, why = torch.where(p_text > 0, p_text / q_text, 0).max(-1)
i = torch.where(kept_text > 0.9, C_text, 0).argmax()                # where C is worst although the laws nearly agree
print(f"behind {tokenizer.decode(ids[:i + 1])[-8:]!r} the laws overlap by {kept_text[i]:.2f}, and C = {C_text[i]:,.0f}:"
      f" {tokenizer.decode([why[i]])!r} has p_target {p_text[i, why[i]]:.4f}, q_draft {q_text[i, why[i]]:.7f}")
table(["rule", "tries per token", "first guess kept", "law off by", "tries, on the text", "kept, on the text"],
      [["try again", f"{C:.2f}", f"{1/C:.2f}", f"{offs[0]:.2g}", f"{C_text.mean():.0f}", f"{(1 / C_text).mean():.2f}"],
       *([name, "1", f"{p_target.minimum(q_draft).sum():.2f}", f"{off:.2g}", "1", f"{kept_text.mean():.2f}"]
         for name, off in zip(("keep or replace", "keep or redraw"), offs[1:]))],
      f"four tokens, walked ({sum(tries) / 1_000:.2f} tries measured); then the mean over {len(ids)} places of a text")
figure, (left, right) = picture("5. keep or replace", 2)
x = torch.arange(4).numpy()
left.bar(x, C * q_draft.numpy(), 0.7, color="white", edgecolor=RED, hatch="///", label="up to C q_draft: refused")
left.bar(x, p_target.numpy(), 0.7, color=GREEN, edgecolor=RED, label=f"up to p_target: kept, 1 guess of C = {C:.0f}")
left.hlines(q_draft, x - .35, x + .35, color=AMBER, linewidth=4, label="q_draft")
left.set(xticks=x, xlabel="token", ylabel="guesses for one token that comes out", ylim=(0, 1.45))
right.scatter(kept_text, C_text, color=RED, s=16, label="try again: C, a dot for each place of the text")
right.plot(x := torch.linspace(.1, 1, 50), 1 / x, ":", color=FAINT, linewidth=2, label="1 / overlap: C is never below")
right.axhline(1, color=GREEN, linewidth=2, label="keep or replace: one try, always")
right.set(yscale="log", ylim=(.7, 1e5), ylabel="tries per token", xlabel="overlap, sum min(p_target, q_draft)")
for axes in left, right:
    axes.legend(frameon=False, loc="upper left")
save(figure, "05_keep_or_replace")

# %% [markdown]
# **Change this and run again.** A nearly perfect draft, `q_draft` = [.50, .30, .195, .005]: which column suffers? In
# `keep_or_redraw`, draw from `(q_draft - p_target).clamp(min=0)`: whose law comes out? `top_k=20` inside `probs(...)`,
# only the 20 likeliest tokens of each law: what becomes of C, and of what is kept?
#
# Next: lesson 6 asks why the pieces fit. Exercises: 3 (keep or replace).
