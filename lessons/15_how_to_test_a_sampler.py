# %% [markdown]
# # How to test a sampler
#
# **How would you know that a sampler is wrong?**
#
# A *sampler* is a program that draws texts, by plain decoding or by speculative decoding. Two runs
# of a correct sampler may write two different texts, so one text proves nothing. What has to be
# right is the *distribution* of the texts.
#
# A wrong sampler does not crash, and its texts look fine. So this lesson plants bugs on purpose and
# tries four tests on them: the walk, comparing two texts, counting many short texts, and judging
# every token of one long text.
#
# Four terms from earlier lessons are used all the time:
#
# - *total variation*: half the sum of all differences between two distributions.
# - *walk*: run the program once for every way its decisions can turn out, and add up the
#   probabilities. The result is the exact distribution, not an estimate.
# - *residual distribution*: max(0, p_target - q_draft), normalised, from which a replacement is
#   drawn.
# - *rolled back*: what the cache holds of rejected tokens is dropped before the next round (*The
#   cache*).

# %%
from collections import Counter

import torch

import figures
from kit import table
from nanospec import Dice
from nanospec.proof.stats import chi_square_tail, goodness_of_fit, pit, smallest_visible
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import BUGS, changed
from nanospec.judge.known_bugs import AS_IT_SHIPS, sampler_with

torch.set_num_threads(1)                            # tables this small gain nothing from more
zoo = {bug.name: bug for bug in [AS_IT_SHIPS, *BUGS]}
names = ["as it ships", "accept-everything", "row-before", "residual-is-target",
         "residual-pointwise", "target-not-rolled-back", "draft-dtype-mismatch"]

for name in names[1:]:
    print(f"{name:24}{zoo[name].what}\n{'':24}seen in: {zoo[name].source}")

# %% [markdown]
# ## Six planted bugs
#
# The *zoo* of this project collects bugs, of which a quarter were found in public programs.
# ("generic" above: a mistake that is easily made anywhere.) Each is planted in
# `nanospec/speculate.py` by changing a few words. The next cell prints the words of one of them:
# the first line is right, and the second takes p_target one place too early, if there is such a
# place, for the token after the accepted ones.

# %%
for right_words, wrong_words in zoo["row-before"].edits:
    print(f"\nright:  {right_words}\nwrong:  {wrong_words}")

# %% [markdown]
# ## The walk gives the true distance
#
# The two models are tables over three tokens, and we write texts of three tokens. That makes 3 x 3
# x 3 = 27 possible texts, few enough for a walk. So we know exactly how far each sampler is from
# the target, and can judge the other tests by that.
#
# The table shows the total variation for texts of one token and for texts of three.
#
# *Guess first:* does any of the six bugs leave the first token exactly right?

# %%
target, draft_model = TableModel(3, seed=109, zeros=0), TableModel(3, seed=3, zeros=0)
start, gamma = [1], 1


def sampler(name, new=3):
    """A function of the dice that writes `new` tokens, with the bug of that name in the code."""
    run = sampler_with(zoo[name], target, draft_model, start, new, gamma)
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
# *Answer:* two bugs leave the first token exact. `row-before` harms a token after an accepted one,
# and `target-not-rolled-back` the next round. So walk texts of several rounds, never the first
# token alone.
#
# ## The popular test: compare two texts
#
# A walk needs tiny models, because a real model has too many texts. Many people instead compare one
# text of plain decoding with one of speculative decoding.
#
# Let the target alone write one text and let speculative decoding without a bug write another.
# *Guess first:* in how many runs out of a hundred are the two equal? And with a bug that accepts
# every draft token?

# %%
same = {}
print()
for name in names[:2]:
    both = [truth.get(text, 0) * probability for text, probability in walked[name].items()]
    same[name] = sum(both)              # the sum over all texts that both could write
    print(f"target alone, and {name + ':':19} the same text in {same[name]:.1%} of runs")

