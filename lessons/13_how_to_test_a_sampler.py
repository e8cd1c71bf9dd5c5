# %% [markdown]
# # 13. How to test a sampler
#
# **How do you test a program that may answer differently every time?**
#
# A *sampler* is a program that draws texts: plain decoding, or speculative decoding.
# Two runs of a correct sampler may write two different texts. So one text proves nothing.
# What has to be right is the *distribution* of the texts.
#
# A wrong sampler does not crash, and its texts look fine.
# So this lesson plants bugs on purpose. Then it tries four tests on them:
# two texts, the walk, many texts, and one long text.
#
# It builds on lessons 1, 4, 7 and 8. Six words from there:
#
# - *total variation*: half the sum of all differences between two distributions.
# - *dice*: the object that makes every random decision. Each decision uses one random number.
# - *walk*: run the program once for every way its decisions can turn out, and add up the
#   probabilities. The result is the exact distribution, not an estimate.
# - *residual distribution*: max(0, p_target - q_draft), from which a replacement is drawn.
# - *row*: a place in a draft. The target gives one distribution for each row.
# - *rolled back*: what the cache holds of rejected tokens is forgotten before the next round.

# %%
from collections import Counter

import torch

import figures
from kit import table
from nanospec import Dice
from nanospec.proof.stats import chi_square_tail, goodness_of_fit, pit, smallest_visible
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import ALL_BUGS, changed
from nanospec.proof.zoo.samplers import AS_IT_SHIPS, sampler_with

torch.set_num_threads(1)                            # tables this small gain nothing from more
zoo = {bug.name: bug for bug in [AS_IT_SHIPS, *ALL_BUGS]}
names = ["as it ships", "accept-everything", "row-before", "residual-is-target",
         "residual-pointwise", "target-not-rolled-back", "draft-dtype-mismatch"]

for name in names[1:]:
    print(f"{name:24}{zoo[name].what}\n{'':24}seen in: {zoo[name].source}")

# %% [markdown]
# ## Six planted bugs
#
# The *zoo* of this project is a collection of bugs that other projects had.
# ("generic" above means: in many projects.)
# Each is planted in `nanospec/speculate.py` by a few changed words. Here are the words of one.
# The first line is right. The second draws the replacement from the wrong row.

# %%
for right_words, wrong_words in zoo["row-before"].edits:
    print(f"\nright:  {right_words}\nwrong:  {wrong_words}")

# %% [markdown]
# ## The walk knows the truth
#
# The two models are tables over three tokens. We write texts of three tokens.
# That makes 3 x 3 x 3 = 27 possible texts, few enough for a walk.
# So we know exactly how far each sampler is from the target. Later tests are judged by that.
#
# The table shows the total variation twice: for texts of one token, and for texts of three.
#
# *Guess first:* does any of the six bugs leave the first token exactly right?

# %%
target, draft = TableModel(3, seed=109, zeros=0), TableModel(3, seed=3, zeros=0)
start, gamma = [1], 1


def sampler(name, new=3):
    """A function of the dice that writes `new` tokens, with the bug of that name in the code."""
    run = sampler_with(zoo[name], target, draft, start, new, gamma)
    return lambda dice: tuple(run(dice))


truth_first = target_distribution(target, start, 1)
truth = target_distribution(target, start, 3)       # {(token, token, token): probability}
walked = {name: walk(sampler(name))[0] for name in names}
off = {name: distance(walked[name], truth)[1] for name in names}
off_first = {name: distance(walk(sampler(name, 1))[0], truth_first)[1] for name in names}

# %%
table(["sampler", "off, 1 token", "off, 3 tokens"],
      [[name, f"{off_first[name]:.2g}", f"{off[name]:.2g}"] for name in names],
      "total variation from the target; below 1e-12 is rounding")

# %% [markdown]
# Two bugs leave the first token exact. Their harm comes later: in a token behind an accepted
# one, or in the next round. So walk texts of several rounds, never the first token alone.
#
# ## The popular test: compare two texts
#
# A walk needs tiny models. A real model has too many texts.
# Many people then compare one text of plain decoding with one of speculative decoding.
#
# The target alone writes a text. Then speculative decoding without a bug writes one.
# *Guess first:* in how many runs out of a hundred are they the same?
# And if the bug accepts every draft token?

# %%
same = {}
print()
for name in names[:2]:
    both = [truth.get(text, 0) * probability for text, probability in walked[name].items()]
    same[name] = sum(both)              # the sum over all texts that both could write
    print(f"target alone, and {name + ':':19} the same text in {same[name]:.1%} of runs")

