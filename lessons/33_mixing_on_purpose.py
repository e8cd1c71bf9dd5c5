# %% [markdown]
# # Mixing on purpose
#
# **Must every token be the target's?**
#
# Until now the text was exactly the target's. That is a strong promise, and sometimes too strong.
# Where the small model is sure of itself, its token may be good enough. Then fewer draft tokens are
# rejected and the text comes faster, but it has a different distribution. A rule that gives up the
# promise is called *lossy*.
#
# This lesson has two kinds. Rules of the first kind accept what is likely enough, and their text
# has no distribution that could be stated in advance. The second kind, *cascades*, state their
# distribution beforehand and are exact for it.
#
# We need *Accept or replace*, the bonus token, and top-p.

# %%
import torch

import figures
from cascade import DEFERRALS, cascade
from kit import OneRow, table
from lossy_rules import forgiving, lenient, relaxed, typical
from oracles import Mixture
from nanospec import Draft, ModelDrafter
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of, verify
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, draft_model, tokenizer = load_pair()

# %% [markdown]
# ## Likely enough
#
# Medusa's authors went on to a rule without coins, *typical acceptance*: a draft token is accepted
# if the target finds it likely enough. The threshold is min(.09, .3 x exp(-entropy of p_target)).
# The entropy is -sum p log p, which is large where many tokens are about equally likely. So the
# threshold is lower where the target itself is unsure.
#
# A draft token that passes is written for certain, whereas the target would write it only with
# probability p_target(x). At this place the distribution is therefore off by 1 - p_target(x).
#
# *Guess first:* p_target is [.70, .20, .06, .04]. Which draft token does the greatest harm?

# %%
p_four = torch.tensor([.70, .20, .06, .04], dtype=torch.float64)
bar = min(0.09, 0.3 * float((p_four * p_four.log()).sum().exp()))


def one_place(x, dice):
    """Draft token x, judged by the rule itself -> the token written."""
    certain = torch.eye(4, dtype=torch.float64)[x]          # its q_draft: x was not drawn
    drafted = Draft(torch.tensor([[0, x]]), torch.stack([0 * certain, certain])[None])
    accepted, token = typical(drafted, p_four.expand(1, 2, 4), dice.dice)
    return x if int(accepted) else int(token)


lines = []
for x in range(4):
    written, _ = walk(lambda dice: one_place(x, OneRow(dice)))
    far = distance(written, dict(enumerate(p_four.tolist())))[1]
    passes = bool(p_four[x] > bar)
    assert abs(far - passes * (1 - p_four[x])) < 1e-12
    lines.append([x, f"{p_four[x]:.2f}", "yes" if passes else "no", f"{far:.2f}"])
table(["draft token", "p_target of it", f"passes {bar:.2f}", "off by"], lines)

# %% [markdown]
# *Answer:* the least likely token that passes does the greatest harm. One that does not pass is
# replaced from p_target, and nothing is lost. (At temperature 0, p_target is 1 for one token, so 1
# - p_target(x) is 0 and the rule is exact.)
#
# The text depends on what happens to be drafted: a different draft model gives a different text.
#
# ## What they cost, and what they save
#
# Engines offer rules of this kind. Here are four, as lessons/lossy_rules.py has them:
#
# | rule | a draft token x is accepted |
# |---|---|
# | lenience | with min(1, p_target(x) / (l q_draft(x))), with an l below 1 |
# | typical | where p_target(x) is above the bar |
# | relaxed | if x is among the target's k likeliest, at most delta below the best |
# | forgiving | by its coin; or where the target is unsure and the next ones are accepted |
#
# Lenience is from Leviathan et al. 2022. The relaxed rule is TensorRT-LLM's, for what a model
# thinks before it answers. The forgiving one is FLy (2511.22972), proposed for vLLM.
#
# The price of such a rule is how far its text is from the target's. Papers give it as scores of
# tasks, which take days to measure. In tables of three tokens it is a total variation, with all
# paths walked. For comparison there are two exact rules for another target, cut off by top-k or
# top-p.
#
# *Guess first:* for which of them does the price depend on the draft model?

