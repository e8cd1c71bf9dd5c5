# %% [markdown]
# # When to stop
#
# **How long should a draft be, at this place?**
#
# *How fast* had one gamma for all places, and *Good where it matters* found that places differ. By
# *What a stopping rule may see*, we may end a draft where we like if we decide before the next
# token is drawn. So the length can be decided place by place. It changes the speed and never the
# text.
#
# We need two things: how likely the next draft token is to be accepted, and what it costs. We
# measure both and turn them into a rule. Then we compare it with three rules that are in use.
#
# All costs are counted in target steps: c is the cost of a draft step, and v(m) the cost of a
# target call on m tokens.

# %%
from math import prod

import torch

import figures
from kit import Quiet, table
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import step_seconds
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, Entropy, Goodput, Heuristic
from nanospec.probs import probs
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import expected_tokens, speedup

torch.set_num_threads(1)            # one core, as in "How fast"
target, draft_model, tokenizer = load_pair()
autotune(target, draft_model, "float32")      # the fastest layout; float32, so that all texts agree
prompts = [tokenizer.encode(text) for text in ("import os\nfor i in", "class Stack:\n    def ",
                                               "    assert square(1) == 1\n" * 3)]

# %% [markdown]
# ## How sure is the draft model, and how often is it right?
#
# At temperature 0 the target always takes its likeliest token, and so does the draft model. A draft
# token is accepted exactly where the two agree. No dice are needed: the target writes a text, and
# the draft model reads it. At each place we note whether the draft model's likeliest token is the
# right one, and how *sure* it was, that is, the probability that it gave to this token.

# %%
texts, sure, right = [], [], []
for ids in prompts:
    text = list(generate(target, ids, 64, temperature=0))
    with torch.inference_mode():
        q_draft = probs(draft_model(torch.tensor([ids + text]))[0, len(ids) - 1:-1])      # (64, V)
    best = q_draft.max(-1)
    texts.append(text)
    sure.append(best.values.tolist())
    right.append((best.indices == torch.tensor(text)).tolist())

# %% [markdown]
# *Guess first:* where the draft model gave its token less than 0.25, how often is it right? And
# where it gave more than 0.75?

# %%
all_sure, all_right = sum(sure, []), sum(right, [])
quarters = [min(3, int(4 * probability)) for probability in all_sure]
lines = []
for number in range(4):
    hits = [hit for quarter, hit in zip(quarters, all_right) if quarter == number]
    share = f"{sum(hits) / len(hits):.2f}" if hits else "-"
    lines.append([f"{number / 4:.2f} to {(number + 1) / 4:.2f}", len(hits), share])
lines.append(["all", len(all_right), f"{sum(all_right) / len(all_right):.2f}"])
table(["how sure the draft model was", "places", "share that is right"], lines)

# %% [markdown]
# *Answer:* in about one case of four, and nearly always.
#
# How sure the draft model is tells something before the target has seen the token. A stopping rule
# may look at this, because it decides about the next draft token and looks only at those that were
# drawn before.
#
# ## What does one more draft token cost?
#
# It costs one more draft step, c, and one more token in the target's call, which is a difference
# such as v(4) - v(3). We measure both here.

# %%
quiet = Quiet(lambda: step_seconds(target, repeats=3))      # warns if the machine was busy
draft_took, took = [], {m: [] for m in range(1, 10)}
for turn in range(4):
    draft_took.append(step_seconds(draft_model, 1, 64, repeats=1))
    for m in took:
        took[m].append(step_seconds(target, m, 64, repeats=1))

fastest = {m: min(seconds) for m, seconds in took.items()}
for m in range(8, 0, -1):               # a call on m tokens never needs longer than one on m + 1
    fastest[m] = min(fastest[m], fastest[m + 1])
c = min(draft_took) / fastest[1]
v = {m: seconds / fastest[1] for m, seconds in fastest.items()}
table(["in target steps", *(f"v({m})" for m in v)], [[f"c = {c:.2f}", *(f"{v[m]:.2f}" for m in v)]])

