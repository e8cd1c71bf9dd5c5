# %% [markdown]
# # A full batch
#
# **From how many texts on is a draft token no longer free? And which text should get it then?**
#
# Lesson 3 showed why ten tokens in one call cost little more than one: the weights are read once
# for all of them. Lesson 27 put many texts into one call. So the same gift is taken twice.
# This lesson measures where it ends, and what a server does about it.
#
# As in lesson 27, a *row* is the place of one text in the batch.
# *gamma* is the number of draft tokens in a round, *alpha* how often one is accepted.

# %%
import torch

import figures
from kit import Quiet, table
from nanospec import Dice, ModelDrafter, Sampling
from nanospec.bench.prompts import held_out_prompts
from nanospec.bench.roofline import bandwidth, matrix_rate, weight_bytes
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import plain_step
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, product_of, target_distribution, walk
from nanospec.serving.by_load import ByLoad
from nanospec.serving.by_survival import BySurvival
from nanospec.serving.ragged import Ragged
from nanospec.serving.server import Server
from nanospec.speculate import one_round, verify
from nanospec.text import Text, prefill
from nanospec.theory import acceptance, expected_tokens

# %% [markdown]
# ## The roofline
#
# A call has to do two things. It reads all weights, and it multiplies with them.
#
# - reading: bytes of the weights / bytes that this machine reads in a second
# - multiplying: 2 x weights x tokens / operations that this machine does in a second
#
# Both go on at the same time. So a call takes at least as long as the longer one of them.
# (This picture of a machine is called the *roofline*: Williams, Waterman, Patterson 2009.)
#
# *Guess first:* with how many tokens in a call does multiplying take as long as reading?

# %%
torch.set_num_threads(1)
target, draft, _ = pair = load_pair()
autotune(target, draft)                             # the fastest data type and layout of both
quiet = Quiet(lambda: step_seconds(target, context=96, repeats=3))

size, weights = weight_bytes(target), weight_bytes(target) // target.embedding.weight.element_size()
operations = matrix_rate(target.dtype, target.device)                       # a second
reading = size / bandwidth(size, target.device)


def multiplying(tokens):
    return 2 * weights * tokens / operations


print(f"reading takes {1e3 * reading:.2f} ms, multiplying {1e3 * multiplying(1):.2f} ms a token: "
      f"as long with {reading / multiplying(1):.0f} tokens")

# %% [markdown]
# Now real calls. `step_seconds` times the target on `tokens` tokens in each of `rows` rows.
# A plain step of B texts has B tokens. A round of gamma 4 has 5 B.

# %%
counts, gammas = (1, 4, 16, 32), (1, 4)
took = {}                                           # (rows, tokens of a row) -> seconds
for rows in counts:
    for m in (1, *(gamma + 1 for gamma in gammas)):
        took[rows, m] = min(step_seconds(target, m, 96, rows=rows, repeats=3) for _ in range(2))
roof = {tokens: max(reading, multiplying(tokens)) for tokens in sorted({r * m for r, m in took})}
table(["rows", "tokens of a row", "tokens in the call", "ms by the roofline", "ms measured"],
      [[rows, m, rows * m, f"{1e3 * roof[rows * m]:.2f}", f"{1e3 * seconds:.2f}"]
       for (rows, m), seconds in took.items()])

# %% [markdown]
# No call is as fast as the roofline allows. Small operations, attention and the caches of the
# processor take their time, too. What matters is how it grows: v(5), the time of a call on five
# tokens over the time of a call on one, is small for one text and large for many.
#
# ## What speculation gains
#
# By lesson 11, speculation with gamma draft tokens gains
#
#     (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1))
#
# c is the time of a draft step over the time of a target step, both with B rows.
# We also measure it, with real steps and real rounds of B texts, by the library's parts:
# `Text` holds the tokens of B texts. `prefill` lets the target read them. `plain_step` and
# `one_round` take all B texts at once. Every text has dice of its own.

# %%
STEPS = 5
starts = [ids[:16] for ids in held_out_prompts(pair, max(counts))]


def begin(ids, room=64):
    """The texts, the target's cache after reading them, and dice for each text."""
    text = Text(ids, room, target.config.vocab_size)
    return text, prefill(target, text)[0], Dice(range(len(ids)))