# %% [markdown]
# Two different texts are no proof of a bug. Even the correct sampler mostly differs.
# With long texts the share goes to zero for both.
# (Only greedy decoding is an exception: there is one right text, so comparing texts is a test.)
#
# ## Many texts, counted: chi-square by hand
#
# Begin with a die of three faces. It should show them with probabilities .5, .3 and .2.
# We throw it 100 times, and see 42, 33 and 25.
#
# | face | expected | seen | (seen - expected)^2 / expected |
# |---|---|---|---|
# | 0 | 50 | 42 | 64 / 50 = 1.28 |
# | 1 | 30 | 33 | 9 / 30 = 0.30 |
# | 2 | 20 | 25 | 25 / 20 = 1.25 |
#
# The sum is 2.83. This sum is called *chi-square*. A great sum is suspicious.
# But how great is too great? Ask a correct die: let it throw 100 times, in 10,000 runs.
# Count the runs whose sum is at least 2.83. Their share is called the *p-value* of 2.83.
#
# *Guess first:* how often does a correct die look at least so strange?

# %%
def chi_square(seen, expected):
    """[42, 33, 25] and [50, 30, 20] give 2.83."""
    return sum((s - e) ** 2 / e for s, e in zip(seen, expected))


chance = torch.Generator().manual_seed(1)
die, expected = torch.tensor([.5, .3, .2]), [50, 30, 20]
strange = chi_square([42, 33, 25], expected)
throws = torch.multinomial(die.expand(10_000, 3), 100, replacement=True, generator=chance)
seen = [(throws == face).sum(1) for face in range(3)]               # each (10,000,)
at_least = (chi_square(seen, expected) >= strange - 1e-6).float().mean().item()
by_formula = chi_square_tail(strange, 2)
print(f"\nchi-square {strange:.2f}: a correct die is at least so strange in {at_least:.1%} of runs")
print(f"nanospec/proof/stats.py finds the p-value with a formula: {by_formula:.1%}")
assert abs(strange - 2.83) < 1e-9 and abs(at_least - by_formula) < 0.02

# %% [markdown]
# The formula asks how many counts are free. Three counts add up to 100, so two are free.
# These are the 2 *degrees of freedom*. Our 27 texts have 26.
#
# ## False alarms: how often is a correct sampler accused?
#
# Now the 27 texts are the faces. We take so many texts that even the rarest is expected five
# times. (With fewer, the formula is not good enough.)
# These samples are drawn from the walked distributions. That is quick.
# The real samplers would need hours for all the texts of this lesson.

# %%
def sample(name, n):
    """n texts of a sampler, from its walked distribution, counted: {(0, 2, 1): 38, ...}."""
    texts, weights = list(walked[name]), torch.tensor(list(walked[name].values()))
    drawn = torch.multinomial(weights, n, replacement=True, generator=chance)
    return dict(zip(texts, drawn.bincount(minlength=len(texts)).tolist()))


def p_values(name, n, runs):
    """One p-value for each of so many runs. Every run draws n fresh texts."""
    return [goodness_of_fit(sample(name, n), truth).p_value for _ in range(runs)]


n = round(5.5 / min(truth.values()))
counts = sample("as it ships", n)       # once by hand, and by nanospec/proof/stats.py
by_hand = chi_square([counts[text] for text in truth], [n * p for p in truth.values()])
p_by_hand = chi_square_tail(by_hand, len(truth) - 1)
assert abs(p_by_hand - goodness_of_fit(counts, truth).p_value) < 1e-9

# %% [markdown]
# We call a sampler wrong if its p-value lies below a bar. Here are three bars.
# Each has 2,000 runs with the correct sampler, and 2,000 with a wrong one.
#
# *Guess first:* the bar is 0.05. How many of 2,000 runs accuse the correct sampler?

# %%
runs = 2_000
p_right, p_wrong = p_values("as it ships", n, runs), p_values("target-not-rolled-back", n, runs)
rows = []
for bar in (0.5, 0.05, 0.01):
    accused = sum(p < bar for p in p_right) / runs
    caught_it = sum(p < bar for p in p_wrong) / runs
    rows.append([f"p < {bar}", f"{accused:.1%}", f"{caught_it:.1%}"])
table(["called wrong if", "as it ships", "target-not-rolled-back"], rows,
      f"share of {runs:,} runs of {n} texts")