# %% [markdown]
# ## Is one more draft token worth its time?
#
# We calculate once with round numbers. Let c = 0.1 and v(m) = 1 + 0.05 (m - 1), and let each draft
# token be accepted with probability alpha = 0.75.
#
# 1. *What it brings.* One more draft token brings a token if it and all before it are accepted.
#    After two draft tokens that is 0.75 x 0.75 x 0.75 = 0.42 tokens.
# 2. *What it takes.* It takes a draft step, c = 0.1, and one token more for the target, 0.05.
#    Together that is 0.15 target steps.
# 3. *What that time would bring elsewhere.* By the formula of *How fast*, the best gamma makes 1.91
#    tokens per target step. So 0.15 target steps are worth 0.15 x 1.91 = 0.29 tokens.
# 4. Since 0.42 is more than 0.29, go on.
#
# Step 3 is the idea: time spent on this draft is taken from the next round. Expected tokens per
# second are called *goodput*, and so is the rule that compares them. It needs c and v.

# %%
def best_rate(alpha, c, v):
    """Tokens that the best gamma makes of a target step. v: {tokens: target steps}."""
    return max(speedup(alpha, gamma, c, v[gamma + 1]) for gamma in range(1, max(v)))


def goes_on(chance, drafted, alpha, rate, c, v):
    """Is one more draft token worth it, or are several? chance: that all `drafted` are accepted."""
    m = drafted + 1                         # the target reads them, and the last token of the text
    for more in range(1, max(v) - m + 1):
        brings = chance * (expected_tokens(alpha, more) - 1)        # alpha + alpha^2 + ...
        takes = more * c + v[m + more] - v[m]
        if brings > rate * takes:
            return True
    return False


# %% [markdown]
# Why "or several"? Some machines process tokens in groups, and four may cost as much as two. Then a
# single further token does not pay, and two may.
#
# *Guess first:* each draft token is accepted with 0.75. At which length does the rule stop? What if
# the draft model is surer here, 0.90, or lost, 0.40? The best rate stays at 1.91.

# %%
toy_c, toy_v = 0.1, {m: 1 + 0.05 * (m - 1) for m in range(1, 10)}
rate = best_rate(0.75, toy_c, toy_v)
worth = rate * (toy_c + toy_v[2] - toy_v[1])
print(f"\nthe best rate is {rate:.2f}; the time of one more draft token would bring {worth:.2f}")
lines, lengths = [], {}
for each in 0.90, 0.75, 0.40:
    brings = [each ** (drafted + 1) for drafted in range(8)]
    drafted = 0
    while drafted < 8 and goes_on(each ** drafted, drafted, each, rate, toy_c, toy_v):
        drafted += 1
    lengths[each] = drafted
    lines.append([f"{each:.2f}", *(f"{number:.2f}" for number in brings), drafted])
table(["each is accepted with", *(f"{n}." for n in range(1, 9)), "stops after"], lines,
      "what the 1st, 2nd, ... draft token brings")

# %% [markdown]
# *Answer:* after 4. If the draft model is surer, it goes on to the 8 tokens that are allowed, and
# if it is lost it stops after 1.
#
# The library's rule is `Goodput`, in nanospec/methods/lengths/stopping.py. It learns the chances
# while it runs. It sorts draft tokens into eight classes by how sure the draft model was, and keeps
# for each class the mean beta of those that were judged. (Earlier rounds may be looked at.) The
# chance that all draft tokens are accepted is the product of their means.
#
# From the second draft token on its decisions are ours. The first it always drafts, to learn from
# it. We compare them at every length, with three patterns.

# %%
when = Goodput(c, v)
when.begin()
for pattern in [.95] * 8, [.6] * 8, [.9, .2, .9, .7, .4, .99, .1, .5]:
    for drafted in range(1, 9):
        classes = [min(7, int(8 * s)) for s in pattern[:drafted]]
        chance = prod(when.chances[i] for i in classes)
        ours = goes_on(chance, drafted, when.alpha, when.rate, c, v)
        assert when.goes_on(pattern[:drafted]) == ours

# %% [markdown]
# ## Four rules
#
# | rule | it stops | it decides |
# |---|---|---|
# | heuristic | at the last length, + 2 if all were accepted, else - 1 | before a draft step |
# | confidence | after a draft token that the draft model gave less than 0.2 | before a draft step |
# | entropy | where q_draft is spread over many tokens | after the draft step |
# | goodput | where one more brings less than its time is worth | before a draft step |
#
# (The paper of the entropy rule is arXiv 2410.18351. The library's docstrings name the others.)
#
# None of them asks what the next draft token *is*, so all of them are lossless. At temperature 0
# they all write the same text and differ only in what it costs.

# %%
rules = {"heuristic": Heuristic(), "confidence": Confidence(), "entropy": Entropy(),
         "goodput": Goodput(c, v)}
