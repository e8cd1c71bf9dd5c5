# %% [markdown]
# # A loss for a draft model
#
# **Which loss should a draft model be trained with, if its acceptance is what counts?**
#
# A draft token is accepted with probability alpha = sum min(p_target, q_draft), which is 1 - total
# variation (at a single place, as in *What to train on*). So total variation is what we pay for. Is
# it also what a draft model should be trained with? This lesson compares losses at one place, then
# for a student that is too small, and finally in a real training of a few seconds.

# %%
from math import exp, log

import torch
from torch import nn

import figures
from kit import table, windows
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.training.losses import LOSSES

torch.set_num_threads(1)                                    # nothing is timed here


def alpha_of(p_target, q_draft):
    return torch.minimum(p_target, q_draft).sum(-1)

# %% [markdown]
# ## Seven losses at one place
#
# A *loss* is a number that tells how wrong the student is, and training makes it small.
# nanospec/training/losses.py has seven losses, and here they are by hand for one place. All are 0
# where the two distributions are equal.


# %%
def forward_kl(p, q):
    """The target draws: how much more does the token surprise the student than the target?"""
    return sum(a * log(a / b) for a, b in zip(p, q) if a > 0)


def reverse_kl(p, q):
    """The student draws, and asks the target."""
    return forward_kl(q, p)


def jensen_shannon(p, q):
    """Both draw, and ask the mixture of both."""
    mixture = [(a + b) / 2 for a, b in zip(p, q)]
    return (forward_kl(p, mixture) + forward_kl(q, mixture)) / 2


def total_variation(p, q):
    """1 - alpha."""
    return 1 - sum(min(a, b) for a, b in zip(p, q))


def minus_log_alpha(p, q):
    return -log(1 - total_variation(p, q))


def lk_hybrid(p, q):
    """KL while alpha is small, total variation later (arXiv 2602.23881)."""
    weight = exp(-3 * (1 - total_variation(p, q)))
    return weight * forward_kl(p, q) + (1 - weight) * total_variation(p, q)


def kl_and_tv(p, q):
    """Both, always in the same parts (DSpark, arXiv 2607.05147)."""
    return .1 * forward_kl(p, q) + 1.8 * total_variation(p, q)

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
BY_HAND = {"forward-kl": forward_kl, "reverse-kl": reverse_kl, "jensen-shannon": jensen_shannon,
           "total-variation": total_variation, "minus-log-alpha": minus_log_alpha,
           "lk-hybrid": lk_hybrid, "kl-and-tv": kl_and_tv}
p_three, students = [.6, .3, .1], {"A": [.6, .399, .001], "B": [.4, .4, .2]}
logs = {name: torch.tensor(q, dtype=torch.float64).log() for name, q in students.items()}
log_p, rows, prefers = torch.tensor(p_three, dtype=torch.float64).log(), [], {}
for name, loss in BY_HAND.items():
    of = {student: loss(p_three, q) for student, q in students.items()}
    assert all(abs(of[student] - LOSSES[name](log_p, logs[student])) < 1e-12 for student in of)
    prefers[name] = min(of, key=of.get)
    rows.append([name, f"{of['A']:.3f}", f"{of['B']:.3f}", prefers[name]])
table(["loss", "of A", "of B", "prefers"], rows)
print(f"alpha: A {1 - total_variation(p_three, students['A']):.3f}, "
      f"B {1 - total_variation(p_three, students['B']):.3f}")
assert prefers["forward-kl"] == "B" and prefers["total-variation"] == "A"

# %% [markdown]
# *Answer:* forward KL prefers B, and A has the higher alpha, .901 against .8. Forward KL punishes
# forgetting: a token with p_target .1 and q_draft .001 is a great surprise. For speculation it is a
# small matter, because that token comes once in ten places and is then replaced.
#
# ## What pulls, and how strongly
#
# Training follows the *gradient*, which tells how the loss changes if a logit grows a little. Let U
# be the tokens with q_draft < p_target, those that have too little.
#
# **Claim.** The gradient of alpha at logit j is q(j) x ([j is in U] - q(U)), where q(U) is the sum
# of q over U. (The bracket is 1 if true and 0 if not.)
#
# **Proof.**
#
# 1. min(p, q) is q(x) where x is in U, and p(x) elsewhere. p does not move.
# 2. So alpha moves as q(U) does.
# 3. If logit j grows, softmax moves q(x) by q(x) x ([x = j] - q(j)).
# 4. The sum over U is q(j) x [j is in U] - q(U) x q(j).
#
# Total variation is 1 - alpha, so its gradient is the same with the other sign. The gradient of
# forward KL is q(j) - p(j).
#
# We check the claim with finite differences: move one logit by 0.000001 and look at alpha.


