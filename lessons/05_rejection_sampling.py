# %% [markdown]
# # Rejection sampling
#
# **How can samples of one distribution become samples of another?**
#
# This is the problem of the whole course, for a single token. The draft model is small and fast,
# and it proposes a *draft token* drawn from its distribution q_draft. The target is big and good,
# and the text must come out with its distribution, p_target. A call of the target has computed
# p_target by now (*Ten for the price of one*), so both distributions are known.
#
# We could forget the draft token and draw from p_target. The text would be right, but the draft
# token would be of no use. We want both: the right distribution, and draft tokens that are
# *accepted* often.
#
# Statistics has had an answer since 1951 (John von Neumann): accept the draft token or reject it,
# and after a rejection, try again. This lesson builds that rule, proves it, and shows why it is too
# slow for us. In *Accept or replace* we change two of its lines, and the result is speculative
# decoding.
#
# We use `pick`, `flip` and total variation from *A distribution is a die*.

# %%
import torch

import figures
from kit import OneRow, table
from nanospec.files import load_pair
from nanospec.probs import probs
from nanospec.proof.walk import distance, walk

p_target = torch.tensor([.50, .30, .15, .05], dtype=torch.float64)      # four tokens: 0, 1, 2, 3
q_draft = torch.tensor([.35, .10, .35, .20], dtype=torch.float64)

# %% [markdown]
# ## Throw away what is too much
#
# Compare the two distributions. The draft model proposes tokens 2 and 3 too often, and tokens 0 and
# 1 too seldom. We can throw draft tokens away, but we cannot make more of them.
#
# So we look for the token that is scarcest, compared with what the target wants: the one with the
# greatest p_target / q_draft. It is token 1, which the target wants .30 / .10 = 3 times as often as
# the draft model proposes it. We call this ratio C, so C = 3 here.
#
# Accept every token 1, and throw away other tokens until they are as scarce as token 1. That means
# a coin for each draft token x, with the threshold p_target(x) / (C * q_draft(x)): this is the
# probability that x is accepted. For token 0 this is .50 / (3 * .35) = .476. For token 1 it is .30
# / (3 * .10) = 1, so it is always accepted.
#
# The table counts the outcome for 300 draft tokens, as if every probability came out exactly.
#
# *Guess first:* how many of the 300 are accepted altogether?

# %%
C = (p_target / q_draft).max()
threshold = p_target / (C * q_draft)                # for each token: how often it is accepted
drafted = 100 * C * q_draft
accepted = drafted * threshold
assert torch.allclose(accepted, 100 * p_target)     # 100 accepted tokens, as the target wants them

lines = []
for x in range(len(p_target)):
    lines.append([x, f"{p_target[x]:.2f}", f"{q_draft[x]:.2f}", f"{p_target[x] / q_draft[x]:.2f}",
                  f"{threshold[x]:.3f}", f"{drafted[x]:.0f}", f"{accepted[x]:.0f}"])
lines.append(["all", f"{p_target.sum():.2f}", f"{q_draft.sum():.2f}", "", "",
              f"{drafted.sum():.0f}",
             f"{accepted.sum():.0f}"])
table(["token", "p_target", "q_draft", "p_target / q_draft", "threshold", "drafted", "accepted"],
      lines)

# %% [markdown]
# *Answer:* 100, which is 300 / C.
#
# ## Why it is exact
#
# The last column is p_target again, times 100. That is no accident.
#
# **Claim.** The token that comes out has the distribution p_target, and it takes C tries on
# average.
#
# **Proof.**
#
# 1. One try drafts x with probability q_draft(x).
# 2. It then accepts x with probability p_target(x) / (C * q_draft(x)). This is at most 1, because C
#    is the greatest p_target / q_draft.
# 3. Multiplying the two, one try ends with x accepted with probability p_target(x) / C.
# 4. Summed over all x, one try accepts some token with probability 1 / C.
# 5. An accepted token is therefore x with probability (p_target(x) / C) / (1 / C) = p_target(x).
# 6. A rejected try has no influence on the next one, so steps 1 to 5 hold for every try.
# 7. An event of probability 1 / C takes C tries on average, just as a six, with probability 1 / 6,
#    takes six throws of a die.
#
# ## The rule as a function
#
# All random decisions are made by `dice`. Its two methods are those of *A distribution is a die*:
# `dice.pick(weights)` draws a token, and `dice.flip(prob)` flips a coin. `OneRow(seed=3)` makes
# such dice from a seed.

# %%
def try_again(p_target, q_draft, dice, most=10_000):
    """Draft until one is accepted -> that token, and the number of tries. After `most` tries: None.
    p_target [.5, .5], q_draft [.8, .2]: C = 2.5. A 0 is accepted with probability .25, a 1 always.
    """
    C = (p_target / q_draft).max()
    for tries in range(1, most + 1):
        x = dice.pick(q_draft)
        if dice.flip(p_target[x] / (C * q_draft[x])):
            return x, tries
    return None, most


# %% [markdown]
# Let it run 1,000 times, with 1,000 seeds.
#
# *Guess first:* how many tries does it take on average? (C is still 3.)

# %%
draws = [try_again(p_target, q_draft, OneRow(seed=seed)) for seed in range(1_000)]
tokens = [token for token, _ in draws]
tries = [count for _, count in draws]

print(f"\ntries per token: {sum(tries) / len(tries):.2f} on average, {max(tries)} at most")
for x in range(len(p_target)):
    print(f"token {x}: drawn {tokens.count(x) / len(tokens):.3f}, p_target {p_target[x]:.3f}")

