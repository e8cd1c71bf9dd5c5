# %% [markdown]
# # How fast
#
# **How much faster is it, and how long should a draft be?**
#
# We have seen that the text is the target's, whatever the draft model proposes. What remains is
# time, and four numbers decide it:
#
# - *gamma*: the draft tokens in a round, which we choose.
# - *alpha*: the mean probability that a draft token is accepted once it is judged.
# - *c*: the time of a draft step, a call of the draft model on one token, in target steps. A
#   *target step* is a call of the target on one token, which is what plain decoding does for each
#   token.
# - *v(m)*: the time of a target call on m tokens, also in target steps.
#
# We measure the last three, and a formula of two lines then predicts the speed. At the end we look
# at the clock. This lesson uses v from *Ten for the price of one*, the overlap sum min(p_target,
# q_draft), and the round of *A draft and a bonus*.

# %%
from itertools import islice
from statistics import mean, median, stdev

import torch

import figures
from kit import Quiet, page, table
from nanospec import ModelDrafter
from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.cli.quantities import alpha_of
from nanospec.fast.autotune import autotune, described
from nanospec.fast.clock import step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.speculate import speculate
from nanospec.theory import acceptance, speedup, sure_gain

torch.set_num_threads(1)        # one core: then no call waits for another core that is busy
target, draft_model, _ = pair = load_pair()
autotune(target, draft_model)  # tries data types and layouts of the weights, keeps the fastest
print(f"on one core, target in {described(target)}, draft model in {described(draft_model)}")
quiet = Quiet(lambda: step_seconds(target, repeats=3))          # warns at the end if it was busy

# %% [markdown]
# ## The formula, with alpha .8
#
# Let all places be alike: each draft token that is judged is accepted with probability alpha. How
# many tokens does a round bring if gamma is 2 and alpha is .8?
#
# | token | it comes if | probability |
# |---|---|---|
# | 1st | always: a draft token or its replacement | 1 |
# | 2nd | the first draft token was accepted | .8 |
# | 3rd | both draft tokens were accepted: the bonus token | .8 * .8 = .64 |
#
# Together that is 2.44 tokens per round, and hence per target call. In general it is 1 + alpha +
# alpha^2 + ... + alpha^gamma (Leviathan et al. 2022, Eq. 1).
#
# The round costs gamma draft steps and one target call on gamma + 1 tokens, in target steps gamma c
# + v(gamma + 1). With c = .1 and v(3) = 1.1 that is .2 + 1.1 = 1.3. In the time of 1.3 target steps
# plain decoding writes 1.3 tokens, and we write 2.44. The speed-up is 2.44 / 1.3 = 1.88.
#
# The paper takes v to be 1, as if a call on several tokens were as fast as a call on one. Then
# verification is free, and the formula is its Theorem 3.8.


# %%
def tokens_per_call(alpha, gamma):
    """1 + alpha + alpha^2 + ... + alpha^gamma. .8 and 2 give 1 + .8 + .64 = 2.44."""
    return sum(alpha ** i for i in range(gamma + 1))


def predicted(alpha, gamma, c, v_there):
    """Tokens over cost. .8, 2, .1 and 1.1 give 2.44 / 1.3 = 1.88."""
    return tokens_per_call(alpha, gamma) / (gamma * c + v_there)


assert abs(tokens_per_call(.8, 2) - 2.44) < 1e-9
assert round(predicted(.8, 2, .1, 1.1), 2) == 1.88

# %% [markdown]
# ## Run both, alternately
#
# Now we measure with the pair, on prompts from files that neither model was trained on. Plain
# decoding and rounds take turns, so that both meet the same conditions. `timed` records the seconds
# of every step, and the first step is left out because it reads the prompt. `measure_costs` times
# single calls of both models after a text of a given length, which gives c and v. A disturbance can
# make a step longer but never shorter, so the quickest of many comes nearest to the cost of the
# work itself.