# %%
def gradient(loss, p_target, q_draft):
    """What pulls at each logit, by torch."""
    logits = torch.tensor(q_draft, dtype=torch.float64).log().requires_grad_(True)
    log_p = torch.tensor(p_target, dtype=torch.float64).log()
    LOSSES[loss](log_p, logits.log_softmax(-1)).backward()
    return logits.grad


def moved(p_target, q_draft, step=1e-6):
    """alpha's gradient, by trying: each logit a little up, and a little down."""
    logits, found = torch.tensor(q_draft, dtype=torch.float64).log(), []
    p = torch.tensor(p_target, dtype=torch.float64)
    for j in range(len(logits)):
        up, down = logits.clone(), logits.clone()
        up[j], down[j] = up[j] + step, down[j] - step
        found.append((alpha_of(p, up.softmax(-1)) - alpha_of(p, down.softmax(-1))) / (2 * step))
    return torch.stack(found)


assert (moved(p_three, students["B"]) + gradient("total-variation", p_three, students["B"])
        ).abs().max() < 1e-8

# %% [markdown]
# We look at three places: one where the student is near, one where it is off, and one where it is
# far off. The number is the sum of the gradient's absolute values over all logits.
#
# *Guess first:* which loss pulls the student hardest where it is far off, as it should?

# %%
places = {"near": ([.5, .3, .2], [.45, .36, .19]), "off": ([.1, .4, .5], [.6, .2, .2]),
          "far off": ([.01, .49, .5], [.998, .001, .001])}
rows, pull = [], {}
for name, (p, q) in places.items():
    alpha = 1 - total_variation(p, q)
    pulls = {loss: gradient(loss, p, q) for loss in LOSSES}
    pull[name] = {loss: grads.abs().sum().item() for loss, grads in pulls.items()}
    shown = [pull[name][loss] for loss in ("forward-kl", "total-variation", "minus-log-alpha")]
    rows.append([name, f"{alpha:.3f}", *(f"{number:.3f}" for number in shown)])
    assert (pulls["minus-log-alpha"] - pulls["total-variation"] / alpha).abs().max() < 1e-12
table(["the student is", "alpha", "forward-kl", "total-variation", "minus-log-alpha"], rows,
      "how strongly each loss pulls")
assert pull["far off"]["total-variation"] < .01 < 1 < pull["far off"]["forward-kl"]

# %% [markdown]
# *Answer:* forward KL, by far. Total variation hardly pulls.
#
# Near the target, total variation still pulls, and forward KL has almost let go. Far off, total
# variation hardly pulls at all, because all tokens of U have tiny q. A new student is far off
# everywhere and would learn very little for a long time.
#
# Minus log alpha divides by alpha, so it pulls harder where little is accepted. The hybrid uses
# forward KL far off and total variation near, and the last loss adds the two.
#
# Now let the student at the third place learn, with plain steps: logits - gradient. (AdamW, which
# trains real models, divides every gradient by its usual size.)
#
# *Guess first:* how many steps does it take until alpha is .9?


# %%
def steps_until(loss, p_target, q_draft, adam=False):
    """Steps of size 1 (with Adam: of size .1) until alpha is above .9; at most 5,000."""
    logits = torch.tensor(q_draft, dtype=torch.float64).log().requires_grad_(True)
    log_p = torch.tensor(p_target, dtype=torch.float64).log()
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind([logits], lr=.1 if adam else 1)
    for step in range(5000):
        log_q = logits.log_softmax(-1)
        if alpha_of(log_p.exp(), log_q.exp()) > .9:
            return step
        optimizer.zero_grad()
        LOSSES[loss](log_p, log_q).backward()
        optimizer.step()
    return 5000


needed = {loss: [steps_until(loss, *places["far off"], adam) for adam in (False, True)]
          for loss in ("forward-kl", "total-variation", "minus-log-alpha", "lk-hybrid")}