# %%
big, small, worse = (TableModel(3, seed, zeros=0.4) for seed in (8, 58, 59))
truth = target_distribution(big, [1, 0, 1], 3)


def priced(drafts, rule, **sampling):
    """-> the distribution of three tokens, its distance from the target's, and the mean calls."""
    def write(dice):
        rounds = list(speculate(big, ModelDrafter(drafts, 2), [1, 0, 1], 3, rule=rule, dice=dice,
                                **sampling))
        return tuple(tokens_of(rounds)), len(rounds)
    found, texts = walk(write)[0], {}
    for (text, _), share in found.items():
        texts[text] = texts.get(text, 0) + share
    return texts, distance(texts, truth)[1], sum(n * share for (_, n), share in found.items())


offers = {"accept or replace": (verify, {}), "lenience .8": (lenient(0.8, verify), {}),
          "typical": (typical, {}), "relaxed, k 2, delta .3": (relaxed, {}),
          "forgiving": (forgiving(1, 0.3, verify), {}),
          "top-p 0.9, exact": (verify, {"top_p": 0.9}), "top-k 2, exact": (verify, {"top_k": 2})}
prices = {name: [priced(drafts, rule, **sampling) for drafts in (small, worse)]
          for name, (rule, sampling) in offers.items()}
table(["rule", "off by", "calls", "with a worse draft: off by", "calls", "the two texts apart"],
      [[name, *(f"{number:.3f}" for found in both for number in found[1:]),
        f"{distance(*(found[0] for found in both))[1]:.3f}"] for name, both in prices.items()])
for name, (good, bad) in prices.items():
    lossless = "exact" in name or name == "accept or replace"
    assert (distance(good[0], bad[0])[1] < 1e-12) == (abs(good[1] - bad[1]) < 1e-12) == lossless

# %% [markdown]
# *Answer:* for all four that are lossy. What they write is partly the draft model's, so a worse
# draft model makes the text worse: its price is .09 to .27, and .01 to .13 with the better one.
# With an exact rule, a worse draft model only makes it slower. The two cut-off targets are off by
# .004 and .039 with any draft model, and what they write can be said in one sentence.
#
# `forgiving` costs least here and saves least, because it overrules few rejections, and none at the
# end of a draft. (Its window is one token here. Six is proposed for vLLM, in drafts of eight.)
#
# ## A rule that defers
#
# A cascade asks at every place whether the draft model may write or the target must. The rule that
# decides is called a deferral rule (Narasimhan et al. 2024). The simplest one is Chow's: where the
# draft model's best token has less than 1 - a, the target writes (a is a number that we choose). At
# any other place the draft model writes. So every place has a new distribution, the *mixture* pi,
# which is either q_draft or p_target.
#
# *Guess first:* at the three places of the next cell, with a = 0.3, which model writes where?

# %%
q_draft = torch.tensor([[0.90, 0.05, 0.05], [0.50, 0.30, 0.20], [0.75, 0.20, 0.05]])
p_target = torch.tensor([[0.80, 0.15, 0.05], [0.20, 0.70, 0.10], [0.10, 0.10, 0.80]])


def chow(q, p, a):
    """pi (..., V) of q_draft and p_target (..., V)."""
    defers = q.amax(-1, keepdim=True) < 1 - a
    return torch.where(defers, p, q)


pi = chow(q_draft, p_target, 0.3)
table(["place", "max q_draft", "writes", "overlap of p_target and q_draft", "of pi and q_draft"],
      [[i + 1, f"{q_draft[i].max():.2f}",
        "draft model" if torch.equal(pi[i], q_draft[i]) else "target",
        f"{acceptance(p_target[i], q_draft[i]):.2f}", f"{acceptance(pi[i], q_draft[i]):.2f}"]
       for i in range(3)])
