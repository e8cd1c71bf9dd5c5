# %% [markdown]
# # What to train on
#
# **What should a draft model be taught, and on which text?**
#
# *Good where it matters* measured a draft model that already existed. Now we want to make a better
# one. At each place, a draft token is accepted with probability sum min(p_target, q_draft), which
# is 1 - total variation. Earlier lessons called this beta, and alpha the mean of beta over many
# places. Here we look at one place at a time, where the two are the same number, and write alpha.
#
# A small model, the student, learns from a big one, the target. This is called *distillation*
# (DistillSpec, arXiv 2310.08461).
#
# Two questions come first: should the student see tokens or probabilities, and after which texts?

# %%
import torch
from torch import nn

import figures
from kit import OneRow, table
from nanospec import Draft
from nanospec.proof.walk import walk
from nanospec.speculate import verify

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


rows = []
for looks in 1, 10, 100:
    of_target, of_people = after_looks(p_four, looks), after_looks(people, looks)
    rows.append([looks, f"{of_people:.2f}", f"{of_target:.2f}", "1.00"])
rows.append(["all", f"{alpha_of(p_four, people):.2f}", "1.00", "1.00"])
table(["looks", "people's tokens", "the target's tokens", "the target's probabilities"], rows,
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
figures.what_to_train_on(["range", "items", "zip"], q_first.tolist(), accepted, in_text)

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
# them well. Train on text that the target has written. Text by people is a close substitute if the
# target was trained on such text. The draft model's own text has prefixes that are never judged.
# (Papers still mix some of it in, because it shows the student its own likely mistakes.)
#
# The generated text does not depend on any of this. Whatever the student has learnt, accept or
# replace gives the target's distribution.
#
# ## Three things to know
#
# 1. alpha is 1 - total variation, so teach the target's probabilities and not single tokens.
# 2. Accepted prefixes are the target's texts, so train on the target's texts.
# 3. Training changes the speed and never the text.
#
# ## Change this and run again
#
# 1. Let people write [.5, .3, .1, .1]. Which alpha do infinitely many looks reach now?
# 2. Let p_first be [.5, .4, .1]. How often is "zip" accepted now, and how often does it stand in
#    the text?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A loss for a draft model* asks which loss to minimise.
