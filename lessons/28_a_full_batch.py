# %% [markdown]
# # A full batch
#
# **At what batch size do draft tokens stop being free?**
#
# *Ten for the price of one* showed why ten tokens in one call cost little more than one: the
# weights are read once for all of them. *Many requests* put many texts into one call, which uses
# the same advantage a second time. This lesson measures where it ends, and lets a server choose its
# draft length accordingly.
#
# A *row* is the place of one text in the batch. *gamma* is the number of draft tokens in a
# round, and *alpha* the mean probability that one of them is accepted.

# %%
import torch

import figures
from kit import Quiet, table
from machine import bandwidth, matrix_rate, weight_bytes
from nanospec import Dice, ModelDrafter, Sampling
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.autotune import autotune, tuning_of
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import plain_step
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.speculate import one_round, verify
from nanospec.text import Text, prefill
from nanospec.theory import acceptance, expected_tokens

# %% [markdown]
# ## The roofline
#
# A call has to do two things. It reads all weights, and it multiplies with them.
#
# - reading: bytes of the weights / bytes that this machine reads per second
# - multiplying: 2 x weights x tokens / operations that this machine does per second
#
# Both go on at the same time, so a call takes at least as long as the longer of the two. This is
# called the *roofline*, for the shape of its plot (Williams, Waterman, Patterson 2009).
#
# *Guess first:* with how many tokens in a call does multiplying take as long as reading?

# %%
torch.set_num_threads(1)
target, draft_model, _ = pair = load_pair()
autotune(target, draft_model, rows=16)  # the fastest data type and layout for 16 texts
quiet = Quiet(lambda: step_seconds(target, context=96, repeats=3))

size = weight_bytes(target)
weights = size // tuning_of(target).dtype.itemsize
operations = matrix_rate(target.dtype, target.device)                       # a second
reading = size / bandwidth(size, target.device)


def multiplying(tokens):
    return 2 * weights * tokens / operations


print(f"reading takes {1e3 * reading:.2f} ms, multiplying {1e3 * multiplying(1):.2f} ms a token: "
      f"as long with {reading / multiplying(1):.0f} tokens")

# %% [markdown]
# *Answer:* the line above has it for this machine. *What a user waits for* takes 50, a round
# number. With more tokens than that, a call waits for arithmetic and no longer for memory.
#
# Now we time real calls. `step_seconds` times the target on `tokens` tokens in each of `rows` rows.
# A plain step of B texts has B tokens, and a round of gamma 4 has 5 B.

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
# Compare the last two columns. Calls should be slower than the roofline allows, because small
# operations and attention take time, too. What matters is the growth: compare a call on five tokens
# with a call on one, for one row and for many.
#
# ## What speculation gains
#
# By the formula of *How fast*, speculation with gamma draft tokens gains
#
#     (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1))
#
# c is the time of a draft step and v(m) that of a target call on m tokens of every text, both in
# target steps. The draft step, the target's call and the target step now all have B rows, so c and
# v depend on B.
#
# We also measure the gain, with real steps and real rounds of B texts, using the parts of the
# library: `Text` holds the tokens of B texts, `prefill` lets the target read them, and `plain_step`
# and `one_round` take all B texts at once. Every text has dice of its own.

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
    (text, cache, dice), drafter = begin(ids), ModelDrafter(draft_model, gamma)
    drafter.begin(text)
    drafter.read(text, range(len(ids)), None)
    kv_length = text.tokens.shape[1]                # slots of the cache to read
    for _ in range(STEPS):
        dice.refill(drafter.uniforms + drafter.most + 1)
        yield one_round(target, cache, drafter, verify, text, Sampling(), dice, kv_length)

# %% [markdown]
# alpha is the mean of sum min(p_target, q_draft) over the judged places, those where all earlier
# draft tokens of the round were accepted.
#
# *Guess first:* which gamma is the better one for one text, and which for 32?

# %%
gains = {}
for rows in counts:
    plain = min(timed(plain_steps(starts[:rows]))[1][1:])       # the first step reads the prompts
    c = draft_seconds(draft_model, 96, rows=rows, repeats=3) / took[rows, 1]
    for gamma in gammas:
        done, seconds = timed(rounds_of_many(starts[:rows], gamma))
        betas, lengths = [], []
        for draft, p_target, _, accepted, _ in done:
            beta = acceptance(p_target[:, :-1], draft.q_draft[:, 1:])       # (B, gamma)
            betas.append(beta[torch.arange(gamma) <= accepted[:, None]])
            lengths.append(accepted + 1.0)
        alpha, tokens = torch.cat(betas).mean().item(), torch.cat(lengths).mean().item()
        v = took[rows, gamma + 1] / took[rows, 1]
        predicted = expected_tokens(alpha, gamma) / (gamma * c + v)
        gains[rows, gamma] = alpha, c, v, tokens, predicted, tokens * plain / min(seconds[1:])
table(["rows", "gamma", "alpha", "c", "v(gamma + 1)", "tokens a round", "predicted", "measured"],
      [[rows, gamma, *(f"{number:.2f}" for number in line)]
       for (rows, gamma), line in gains.items()])

# %% [markdown]
# *Answer:* the longer one for one text, as a rule, and the shorter one for 32. Read the column
# v(gamma + 1) from top to bottom. The nearer it comes to gamma + 1, the nearer a draft token comes
# to the cost of a plain one, and a shorter draft is better, or none at all. The advantage has been
# used up by the batch. (Where a machine multiplies fast, that may take more than 32 texts.)
#
# ## A gamma for every load
#
# A server should therefore choose gamma before every round. It knows how many texts there are, how
# often draft tokens were accepted so far, and what rounds cost on this machine. The number to
# maximise is the goodput (*When to stop*): expected tokens per second.
#
# `ByLoad` in nanospec/methods/lengths/by_load.py does this. We give it our times and look at its
# choices.


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


mean_alpha = sum(line[0] for line in gains.values()) / len(gains)
chosen = {}
for rows in 1, 2, 4, 8, 16, 24, 32:
    drafter = ByLoad(draft_model, round_takes, most=6)
    drafter.acceptance, drafter.gamma = Acceptance(torch.tensor([mean_alpha])), 0
    chosen[rows] = drafter.best(rows)
print(f"\nalpha {mean_alpha:.2f}")
table(["texts", *chosen], [["gamma", *chosen.values()]])

# %% [markdown]
# A new gamma must be better by 3%. Without such a margin, gamma could change in every round.
#
# In the picture, the left panel shows the calls from above along the roofline. A round lies to the
# right of a plain step, and where the roof is flat, that is expensive. The right panel shows what
# speculation gains.

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
# 1. A draft token costs little as long as a call waits for the weights, and a large batch uses that
#    up.
# 2. c and v depend on the number of texts in a call.
# 3. A server can choose gamma before every round, by the number of texts.
#
# ## Change this and run again
#
# 1. Write 64 in place of 32 in `counts`. Does gamma 1 still gain?
# 2. Write 0.95 in place of `mean_alpha`, in `Acceptance`, for a better draft model. Which gammas
#    change?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What a call reads* asks what becomes of this with experts, and after long texts.
