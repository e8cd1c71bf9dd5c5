# %% [markdown]
# # Where it loses
#
# **When is it slower than plain decoding, and how would you recognise a benchmark that hides it?**
#
# In *How fast* we counted what a round brings and what it costs, in target steps:
#
# - tokens of a round: 1 + alpha + alpha^2 + ... + alpha^gamma
# - cost of a round: gamma c + v(gamma + 1)
#
# Here *gamma* is the number of draft tokens in a round, and *alpha* is the mean probability that
# one of them is accepted. *c* is the time of a draft step, and *v(m)* the time of a target call on
# m tokens, both in target steps. The predicted speed-up is tokens divided by cost, and a round wins
# if it is above 1.
#
# There are therefore three ways to lose: a small alpha, a large c, and a large v.

# %%
from dataclasses import replace

import torch

import figures
from kit import Quiet, page, table
from machine import Coins, weight_bytes
from nanospec import GPT, Dice, ModelDrafter
from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.quantities import alpha_of
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.fast.autotune import autotune, set_up, tuning_of
from nanospec.fast.clock import median_seconds, step_seconds, timed
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.speculate import speculate
from nanospec.theory import break_even, expected_tokens, needed, speedup

# %% [markdown]
# ## Three ways to lose
#
# The next table has one good round with gamma 4 and then spoils one number at a time.
#
# *Guess first:* the good round gains 2.10. Which of the three spoils it most?

# %%
lines_by_hand = []
for what, alpha, c, v in [("a good round", 0.8, 0.1, 1.2), ("alpha small", 0.2, 0.1, 1.2),
                          ("c large", 0.8, 0.6, 1.2), ("v large", 0.8, 0.1, 4)]:
    tokens, cost = expected_tokens(alpha, 4), 4 * c + v
    numbers = (f"{number:.2f}" for number in (tokens, cost, tokens / cost))
    lines_by_hand.append([what, alpha, c, v, *numbers])
table(["", "alpha", "c", "v(5)", "tokens", "cost", "speed-up"], lines_by_hand)

# %% [markdown]
# *Answer:* the large v, which leaves .76. The small alpha leaves .78. Each of them alone is enough
# to lose.
#
# ## How much is missing?
#
# The formula can also be solved for one number while the others stay as they are: what would alpha,
# c or v have to be for a speed-up of 1? A "-" stands where no value is enough, because alpha is at
# most 1, c at least 0, and v at least 1.
#
# *Guess first:* can a better draft model save the round with the large v? Can a faster one?

# %%
lines_needed = []
for what, alpha, c, v, *_ in lines_by_hand:
    limits = needed(1, expected_tokens(alpha, 4), 5, 4, c, v)       # 4 draft steps bring up to 5
    limits["alpha"] = break_even(1, 4, c, v)
    cells = ["-" if limits[name] is None else f"{limits[name]:.2f}" for name in ("alpha", "c", "v")]
    lines_needed.append([what, *cells])
table(["", "alpha, at least", "c, at most", "v(5), at most"], lines_needed)
print("to play with, in a browser:", page("formulas"))

# %% [markdown]
# *Answer:* a better one can, a faster one cannot. With the small alpha no target call is cheap
# enough, and hardly any draft step. With the large v even a draft model that takes no time would
# lose, while one with an alpha of .94 would not.
#
# The last line is a link to a page in which you can try this. Set the sliders to the good round,
# then move one of them until the page says that speculation loses. It happens at the numbers of the
# table's first line.
#
# `nanospec why` measures these numbers for a pair of yours, prints such a table, and names what to
# change first. Now we look for all three ways on this machine.
#
# ## The pair, and its fairest form
#
# `autotune` tries data types and layouts of the weights and keeps the fastest for both models.
# Without it, plain decoding would be slower than necessary and the race unfair. `Quiet` times one
# step now and at the end, and compares the time that passes with the time that the processor worked
# for us. It warns if the machine was busy. Believe no line of this lesson after such a warning.

# %%
torch.set_num_threads(1)                            # one core: no call waits for a second one
target, draft_model, _ = pair = load_pair()
autotune(target, draft_model)
prompts, context = held_out_prompts(pair, 3), 96
quiet = Quiet(lambda: step_seconds(target, context=context, repeats=3))

# %% [markdown]
# ## Costs, and a race
#
# `costs_of` measures c and v as in *How fast*, by the quickest of several tries, because a
# disturbance can only make a call longer.