@torch.inference_mode()
def plain_steps(ids):
    """Each step gives every text one token."""
    text, cache, dice = begin(ids)
    for _ in range(STEPS):
        dice.refill(1)                              # one random number for each text
        yield plain_step(target, cache, text, Sampling(), dice, text.tokens.shape[1])


@torch.inference_mode()
def rounds_of_many(ids, gamma):
    """Each round gives every text 1 to gamma + 1 tokens."""
    (text, cache, dice), drafter = begin(ids), ModelDrafter(draft, gamma)
    drafter.begin(text, range(len(ids)), None)
    kv_length = text.tokens.shape[1]                # slots of the cache to read
    for _ in range(STEPS):
        dice.refill(drafter.uniforms + drafter.size)
        yield one_round(target, cache, drafter, verify, text, Sampling(), dice, kv_length)


# %% [markdown]
# alpha is the mean of sum min(p_target, q_draft) over the judged places. A place is judged if all
# draft tokens before it were accepted.
#
# *Guess first:* which gamma is the better one for one text, and which for 32?

# %%
gains = {}
for rows in counts:
    plain = min(timed(plain_steps(starts[:rows]))[1][1:])       # the first step reads the prompts
    c = draft_seconds(draft, 96, rows=rows, repeats=3) / took[rows, 1]
    for gamma in gammas:
        done, seconds = timed(rounds_of_many(starts[:rows], gamma))
        betas, lengths = [], []
        for draft_of, p_target, _, accepted, _ in done:
            beta = acceptance(p_target[:, :-1], draft_of.q_draft[:, 1:])        # (B, gamma)
            betas.append(beta[torch.arange(gamma) <= accepted[:, None]])
            lengths.append(accepted + 1.0)
        alpha, tokens = torch.cat(betas).mean().item(), torch.cat(lengths).mean().item()
        v = took[rows, gamma + 1] / took[rows, 1]
        predicted = expected_tokens(alpha, gamma) / (gamma * c + v)
        gains[rows, gamma] = alpha, c, v, tokens, predicted, tokens * plain / min(seconds[1:])
table(["rows", "gamma", "alpha", "c", "v(gamma + 1)", "tokens a round", "predicted", "measured"],
      [[rows, gamma, *(f"{number:.2f}" for number in row)] for (rows, gamma), row in gains.items()])

# %% [markdown]
# For one text a round costs little more than a step. For 32 texts v(5) has grown. A shorter draft
# is better then, and with still more texts none at all. The gift is used up.
#
# ## A gamma for every load
#
# So a server should choose gamma before every round. It knows three things: how many texts there
# are, how often draft tokens were accepted so far, and what rounds take here.
# The number to make large is called *goodput*: expected tokens a second.
#
# `ByLoad` in nanospec/serving/by_load.py does this. We hand it our times, and look what it says.

# %%
def round_takes(rows, gamma):
    """Seconds by the parts of a round; between the numbers of rows that we measured, on a line."""
    low = max(count for count in counts if count <= rows)
    high = min(count for count in counts if count >= rows)
    share = (rows - low) / (high - low) if high > low else 0
    ends = []
    for count in low, high:
        of_call = took[count, 1] + (took[count, 5] - took[count, 1]) * gamma / 4
        ends.append(gamma * gains[count, 4][1] * took[count, 1] + of_call)
    return ends[0] + share * (ends[1] - ends[0])


mean_alpha = sum(row[0] for row in gains.values()) / len(gains)
chosen = {}
for rows in 1, 2, 4, 8, 16, 24, 32:
    drafter = ByLoad(draft, round_takes, most=6)
    drafter.judged, drafter.accepted, drafter.gamma = 1e6, 1e6 * mean_alpha, 0
    chosen[rows] = drafter.best(rows)
print(f"\nalpha {mean_alpha:.2f}")
table(["texts", *chosen], [["gamma", *chosen.values()]])

