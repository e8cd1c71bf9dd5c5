# %% [markdown]
# # 6. Accept or replace
#
# **A draft token was rejected. Must we try again?**
#
# No. This lesson is the heart of the course.
#
# Lesson 5 made draws from p_target out of draws from q_draft.
# It was exact, but it tried again and again.
# Speculative decoding changes two things (Leviathan et al. 2022, Chen et al. 2023):
#
# - It accepts more often.
# - After a rejection it draws one *replacement*. There is no second try.
#
# Every token takes exactly one draft token, and the result is still exact.

# %%
import torch

import figures
from kit import OneRow, table
from nanospec.files import load_pair
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk

p_target = torch.tensor([.50, .30, .15, .05], dtype=torch.float64)      # as in lesson 5
q_draft = torch.tensor([.35, .10, .35, .20], dtype=torch.float64)

# %% [markdown]
# ## One hundred rounds, by hand
#
# We begin with two tokens, A and B.
# The target wants both equally often: p_target = [.50, .50].
# The draft proposes A too often: q_draft = [.80, .20].
#
# We play 100 rounds, as if every probability came out exactly. Each round must give one token.
#
# 1. In 80 rounds the draft token is A. In 20 rounds it is B.
# 2. The target wants 50 times B. There are only 20. Accept all 20.
# 3. The target wants 50 times A. There are 80. Accept 50 of them, and reject 30.
#    That is a coin with probability 50 / 80 = .625.
# 4. Now 50 rounds have A, and 20 rounds have B. The 30 rejected rounds have no token yet.
# 5. What is missing? No A, but 30 times B. So put B into all 30.
# 6. The result: 50 times A and 50 times B. That is exactly what the target wants.
#
# Look at step 5. The number of rejected rounds is the number of missing tokens: 30 and 30.
# It always is. There are 100 rounds, and the target wants 100 tokens.
# Take away the accepted ones from both. The same number is left.
#
# Below is the same for the four tokens of lesson 5.
#
# *Guess first:* the draft tokens are 35, 10, 35 and 20.
# How many of each are accepted? What is missing?

# %%
drafted, wanted = 100 * q_draft, 100 * p_target
accepted = torch.minimum(drafted, wanted)
rejected = drafted - accepted
missing = wanted - accepted
assert torch.isclose(rejected.sum(), missing.sum())     # as many places as tokens to put there

columns = [wanted, drafted, accepted, rejected, missing, accepted + missing]
rows = []
for x in range(4):
    rows.append([x, *[f"{column[x]:.4g}" for column in columns]])
rows.append(["all", *[f"{column.sum():.4g}" for column in columns]])
table(["token", "wanted", "drafted", "accepted", "rejected", "missing", "accepted + missing"], rows)

# %% [markdown]
# ## The rule
#
# The same, said with probabilities:
#
# - **The coin.** Accept the draft token x with probability min(1, p_target(x) / q_draft(x)).
#   For A it is .50 / .80 = .625. For B it is 1, because .50 / .20 is more than 1.
# - **The replacement.** After a rejection, draw from what is missing: max(0, p_target - q_draft).
#   For A it is max(0, .50 - .80) = 0. For B it is max(0, .50 - .20) = .30.
#
# What is missing is called the *residual*. Here it is [0, .30].
# Divided by its sum, so that it adds up to 1, it is the *residual distribution*: [0, 1].
# (`dice.pick` needs no division. It draws in proportion to any weights.)
#
# Lesson 5 divided all coins by C, so that no token was scarce among the accepted ones.
# Now some tokens are scarce there. The replacements make up for exactly that.
#
# `# NEW` marks what lesson 5 did not have. The loop and C are gone.

# %%
def accept_or_replace(p_target, q_draft, dice):
    """One token. p_target [.5, .5], q_draft [.8, .2]: 0 is accepted with .625, and 1 always.
    The residual is [0, .3], so the replacement is always 1.
    """
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):                     # NEW: no C; above 1 means always
        return x
    residual = (p_target - q_draft).clamp(min=0)                # NEW: what is missing
    return dice.pick(residual)                                  # NEW: no second try


# %% [markdown]
# ## A rule that looks right, and is wrong
#
# "The draft token was rejected. So ask the target: draw from p_target."
# This sounds reasonable. Published programs have done it.
#
# But it forgets step 5. The 30 replacements would be 15 times A and 15 times B.
#
# *Guess first:* how often do A and B come out then, in 100 rounds?

# %%
def accept_or_redraw(p_target, q_draft, dice):
    """WRONG: what the draft has covered already is drawn a second time."""
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):
        return x
    return dice.pick(p_target)                                  # WRONG: not what is missing