# %%
gammas, at = [1, 2, 3, 4, 8], {"temperature": 1.0}
plain, costs = [], []
rounds = {gamma: [] for gamma in gammas}
seconds = {gamma: [] for gamma in gammas}
for turn, ids in enumerate(held_out_prompts(pair, 4)):
    plain += timed(generate(target, ids, 16, seed=turn, **at))[1][1:]
    for gamma in gammas:
        running = speculate(target, ModelDrafter(draft_model, gamma), ids, 256, seed=turn, **at)
        done, took = timed(islice(running, 12))                         # twelve rounds
        rounds[gamma] += done
        seconds[gamma] += took[1:]
    for _ in range(2):
        sizes = [gamma + 1 for gamma in gammas]
        # c and v
        costs.append(measure_costs(target, draft_model, sizes, len(ids) + 20, turns=1, **at))
    quiet.look()

# %% [markdown]
# ## alpha, c and v
#
# At one place a draft token is accepted with probability beta = sum min(p_target, q_draft), the
# overlap of the two distributions. alpha is the mean of beta over all places that were judged.
# Places after the first rejection of a round were not judged.


# %%
def judged(done):
    """beta at each judged place of a round: 2 of 4 accepted gives 3 of them, 4 of 4 gives 4."""
    betas = acceptance(done.p_target[:-1], done.q_draft[1:])
    return betas[:len(done.path) + 1].tolist()


betas = [judged(done) for gamma in gammas for done in rounds[gamma]]
alpha = mean(sum(betas, []))
assert abs(alpha - alpha_of(sum(rounds.values(), []))) < 1e-6       # nanospec/cli/quantities.py

step = min(cost.seconds for cost in costs)                              # of the target
c = min(cost.c * cost.seconds for cost in costs) / step                 # the quickest draft step
v = {m: min(cost.v[m] * cost.seconds for cost in costs) / step for m in costs[0].v}
print(f"\nalpha {alpha:.3f} over {len(betas)} rounds; c {c:.3f}")
print(f"a target step takes {1000 * step:.2f} ms")
print("v:", ", ".join(f"v({m}) {v[m]:.2f}" for m in v))

# %% [markdown]
# ## What the formula predicts
#
# If verification is free, a single draft token speeds decoding up by (1 + alpha) / (1 + c), which
# is more than 1 wherever alpha is greater than c (Corollary 3.9, `sure_gain` below). With a longer
# draft more tokens come, but each is less likely than the one before, and each costs the same c. So
# somewhere there is a best gamma.
#
# *Guess first:* which of our gammas is best if verification is free? Is it greater or smaller with
# the v that was measured?

# %%
for gamma in gammas:                    # the paper's closed form, and nanospec/theory.py
    closed = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert abs(tokens_per_call(alpha, gamma) - closed) < 1e-9
    assert predicted(alpha, gamma, c, v[gamma + 1]) == speedup(alpha, gamma, c, v[gamma + 1])

eq1 = [tokens_per_call(alpha, gamma) for gamma in gammas]
free = [predicted(alpha, gamma, c, 1) for gamma in gammas]
real = [predicted(alpha, gamma, c, v[gamma + 1]) for gamma in gammas]
assert abs(free[0] - sure_gain(alpha, c)) < 1e-9
lines = []
for gamma, *line in zip(gammas, eq1, free, real):
    lines.append([gamma, *(f"{number:.2f}" for number in line)])
table(["gamma", "tokens per call, Eq. 1", "speed-up if v = 1", "speed-up with v"], lines)

best_free = gammas[free.index(max(free))]
best_real = gammas[real.index(max(real))]
print(f"best gamma: {best_free} if verification is free, {best_real} with the v measured here")
print("to play with, in a browser:", page("formulas"))

# %% [markdown]
# *Answer:* smaller, or the same, because every further draft token raises v. With the c of .10 and
# the v(5) of 1.24 of an idle Intel core, a v that rises evenly, and an alpha of .7, the best gamma
# is 4 if verification is free and 3 with v. (Where v jumps once and is flat after that, the best
# gamma may even be greater; and on a busy machine v is not reliable.)
#
# The page that the cell has linked has the same formulas with sliders. Set alpha to 0.80, c to 0.10
# and v to 1.00, and look for the best gamma. Then look again with twice the c, and with a v of 2.
#
# ## What the clock shows
#
# The clock's speed-up is the mean number of tokens that a round has brought, times the seconds of a
# plain step, divided by those of a round; of both times we take the quickest. Twelve rounds for
# each of four prompts are few, so the mean of their tokens is uncertain. "+-" is the *standard
# error*, the typical distance between such a mean and the true one.
#
# *Guess first:* is the speed-up by the clock greater or smaller than the formula's?