# %% [markdown]
# The p-value of a correct sampler is uniform on 0 to 1. So a bar of 0.05 accuses it in 5% of runs.
# This is the rate of *false alarms*. Nobody discovers it: you choose it when you choose the bar.
# A check that runs every day with a bar of 0.05 accuses correct code about every third week.
# So choose 0.001 for such a check. We do so from here on.
#
# ## Power: how often is a wrong sampler caught?
#
# The rate of catches is called *power*. It grows with the number of texts.
# Noise shrinks like 1 / sqrt(n). So a bug half as far off needs four times the texts.
#
# `smallest_visible` turns that into a promise.
# It answers for the hardest distribution at a given distance: 99 catches in 100 runs, or more.
# With one text it finds a number `of_one`. With n texts it finds of_one / sqrt(n).
# Solved for n: needed = (of_one / off)^2.

# %%
level = 0.001                           # the bar: one false alarm in a thousand runs


def caught(name, n, runs=200):
    """The share of runs in which a sampler is called wrong."""
    return sum(p < level for p in p_values(name, n, runs)) / runs


of_one = smallest_visible(len(truth) - 1, 1, level, miss=0.01)
needed = {name: round((of_one / off[name]) ** 2) for name in names if off[name] > 1e-12}
print(f"\noff by 0.2: {(of_one / 0.2) ** 2:,.0f} texts needed; by 0.1: {(of_one / 0.1) ** 2:,.0f}")

# %% [markdown]
# Now try the promise.
# The table counts how often 2,000 texts are enough to catch each bug.
#
# *Guess first:* which bugs escape? The walked distances above are all you need.

# %%
table(["sampler", "off, 3 tokens", "samples needed", "caught by 2,000"],
      [[name, f"{off[name]:.2g}", f"{needed[name]:,}" if name in needed else "-",
        f"{caught(name, 2_000, 300):.1%}"] for name in names],
      f"needed: caught 99 times in 100, at {level:.1%} false alarms")

# %% [markdown]
# The last bug would need billions of texts. Only the walk sees it.
# The picture shows both rates. On the left are the p-values from above: flat for the correct
# sampler, and pushed to the left for the wrong one.
# On the right, three bugs are caught more and more often.
# A diamond stands where 99% are promised.

# %%
sizes = [100, 300, 1_000, 3_000, 10_000, 30_000]
shown = ["accept-everything", "residual-pointwise", "target-not-rolled-back"]
power = {name: [caught(name, size) for size in sizes] for name in shown}
promised = {name: (needed[name], caught(name, needed[name])) for name in shown}
figures.two_error_rates(p_right, p_wrong, n, sizes, power, promised, off)

# %% [markdown]
# ## What a walk cannot see: bad dice
#
# A walk brings its own dice. So it takes for granted that yours are good.
# vLLM and FlashInfer once had dice that used a random number twice:
# first for the coin of a draft token, then for the replacement.
#
# A worked number. The coin accepts with probability .5, so it accepts if u < .5.
# It rejects: now we know that u is .5 or more.
# The same u then picks from a residual distribution of [.5, .5].
# It always hits the second half of the line. The first token never comes.
#
# So let the real program write 500 texts with each kind of dice, and count.
# The code of the rule is the same in both rows.
# (Dice that start again with the same seed in every round also pass a walk. So does rounding.)

# %%
bad_dice = changed(zoo["residual-reuses-accept-uniform"])["Dice"]
play, p_of_dice = sampler("as it ships"), {}
print()
for what, dice in ("good dice", Dice), ("a number used twice", bad_dice):
    texts = Counter(play(dice([seed])) for seed in range(500))
    p_of_dice[what] = goodness_of_fit(texts, truth).p_value
    print(f"500 real runs, {what + ':':20} p = {p_of_dice[what]:.1g}; "
          f"the walk says: {off['as it ships']:.0e} off")

# %% [markdown]
# ## One long text: from the token back to u
#
# A long text never comes twice, so there is nothing to count. But its tokens can be judged one
# by one. In lesson 1, `pick` turned a number u into a token: the token whose piece of the line
# is hit. Now go the other way. Take the token, and choose a random point v of its piece.
#
# A worked number: p_target is [.2, .5, .3], and token 1 was drawn. Its piece goes from .2 to .7.
# With v = .4 we get .2 + .4 x .5 = .4.
#
# If the target drew the token, this number is uniform on 0 to 1, like the u that drew it.
# That is true whatever p_target is. So numbers from different places may be counted together.
# The name is *probability integral transform*, or PIT.
#
# *Guess first:* tokens are drawn from [.4, .4, .2], but judged by [.2, .5, .3].
# Which of ten bins on 0 to 1 get too many?

