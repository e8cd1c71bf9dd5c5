# %% [markdown]
# # 9. How fast
#
# **How much time does it save, and how long should the draft be?**
#
# The text is the target's, whatever we do (lessons 6 to 8). What is left is time, and four numbers decide it: *gamma*,
# how many tokens the draft guesses a round, the one we choose; *alpha*, the mean chance that a judged guess is kept;
# *c*, a draft step in target steps; *v(m)*, a target call on m tokens in target steps (lesson 3). We measure the last
# three, foretell the speed-up with a formula of two lines, and look at the clock.

# %%
from itertools import islice
from statistics import mean, median, stdev

import torch

from kit import BLUE, FAINT, GREEN, INK, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.bench.measure import alpha_of, measure_costs
from nanospec.bench.prompts import held_out_prompts
from nanospec.fast.autotune import settle, way_of
from nanospec.fast.clock import timed
from nanospec.generate import generate
from nanospec.speculate import speculate
from nanospec.theory import acceptance, speedup, sure_gain

torch.set_num_threads(1)            # one core: no call ever waits for a second one that is busy with something else
target, draft, _ = pair = load_pair()
settle(target, draft)               # tries data types and weight layouts and keeps the fastest: an honest baseline
print(f"on one core, target in {way_of(target)}, draft in {way_of(draft)}")

# %% [markdown]
# ## Run both, in turns
#
# Prompts from files that neither model was trained on; plain and speculative by turns, so that both meet the same
# machine. `timed` notes each step's seconds; the first, which reads the prompt, is left out. What disturbs a step makes
# it longer, never shorter: the quickest of many is nearest to what the work itself costs.

# %%
gammas, at = [1, 2, 3, 5, 8], {"temperature": 1.0}
plain, costs, seconds, rounds = [], [], {gamma: [] for gamma in gammas}, {gamma: [] for gamma in gammas}
for turn, ids in enumerate(held_out_prompts(pair, 4)):
    plain += timed(generate(target, ids, 16, seed=turn, **at))[1][1:]
    for gamma in gammas:
        done, took = timed(islice(speculate(target, ModelDrafter(draft, gamma), ids, 256, seed=turn, **at), 12))
        rounds[gamma], seconds[gamma] = rounds[gamma] + done, seconds[gamma] + took[1:]
    costs += [measure_costs(target, draft, [g + 1 for g in gammas], len(ids) + 20, repeats=1, **at) for _ in range(2)]


# %% [markdown]
# At one place, the chance that a guess is kept is what the two laws have in common: beta = sum min(p_target, q_draft)
# (lesson 6). alpha is its mean over the places that were judged: those behind the first refusal never were.

# %%
def judged(done):
    """beta at each judged place of a round: 2 of 4 accepted gives 3 of them, 4 of 4 gives 4."""
    return acceptance(done.p_target[:-1], done.q_draft[1:])[:len(done.path) + 1].tolist()


betas = [judged(done) for gamma in gammas for done in rounds[gamma]]
alpha = mean(sum(betas, []))
assert abs(alpha - alpha_of(sum(rounds.values(), []))) < 1e-6                   # nanospec/bench/measure.py
step = min(cost.seconds for cost in costs)                                        # of the target
c = min(cost.c * cost.seconds for cost in costs) / step
v = {m: min(cost.v[m] * cost.seconds for cost in costs) / step for m in costs[0].v}
print(f"alpha {alpha:.3f} over {len(betas)} rounds; c {c:.3f}; a target step takes {1000 * step:.2f} ms")


# %% [markdown]
# ## The formula
#
# Take all places to be alike. A round brings one token for certain, kept or replaced; a second if the first guess was
# kept: alpha; a third if two were: alpha squared. Add up to gamma guesses (Leviathan et al. 2022, Eq. 1). Its cost is
# gamma draft steps and one call on gamma + 1 tokens: gamma c + v(gamma + 1) target steps, each of which would bring
# plain decoding one token. So the speed-up is tokens over cost; with v = 1 it is the paper's Theorem 3.8.

# %%
def tokens_per_call(alpha, gamma):
    """1 + alpha + alpha^2 + ... + alpha^gamma: .8 and 2 give 1 + .8 + .64 = 2.44."""
    return sum(alpha ** i for i in range(gamma + 1))


