# %% [markdown]
# # A budget for all
#
# **Which of many texts should get the draft tokens, and what may the choice depend on?**
#
# *A full batch* showed that a large batch has no room for long drafts. But some texts are easy at
# this moment and others are hard, so why should all get the same gamma? This lesson divides a fixed
# number of draft tokens among the texts of a batch. It shows which choices keep the text exact, and
# that one tempting choice does not.

# %%
import torch

import figures
from kit import table
from oracles import product_of
from nanospec import ModelDrafter
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.files import load_pair
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.serving.ragged import Ragged
from nanospec.serving.server import Server
from nanospec.text import Text, prefill

# %% [markdown]
# ## Survival
#
# Draft tokens should go where they are likeliest to count. A draft token counts only if all before
# it are accepted. The probability of that is called its *survival*:
#
#     survival of the k-th = chance of the 1st x chance of the 2nd x ... x chance of the k-th
#
# The chance of one draft token is estimated from the past: how often were draft tokens accepted
# where the draft model's greatest probability was the same? (That is known before the token is
# drawn.) All texts draft, and then the target verifies the K draft tokens with the greatest
# survival.
#
# *Guess first:* in the next cell, K is 6 for three texts. How many does each of them get?

# %%
chances = {"A": [0.9, 0.9, 0.9, 0.8], "B": [0.6, 0.4, 0.9, 0.9], "C": [0.4, 0.8, 0.5, 0.9]}
K, slots = 6, []
for name, its in chances.items():
    survival = 1.0
    for k, chance in enumerate(its, 1):
        survival *= chance
        slots.append((survival, -k, name))
sent = sorted(slots, reverse=True)[:K]
table(["text", "survival of its four draft tokens", "verified"],
      [[name, " ".join(f"{survival:.2f}" for survival, _, its in slots if its == name),
        sum(name == its for _, _, its in sent)] for name in chances])
two_each = sum(survival for survival, k, _ in slots if k >= -2)
print(f"\naccepted on average: {two_each:.2f} with two for each text, "
      f"{sum(survival for survival, _, _ in sent):.2f} by survival")

# %% [markdown]
# *Answer:* four, one and one. The fourth draft token of A has a better chance than the second one
# of the others.
#
# ## What the budget may depend on
#
# **Claim.** If K is fixed beforehand, each text has the target's distribution, and so do all texts
# together.
#
# **Proof.**
#
# 1. Along a text, survival falls. So the K places can be found one by one: each time, look at the
#    next place of every text, and take the one with the greatest survival.
# 2. So whether a place gets a draft token is decided without a look at that token, as if it were
#    drawn afterwards. The decision looks at draft tokens that were taken earlier, and at no coin.
# 3. This is a stopping rule as in *What a stopping rule may see*. Whatever it decides, the token at
#    this place has the distribution p_target.
#
# It is tempting to look at this round's draft: "the draft model is sure, so send it; it is not, so
# send nothing." But how sure it is *after* a place depends on the draft token at this place. Then
# the decision has seen the token that it decides about.
#
# We walk two tiny models with two texts and at most two draft tokens for each. `BySurvival` is the
# library's (nanospec/methods/lengths/by_survival.py). The other class sends all or nothing.
#
# *Guess first:* how far off is that class? (In total variation, 0 is exact and 1 is nothing in
# common.)


# %%
class IfItIsSure(BySurvival):
    LEAST = 0.79                                    # of the mean survival of all draft tokens

    def counts_of(self, survival):                  # draft tokens for each text
        whole = torch.stack([*survival])            # (2, texts)
        send = whole.mean() > self.LEAST            # WRONG
        return torch.full(whole.shape[1:], len(whole) if send else 0)


p_model, q_model = TableModel(2, seed=11, zeros=0), TableModel(2, seed=12, zeros=0)