assert torch.equal(pi, DEFERRALS["chow"](q_draft, p_target, 0.3))

# %% [markdown]
# *Answer:* the draft model, the target, the draft model.
#
# At the first place little is lost, because both models nearly agree. At the third the draft model
# is sure and wrong, and it writes all the same, because Chow's rule looks at q_draft alone. Other
# rules look at both, which is possible because the target's call gives p_target anyway. Here are
# five rules of lessons/cascade.py, which has one more (v2):
#
# | rule | the target writes |
# |---|---|
# | chow | where max q_draft < 1 - a |
# | diff | where max q_draft < max p_target - a |
# | opt | where max q_draft < max p_target - a x (1 - overlap of the two) |
# | v1 | in place of each token x with q_draft(x) < max p_target - a |
# | v3 | in place of each token x with p_target(x) < (1 - a) max p_target |
#
# The last two decide token by token. Take p_target [.2, .7, .1], q_draft [.6, .3, .1], v1 and a =
# .2. Tokens 1 and 2 are below .7 - .2 = .5. The draft model has .4 on them and hands this weight to
# the target. So pi = [.6, 0, 0] + .4 x [.2, .7, .1] = [.68, .28, .04], as in exercise 21.
#
# ## Speculation towards the mixture
#
# Accept or replace turns a draw from q_draft into a draw from any distribution. So we put pi in the
# place of p_target: accept x with min(1, pi(x) / q_draft(x)), and replace it from the residual of
# pi and q_draft. The text is then distributed exactly as pi. A cascade is exact for a stated
# mixture.
#
# One trap is left: the bonus token. If all draft tokens are accepted, one more must be drawn from
# pi. But pi after the last draft token needs q_draft there, and the draft model has not computed
# it. *Guess first:* what if we draw the bonus from p_target?

# %%
mixed = target_distribution(Mixture(big, small, lambda q, p: chow(q, p, 0.4)), [1, 0, 1], 3)


def naive(drafted, p, dice):
    """Chow's rule, and a bonus from the target."""
    q = torch.cat([drafted.q_draft[:, 1:], 0 * drafted.q_draft[:, :1]], 1)  # zeros after the last
    known = q.sum(-1, keepdim=True) > 0
    return verify(drafted, torch.where(known, chow(q, p, 0.4), p), dice)


off = {}
for name, rule in ("bonus from the target", naive), ("no bonus", cascade("chow", 0.4, verify)):
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(
        big, ModelDrafter(small, 2), [1, 0, 1], 3, rule=rule, dice=dice))))
    off[name] = distance(found, mixed)[1]
table(["rule", "off from the mixture"], [[name, f"{tv:.1e}"] for name, tv in off.items()])
assert off["no bonus"] < 1e-12 < off["bonus from the target"]

# %% [markdown]
# *Answer:* with the target's bonus the text is neither the target's nor the mixture's. `cascade`
# leaves the bonus out, and the round ends with the last draft token if all are accepted.
#
# ## What is the text worth?
#
# This needs no dice. Take held-out text, and ask at every place which probability a distribution
# gives to the token that the author wrote there. The mean tells how often the next token would be
# the author's. The overlap of pi with q_draft tells how often a draft token is accepted.
#
# For comparison we take the target alone, and the target with top-p 0.9, which forbids unlikely
# tokens. With top-p, the draft model is warped in the same way.

