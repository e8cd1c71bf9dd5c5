# %% [markdown]
# # What to train on
#
# **What should a draft model be taught, on which text, and with which loss?**
#
# *Good where it matters* measured a draft model that already existed. Now we want to make a better
# one. At each place, a draft token is accepted with probability sum min(p_target, q_draft), which
# is 1 - total variation. Earlier lessons called this beta, and alpha the mean of beta over many
# places. Here we look at one place at a time, where the two are the same number, and write alpha.
#
# A small model, the student, learns from a big one, the target. This is called *distillation*
# (DistillSpec, arXiv 2310.08461). Three questions come up: should the student see tokens or
# probabilities, after which texts, and what should it try to make small?

# %%
import re
from math import log

import torch
from torch import nn

import figures
from kit import OneRow, table, windows
from nanospec import Draft
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.losses import LOSSES
from nanospec.proof.walk import walk
from nanospec.speculate import verify

torch.set_num_threads(1)                                    # nothing is timed here

# %% [markdown]
# ## Tokens or probabilities?
#
# A language model is usually trained on tokens: "range" stands here, so make "range" likelier. That
# is *cross-entropy*. But the draft model has a teacher: the target gives a probability to every
# token at every place. Take four tokens:
#
# | token               | range | items | zip | def |
# |---------------------|-------|-------|-----|-----|
# | p_target            | .5    | .3    | .15 | .05 |
# | one text            | 0     | 1     | 0   | 0   |
# | many texts by people | .4   | .2    | .2  | .2  |
#
# A student that may only count tokens learns the shares of what it has seen. After one look its
# alpha is .5 x .5 + .3 x .3 + .15 x .15 + .05 x .05 = .365, on average. After many looks it is
# better, but texts by people are not the target's texts.
#
# *Guess first:* after infinitely many looks at each kind of text, what is alpha?

# %%
p_four = torch.tensor([.5, .3, .15, .05])
people = torch.tensor([.4, .2, .2, .2])


def alpha_of(p_target, q_draft):
    return torch.minimum(p_target, q_draft).sum(-1)


def after_looks(source, looks):
    """Mean alpha of a student that counts `looks` tokens drawn from source, over 4,000 students."""
    chance = torch.Generator().manual_seed(looks)
    seen = torch.multinomial(source, 4000 * looks, replacement=True, generator=chance)
    counts = nn.functional.one_hot(seen.view(4000, looks), 4).sum(1) / looks
    return alpha_of(p_four, counts).mean().item()


lines = []
for looks in 1, 10, 100:
    of_target, of_people = after_looks(p_four, looks), after_looks(people, looks)
    lines.append([looks, f"{of_people:.2f}", f"{of_target:.2f}", "1.00"])
lines.append(["all", f"{alpha_of(p_four, people):.2f}", "1.00", "1.00"])
table(["looks", "people's tokens", "the target's tokens", "the target's probabilities"], lines,
      "alpha of what was learnt at one place")
assert abs(after_looks(p_four, 1) - .365) < .02 and abs(alpha_of(p_four, people) - .8) < 1e-6

# %% [markdown]
# *Answer:* .8 with texts by people, and 1 with the target's own. Its probabilities give 1 after a
# single look.
#
# A single look at the probabilities tells everything, so draft models are trained on p_target.
# Tokens still decide after which texts the student is asked, and that is the second question.
#
# ## Which text?
#
# A draft model may read texts by people, by the target, or by itself. After which texts is it asked
# when it drafts?
#
# - The first draft token follows committed text, which the target has written.
# - The third one follows the first two, which the draft model drew. But if one of them is rejected,
#   the third is never judged.
#
# Only accepted prefixes count. Let the first token be "range", "items" or "zip". The target never
# writes "zip", but the draft model often does: p_target = [.6, .4, 0] and q_draft = [.2, .3, .5].
# We walk this place.
#
# *Guess first:* after which first tokens is the second draft token ever judged?

# %%
p_first, q_first = torch.tensor([.6, .4, 0]), torch.tensor([.2, .3, .5])


def a_round(dice):
    """-> (the accepted draft token or None, the token that stands in the text)."""
    one = OneRow(dice)
    x = one.pick(q_first)
    draft = Draft(torch.tensor([[0, x]]), torch.stack([torch.zeros(3), q_first])[None])
    accepted, token = verify(draft, p_first.expand(1, 2, -1), dice)
    return (x, x) if accepted else (None, int(token))


