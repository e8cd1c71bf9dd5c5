# %% [markdown]
# # What to train on
#
# **What should a draft model be taught, and on which text?**
#
# *Good where it matters* measured a draft model that already existed. Now we want to make a better
# one. At each place, a draft token is accepted with probability sum min(p_target, q_draft). Earlier
# lessons called this beta. Its mean, over places or over students, is alpha, and alpha is what we
# measure here.
#
# A small model, the student, learns from a big one, the target. This is called *distillation*
# (DistillSpec, arXiv 2310.08461). Should the student see tokens or probabilities, and after which
# texts? (What it should try to make small is the question of *Which loss*.)

# %%
import re

import torch
from torch import nn

import figures
from kit import OneRow, table, windows
from student import trained_student
from nanospec import Draft
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.losses import LOSSES
from nanospec.proof.walk import walk
from nanospec.speculate import verify
from nanospec.theory import acceptance

torch.set_num_threads(1)                                    # nothing is timed here

# %% [markdown]
# ## Tokens or probabilities?
#
# A language model is usually trained on tokens: "range" stands here, so make "range" likelier. That
# is cross-entropy with a single token as the label. But the draft model has a teacher: the target
# gives a probability to every token at every place. Take four tokens:
#
# | token               | range | items | zip | def |
# |---------------------|-------|-------|-----|-----|
# | p_target            | .5    | .3    | .15 | .05 |
# | one text            | 0     | 1     | 0   | 0   |
# | many texts by people | .4   | .2    | .2  | .2  |
#
# A student that may only count tokens learns the shares of what it has seen. After one look at the
# target's own tokens its alpha is .5 x .5 + .3 x .3 + .15 x .15 + .05 x .05 = .365, on average.
# After many looks it is better, but texts by people are not the target's texts.
#
# *Guess first:* after infinitely many looks at each kind of text, what is alpha?

# %%
p_four = torch.tensor([.5, .3, .15, .05])
people = torch.tensor([.4, .2, .2, .2])


def after_looks(source, looks):
    """Mean alpha of a student that counts `looks` tokens drawn from source, over 4,000 students."""
    chance = torch.Generator().manual_seed(looks)
    seen = torch.multinomial(source, 4000 * looks, replacement=True, generator=chance)
    counts = nn.functional.one_hot(seen.view(4000, looks), 4).sum(1) / looks
    return acceptance(p_four, counts).mean().item()


lines = []
for looks in 1, 10, 100:
    of_target, of_people = after_looks(p_four, looks), after_looks(people, looks)
    lines.append([looks, f"{of_people:.2f}", f"{of_target:.2f}", "1.00"])
itself = f"{acceptance(p_four, p_four):.2f}"
lines.append(["all", f"{acceptance(p_four, people):.2f}", itself, itself])
table(["looks", "people's tokens", "the target's tokens", "the target's probabilities"], lines,
      "alpha of what was learnt at one place")
assert abs(after_looks(p_four, 1) - .365) < .02 and abs(acceptance(p_four, people) - .8) < 1e-6

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
# ## When the text changes
#
# A draft model was trained on some text, and then its users ask for another one. Acceptance
# *drifts*: it falls, while the text stays right, so no reader notices. But a server gets, for
# nothing, what is needed to learn the new text: after each draft token it has the target's whole
# distribution. So it can keep the places of rejected draft tokens with their p_target, and train
# the draft model on these now and then (Liu et al. 2023, *Online speculative decoding*).
#
# Our student looks at the last two tokens and at nothing else (`Student`, in student.py). It learns
# code, and then docstrings come in, four texts at a time. (The table's first column and its last
# are of code that it has learned from.) To save time we play no rounds: at every place of a text
# the student drafts one token, and a coin judges it. We measure alpha on each batch before anything
# is learned from it.
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
        alphas.append(acceptance(wanted.exp(), log_q.exp()).mean().item())
        x = torch.multinomial(log_q.exp().flatten(0, 1), 1, generator=chance)       # drafted
        ratio = (wanted - log_q).flatten(0, 1).gather(-1, x).exp()
        rejected = (torch.rand(ratio.shape, generator=chance) > ratio).view(batch.shape)
        for _ in range(3 * learns):
            log_q = student(batch).log_softmax(-1)[rejected]
            optimizer.zero_grad()
            LOSSES["forward-kl"](wanted[rejected], log_q).mean().backward()
            optimizer.step()
    return alphas


target, _, tokenizer = load_pair()
train_texts, _ = read_texts()
tokens = windows(tokenizer, train_texts, 48)
docstrings = ["\n".join(re.findall(r'"""(.+?)"""', text, re.S)) for text in train_texts]
ids = [tokenizer.encode(text[:2500])[:128] for text in docstrings if len(text) > 3500]
others = torch.tensor([some for some in ids if len(some) == 128][:80])
with torch.no_grad():
    p_target, p_others = target(tokens).log_softmax(-1), target(others).log_softmax(-1)

# %%
lines, drift, fallen = [], {}, {}
for name, learns in ("as it was", False), ("trained on what was rejected", True):
    student = trained_student(tokens, p_target, "forward-kl", steps=100, rate=1e-2)
    on_code = served(student, tokens[:16], p_target[:16], False)
    fallen[name] = alphas = served(student, others, p_others, learns)
    code_after = served(student, tokens[:16], p_target[:16], False)
    drift[name] = [sum(part) / len(part) for part in (on_code, alphas[:4], alphas[-4:], code_after)]
    lines.append([name, *(f"{alpha:.2f}" for alpha in drift[name])])
table(["the student is", "code", "docstrings, at first", "at the end", "code, afterwards"], lines)
assert drift["as it was"][0] > drift["as it was"][1] + .1
assert drift["trained on what was rejected"][2] > drift["as it was"][2] + .03
figures.what_to_train_on(drift["as it was"][0], fallen)

# %% [markdown]
# *Answer:* a part of it, after eighty texts. On code the student then loses more than it has won
# back on docstrings. A server could mix old text in, or keep a draft model for each kind. It is
# safe to try: a worse draft model costs speed and is seen in alpha, and the text is the target's
# all the time. That is also the reason to watch alpha: the text does not tell that acceptance has
# drifted.
#
# ## Three things to know
#
# 1. Teach the target's probabilities and not single tokens: one look at them tells everything.
# 2. A draft token is judged only after an accepted prefix, which is the target's text. So train on
#    what the target has written.
# 3. Training changes the speed and never the text. Where the text changes, alpha falls and no
#    reader sees it. The rejected places, with their p_target, are a text to learn from.
#
# ## Change this and run again
#
# 1. Let people write [.5, .3, .1, .1]. Which alpha do infinitely many looks reach now?
# 2. Let p_first be [.5, .4, .1]. How often is "zip" accepted now, and how often does it stand in
#    the text?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Many requests* puts several texts into one batch.