# %%
def costs_of(big, small, turns):
    """c and v(5), what gamma 4 needs."""
    tries = [measure_costs(big, small, [5], context, turns=2) for _ in range(turns)]
    step = min(costs.seconds for costs in tries)
    c = min(costs.c * costs.seconds for costs in tries) / step
    return c, min(costs.v[5] * costs.seconds for costs in tries) / step


# %% [markdown]
# `race` runs plain decoding and speculation alternately on the same prompts. `timed` records the
# seconds of each step or round, the first of which also reads the prompt and is left out. Then the
# quickest step is compared with the quickest round.
#
# One of our targets has only two of its layers left. No draft model was made for what it writes. So
# for this race we load the *coins*: with `luck` 0.65, each draft token is accepted with probability
# 0.65, whatever the models compute. The text is nonsense, but the speed is that of a pair with
# alpha 0.65.

# %%
def race(big, small, temperature=1.0, luck=None, gamma=4, new=24):
    """alpha, tokens of a round, seconds of a plain step, seconds of a round."""
    plain, took, rounds = [], [], []
    for turn, ids in enumerate(prompts):
        _, seconds = timed(generate(big, ids, 8, temperature, seed=turn))
        plain += seconds[1:]
        dice = Coins([turn], big.device, luck) if luck else Dice([turn])
        work = speculate(big, ModelDrafter(small, gamma), ids, new, temperature, dice=dice)
        done, seconds = timed(work)
        rounds += done
        took += seconds[1:]
    tokens = 1 + sum(len(done.path) for done in rounds) / len(rounds)
    return luck or alpha_of(rounds), tokens, min(plain), min(took)


# %% [markdown]
# ## Six races
#
# The pair that ships runs at temperature 1, 0 and 3. Then come three pairs made to lose:
#
# - *A draft model that learnt nothing* has random weights and a small alpha.
# - *The target as its own draft model* has an alpha of about 1, but what is its c?
# - *A target of 2 layers* is so fast that the draft model is slow beside it. (Its coins are loaded
#   with 0.65.)
#
# The next cell makes the two new models, and gives them the layout of the weights that `autotune`
# chose: `set_up` (nanospec/fast/autotune.py) exchanges the layers that multiply.

# %%
torch.manual_seed(0)
ignorant = GPT(draft_model.config).to(draft_model.dtype).requires_grad_(False)
two_layers = replace(target.config, layers=2)
shallow = GPT(two_layers).to(target.dtype).requires_grad_(False)
shallow.load_state_dict(target.state_dict(), strict=False)          # its first two layers
for model, like in (shallow, target), (ignorant, draft_model):
    set_up(model, tuning_of(like))

races = {f"T = {T}": (target, draft_model, {"temperature": T, "new": 96}) for T in (1, 0, 3)}
races |= {"a draft model that learnt nothing": (target, ignorant, {}),
          "the target as its own draft model": (target, target, {}),
          "a target of 2 layers": (shallow, draft_model, {"luck": 0.65})}

# %% [markdown]
# A verdict needs both numbers: what the formula predicts, and what the clock measures. If one is
# above 1 and the other below, the verdict is "unclear".
#
# *Guess first:* which of the six lose?

# %%
def verdict(predicted, measured):
    """wins or loses where the formula and the clock agree."""
    if min(predicted, measured) > 1:
        return "wins"
    return "loses" if max(predicted, measured) < 1 else "unclear"


def show(names):
    """Print these lines: name -> alpha, c, v(5), predicted, measured."""
    table(["situation", "alpha", "c", "v(5)", "predicted", "measured", "verdict"],
          [[name, *(f"{number:.2f}" for number in lines[name]), verdicts[name]] for name in names])


costs, runs, lines, verdicts = costs_of(target, draft_model, 3), {}, {}, {}
for name, (big, small, how) in races.items():
    runs[name] = alpha, tokens, step, seconds = race(big, small, **how)
    same_pair = big is target and small is draft_model
    c, v = costs if same_pair else costs_of(big, small, 1)
    predicted, measured = speedup(alpha, 4, c, v), tokens * step / seconds
    lines[name] = alpha, c, v, predicted, measured
    verdicts[name] = verdict(predicted, measured)
show(races)