# %%
def back_to_u(p_target, token, v):
    """[.2, .5, .3], token 1 and v = .4 give .4: all that lies below, and v times its own."""
    return float(p_target[:token].sum() + v * p_target[token])


p_target = torch.tensor([.2, .5, .3])
assert abs(back_to_u(p_target, 1, 0.4) - 0.4) < 1e-6
shares = {}
for what, drawn_from in ("[.2, .5, .3]", p_target), ("[.4, .4, .2]", torch.tensor([.4, .4, .2])):
    tokens = torch.multinomial(drawn_from, 10_000, replacement=True, generator=chance).tolist()
    points = torch.rand(10_000, generator=chance).tolist()
    numbers = [back_to_u(p_target, token, v) for token, v in zip(tokens, points)]
    shares[what] = torch.histc(torch.tensor(numbers), 10, 0, 1) / 10_000
table(["drawn from", *(f"{i / 10:.1f}-" for i in range(10))],
      [[what, *(f"{share:.2f}" for share in share_of)] for what, share_of in shares.items()],
      "share of 10,000 numbers in each tenth, all judged by [.2, .5, .3]; 0.10 is right")

# %% [markdown]
# The second row: token 0 has the piece from 0 to .2, but comes with .4. So two bins share .4.
#
# ## The order decides what is seen
#
# Now 3,000 places of a text over 64 tokens. Every place has a p_target of its own.
# The tokens come from a planted bug: the replacement is drawn from p_target, not from the
# residual distribution. The next cell finds out what this bug writes at each place.
# It also draws tokens as they should be.

# %%
at_target, at_draft = TableModel(64, seed=1), TableModel(64, seed=2)
places = 3_000
p_target = at_target.logits[:places].softmax(-1)                # (3000, 64)
q_draft = at_draft.logits[:places].softmax(-1)
accepted = p_target.minimum(q_draft)                            # drawn by the draft, and accepted
rejected = 1 - accepted.sum(-1, keepdim=True)
wrong = accepted + rejected * p_target                          # WRONG: the residual belongs here

v = torch.rand(places, generator=chance)
drawn = {"correct": torch.multinomial(p_target, 1, generator=chance)[:, 0],
         "residual-is-target": torch.multinomial(wrong, 1, generator=chance)[:, 0]}

# %% [markdown]
# Which tokens does the bug write too often? Those that the draft likes more than the target does.
# In the order of the token ids they lie all over the line: each bin wins a little and loses a
# little. So sort the tokens first, by q_draft - p_target. Then they all lie at the upper end.
# The library's `pit` takes this order as a *score* for each token.
#
# *Guess first:* which of the three p-values below is tiny?

# %%
ids = torch.arange(64).expand(places, 64)
gap = q_draft - p_target
bins, p_of_order = {}, {}
print()
for which, order, score in [("correct", "q_draft - p_target", gap),
                            ("residual-is-target", "token ids", ids),
                            ("residual-is-target", "q_draft - p_target", gap)]:
    numbers = pit(drawn[which], p_target, score, v)             # (3000,)
    counts = Counter((16 * numbers).long().tolist())
    p_of_order[which, order] = goodness_of_fit(counts, dict.fromkeys(range(16), 1 / 16)).p_value
    bins[which, order] = [counts[i] for i in range(16)]
    print(f"{places:,} tokens, {which + ',':19} in the order of {order + ':':19} "
          f"p = {p_of_order[which, order]:.1g}")
    if order == "token ids":            # the library's function is ours
        for i in range(100):
            mine = back_to_u(p_target[i], drawn[which][i], v[i])
            assert abs(mine - numbers[i]) < 1e-5

figures.from_token_to_u(bins, places)

# %% [markdown]
# ## Three things to know
#
# 1. A test has two error rates. You choose the false alarms. The misses depend on how many
#    samples you take, and on how far off the bug is.
# 2. A walk sees the smallest bug without any sample. Walk several rounds, not one token.
#    It cannot see bad dice: for them, count real runs.
# 3. One long text can be tested too: turn each token back into a u. The order decides what is seen.
#
# ## Change this and run again
#
# 1. Add "only-first-test-counts" to `names`. Nothing is found. Is it no bug?
#    Then write `gamma = 2`. What is found now, and why not before?
# 2. Write `level = 0.05`. That is fifty times the false alarms. How many samples does it save?
# 3. Write `zeros=0.4` in the target. Which bug is now caught with far fewer samples than "needed"?
#    By what kind of text?
#
# The answers are in `lessons/answers/13_how_to_test_a_sampler.md`.
#
# Next: lesson 14 asks where speculation loses. Exercises: 11 (spot the bug), 12 (write the test).