# %% [markdown]
# *Answer:* in 6 of 100, and with the bug in 4 of 100. The test can hardly tell one from the other.
#
# Two different texts are no proof of a bug, since even the correct sampler mostly differs. With
# long texts the share goes to zero for both. (Greedy decoding is the exception: it has a single
# right text, and comparing texts is a valid test.)
#
# ## Many texts, counted: chi-square by hand
#
# Begin with a die of three faces that should show them with probabilities .5, .3 and .2. We throw
# it 100 times and see 42, 33 and 25.
#
# | face | expected | seen | (seen - expected)^2 / expected |
# |---|---|---|---|
# | 0 | 50 | 42 | 64 / 50 = 1.28 |
# | 1 | 30 | 33 | 9 / 30 = 0.30 |
# | 2 | 20 | 25 | 25 / 20 = 1.25 |
#
# The sum, 2.83, is called *chi-square*, and a large sum is suspicious. To find out how large is too
# large, ask a correct die: let it throw 100 times in each of 10,000 runs, and count the runs whose
# sum is at least 2.83. Their share is the *p-value* of 2.83.
#
# *Guess first:* how often does a correct die look at least this strange?

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
print(f"\nchi-square {strange:.2f}: a correct die is at least as strange in {at_least:.1%} of runs")
print(f"nanospec/proof/stats.py finds the p-value with a formula: {by_formula:.1%}")
assert abs(strange - 2.83) < 1e-9 and abs(at_least - by_formula) < 0.02

# %% [markdown]
# *Answer:* in 24 of 100 runs. A chi-square of 2.83 is nothing strange. (The formula needs the
# number of counts that are free: three counts that add up to 100 leave two *degrees of freedom*,
# and our 27 texts have 26.)
#
# ## False alarms: how often is a correct sampler accused?
#
# Now the 27 texts are the faces. We take enough texts that even the rarest is expected five times,
# because with fewer the formula is not accurate. To save time, these samples are drawn from the
# walked distributions. The real samplers would write the same texts far more slowly.

# %%
def sample(name, n):
    """n texts of a sampler, from its walked distribution, counted: {(0, 2, 1): 38, ...}."""
    texts, weights = list(walked[name]), torch.tensor(list(walked[name].values()))
    drawn = torch.multinomial(weights, n, replacement=True, generator=chance)
    return dict(zip(texts, drawn.bincount(minlength=len(texts)).tolist()))


def p_values(name, n, runs):
    """One p-value for each run. Every run draws n fresh texts."""
    return [goodness_of_fit(sample(name, n), truth).p_value for _ in range(runs)]


n = round(5.5 / min(truth.values()))
counts = sample("as it ships", n)       # once by hand, and by nanospec/proof/stats.py
by_hand = chi_square([counts[text] for text in truth], [n * p for p in truth.values()])
p_by_hand = chi_square_tail(by_hand, len(truth) - 1)
assert abs(p_by_hand - goodness_of_fit(counts, truth).p_value) < 1e-9

# %% [markdown]
# We call a sampler wrong if its p-value lies below a threshold. Here are three thresholds, each
# tried in 2,000 runs with the correct sampler and 2,000 with a wrong one.
#
# *Guess first:* with the threshold 0.05, how many of 2,000 runs accuse the correct sampler?

# %%
runs = 2_000
p_right, p_wrong = p_values("as it ships", n, runs), p_values("target-not-rolled-back", n, runs)
lines = []
for threshold in (0.5, 0.05, 0.01):
    accused = sum(p < threshold for p in p_right) / runs
    caught_it = sum(p < threshold for p in p_wrong) / runs
    lines.append([f"p < {threshold}", f"{accused:.1%}", f"{caught_it:.1%}"])
table(["called wrong if", "as it ships", "target-not-rolled-back"], lines,
      f"share of {runs:,} runs of {n} texts")

