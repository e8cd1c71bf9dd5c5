# %% [markdown]
# # Which loss
#
# **What should a draft model make small while it learns?**
#
# A *loss* is a number that tells how wrong a model is, and training makes it small. A draft token
# is accepted with probability sum min(p_target, q_draft), which is 1 - total variation. (It is
# beta. As in *What to train on*, we write alpha.) So total variation is what we pay for. Is it also
# what a draft model should be trained with? As in *What to train on*, a small model, the *student*,
# learns from the target's probabilities.
#
# nanospec/methods/draft_models/losses.py has seven losses, and here are four of them by hand for
# one place. All are 0 where the two distributions are equal.

# %%
from math import log

import torch

import figures
from kit import table, windows
from student import Student, trained_student
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.losses import LOSSES
from nanospec.theory import acceptance

torch.set_num_threads(1)                                    # nothing is timed here


def forward_kl(p, q):
    """The target draws: how much more does the token surprise the student than the target?"""
    return sum(a * log(a / b) for a, b in zip(p, q) if a > 0)


def reverse_kl(p, q):
    """The student draws, and asks the target."""
    return forward_kl(q, p)


def total_variation(p, q):
    """1 - alpha."""
    return 1 - sum(min(a, b) for a, b in zip(p, q))


def minus_log_alpha(p, q):
    return -log(1 - total_variation(p, q))

# %% [markdown]
# Now take two students, A and B, for the target [.6, .3, .1]:
#
# | token    | 0    | 1    | 2    |
# |----------|------|------|------|
# | p_target | .6   | .3   | .1   |
# | A        | .6   | .399 | .001 |
# | B        | .4   | .4   | .2   |
#
# A has nearly forgotten token 2, and B is slightly wrong everywhere.
#
# *Guess first:* which one does forward KL prefer, and which one has the higher alpha?

# %%
BY_HAND = {"forward-kl": forward_kl, "reverse-kl": reverse_kl,
           "total-variation": total_variation, "minus-log-alpha": minus_log_alpha}
p_three, students = [.6, .3, .1], {"A": [.6, .399, .001], "B": [.4, .4, .2]}
logs = {name: torch.tensor(q, dtype=torch.float64).log() for name, q in students.items()}
log_p, lines, prefers = torch.tensor(p_three, dtype=torch.float64).log(), [], {}
for name, loss in BY_HAND.items():
    costs = {student: loss(p_three, q) for student, q in students.items()}
    theirs = {student: LOSSES[name](log_p, logs[student]) for student in costs}
    assert all(abs(costs[student] - theirs[student]) < 1e-12 for student in costs)
    prefers[name] = min(costs, key=costs.get)
    lines.append([name, f"{costs['A']:.3f}", f"{costs['B']:.3f}", prefers[name]])
table(["loss", "of A", "of B", "prefers"], lines)
print(f"alpha: A {1 - total_variation(p_three, students['A']):.3f}, "
      f"B {1 - total_variation(p_three, students['B']):.3f}")
assert prefers["forward-kl"] == "B" and prefers["total-variation"] == "A"

# %% [markdown]
# *Answer:* forward KL prefers B, and A has the higher alpha, .901 against .8. Forward KL punishes
# forgetting: a token with p_target .1 and q_draft .001 is a great surprise. For speculation it is a
# small matter, because that token comes once in ten places, mostly as a replacement.
#
# So why not take total variation? Training follows the *gradient*, which tells how the loss changes
# if a logit grows a little. Let U be the tokens with q_draft < p_target, those that have too
# little.
#
# **Claim.** The gradient of alpha at logit j is q(j) * ([j is in U] - q(U)), where q(U) is the sum
# of q over U. (The bracket is 1 if true and 0 if not.)
#
# **Proof.** min(p, q) is q(x) where x is in U, and p(x) elsewhere, and p does not move. So alpha
# moves as q(U) does. If logit j grows, softmax moves q(x) by q(x) * ([x = j] - q(j)). The sum over
# U is q(j) * [j is in U] - q(U) * q(j).
#
# The gradient of forward KL is q(j) - p(j). We look at three places: one where the student is near,
# one where it is off, and one where it is far off. The number is the sum of the gradient's absolute
# values over all logits.
#
# *Guess first:* a loss should pull hardest where the student is far off. Which one does?

# %%
def gradient(loss, p_target, q_draft):
    """What pulls at each logit, by torch."""
    logits = torch.tensor(q_draft, dtype=torch.float64).log().requires_grad_(True)
    log_p = torch.tensor(p_target, dtype=torch.float64).log()
    LOSSES[loss](log_p, logits.log_softmax(-1)).backward()
    return logits.grad


places = {"near": ([.5, .3, .2], [.45, .36, .19]), "off": ([.1, .4, .5], [.6, .2, .2]),
          "far off": ([.01, .49, .5], [.998, .001, .001])}
lines, pull, shown = [], {}, ("forward-kl", "total-variation", "minus-log-alpha")
for name, (p, q) in places.items():
    alpha, grads = 1 - total_variation(p, q), {loss: gradient(loss, p, q) for loss in shown}
    pull[name] = {loss: grad.abs().sum().item() for loss, grad in grads.items()}
    lines.append([name, f"{alpha:.3f}", *(f"{pull[name][loss]:.3f}" for loss in shown)])
    under = [b < a for a, b in zip(p, q)]                           # the claim, by hand
    q_under = sum(b for b, less in zip(q, under) if less)
    claimed = torch.tensor([b * (less - q_under) for b, less in zip(q, under)])
    assert (grads["total-variation"] + claimed).abs().max() < 1e-6
