# %% [markdown]
# # Accept or replace
#
# **How does a draft token become a token of the target's distribution, without a second try?**
#
# This lesson is the heart of the course.
#
# In *Rejection sampling* we turned draws from q_draft into draws from p_target. That was exact, but
# it had to try again and again. Speculative decoding changes two things (Leviathan et al. 2022,
# Chen et al. 2023):
#
# - It accepts more often.
# - After a rejection it draws one *replacement*, and there is no second try.
#
# Every token then takes exactly one draft token, and the result is still exact.

# %%
import torch

import figures
from kit import OneRow, page, table
from nanospec.files import load_pair
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk

p_target = torch.tensor([.50, .30, .15, .05], dtype=torch.float64)      # the same four tokens
q_draft = torch.tensor([.35, .10, .35, .20], dtype=torch.float64)

# %% [markdown]
# ## One hundred rounds, by hand
#
# We begin with two tokens, A and B. The target wants both equally often, so p_target = [.50, .50].
# The draft model proposes A too often, with q_draft = [.80, .20].
#
# We play 100 rounds, as if every probability came out exactly. In this lesson a round has a single
# draft token, and makes one token.
#
# 1. In 80 rounds the draft token is A, and in 20 rounds it is B.
# 2. The target wants B 50 times, and there are only 20, so accept all 20.
# 3. The target wants A 50 times, and there are 80. Accept 50 of them and reject 30, by a coin with
#    the threshold 50 / 80 = .625.
# 4. Now 50 rounds have A and 20 rounds have B. The 30 rejected rounds have no token yet.
# 5. No A is missing, but B is missing 30 times, so put B into all 30 rounds.
# 6. The result has 50 times A and 50 times B, exactly what the target wants.
#
# Look at step 5: 30 rounds were rejected, and 30 tokens were missing. These two numbers are always
# equal, because there are 100 rounds and 100 wanted tokens, and subtracting the accepted ones from
# both leaves the same number.
#
# The next cell does the same for the four tokens of *Rejection sampling*.
#
# *Guess first:* of 100 draft tokens, 35, 10, 35 and 20 are of the four kinds. How many of each are
# accepted, and what is missing?

# %%
drafted, wanted = 100 * q_draft, 100 * p_target
accepted = torch.minimum(drafted, wanted)
rejected = drafted - accepted
missing = wanted - accepted
assert torch.isclose(rejected.sum(), missing.sum())     # as many places as tokens to put there

columns = [wanted, drafted, accepted, rejected, missing, accepted + missing]
lines = []
for x in range(4):
    lines.append([x, *[f"{column[x]:.4g}" for column in columns]])
lines.append(["all", *[f"{column.sum():.4g}" for column in columns]])
table(["token", "wanted", "drafted", "accepted", "rejected", "missing", "accepted + missing"],
      lines)

# %% [markdown]
# *Answer:* 35 and 10 of the first two kinds, and 15 and 5 of the others. Token 0 is missing 15
# times and token 1 is missing 20 times. These are 35 together, as many as were rejected.
#
# ## The rule
#
# Here is the same procedure in terms of probabilities:
#
# - **The coin.** Its threshold is min(1, p_target(x) / q_draft(x)): with this probability the draft
#   token x is accepted. For A it is .50 / .80 = .625. For B it is 1, because .50 / .20 is more than
#   1.
# - **The replacement.** After a rejection, draw from what is missing: max(0, p_target - q_draft).
#   For A it is max(0, .50 - .80) = 0. For B it is max(0, .50 - .20) = .30.
#
# What is missing is called the *residual*, here [0, .30]. Divided by its sum, so that it adds up to
# 1, it is the *residual distribution* [0, 1]. (`dice.pick` needs no division, because it draws in
# proportion to any weights.)
#
# Rejection sampling divided all thresholds by C, so that no token was scarce among the accepted
# ones. Now some tokens are scarce there, and the replacements make up for exactly that.
#
# `# NEW` marks what *Rejection sampling* did not have. In return, the loop and C are gone.

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
# "The draft token was rejected, so ask the target: draw from p_target." This sounds reasonable, and
# a published program has done it (*How to test a sampler* names it). But it forgets step 5: the 30
# replacements would be 15 times A and 15 times B.
#
# *Guess first:* how often do A and B then come out in 100 rounds?

# %%
def accept_or_redraw(p_target, q_draft, dice):
    """WRONG: what the draft model already covers is drawn a second time."""
    x = dice.pick(q_draft)
    if dice.flip(p_target[x] / q_draft[x]):
        return x
    return dice.pick(p_target)                                  # WRONG: not what is missing


# %% [markdown]
# *Answer:* A 50 + 15 = 65 times, and B 20 + 15 = 35 times.
#
# Now we walk both rules: every outcome of every decision is tried, and the probabilities are added
# up. The numbers are exact, so watch the lines of "accept or redraw".