# %% [markdown]
# *Answer:* by theory two of them, and one comes out near 1. If your verdicts are others, look for a
# warning of a busy machine at the end of the tables: a disturbed v(5) below 1, or a measured gain
# of more than 5, cannot be. The draft model that learnt nothing should lose, because its alpha is
# too small. The target of 2 layers should lose, because c is too large. The target as its own draft
# model should come out near 1: its round brings 5 tokens and costs about 5 target calls, so all the
# work gains nothing.
#
# Compare alpha at T = 0 and at T = 1. Two things pull at it. At T = 0 the target writes its own
# likeliest text, which is easy for the draft model, too (*Report what you sample*). But where the
# two disagree about the likeliest token, beta is 0, and not somewhere in between. Which of them
# prevails depends on the texts. At T = 3 alpha does not fall, for a bad reason. Strongly heated
# distributions become flat, flat distributions are alike, and the draft model is right about
# nonsense.
#
# None of the six has a large v. That needs many texts in one call, as in *A full batch*.
#
# ## The picture
#
# Each panel shows the predicted speed-up for every alpha and every c. The left panel has the v(5)
# that was measured here, the right one a v(5) of 3, as with many texts at once. Speculation wins
# above the thick break-even line. The marks are the lines from above with their verdicts.
#
# *Guess first:* what does a v(5) of 3 do to the line?

# %%
of_alpha, of_c = torch.linspace(0, 1, 101), torch.linspace(0, 1.2, 101)
panels = []
dots = [(name, *lines[name][:2], verdicts[name]) for name in races]
for v, marks in (costs[1], dots), (3.0, []):
    panels.append((f"gamma 4, v(5) = {v:.1f}", speedup(of_alpha[:, None], 4, of_c, v), marks))
figures.where_it_loses(of_alpha, of_c, panels)

# %% [markdown]
# *Answer:* it pushes it up. Then even a draft model that takes no time needs an alpha of more than
# .74.
#
# ## Memory
#
# A draft model also takes memory, for its weights and for a cache of its own. For each token of a
# text, a cache holds a key and a value in every layer.

# %%
print()
for name, model in ("target", target), ("draft model", draft_model):
    cache = model.new_cache(rows=1, slots=1)
    held = sum(tensor.nbytes for tensor in cache.k + cache.v)
    print(f"{name}: {weight_bytes(model) / 1e6:.1f} MB of weights, "
          f"and the cache holds {held:,} bytes for each token of a text")

# %% [markdown]
# ## How to read a benchmark
#
# Before you believe a speed-up, ask three questions.
#
# - *Over which baseline?* Plain decoding without a cache, or in a slow data type, is slow, and
#   anything looks fast beside it.
# - *Is alpha printed beside it?* The temperature, gamma and the number of texts belong there too.
#   Without them the number cannot be checked with a formula.
# - *Were both sides warmed up, run alternately, and run many times?* One run each measures how busy
#   the machine was.
#
# (*Numbers that mislead* is about the other numbers of a report.)
#
# The next table shows our first race again, with the same rounds and seconds, and only the baseline
# is different. *Guess first:* does the speed-up look better or worse?

# %%
as_loaded, whole = load_pair().target, torch.ones(1, context, dtype=torch.int64)
with torch.inference_mode():
    slow = {"T = 1 over float32 as loaded":
            min(step_seconds(as_loaded, 1, context, repeats=2) for _ in range(3)),
            "T = 1 over no cache":
            median_seconds(lambda: target(whole), target.device, repeats=5, warm_up=2)}
_, tokens, _, seconds = runs["T = 1"]
for name, baseline in slow.items():
    lines[name] = *lines["T = 1"][:4], tokens * baseline / seconds
    verdicts[name] = "no fair race"
show(["T = 1", *slow])
quiet.tell("c was 0.10 and v(5) 1.24 (one core of an Intel Xeon)")

# %% [markdown]
# *Answer:* better, for the slower the baseline is, the faster everything looks beside it.
#
# ## Three things to know
#
# 1. Speculation loses if alpha is small, if c is large, or if v is large. One of them is enough.
# 2. Where v is large, only a very good draft model wins, and from some v on none does.
# 3. A speed-up means something only together with its baseline, alpha, gamma, temperature and
#    number of texts.
#
# ## Change this and run again
#
# 1. Write 5.0 for the 3.0 in the cell of the picture. How good must a draft model be now?
# 2. Write 0.95 for the `luck` of the target of 2 layers. Guess from the picture first.
# 3. Take `autotune(...)` out, and everything is slower. Compare the line "T = 1" with the line "T =
#    1 over float32 as loaded". What is the same now, and what does that tell about the baseline?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Several futures* asks why one should draft only one future.