table(["loss", "plain steps", "steps with Adam"], [[name, *row] for name, row in needed.items()])
assert needed["total-variation"][0] > 5 * needed["forward-kl"][0]

# %% [markdown]
# *Answer:* hundreds with total variation, and a dozen with the others. Compare the columns. With
# plain steps, total variation needs very many, while Adam makes large steps of small gradients.
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
fits, rows, fit_alpha = {}, [], {}
for name in "forward-kl", "reverse-kl", "total-variation":
    best = int(LOSSES[name](two_humps, tried).argmin())
    fits[name] = tried[best].exp().tolist()
    fit_alpha[name] = alpha_of(two_humps.exp(), tried[best].exp()).item()
    rows.append([name, *choices[best], f"{fit_alpha[name]:.3f}"])
table(["loss", "middle", "width", "alpha"], rows)
assert fit_alpha["total-variation"] > fit_alpha["forward-kl"] + .05
figures.losses(two_humps.exp().tolist(), fits)

# %% [markdown]
# *Answer:* forward KL *covers*: every token of the target has to get something, so the hump is wide
# and much of it lies in the valley. Reverse KL *picks*: it stays where the target is likely, on one
# hump. Total variation takes what gains most overlap, here the big hump and a little more.
#
# ## A real student
#
# Our student looks at the last two tokens and at nothing else, so it is much too small. It is
# trained on windows of real code with the target's log-probabilities, computed once. We judge it on
# text that the target has written itself, because that is where a draft model is used.

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


class Student(nn.Module):
    """The last two tokens -> logits of the next one. A table for each of the two, and a head."""

    def __init__(self):
        super().__init__()
        self.last, self.before = nn.Embedding(V, 96), nn.Embedding(V, 96)
        self.head = nn.Linear(96, V)

    def forward(self, tokens):
        before = nn.functional.pad(tokens[:, :-1], (1, 0))
        return self.head(torch.tanh(self.last(tokens) + self.before(before)))


@torch.no_grad()
def alpha_on_target_text(student):
    return alpha_of(p_judged, student(judged)[:, 40:].softmax(-1)).mean().item()

# %% [markdown]
# All students start from the same weights and see the same windows for the same number of steps,
# with AdamW.
#
# *Guess first:* does it matter much which loss is taken?


# %%
def train(name, steps=100, rate=1e-2):
    torch.manual_seed(0)
    student = Student()
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, 2 * (steps - step) / steps)
        some = torch.arange(4 * step, 4 * step + 4) % len(tokens)       # four windows a step
        optimizer.zero_grad()
        LOSSES[name](p_target[some], student(tokens[some]).log_softmax(-1)).mean().backward()
        optimizer.step()
    return alpha_on_target_text(student)


trained = {"untrained": alpha_on_target_text(Student())}
for name in "forward-kl", "total-variation", "minus-log-alpha":
    trained[name] = train(name)
table(["trained with", "alpha"], [[name, f"{alpha:.3f}"] for name, alpha in trained.items()])
worst, *_, best = sorted(list(trained.values())[1:])
print(f"training brings {worst - trained['untrained']:.3f} or more, "
      f"the choice of the loss {best - worst:.3f}")
assert worst > trained["untrained"] + .05 and best - worst < .1

# %% [markdown]
# *Answer:* less than that it is trained at all. Compare the last two numbers: training matters
# most, and the choice of the loss matters less. The student is much too small, and the losses that
# aim at alpha spend what it has where draft tokens are accepted. Total variation was not slow here,
# for two reasons: AdamW makes up for weak gradients, and a new student is flat, so it is not yet
# sure of wrong tokens.
#
# A common recipe begins with forward KL and ends with total variation, and the hybrid does so by
# itself. `train_tiny.py --what distil --loss NAME` trains the shipped draft model further by any of
# them.
#
# ## Three things to know
#
# 1. What counts is alpha, but total variation hardly pulls a student that is far off.
# 2. A small student must choose: forward KL covers everything, and total variation takes what is
#    accepted most often.
# 3. In a real training, training at all matters more than the choice of the loss.
#
# ## Change this and run again
#
# 1. Give the humps the weights .5 and .5, and the width 4 to both. Which fits move?
# 2. Add "reverse-kl" to the losses of the real student. Where does it stand?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Many requests* puts several texts into one batch.