# %%
rules = {"accept or replace": accept_or_replace, "accept or redraw": accept_or_redraw}
two = torch.tensor([.5, .5], dtype=torch.float64), torch.tensor([.8, .2], dtype=torch.float64)
off = {}                        # total variation from p_target: of each rule, for the four tokens
lines = []
for name, rule in rules.items():
    for wanted, proposed in (two, (p_target, q_draft)):
        found, _ = walk(lambda dice: rule(wanted, proposed, OneRow(dice)))
        off[name] = distance(found, dict(enumerate(wanted.tolist())))[1]
        lines.append([name, [round(p, 4) for p in wanted.tolist()],
                      [round(found[token], 4) for token in sorted(found)], f"{off[name]:.2g}"])
table(["rule", "p_target", "comes out as", "off by"], lines,
      "off by: total variation from p_target")
assert off["accept or replace"] < 1e-12 < off["accept or redraw"]

figures.replacements(p_target, q_draft)
print("to play with, in a browser:", page("exact"))

# %% [markdown]
# The picture (`lessons/out/accept_or_replace.png`) shows both rules.
#
# Now play with them. The last line is a link to `docs/index.html`, a page that needs no server.
# Drag the bars of p_target and of q_draft, and watch what is accepted, the residual and the output.
# Then make the common mistake, which is a box to tick: it is `accept_or_redraw`.
#
# ## How many draft tokens are accepted?
#
# Of the first 100 rounds, 50 + 20 = 70 were accepted, for each token the smaller of the two
# numbers. The sum of the smaller probabilities is the *overlap* of p_target and q_draft, so this
# rule accepts a draft token with a probability equal to the overlap.
#
# **Claim.** No exact rule accepts its one draft token more often.
#
# **Proof.**
#
# 1. A rule can accept y only when y is drafted, so it accepts y with probability at most
#    q_draft(y).
# 2. An accepted y comes out, and an exact rule outputs y with probability p_target(y). So it
#    accepts y with probability at most p_target(y).
# 3. The rule therefore accepts y with probability at most the smaller of both. The sum over all y
#    is the overlap.
#
# The next table compares the rules on the four tokens, and at every place of the text that
# *Rejection sampling* used. The wrong rule flips the same coin and accepts equally often, so its
# speed does not betray it.
#
# *Guess first:* on the text, rejection sampling seldom accepts its first try. How often does the
# new rule accept?

# %%
program = '''import os

def total_size(folder):
    """Return how many bytes the files in a folder hold."""
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
'''
target, draft_model, tokenizer = load_pair()
ids = tokenizer.encode(program)
with torch.inference_mode():
    p_text = probs(target(torch.tensor([ids]))[0]).double()                 # (T, V): every place
    q_text = probs(draft_model(torch.tensor([ids]))[0]).double()
overlap_text = p_text.minimum(q_text).sum(-1)
C_text = torch.where(p_text > 0, p_text / q_text, 0).amax(-1)               # of rejection sampling

C, overlap = (p_target / q_draft).max(), p_target.minimum(q_draft).sum()
table(["rule", "tries", "accepted at first", "tries, text", "accepted at first, text"],
      [["rejection sampling", f"{C:.2f}", f"{1 / C:.2f}", f"{C_text.mean():,.0f}",
        f"{(1 / C_text).mean():.2g}"],
       ["accept or replace", "1", f"{overlap:.2f}", "1", f"{overlap_text.mean():.2f}"],
       ["accept or redraw (wrong)", "1", f"{overlap:.2f}", "1", f"{overlap_text.mean():.2f}"]],
      f"four tokens; then the mean over {len(ids)} places of a text")

# %% [markdown]
# *Answer:* in more than half of the cases, with its only try. That is the mean overlap of both
# models on this text.
#
# ## Three things to know
#
# 1. Accept a draft token x with probability min(1, p_target(x) / q_draft(x)).
# 2. After a rejection, draw the replacement from what is missing: max(0, p_target - q_draft).
# 3. The result is exact with a single draft token, and no exact rule accepts that token more often.
#
# ## Change this and run again
#
# 1. Take a nearly perfect draft model, `q_draft` = [.50, .30, .195, .005], as in *Rejection
#    sampling*. How many draft tokens does each of the two exact rules accept now?
# 2. In `accept_or_redraw`, draw from `(q_draft - p_target).clamp(min=0)`, which is what the draft
#    model proposes too often. Whose distribution comes out?
# 3. Write `top_k=20` inside both `probs(...)`. Rejection sampling breaks down there. Does this rule
#    as well?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Why it is lossless* shows why the pieces always fit, and walks the library's own rule,
# `verify`. Exercises: 3 (accept or replace).