# %% [markdown]
# A new gamma must be better by 3%. Without such a margin, gamma would change in every round.
#
# ## A budget for all
#
# Some texts are easy at this moment, others are hard. Why should all get the same gamma?
# Draft tokens should go where they are likeliest to count. A draft token counts only if all
# before it are accepted. The chance of that is called its *survival*:
#
#     survival of the k-th = chance of the 1st x chance of the 2nd x ... x chance of the k-th
#
# The chance of one: how often draft tokens were accepted of which the draft model was as sure.
# All texts draft. Then the target verifies the K draft tokens with the greatest survival.

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
# ## What the budget may depend on
#
# **Claim.** If K is fixed beforehand, all texts have the target's distribution, together too.
#
# **Proof.**
# 1. Along a text, survival falls. So the K places can be found one by one. Each time, look at the
#    next place of every text, and take the one with the greatest survival.
# 2. So it is decided that a place gets a draft token *before* that token is drawn. The decision
#    looks at draft tokens that were taken earlier, and at no coin.
# 3. This is a stopping rule as in lesson 21. Whatever it decides, the token at this place has the
#    distribution p_target.
#
# It is tempting to look at this round's draft: "the draft model is sure, so send it. It is not, so
# send nothing." But how sure it is *behind* a place depends on the draft token at this place.
# So the decision has seen the token that it decides about.
#
# Two tiny models, two texts, at most two draft tokens for each. `BySurvival` is the library's
# (nanospec/serving/by_survival.py). The other class sends all or nothing.
#
# *Guess first:* how far off is it? (The unit is total variation: 0 is exact, 1 is hopeless.)

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
# Nobody would see the second one's mistake in a text. The walk does.
# Real servers fix K from earlier rounds, so they are safe.
#
# ## No padding
#
# A call is a rectangle, and now the rows have different lengths. If the target computed the whole
# rectangle, nothing would be saved. So it computes only the tokens that exist, as one long row.
# Attention alone needs the rectangle. The library's `Ragged` (nanospec/serving/ragged.py) stands in
# the target's place and does that.
#
# *Guess first:* 16 texts, four draft tokens for one, and one for each of the others. How much
# longer does the rectangle take?

# %%
B, n = 16, 5
text, cache, dice = begin(starts[:B])
drafted = torch.zeros(B, n, dtype=torch.int64)
exist = torch.tensor([b * n + i for b in range(B) for i in range(n if b == 0 else 2)])
ragged, saved = Ragged(target, ModelDrafter(draft, n - 1)), {}
with torch.inference_mode():
    for name, ragged.exist in (f"{B} x {n} tokens", None), (f"the {len(exist)} that exist", exist):
        calls = timed(ragged(drafted, cache, 32) for _ in range(8))[1]
        saved[name] = 1e3 * min(calls)
table(["the target computes", "ms"], [[name, f"{ms:.2f}"] for name, ms in saved.items()])

# %% [markdown]
# Does a budget by survival pay? To choose K of B x gamma draft tokens, they must be drafted first.
# Our draft models take 0.1 to 0.2 of a target step for each. So on this pair it does not pay:
# a short draft for everybody is faster (docs/RESULTS.md). It pays where drafting costs nearly
# nothing and verifying is dear: block drafters (lesson 30), copies (lesson 19), large targets.
#
# The picture: on the left, the calls from above, along the roofline. A round stands to the right
# of a plain step. Where the roof is flat, that is dear. On the right, what speculation gains.

# %%
figures.full_batch(
    {name: [(rows * m, took[rows, m]) for rows in counts]
     for name, m in (("plain steps", 1), ("rounds of gamma 1", 2), ("rounds of gamma 4", 5))},
    roof,
    {gamma: [(rows, *gains[rows, gamma][4:]) for rows in counts] for gamma in gammas})
quiet.tell("for 32 texts gamma 1 gains more than gamma 4, for one text less")

# %% [markdown]
# ## Three things to know
#
# 1. A draft token is free as long as a call waits for the weights. Many texts use that up.
# 2. A server chooses gamma before every round, by how many texts there are.
# 3. A budget may go to the texts whose draft tokens are likeliest to survive, if it was fixed
#    before anything was drafted.
#
# ## Change this and run again
#
# 1. Write 64 in place of 32 in `counts`. Does gamma 1 still gain?
# 2. Write `LEAST = 0.7`. Why is nothing wrong now?
# 3. In the cell of `chances`, write 3 and then 12 for `K`. Who gets what?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# Next: lesson 29 goes back to draft models, and opens the one that ships.
