# %% [markdown]
# # 11. How to test a sampler
#
# **How do you test something that is allowed to answer differently every time?**
#
# The popular test compares two texts; the first lines printed below say what that is worth. Each bug here is a few
# words changed in `nanospec/speculate.py`, and none crashes; `nanospec/proof/zoo` says where each of them was seen.
# The models are tables over three tokens: the law of a text of three is 27 numbers, and lesson 6's walk takes a blink.

# %%
from collections import Counter

import torch

from kit import BLUE, GREEN, RED, picture, save, table
from nanospec import Dice
from nanospec.proof.stats import chi_square_tail, goodness_of_fit, pit, smallest_visible
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import ALL_BUGS, changed
from nanospec.proof.zoo.samplers import AS_IT_SHIPS, sampler_with

torch.set_num_threads(1)                            # tables this small gain nothing from more
target, draft, gamma = TableModel(3, seed=109, zeros=0), TableModel(3, seed=3, zeros=0), 1
zoo = {bug.name: bug for bug in [AS_IT_SHIPS, *ALL_BUGS]}
names = ["as it ships", "accept-everything", "row-before", "residual-is-target", "residual-pointwise",
         "target-not-rolled-back", "draft-dtype-mismatch"]


def sampler(name, new=3):                           # dice -> a tuple of new tokens
    return lambda dice, run=sampler_with(zoo[name], target, draft, [1], new, gamma): tuple(run(dice))


truth = target_distribution(target, [1], 3)              # of the target alone: {(token, token, token): probability}
laws = {name: walk(sampler(name))[0] for name in names}
off = {name: distance(law, truth)[1] for name, law in laws.items()}         # total variation, lesson 1's yardstick
off_first = {name: distance(walk(sampler(name, 1))[0], target_distribution(target, [1], 1))[1] for name in names}
print("the bugs:", *(f"  {name:24} {zoo[name].what}" for name in names[1:]), "", sep="\n")
for name in ["as it ships", "accept-everything"]:   # even the target does not agree with itself
    same = sum(truth.get(text, 0) * p for text, p in laws[name].items())
    print(f"one text by the target alone, one by {name + ':':19} the same in {same:.1%} of runs")

# %% [markdown]
# ## Many texts, counted: how often is a right sampler accused?
#
# *Chi-square* adds up (seen - expected)^2 / expected over all 27 texts. The *p-value* is how often a right sampler
# looks at least so strange. Call "wrong" whatever has p < 0.05 and you accuse one right sampler in twenty: the rate
# of *false alarms* is not discovered, you choose it. For a check that runs every day, choose 0.001. (The real samplers
# would need hours for all these texts: they are drawn from the walked laws. Further down the real one runs, briefly.)

# %%
runs, level, chance = 2_000, 0.001, torch.Generator().manual_seed(1)
n = round(5.5 / min(truth.values()))                # so many that even the rarest text is expected five times


def sample(name, n):
    """n texts from a sampler's walked law, counted: {(0, 2, 1): 38, ...}."""
    drawn = torch.multinomial(torch.tensor([*laws[name].values()]), n, replacement=True, generator=chance)
    return dict(zip(laws[name], drawn.bincount(minlength=len(laws[name])).tolist()))


def p_values(name, n, runs):
    return [goodness_of_fit(sample(name, n), truth).p_value for _ in range(runs)]


counts = sample("as it ships", n)                   # by hand, and by nanospec/proof/stats.py:
chi_square = sum((counts[text] - n * p) ** 2 / (n * p) for text, p in truth.items())
assert abs(chi_square_tail(chi_square, len(truth) - 1) - goodness_of_fit(counts, truth).p_value) < 1e-9
p_right, p_wrong = p_values("as it ships", n, runs), p_values("target-not-rolled-back", n, runs)
for bar in (0.5, 0.05, 0.01):
    accused, seen = (sum(p < bar for p in values) / runs for values in (p_right, p_wrong))
    print(f"p < {bar:<4} in {accused:5.1%} of {runs:,} runs of {n} texts as it ships, {seen:5.1%} not rolled back")

# %% [markdown]
# ## Power: how often is a wrong one caught?
#
# Noise shrinks like 1 / sqrt(samples), so a law half as far off needs four times the samples. `smallest_visible`
# knows the worst of all laws at one distance, and promises 99 catches in 100. Here the promise is tried.

# %%
def caught(name, n, runs=200):
    return sum(p < level for p in p_values(name, n, runs)) / runs