# %% [markdown]
# *Answer:* about 100. The p-value of a correct sampler is uniform on 0 to 1, so a threshold of 0.05
# accuses it in 5% of runs. This is the rate of *false alarms*. It is not a property of the sampler:
# you choose it when you choose the threshold. A daily check with a threshold of 0.05 accuses
# correct code about every third week, so from here on we use 0.001.
#
# ## Power: how often is a wrong sampler caught?
#
# The rate of catches is called *power*, and it grows with the number of texts. Noise shrinks like 1
# / sqrt(n), so a bug that is half as far off needs four times as many texts.
#
# `smallest_visible` turns this into a promise. It returns a distance. A sampler that is at least so
# far off is caught in at least 99 of 100 runs, whichever tokens it writes too often or too seldom.
# For one text it returns a number `of_one`, which is above 1, more than any distance: one text is
# never enough. For n texts it returns of_one / sqrt(n). Solved for n: needed = (of_one / off)^2.

# %%
level = 0.001                           # the threshold: one false alarm in a thousand runs


def caught(name, n, runs=200):
    """The share of runs in which a sampler is called wrong."""
    return sum(p < level for p in p_values(name, n, runs)) / runs


of_one = smallest_visible(len(truth) - 1, 1, level, miss=0.01)
needed = {name: round((of_one / off[name]) ** 2) for name in names if off[name] > 1e-12}
print(f"\noff by 0.2: {(of_one / 0.2) ** 2:,.0f} texts needed; by 0.1: {(of_one / 0.1) ** 2:,.0f}")

# %% [markdown]
# To test this promise, the table counts how often 2,000 texts are enough to catch each bug.
#
# *Guess first:* which bugs escape? The walked distances above are all you need.

# %%
table(["sampler", "off, 3 tokens", "samples needed", "caught by 2,000"],
      [[name, f"{off[name]:.2g}", f"{needed[name]:,}" if name in needed else "-",
        f"{caught(name, 2_000, 300):.1%}"] for name in names],
      f"needed: caught 99 times in 100, at {level:.1%} false alarms")

# %% [markdown]
# *Answer:* those which are less than about .07 off: the last two. The very last one would need
# billions of texts, and only the walk sees it.
#
# The picture shows both error rates. On the left are the p-values from above, flat for the correct
# sampler and pushed to the left for the wrong one. On the right, three bugs are caught more and
# more often as the number of texts grows. A diamond marks where 99% are promised.

# %%
sizes = [100, 300, 1_000, 3_000, 10_000, 30_000]
shown = ["accept-everything", "residual-pointwise", "target-not-rolled-back"]
power = {name: [caught(name, size) for size in sizes] for name in shown}
promised = {name: (needed[name], caught(name, needed[name])) for name in shown}
figures.two_error_rates(p_right, p_wrong, n, sizes, power, promised, off)

# %% [markdown]
# ## One long text
#
# A real sampler has more than 27 texts, and a long text never occurs twice, so there is nothing to
# count. But its tokens can be judged one by one, and together they make a sharp test. It needs
# p_target at every place and an order of the tokens, so it can also be run on texts that another
# program has written.
#
# `pick` turned a uniform number u into a token: the token whose piece of the line is hit. Now we go
# the other way. Take the token, and choose a random point of its piece. A worked number: p_target
# is [.2, .5, .3], and token 1 was drawn. Its piece goes from .2 to .7. A random number decides
# where in the piece the point lies: .4 of the way gives .2 + .4 x .5 = .4.
#
# If the target drew the token, this point is uniform on 0 to 1, like the u that drew it. That holds
# for every p_target, so points from different places may be counted together. Statisticians call
# this the *probability integral transform*, or PIT.
#
# We take 3,000 places of a text over 64 tokens, each with a p_target of its own. The tokens come
# from a planted bug: the replacement is drawn from p_target instead of the residual distribution.
# The next cell computes what this bug produces at each place, and also draws tokens as they should
# be.

# %%
def back_to_u(p_target, token, inside):
    """[.2, .5, .3], token 1 and .4 give .4: all pieces below, and .4 of its own piece."""
    return float(p_target[:token].sum() + inside * p_target[token])


assert abs(back_to_u(torch.tensor([.2, .5, .3]), 1, 0.4) - 0.4) < 1e-6
places, chance = 3_000, torch.Generator().manual_seed(2)
p_target = TableModel(64, seed=1).logits[:places].softmax(-1)   # (3000, 64)
q_draft = TableModel(64, seed=2).logits[:places].softmax(-1)
accepted = p_target.minimum(q_draft)                            # drafted, and accepted
rejected = 1 - accepted.sum(-1, keepdim=True)
wrong = accepted + rejected * p_target                          # WRONG: the residual belongs here