def predicted(gamma, v_there):
    return tokens_per_call(alpha, gamma) / (gamma * c + v_there)


for gamma in gammas:                    # the paper's closed form, and nanospec/theory.py
    assert abs(tokens_per_call(alpha, gamma) - (1 - alpha ** (gamma + 1)) / (1 - alpha)) < 1e-9
    assert predicted(gamma, v[gamma + 1]) == speedup(alpha, gamma, c, v[gamma + 1])
print(f"if checking is free, one guess gains (1 + alpha) / (1 + c) = {sure_gain(alpha, c):.2f}, more than 1 wherever "
      f"alpha > c\n(Corollary 3.9); here v(2) = {v[2]:.2f}, which leaves {predicted(1, v[2]):.2f}")


# %% [markdown]
# ## What the formula leaves out
#
# *Places differ.* Rounds begin where the last one failed, often a hard place; whoever reaches the fourth guess is in an
# easy stretch. *A round is more than its parts:* coins, copies, two models that drive each other out of the caches.

# %%
def uncertain(numbers):
    """How far off their mean is, typically (its standard error): 1 and 3 give 1."""
    return stdev(numbers) / len(numbers) ** 0.5


by_place = [[places[i] for places in betas if len(places) > i] for i in range(4)]
print("mean beta of the first guess of a round, the second, ...:", *(f"{mean(place):.2f}" for place in by_place))
overhead = median(min(seconds[gamma]) / step / (gamma * c + v[gamma + 1]) for gamma in gammas)
print(f"a round takes {overhead:.2f} times as long as gamma draft steps and one check, each measured alone")
counted, eq1 = zip(*(([len(done.emitted) for done in rounds[g]], tokens_per_call(alpha, g)) for g in gammas))
free, real = [predicted(gamma, 1) for gamma in gammas], [predicted(gamma, v[gamma + 1]) for gamma in gammas]
measured = [mean(counts) * min(plain) / min(seconds[gamma]) for gamma, counts in zip(gammas, counted)]
best = [gammas[speeds.index(max(speeds))] for speeds in (free, real, measured)]
table(["gamma", "tokens per call", "+-", "Eq. 1", "Theorem 3.8 (v = 1)", "with v", "measured speed-up"],
      [[gamma, *(f"{number:.2f}" for number in (mean(counts), uncertain(counts), *rest))]
       for gamma, counts, *rest in zip(gammas, counted, eq1, free, real, measured)],
      "the best gamma of these: {} if checking were free, {} with v, {} by the clock (mind the +-)".format(*best))

# %%
figure, (left, right) = picture("9. how fast", 2)
left.plot(gammas, free, color=FAINT, linestyle=":", linewidth=2, label="Theorem 3.8: checking is free")
left.plot(gammas, real, color=BLUE, linestyle="--", linewidth=2, label="with v measured here")
left.errorbar(gammas, measured, [uncertain(counts) / mean(counts) * speed for counts, speed in zip(counted, measured)],
              color=GREEN, marker="o", linewidth=2, label="by the clock, +- standard error")
left.axhline(1, color=INK, linewidth=1)
left.set(ylim=(0, None), xlabel="gamma, guesses a round", ylabel="times as fast as the target alone")
left.legend(frameon=False, loc="lower left")
right.errorbar(["1st", "2nd", "3rd", "4th"], [mean(place) for place in by_place], list(map(uncertain, by_place)),
               color=GREEN, marker="o", linewidth=2, label="measured, +- standard error")
right.axhline(alpha, color=BLUE, linestyle="--", linewidth=2, label="alpha: the formula has one for all")
right.set(ylim=(0.5, 0.9), xlabel="which guess of the round, if it was judged", ylabel="mean beta, a chance")
right.legend(frameon=False, loc="upper left")
save(figure, "09_how_fast")

# %% [markdown]
# **Change this and run again.** `{"temperature": 0}`: which way do alpha and the best gamma move? Take `settle(...)`
# out: everything is slower now, and how do Theorem 3.8 and the clock find the speed-up? Put `draft = target` behind
# it: next to no guess is refused (a pass over several tokens rounds differently), and is it worth it?
#
# Next: lesson 10 asks where the draft is right. Exercises: 9 (expected tokens and the best gamma).