# %% [markdown]
# Now we walk both rules.
# (Lesson 5: a walk tries every outcome of every decision, and adds up the probabilities.)
# The numbers are exact. Watch the rows of "accept or redraw".

# %%
rules = {"accept or replace": accept_or_replace, "accept or redraw": accept_or_redraw}
two = torch.tensor([.5, .5], dtype=torch.float64), torch.tensor([.8, .2], dtype=torch.float64)
off = {}                        # total variation from p_target: of each rule, for the four tokens
rows = []
for name, rule in rules.items():
    for wanted, proposed in (two, (p_target, q_draft)):
        found, _ = walk(lambda dice: rule(wanted, proposed, OneRow(dice)))
        off[name] = distance(found, dict(enumerate(wanted.tolist())))[1]
        rows.append([name, [round(p, 4) for p in wanted.tolist()],
                     [round(found[token], 4) for token in sorted(found)], f"{off[name]:.2g}"])
table(["rule", "p_target", "comes out as", "off by"], rows, "off by: total variation from p_target")
assert off["accept or replace"] < 1e-12 < off["accept or redraw"]

figures.replacements(p_target, q_draft)

# %% [markdown]
# ## How many draft tokens are accepted?
#
# The picture (`lessons/out/06_accept_or_replace.png`) shows both rules.
#
# Of the first 100 rounds, 50 + 20 = 70 were accepted: for each token the smaller number of the two.
# Lesson 5 called the sum of the smaller probabilities the *overlap* of p_target and q_draft.
# So this rule accepts a draft token with a probability equal to the overlap.
#
# **Claim.** No exact rule accepts its one draft token more often.
#
# **Proof.**
#
# 1. A rule can accept y only when y is drafted.
#    So it accepts y with probability at most q_draft(y).
# 2. An accepted y comes out. In an exact rule y comes out with probability p_target(y).
#    So it is accepted with probability at most p_target(y).
# 3. So it is accepted at most with the smaller one of both. Add this up over all y: the overlap.
#
# Here are the rules on the four tokens, and on the text of lesson 5, at every place.
# The wrong rule throws the same coin, so it accepts as often. Its speed does not betray it.
#
# *Guess first:* on the text, lesson 5's rule accepts a first try seldom. And the new rule?

# %%
program = '''import os

def total_size(folder):
    """Return how many bytes the files in a folder hold."""
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
'''
target, draft, tokenizer = load_pair()
ids = tokenizer.encode(program)
with torch.inference_mode():
    p_text = probs(target(torch.tensor([ids]))[0]).double()                 # (T, V): every place
    q_text = probs(draft(torch.tensor([ids]))[0]).double()
overlap_text = p_text.minimum(q_text).sum(-1)
C_text = torch.where(p_text > 0, p_text / q_text, 0).amax(-1)               # lesson 5

C, overlap = (p_target / q_draft).max(), p_target.minimum(q_draft).sum()
table(["rule", "tries", "accepted at first", "tries, text", "accepted at first, text"],
      [["try again (lesson 5)", f"{C:.2f}", f"{1 / C:.2f}", f"{C_text.mean():.0f}",
        f"{(1 / C_text).mean():.2f}"],
       ["accept or replace", "1", f"{overlap:.2f}", "1", f"{overlap_text.mean():.2f}"],
       ["accept or redraw (wrong)", "1", f"{overlap:.2f}", "1", f"{overlap_text.mean():.2f}"]],
      f"four tokens; then the mean over {len(ids)} places of a text")

# %% [markdown]
# ## Three things to know
#
# 1. Accept a draft token x with probability min(1, p_target(x) / q_draft(x)).
# 2. After a rejection, draw the replacement from what is missing: max(0, p_target - q_draft).
# 3. The result is exact. One draft token is enough, and no exact rule accepts it more often.
#
# ## Change this and run again
#
# 1. Take lesson 5's nearly perfect draft: `q_draft` = [.50, .30, .195, .005].
#    How many draft tokens does each of the two exact rules accept now?
# 2. In `accept_or_redraw`, draw from `(q_draft - p_target).clamp(min=0)`.
#    This is what the draft proposes too often. Whose distribution comes out?
# 3. Write `top_k=20` inside both `probs(...)`. Lesson 5's rule breaks down. Does this one?
#
# The answers are in `lessons/answers/06_accept_or_replace.md`.
#
# Next: lesson 7 shows why the pieces always fit, and walks the library's own rule, `verify`.
# Exercises: 3 (accept or replace).