# %%
texts = [tokenizer.encode(text[len(text) // 2:][:1600])[:257] for text in read_texts()[1]]
texts = torch.tensor([ids for ids in texts if len(ids) == 257][:16])
tokens, true = texts[:, :-1], texts[:, 1:, None]
with torch.inference_mode():
    p_all, q_all = (model(tokens).double().softmax(-1) for model in (target, draft_model))
cut = Sampling(1.0, top_p=0.9)
p_cut, q_cut = (cut(of.log().flatten(0, 1)).view_as(of) for of in (p_all, q_all))


def judged(written, q):
    """-> how often the author's token, how often a draft token is accepted."""
    return written.gather(-1, true).mean().item(), acceptance(written, q).mean().item()


found = {"the target": judged(p_all, q_all), "the target, top-p 0.9": judged(p_cut, q_cut)}
for rule, a in ("chow", 0.4), ("diff", 0.1), ("opt", 0.6), ("v1", 0.3), ("v3", 0.9):
    found[f"{rule}, a = {a}"] = judged(DEFERRALS[rule](q_all, p_all, a), q_all)
found["the draft model"] = judged(q_all, q_all)
table(["text from", "right", "accepted"],
      [[name, f"{right:.3f}", f"{accepted:.2f}"] for name, (right, accepted) in found.items()])

# %% [markdown]
# Nothing is free here: rules for a whole place (chow, diff, opt) buy acceptance with quality. Rules
# for every token (v1, v3) look better than the target itself, since they are right more often. But
# so is plain top-p, and that is exact for the distribution it states. Both make unlikely tokens
# rarer.
# Comparing a cascade at T = 1 with the target at T = 1 mistakes this effect for a gain.
#
# *Guess first:* is there a line that beats "the target, top-p 0.9" in both columns?

# %%
right, accepted = found["the target, top-p 0.9"]
better = [name for name, line in found.items() if line[0] > right and line[1] > accepted]
print(f"\nbetter than top-p 0.9 in both: {', '.join(better) or 'none'}")
thresholds = {"chow": (0.2, 0.4, 0.6, 0.8), "opt": (0.0, 0.3, 0.6, 1.0),
              "v3": (0.5, 0.8, 0.9, 0.97)}
chosen = {rule: {a: judged(DEFERRALS[rule](q_all, p_all, a), q_all) for a in some}
          for rule, some in thresholds.items()}
cuts = {}
for top_p in (1.0, 0.95, 0.9, 0.8, 0.7):
    cut = Sampling(1.0, top_p=top_p)
    cuts[top_p] = judged(*(cut(of.log().flatten(0, 1)).view_as(of) for of in (p_all, q_all)))
figures.mixing_on_purpose(chosen, cuts)

# %% [markdown]
# *Answer:* with the pair in the clone, none. The rule that comes nearest decides token by token:
# with v3 and a = 0.9 the text is right .527 of the time, where top-p has .531, and .69 of the draft
# tokens are accepted instead of .62. But a cascade has no bonus token. Up to gamma 3 its rounds
# bring fewer tokens than those of top-p, and at gamma 4 only a few more.
#
# ## Three things to know
#
# 1. Rules that accept what is likely enough write partly what the draft model would. Their price
#    depends on the draft model; typical acceptance is off by 1 - p_target(x) wherever x passes.
# 2. A cascade is speculation towards a mixture. It is exact for the mixture, and its text is not
#    the target's. A bonus token would have to come from the mixture, too.
# 3. Compare a lossy rule with the target under top-p, not with the target alone.
#
# ## Change this and run again
#
# 1. Write `typical(drafted, p_four.expand(1, 2, 4), dice.dice, most=0)` in `one_place`, and
#    `bar = 0`. Which draft tokens pass now? Which text would a drafter write with this rule?
# 2. In the table of three places take a = 0.05, then a = 0.6. At which places does another model
#    write?
# 3. Draw the bonus from the draft model: write `torch.where(known, chow(q, p, 0.4), q)` in `naive`.
#    Why does it fail?
# 4. Take T = 0.7 instead of 1: divide both logits by 0.7 before the softmax. What happens to the
#    distance between top-p 0.9 and the others?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* in *Copy or ask*, a copier and a draft model take turns. Exercises: 21 (a deferral rule).