of_one = smallest_visible(len(truth) - 1, 1, level, miss=0.01)              # of n samples: this / sqrt(n)
needed = {name: round((of_one / off[name]) ** 2) for name in names if off[name] > 1e-12}
sizes = [100, 300, 1_000, 3_000, 10_000, 30_000]
labels = {"accept-everything": (130, .72), "residual-pointwise": (1_100, .45), "target-not-rolled-back": (5_500, .55)}
power = {name: [caught(name, size) for size in sizes] for name in labels}
promised = {name: (needed[name], caught(name, needed[name])) for name in labels}

# %% [markdown]
# ## What the walk sees, and what it cannot
#
# It needs no sample and sees every bug of the table below, the last of which would take billions. But walk whole
# texts: two of these bugs leave the first token exact, and a test of one token never sees them.
#
# A walk brings its own dice, so it takes yours to be good. Dice that hand a coin's number out again to the draw behind
# it (vLLM and FlashInfer had them) are seen by real runs only; so are dice seeded anew every round, and rounding.
# And no long text comes twice: nothing to count. Judge its tokens one by one: in some order of the vocabulary, the
# target's probability of all tokens below this one, plus a random part of its own, is uniform on 0 to 1 if the target
# drew it. What you can see depends on the order.

# %%
for what, dice in ("good dice", Dice), ("a number used twice", changed(zoo["residual-reuses-accept-uniform"])["Dice"]):
    texts = map(sampler("as it ships"), (dice([seed]) for seed in range(500)))
    fit = goodness_of_fit(Counter(texts), truth)
    print(f"500 real runs of speculate.py, {what + ':':20} p = {fit.p_value:.1g}, walked {off['as it ships']:.0e} off")
p_target, q_draft = (TableModel(64, seed).logits[:3_000].softmax(-1) for seed in (1, 2))  # 64 tokens, 3,000 places
wrong = p_target.minimum(q_draft) + (p_target - q_draft).clamp(min=0).sum(-1, keepdim=True) * p_target  # the bug's law
token, u = torch.multinomial(wrong, 1, generator=chance)[:, 0], torch.rand(3_000, generator=chance)
for order, score in ("their ids", torch.arange(64).expand(3_000, 64)), ("q_draft - p_target", q_draft - p_target):
    bins = (16 * pit(token, p_target, score, u)).long()
    fit = goodness_of_fit(Counter(bins.tolist()), dict.fromkeys(range(16), 1 / 16))
    print(f"3,000 tokens of residual-is-target, in the order of {order + ':':19} p = {fit.p_value:.1g}")
table(["sampler", "off, 1 token", "off, 3 tokens", "samples needed", "caught by 2,000"],
      [[name, f"{off_first[name]:.2g}", f"{off[name]:.2g}", f"{needed[name]:,}" if name in needed else "-",
        f"{caught(name, 2_000, 300):.1%}"] for name in names],
      f"off: walked, exact to 1e-12. Needed: caught 99 times in 100, at {level:.1%} false alarms.")

# %%
figure, (left, right) = picture("11. how to test a sampler", 2)
left.hist([p_right, p_wrong], bins=20, range=(0, 1), color=[GREEN, RED], label=["as it ships", names[5]])
left.axhline(runs / 20, color=BLUE, linestyle="--", label="expected of a right one")
left.set(xlabel=f"p-value of {n} samples", ylabel=f"how many of {runs:,} runs")
left.legend(frameon=False)
for name, place in labels.items():
    right.semilogx(sizes, power[name], color=RED, marker="o", linewidth=2)
    right.annotate(name.replace("-", "-\n", 1) + f"\n{off[name]:.2f} off", place, color=RED, fontsize=9)
right.plot(*zip(*promised.values()), "D", color=BLUE, markersize=9, fillstyle="none", label="here 99% were promised")
right.set(xlabel="samples, texts of three tokens", ylabel="share of 200 runs that catch it")
right.legend(frameon=False, loc="lower right")
save(figure, "11_how_to_test_a_sampler")

# %% [markdown]
# **Change this and run again.** Put "only-first-test-counts" among the `names`: nothing is found. Is it no bug? (Walk
# it alone with `gamma` 2.) `level = 0.05`: fifty times the false alarms, how many samples does that save? `zeros=0.4`
# in the target: which bug is now caught by far fewer samples than it "needs", and by what kind of text?
#
# Next: lesson 12, where speculation loses. Exercises: 11 (spot the bug), 12 (write the test).