# %% [markdown]
# *Answer:* three, which is C. Single tokens take many more.
#
# ## All ways, added up
#
# The shares of 1,000 draws come close but are never exact, and a mistake could hide in the
# difference. There is a better check. The function makes few decisions, and each of them has few
# outcomes, so we can run it once for every possible series of outcomes.
#
# - Such a series is a *path*. One path is: token 0 is drafted and rejected, then token 2 is drafted
#   and accepted.
# - The probability of a path is the product of the probabilities of its outcomes.
# - The probability of a token is the sum over all paths that end in it.
#
# This is a *walk*, and it involves no chance. `walk` in `nanospec/proof/walk.py` calls the function
# again and again, with special dice that take every outcome in turn. (`OneRow(dice)` gives these
# dice the methods `pick` and `flip` as well.) Many checks in this course are walks.
#
# Our function might try forever, so we stop it after k tries. It then returns None, which means
# undecided. One try is undecided with probability 1 - 1/C.
#
# *Guess first:* C is 3. How often is the token undecided after one try, and after two?

# %%
truth = dict(enumerate(p_target.tolist()))
lines = []
for k in 1, 2, 3, 5:
    found, paths = walk(lambda dice: try_again(p_target, q_draft, OneRow(dice), most=k)[0])
    undecided = found.pop(None)
    decided = {token: probability / (1 - undecided) for token, probability in found.items()}
    off = distance(decided, truth)[1]           # total variation
    assert off < 1e-12
    lines.append([k, paths, f"{undecided:.4f}", f"{(1 - 1 / C) ** k:.4f}", f"{off:.0e}"])
table(["tries at most", "paths", "undecided", "(1 - 1/C)^k", "decided tokens off by"], lines,
      "off by: total variation from p_target; 1e-16 is the last digit of a float, so it means 0")

# %% [markdown]
# *Answer:* 2/3 after one try and 4/9 after two. It is (1 - 1/C)^k after k tries, and never 0.
#
# ## On a real text
#
# The rule is exact and needs C tries. Is that many? We now take our pair of models, whose
# vocabulary has 1,024 tokens, and compute p_target, q_draft and C at every place of a short
# program.
#
# Beside C we compute the *overlap* of the two distributions: for each token take the smaller of
# p_target and q_draft, and add these up. For the four tokens it is .35 + .10 + .15 + .05 = .65.
# Where both distributions are equal, the overlap is 1. (It is always 1 minus their total
# variation.)

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
ratio = torch.where(p_text > 0, p_text / q_text, 0)
C_text, scarcest = ratio.max(-1)                    # C, and the token that causes it

# %% [markdown]
# C cannot be small where the distributions differ much, because C * overlap is at least 1:
#
# 1. C * q_draft(x) is at least p_target(x), for every x.
# 2. C is at least 1: both distributions add up to 1, so some token has a p_target that is at least
#    its q_draft.
# 3. C times the smaller of p_target(x) and q_draft(x) is therefore at least p_target(x).
# 4. Summed over all x, C * overlap is at least 1.
#
# But can C be large where the distributions are nearly equal?
#
# *Guess first:* among the places with an overlap above 0.9, how large is the worst C: nearer to 10,
# to 1,000, or to 100,000?

# %%
assert (C_text * overlap_text >= 1 - 1e-6).all()
i = torch.where(overlap_text > 0.9, C_text, 0).argmax()
y = scarcest[i]
print(f"\nafter {tokenizer.decode(ids[:i + 1])[-8:]!r} the overlap is {overlap_text[i]:.2f}, "
      f"and yet C = {C_text[i]:,.0f}")
print(f"the token that causes it is {tokenizer.decode([y])!r}: "
      f"p_target {p_text[i, y]:.0e}, q_draft {q_text[i, y]:.0e}")
assert C_text[i] > 10_000
C = C.item()
table(["", "tries per token (C)", "first try accepted (1/C)", "overlap"],
      [["four tokens", f"{C:.2f}", f"{1 / C:.2f}", f"{p_target.minimum(q_draft).sum():.2f}"],
       ["on the text", f"{C_text.mean():,.0f}", f"{(1 / C_text).mean():.2g}",
        f"{overlap_text.mean():.2f}"]],
      f"on the text: the mean over {len(ids)} places")

figures.tries(p_target, q_draft, C, overlap_text, C_text)

# %% [markdown]
# *Answer:* the largest of the three is the nearest. Look at the picture
# (`lessons/out/rejection_sampling.png`) and at the token that causes the large C. The target seldom
# wants it, and the draft model proposes it far more seldom still. This one token determines C at
# that place, and C divides the thresholds of *all* tokens. All of them are rejected again and again
# for the sake of one rare token.
#
# ## Three things to know
#
# 1. Rejection sampling turns draws from q_draft into draws from p_target, and it is exact.
# 2. It takes C tries on average, where C is the greatest p_target / q_draft.
# 3. With many tokens C is large, even where the two distributions nearly agree.
#
# ## Change this and run again
#
# 1. Take a nearly perfect draft model: `q_draft` = [.50, .30, .195, .005]. What is C now, and why?
# 2. In `try_again`, write `C = 6` in place of the line with `max`, then `C = 1.5`. Which of them is
#    still exact, and what does it cost?
# 3. Write `top_k=20` inside both `probs(...)`, so that only the 20 likeliest tokens stay. What
#    becomes of C?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* the rule of *Accept or replace* rejects less often and never tries again.