table(["the student is", "alpha", *shown], lines, "how strongly each loss pulls")
assert pull["far off"]["total-variation"] < .01 < 1 < pull["far off"]["forward-kl"]

# %% [markdown]
# *Answer:* forward KL, by far. Total variation hardly pulls where the student is far off, because
# all tokens of U have tiny q. A student that is sure of wrong tokens everywhere would learn very
# little for a long time. Near the target it is the other way round. Minus log alpha divides the
# pull of total variation by alpha. Far off that helps much, though even there it pulls less than
# near the target.
#
# ## A student that is too small
#
# If a student could be right everywhere, all losses would lead to the same place. But a draft model
# is small and has to choose, and losses choose differently.
#
# The target here has two humps on 40 tokens. The student has one hump and two numbers to choose:
# where it stands, and how wide it is, and we try all combinations.
#
# *Guess first:* where does the hump stand with forward KL, reverse KL and total variation?

# %%
def hump(middle, width):
    """A distribution on the tokens 0 to 39, highest at `middle`: log-probabilities."""
    x = torch.arange(40, dtype=torch.float64)
    return (-(x - middle) ** 2 / (2 * width ** 2)).log_softmax(-1)


two_humps = (.6 * hump(11, 2).exp() + .4 * hump(26, 2).exp()).log()
choices = [(middle / 2, width / 4) for middle in range(80) for width in range(4, 60)]
tried = torch.stack([hump(*choice) for choice in choices])
fits, lines, fit_alpha = {}, [], {}
for name in "forward-kl", "reverse-kl", "total-variation":
    best = int(LOSSES[name](two_humps, tried).argmin())
    fits[name] = tried[best].exp().tolist()
    fit_alpha[name] = acceptance(two_humps.exp(), tried[best].exp()).item()
    lines.append([name, *choices[best], f"{fit_alpha[name]:.3f}"])
table(["loss", "middle", "width", "alpha"], lines)
assert fit_alpha["total-variation"] > fit_alpha["forward-kl"] + .05
figures.losses(two_humps.exp().tolist(), fits)

# %% [markdown]
# *Answer:* forward KL *covers*: every token of the target has to get something, so the hump is wide
# and much of it lies in the valley. Reverse KL *picks*: it stays where the target is likely, on one
# hump. Total variation takes what gains most overlap, here the big hump and a little more.
# In the picture, the green area is alpha.
#
# ## A real student
#
# Our student looks at the last two tokens and at nothing else, so it is much too small (`Student`,
# in student.py). It is trained on windows of real code with the target's log-probabilities. We
# judge it on text that the target has written itself, because that is where a draft model is used.

# %%
target, _, tokenizer = load_pair()
V = target.config.vocab_size


@torch.no_grad()
def written_by_target(prompts, new):
    """(B, T) tokens -> the same texts with `new` more, at temperature 1."""
    cache, chance = target.new_cache(len(prompts), prompts.shape[1] + new), torch.Generator()
    chance.manual_seed(0)
    texts, newest = prompts, prompts
    for _ in range(new):
        p_target = target(newest, cache, texts.shape[1])[:, -1].softmax(-1)
        cache.length += newest.shape[1]
        newest = torch.multinomial(p_target, 1, generator=chance)
        texts = torch.cat([texts, newest], 1)
    return texts

# %%
train_texts, held_texts = read_texts()
tokens = windows(tokenizer, train_texts, 48)
judged = written_by_target(windows(tokenizer, held_texts, 20, length=40), 40)
with torch.no_grad():
    p_target = target(tokens).log_softmax(-1)
    p_judged = target(judged)[:, 40:].softmax(-1)               # after the target's own tokens
print(f"{tokens.numel():,} tokens to train on; {p_judged.shape[0] * p_judged.shape[1]} to judge by")


@torch.no_grad()
def alpha_on_target_text(student):
    return acceptance(p_judged, student(judged)[:, 40:].softmax(-1)).mean().item()

# %% [markdown]
# All students start from the same weights and see the same windows for the same number of steps,
# with AdamW.
#
# *Guess first:* does it matter much which loss is taken?

# %%
trained = {"untrained": alpha_on_target_text(Student(V))}
for name in "forward-kl", "total-variation", "minus-log-alpha":
    trained[name] = alpha_on_target_text(
        trained_student(tokens, p_target, name, steps=100, rate=1e-2))
table(["trained with", "alpha"], [[name, f"{alpha:.3f}"] for name, alpha in trained.items()])
worst, *_, best = sorted(list(trained.values())[1:])
print(f"training brings {worst - trained['untrained']:.3f} or more, "
      f"the choice of the loss {best - worst:.3f}")
assert worst > trained["untrained"] + .05 and best - worst < .1

# %% [markdown]
# *Answer:* no. That it is trained at all matters more: compare the last two numbers. Total
# variation was not slow here, probably because AdamW makes large steps of small gradients, and a
# new student is flat, so it is not yet sure of wrong tokens. LK losses (arXiv 2602.23881) begin
# near forward KL and go over to total variation as alpha grows. The last phase of
# `train_tiny.py` is by total variation; `python -m training NAME --loss LOSS` trains the other
# draft models by any of them.
#
# ## Three things to know
#
# 1. What counts is alpha, but total variation hardly pulls a student that is far off.
# 2. A small student must choose: forward KL covers everything, and total variation takes what is
#    accepted most often.
# 3. Training at all matters more than the choice of the loss.
#
# ## Change this and run again
#
# 1. Give the humps the weights .5 and .5, and the width 4 to both. Which fits move?
# 2. Add "reverse-kl" to the losses of the real student. Where does it stand?
#
# The answers are in the file of the same name in `lessons/answers/`.