found, _ = walk(a_round)
accepted = [sum(w for (a, _), w in found.items() if a == x) for x in range(3)]
in_text = [sum(w for (_, t), w in found.items() if t == x) for x in range(3)]
table(["first token", "range", "items", "zip"],
      [[name, *(f"{share:.2f}" for share in shares)] for name, shares in {
          "drafted": q_first, "drafted and accepted": accepted, "in the text": in_text,
          "p_target": p_first}.items()])
assert accepted[2] == 0 and max(abs(a - b) for a, b in zip(in_text, p_first.tolist())) < 1e-6

# %% [markdown]
# *Answer:* after "range" and "items". Half of what the draft model writes continues after "zip",
# and none of that is ever judged. What was accepted is part of the text, and the text is the
# target's:
#
# **Claim.** A path of draft tokens is accepted with probability p_target(path) x the product of
# min(1, q_draft / p_target) along it.
#
# **Proof.** Each token is drawn with q and accepted with min(1, p / q). The product of the two is
# min(p, q) = p x min(1, q / p). Multiply along the path.
#
# Accepted prefixes are therefore the target's texts, with more weight where the draft model knows
# them well. Train on text that the target has written. Text by people is a substitute, and the
# better the more it is like the target's.
#
# ## Which loss?
#
# A *loss* is a number that tells how wrong the student is, and training makes it small. Total
# variation is what we pay for. Is it also what a draft model should be trained with?
# nanospec/methods/draft_models/losses.py has seven losses, and here are four of them by hand for
# one place. All are 0 where the two distributions are equal.

# %%
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
    of = {student: loss(p_three, q) for student, q in students.items()}
    assert all(abs(of[student] - LOSSES[name](log_p, logs[student])) < 1e-12 for student in of)
    prefers[name] = min(of, key=of.get)
    lines.append([name, f"{of['A']:.3f}", f"{of['B']:.3f}", prefers[name]])
table(["loss", "of A", "of B", "prefers"], lines)
print(f"alpha: A {1 - total_variation(p_three, students['A']):.3f}, "
      f"B {1 - total_variation(p_three, students['B']):.3f}")
assert prefers["forward-kl"] == "B" and prefers["total-variation"] == "A"

# %% [markdown]
# *Answer:* forward KL prefers B, and A has the higher alpha, .901 against .8. Forward KL punishes
# forgetting: a token with p_target .1 and q_draft .001 is a great surprise. For speculation it is a
# small matter, because that token comes once in ten places and is then replaced.
#
# So why not take total variation? Training follows the *gradient*, which tells how the loss changes
# if a logit grows a little. Let U be the tokens with q_draft < p_target, those that have too
# little.
#
# **Claim.** The gradient of alpha at logit j is q(j) x ([j is in U] - q(U)), where q(U) is the sum
# of q over U. (The bracket is 1 if true and 0 if not.)
#
# **Proof.** min(p, q) is q(x) where x is in U, and p(x) elsewhere, and p does not move. So alpha
# moves as q(U) does. If logit j grows, softmax moves q(x) by q(x) x ([x = j] - q(j)). The sum over
# U is q(j) x [j is in U] - q(U) x q(j).
#
# The gradient of forward KL is q(j) - p(j). We look at three places: one where the student is near,
# one where it is off, and one where it is far off. The number is the sum of the gradient's absolute
# values over all logits.
#
# *Guess first:* which loss pulls the student hardest where it is far off, as it should?

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
# little for a long time. Near the target it is the other way round. Minus log alpha divides by
# alpha, so it pulls harder where little is accepted.
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
    fit_alpha[name] = alpha_of(two_humps.exp(), tried[best].exp()).item()
    lines.append([name, *choices[best], f"{fit_alpha[name]:.3f}"])
table(["loss", "middle", "width", "alpha"], lines)
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
def trained_student(name, steps=100, rate=1e-2):
    torch.manual_seed(0)
    student = Student()
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, 2 * (steps - step) / steps)
        some = torch.arange(4 * step, 4 * step + 4) % len(tokens)       # four windows a step
        optimizer.zero_grad()
        LOSSES[name](p_target[some], student(tokens[some]).log_softmax(-1)).mean().backward()
        optimizer.step()
    return student


trained = {"untrained": alpha_on_target_text(Student())}
for name in "forward-kl", "total-variation", "minus-log-alpha":
    trained[name] = alpha_on_target_text(trained_student(name))
table(["trained with", "alpha"], [[name, f"{alpha:.3f}"] for name, alpha in trained.items()])
worst, *_, best = sorted(list(trained.values())[1:])
print(f"training brings {worst - trained['untrained']:.3f} or more, "
      f"the choice of the loss {best - worst:.3f}")
assert worst > trained["untrained"] + .05 and best - worst < .1