inside = torch.rand(places, generator=chance)
drawn = {"correct": torch.multinomial(p_target, 1, generator=chance)[:, 0],
         "residual-is-target": torch.multinomial(wrong, 1, generator=chance)[:, 0]}

# %% [markdown]
# A right sampler fills the line from 0 to 1 evenly. So we cut it into 16 equal parts, the *bins*,
# and ask with chi-square whether all of them get equally many points.
#
# Which tokens does the bug write too often? Those that the draft model likes more than the target
# does. In the order of the token ids they are scattered over the whole line, and each bin gains a
# little and loses a little. If we first sort the tokens by q_draft - p_target, they all lie at the
# upper end. The library's `pit` takes this order as a *score* for each token.
#
# *Guess first:* which of the three p-values below is tiny?

# %%
ids = torch.arange(64).expand(places, 64)
gap = q_draft - p_target
p_of_order = {}
print()
for which, order, score in [("correct", "q_draft - p_target", gap),
                            ("residual-is-target", "token ids", ids),
                            ("residual-is-target", "q_draft - p_target", gap)]:
    numbers = pit(drawn[which], p_target, score, inside)        # (3000,)
    counts = Counter((16 * numbers).long().tolist())
    p_of_order[which, order] = goodness_of_fit(counts, dict.fromkeys(range(16), 1 / 16)).p_value
    print(f"{places:,} tokens, {which + ',':19} in the order of {order + ':':19} "
          f"p = {p_of_order[which, order]:.1g}")
    if order == "token ids":            # the library's function is ours
        for i in range(100):
            mine = back_to_u(p_target[i], drawn[which][i], inside[i])
            assert abs(mine - numbers[i]) < 1e-5

# %% [markdown]
# *Answer:* the third, where the bug is there and the order is the one that shows it. One long text
# was enough, and the order decided what it could show: sort by what the bug would favour.
#
# ## What a walk cannot see: bad dice
#
# A walk brings its own dice and takes for granted that yours are good. vLLM and FlashInfer once had
# dice that used a random number twice: first for the coin of a draft token, then for the
# replacement. (The zoo keeps this bug as `residual-reuses-accept-uniform`, with the reports.)
#
# A worked number: a coin accepts with probability .5, that is, if u < .5. If it rejects, we know
# that u is at least .5. The same u then picks from a residual distribution of [.5, .5]. It always
# hits the second half of the line, and the first token never comes.
#
# So we let the real program write 500 texts with each kind of dice, and count. The code of the rule
# is the same in both lines. (Dice that restart from the same seed in every round also pass a walk.
# So does what float32 rounds, because the walk computes in float64.)

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
# ## Three things to know
#
# 1. A test has two error rates. You choose the rate of false alarms, while the rate of misses
#    depends on the number of samples and on how far off the bug is.
# 2. A walk sees the smallest bug without any sample, if it walks several rounds and not one token.
#    It cannot see bad dice, which show only when real runs are counted.
# 3. A drawn token can be turned back into a number that is uniform if the sampler is right. So one
#    long text is enough, if its tokens are sorted by what the bug favours.
#
# ## Change this and run again
#
# 1. Add "only-first-test-counts" to `names`. Nothing is found, so is it no bug? Then write `gamma =
#    2`. What is found now, and why not before?
# 2. Write `zeros=0.4` in the target. Which bug is now caught with far fewer samples than "needed",
#    and by what kind of text?
# 3. Write `places, chance = 300, ...`, then 100. Is the bug still found in the long text?
# 4. Judge all tokens by `wrong`: write it in place of `p_target` in the calls of `pit` and
#    `back_to_u`. Which of the three lines is accused now?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Where it loses* asks when speculation is slower than plain decoding. Exercises: 11 (spot
# the bug), 12 (write the test), 23 (eight public bugs).