spent = {}                          # {rule: for each prompt (target calls, draft steps, cost)}
runs = {}
for name, rule in rules.items():
    spent[name], runs[name] = [], []
    for ids, text in zip(prompts, texts):
        rounds = list(speculate(target, DynamicDrafter(draft_model, rule, 8), ids, 64,
                                temperature=0))
        assert tokens_of(rounds) == text
        steps = sum(done.steps for done in rounds)
        cost = sum(done.steps * c + v[len(done.tokens)] for done in rounds)
        spent[name].append((len(rounds), steps, cost))
        runs[name].append(rounds)

# %% [markdown]
# ## One gamma for all places
#
# A fixed gamma needs no run, because we know where the draft model is right, and that is enough to
# count the target calls.

# %%
def calls(right, gamma):
    """Target calls for a text. [True, False, True, True] with gamma 2 makes 2."""
    at = count = 0
    while at < len(right):
        accepted = 0
        while accepted < gamma and at + accepted < len(right) and right[at + accepted]:
            accepted += 1
        at += accepted + 1              # and the replacement, or the bonus token
        count += 1
    return count


for gamma in range(1, 9):
    counts = [calls(places, gamma) for places in right]
    price = gamma * c + v[gamma + 1]
    spent[f"gamma {gamma}"] = [(count, count * gamma, count * price) for count in counts]

# %% [markdown]
# ## Which makes most of a target step?
#
# The measure is "tokens / cost", the tokens written per target step, of which plain decoding has 1.
# "worst prompt" compares with the gamma that was best for each prompt alone, and shows how far the
# rule is below it in the worst case (or above it, with a plus sign).
#
# *Guess first:* is the best rule the one that accepts most tokens per round?

# %%
fixed = [name for name in spent if name.startswith("gamma")]
best_costs = [min(spent[name][i][2] for name in fixed) for i in range(len(prompts))]
means, pace, lines = {}, {}, []
for name in fixed + list(rules):
    rounds, steps, cost = (sum(part) for part in zip(*spent[name]))
    written = sum(len(text) for text in texts)
    means[name] = (cost / rounds, written / rounds)
    pace[name] = written / cost
    worst = min(best / mine - 1 for best, (_, _, mine) in zip(best_costs, spent[name]))
    numbers = steps / rounds, cost / rounds, written / rounds, pace[name]
    lines.append([name, *(f"{number:.2f}" for number in numbers), f"{worst:+.0%}"])
table(["rule", "draft steps", "cost", "tokens", "tokens / cost", "worst prompt"], lines,
      "draft steps, cost and tokens: means of a round")

# %%
one = max(fixed, key=pace.get)
ahead = pace["goodput"] / pace[one] - 1
print(f"\nthe best single gamma is {one}: {pace[one]:.2f} tokens per target step")
print(f"goodput makes {pace['goodput']:.2f}: {abs(ahead):.0%} {'more' if ahead > 0 else 'fewer'}")
print(f"best of all rules: {max(rules, key=pace.get)}")
figures.when_to_stop([means[name] for name in fixed], {name: means[name] for name in rules})
quiet.tell("c was 0.10 and v(5) 1.24 (one core of an Intel Xeon)")

# %% [markdown]
# *Answer:* no, where draft tokens cost time. The longest drafts write the most tokens in a round,
# and they cost the most.
#
# In the picture each point is a way to draft. Further to the right, a round costs more, and further
# up, it writes more tokens. A line through (0, 0) joins all points of equal speed. The dotted one
# is goodput's: points above it are faster, and points below it are slower.
#
# A longer draft never writes fewer tokens in a round, but it costs more. `entropy` looks before it
# draws and has paid for the look, because the draft step is made and brings no token. `goodput`
# knows the costs. The other three do not know what a step costs on this machine.
#
# ## Three things to know
#
# 1. The draft model's own probability tells how likely its token is to be accepted.
# 2. One more draft token pays if it brings more than its time would bring in other rounds.
# 3. Which rule wins depends on c and v. A rule that does not know them fits one machine only.
#
# ## Change this and run again
#
# 1. Make the draft model expensive: write `c = 0.4` below the line that computes c. Which rules
#    still draft far, and at what cost?
# 2. Try `Confidence(0.05)`, `Confidence(0.5)` and `Confidence(0.8)`, at the measured c and at 0.4.
#    Is the same threshold best for both?
# 3. Keep only the third prompt: write `prompts = prompts[2:]` below the definition of `prompts`.
#    Which gamma is best now, and does goodput find out?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What the target knows ahead* makes draft tokens from the target's own hidden states.