# %%
def uncertain(numbers):
    """The standard error of their mean: 1 and 3 give 1."""
    return stdev(numbers) / len(numbers) ** 0.5


counted = [[len(done.emitted) for done in rounds[gamma]] for gamma in gammas]
errors = [uncertain(counts) for counts in counted]
measured = []
for gamma, counts in zip(gammas, counted):
    plain_seconds = mean(counts) * min(plain)           # for as many tokens, one at a time
    measured.append(plain_seconds / min(seconds[gamma]))

lines = []
for gamma, counts, error, *rest in zip(gammas, counted, errors, eq1, real, measured):
    lines.append([gamma, *(f"{number:.2f}" for number in (mean(counts), error, *rest))])
table(["gamma", "tokens per call", "+-", "Eq. 1", "speed-up with v", "by the clock"], lines)
best_clock = gammas[measured.index(max(measured))]
print(f"best gamma by the clock: {best_clock} (mind the +-)")

# %% [markdown]
# *Answer:* smaller, as a rule, because a round is more than its calls. The next cell shows by how
# much. It may also come out greater: the rounds may have brought more tokens than Eq. 1 says.
#
# ## What the formula leaves out
#
# - *A round is more than its parts.* It also flips coins and copies numbers, and the two models may
#   evict each other's weights from the processor's fast memory.
# - *Places differ.* The formula has one alpha for all of them. But a round that reaches its fourth
#   draft token may be in an easy stretch of the text, and then the mean beta rises from the 1st
#   draft token to the 4th.
#
# *Guess first:* does it rise here, and by more than the +-?

# %%
overheads = []
for gamma in gammas:
    parts = gamma * c + v[gamma + 1]                    # each measured alone, in target steps
    overheads.append(min(seconds[gamma]) / step / parts)
overhead = median(overheads)
print(f"\na round takes {overhead:.2f} times as long as its calls, each measured alone")

by_place = [[places[i] for places in betas if len(places) > i] for i in range(4)]
table(["draft token of the round", "1st", "2nd", "3rd", "4th"],
      [["mean beta, if it was judged", *(f"{mean(place):.2f}" for place in by_place)],
       ["+-", *(f"{uncertain(place):.2f}" for place in by_place)]])

spread = [error / mean(counts) * speed for error, counts, speed in zip(errors, counted, measured)]
figures.how_fast(gammas, free, real, measured, spread, alpha,
                 [mean(place) for place in by_place], [uncertain(place) for place in by_place])
quiet.tell("c was 0.09, v(5) 1.20, the speed-up at gamma 4 1.41 at T = 1 "
           "(one core of an AMD EPYC)")

# %% [markdown]
# *Answer:* a little, and not in every step. With the pair in the clone the four were .61, .63, .69
# and .69, and their +- .02, .02, .03 and .06, over all rounds of the five gammas. Over other texts
# they were .68, .68, .63 and .76.
#
# ## Three things to know
#
# 1. The speed-up is tokens over cost: (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1)).
# 2. Each further draft token costs as much as the one before and is less likely to be of use, so
#    there is a best gamma. It is greater where alpha is high, and smaller where c is high or v
#    rises fast.
# 3. A formula is no clock, so a benchmark should print both, with alpha, c and v beside them.
#
# ## Change this and run again
#
# 1. Write `{"temperature": 0}`. Which way does alpha move, and which way does the best gamma?
# 2. Take out `autotune(...)`, and everything is slower. What becomes of the speed-up by the clock,
#    and what of the formula?
# 3. Write `draft_model = target` below `autotune(...)`. Almost nothing is rejected now, but is it
#    worth it? (For the *almost*, think of rounding, as in *Temperature and greedy*.)
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Good where it matters* asks at which places the draft model is right. Exercises: 9
# (expected tokens and the best gamma).