def both_texts(drafter, dice):
    """The next token of two texts that share a batch."""
    server = Server(p_model, drafter, rows=2, dice=dice)
    requests = [server.submit(ids, max_new_tokens=1) for ids in ([1], [0])]
    while not all(request.done for request in requests):
        server.step()
    return tuple(tuple(request.tokens) for request in requests)


truth = product_of(*(target_distribution(p_model, ids, 1) for ids in ([1], [0])))
off = {}
for kind in BySurvival, IfItIsSure:
    found, paths = walk(lambda dice: both_texts(kind(q_model, 2), dice))
    off[kind.__name__] = distance(found, truth)[1]
table(["walked: both texts together", "off by"],
      [[name, f"{by:.0e}" if by < 1e-9 else f"{by:.3f}"] for name, by in off.items()])

# %% [markdown]
# *Answer:* .23.
#
# The mistake of the second class would not be noticed in a text, but the walk sees it. A server
# that fixes K from earlier rounds is safe.
#
# ## No padding
#
# A call is a rectangle, and now the rows have different lengths. If the target computed the whole
# rectangle, nothing would be saved. So it computes only the tokens that exist, as one long line,
# and only attention needs the rectangle. The library's `Ragged` (nanospec/serving/ragged.py) stands
# in the target's place and does this.
#
# *Guess first:* there are 16 texts, with four draft tokens for one of them and one for each of the
# others. How much longer does the rectangle take?

# %%
torch.set_num_threads(1)
target, draft_model, _ = pair = load_pair()
autotune(target, draft_model, rows=16)  # the fastest data type and layout for 16 texts
B, n = 16, 5
text = Text([ids[:16] for ids in held_out_prompts(pair, B)], 64, target.config.vocab_size)
cache = prefill(target, text)[0]
drafted = torch.zeros(B, n, dtype=torch.int64)
exist = torch.tensor([b * n + i for b in range(B) for i in range(n if b == 0 else 2)])
ragged, saved = Ragged(target, ModelDrafter(draft_model, n - 1)), {}
with torch.inference_mode():
    for name, ragged.exist in (f"{B} x {n} tokens", None), (f"the {len(exist)} that exist", exist):
        calls = timed(ragged(drafted, cache, 32) for _ in range(8))[1]
        saved[name] = 1e3 * min(calls)
table(["the target computes", "ms"], [[name, f"{ms:.2f}"] for name, ms in saved.items()])

# %% [markdown]
# *Answer:* at most 80 / 35 = 2.3 times, for it has 16 rows of 5 tokens where 5 + 15 * 2 exist. The
# table has the time.
#
# Does a budget by survival pay? To choose K of B x gamma draft tokens, all of them must be drafted
# first, and drafting costs gamma c. The next cell measures c here, with 16 rows in every call.

# %%
step = step_seconds(target, 1, 96, rows=B, repeats=3)
c = draft_seconds(draft_model, 96, rows=B, repeats=3) / step
print(f"\nwith {B} texts, c is {c:.2f}: "
      f"drafting four tokens for each costs {4 * c:.2f} target steps")
figures.budget({name: [survival for survival, _, its in slots if its == name] for name in chances},
               min(survival for survival, _, _ in sent))

# %% [markdown]
# If that number is a large part of 1, a short draft for every text is better. A budget pays where
# drafting costs nearly nothing and verifying is expensive: with copies (*Copying from the past*),
# with large targets, and with draft models that make all their draft tokens in one pass (*A block
# at once*).
#
# The picture shows the survival of all draft tokens of the worked example. Those above the line are
# verified.
#
# ## Three things to know
#
# 1. Survival, the product of the chances so far, tells which draft tokens are likeliest to count.
# 2. A budget may be given to the texts with the greatest survival, if it was fixed before anything
#    was drafted.
# 3. A decision that has seen the token it decides about changes the text.
#
# ## Change this and run again
#
# 1. Write `LEAST = 0.7`. Why is nothing wrong now?
# 2. In the cell of `chances`, write 3 and then 12 for `K`. Which texts get how many?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A block at once* drafts all tokens in one pass.