# %% [markdown]
# *Answer:* less than that it is trained at all. Compare the last two numbers: training matters
# most, and the choice of the loss matters less. Total variation was not slow here. AdamW makes
# large steps of small gradients, and a new student is flat, so it is not yet sure of wrong tokens.
# LK losses (arXiv 2602.23881) begin near forward KL and go over to total variation as alpha grows.
# The last phase of `train_tiny.py` is by total variation; `python -m training NAME --loss LOSS`
# trains the other draft models by any of them.
#
# ## When the text changes
#
# A draft model was trained on some text, and then its users ask for another one. Acceptance
# *drifts*: it falls, while the text stays right, so no reader notices. But a server gets, for
# nothing, what is needed to learn the new text: after each draft token it has the target's whole
# distribution. So it can keep the places of rejected draft tokens with their p_target, and train
# the draft model on these now and then (Liu et al. 2023, *Online speculative decoding*).
#
# Our student learns code, and then docstrings come in, four texts at a time. (The first column and
# the last are of code that it has learned from.) We measure alpha on each batch before anything is
# learned from it.
#
# *Guess first:* how much of what is lost does training on the rejected places bring back, and what
# becomes of the code?

# %%
def served(student, texts, log_p, learns):
    """alpha on each batch of four texts, as they come; after each, 3 training steps or none."""
    optimizer, alphas = torch.optim.AdamW(student.parameters(), lr=4e-3), []
    chance = torch.Generator().manual_seed(0)
    for some in range(0, len(texts), 4):
        batch, wanted = texts[some:some + 4], log_p[some:some + 4]
        log_q = student(batch).log_softmax(-1)
        alphas.append(alpha_of(wanted.exp(), log_q.exp()).mean().item())
        x = torch.multinomial(log_q.exp().flatten(0, 1), 1, generator=chance)       # drafted
        ratio = (wanted - log_q).flatten(0, 1).gather(-1, x).exp()
        rejected = (torch.rand(ratio.shape, generator=chance) > ratio).view(batch.shape)
        for _ in range(3 * learns):
            log_q = student(batch).log_softmax(-1)[rejected]
            optimizer.zero_grad()
            LOSSES["forward-kl"](wanted[rejected], log_q).mean().backward()
            optimizer.step()
    return alphas


docstrings = ["\n".join(re.findall(r'"""(.+?)"""', text, re.S)) for text in train_texts]
ids = [tokenizer.encode(text[:2500])[:128] for text in docstrings if len(text) > 3500]
others = torch.tensor([some for some in ids if len(some) == 128][:80])
with torch.no_grad():
    p_others = target(others).log_softmax(-1)

# %%
lines, drift = [], {}
for name, learns in ("as it was", False), ("trained on what was rejected", True):
    student = trained_student("forward-kl")
    on_code = served(student, tokens[:16], p_target[:16], False)
    alphas = served(student, others, p_others, learns)
    code_after = served(student, tokens[:16], p_target[:16], False)
    drift[name] = [sum(part) / len(part) for part in (on_code, alphas[:4], alphas[-4:], code_after)]
    lines.append([name, *(f"{alpha:.2f}" for alpha in drift[name])])
table(["the student is", "code", "docstrings, at first", "at the end", "code, afterwards"], lines)
assert drift["as it was"][0] > drift["as it was"][1] + .1
assert drift["trained on what was rejected"][2] > drift["as it was"][2] + .03

# %% [markdown]
# *Answer:* a part of it, within a few texts, and the code loses more than that. A server could mix
# old text in, or keep a draft model for each kind. It is safe to try: a worse draft model costs
# speed and is seen in alpha, and the text is the target's all the time. That is also the reason to
# watch alpha: the text does not tell that it has drifted.
#
# ## Three things to know
#
# 1. Teach the target's probabilities and not single tokens, on the target's texts: accepted
#    prefixes are the target's.
# 2. What counts is alpha, but total variation hardly pulls a student that is far off. A small
#    student must choose: forward KL covers everything, and total variation takes what is accepted
#    most often.
# 3. Training changes the speed and never the text. Training at all matters more than the choice of
#    the loss, and where the text changes, the rejected places are what to learn from.
#
# ## Change this and run again
#
# 1. Let people write [.5, .3, .1, .1]. Which alpha do infinitely many looks reach now?
# 2. Let p_first be [.5, .4, .1]. How often is "zip" accepted now, and how often does it stand in
#    the text?
# 3. Give the humps the weights .5 and .5, and the width 4 to both. Which fits move?
# 4. Add "reverse-kl" to the losses of the real student. Where does it stand?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Many requests* puts several texts into one batch.
