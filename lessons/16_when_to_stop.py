# %% [markdown]
# # 16. When to stop
#
# **How far ahead should one guess, now, here?**
#
# Lesson 9 had one gamma for all places, lesson 10 found that places differ. So let the length be decided as the chain
# grows: what may such a rule look at without spoiling the text, and what tells it that one more guess is worth it?

# %%
import inspect

import torch

from kit import AMBER, BLUE, FAINT, GREEN, INK, OneRow, picture, save, table
from nanospec import load_pair
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.stopping import Confidence, Entropy, Goodput, Heuristic
from nanospec.fast.autotune import settle
from nanospec.fast.clock import step_seconds
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)            # as in lessons 9 and 12

# %% [markdown]
# ## What may one look at?
#
# A rule that dislikes a guess can *stop behind it*, or *throw it away* and stop. A place without a guess gets its token
# from the target's own law: how could a guess less do harm? Walk three tokens, in as many rounds as they take.

# %%
big, small = TableModel(3, seed=3), TableModel(3, seed=4)


def round_by_hand(text, dice, dislikes, throw_away):
    """What a round of up to two guesses adds to the text: guesses that stand, and one token of the target's."""
    for place in range(2):
        p_target, q_draft = [probs(model(torch.tensor([text]))[0, -1]) for model in (big, small)]
        x = dice.pick(q_draft)
        stands = dice.flip(p_target[x] / q_draft[x])
        if throw_away and dislikes(q_draft, x, stands):                                                     # NEW
            break
        if not stands:
            return text + [dice.pick((p_target - q_draft).clamp(min=0))]
        text = text + [x]
        if dislikes(q_draft, x, stands):                                                                    # NEW
            break
    return text + [dice.pick(probs(big(torch.tensor([text]))[0, -1]))]


def three_tokens(dice, text, *rule):
    return tuple(text[2:5]) if len(text) > 4 else three_tokens(dice, round_by_hand(text, OneRow(dice), *rule), *rule)


print("a guess is disliked because            one stops behind it        one throws it away")
for why, dislikes in {"the draft gave it less than .35": lambda q_draft, x, stands: q_draft[x] < 0.35,
                      "it is token 0": lambda q_draft, x, stands: x == 0,
                      "its coin fell": lambda q_draft, x, stands: not stands,
                      "no token there had .5": lambda q_draft, x, stands: q_draft.max() < 0.5}.items():
    off = [distance(walk(lambda dice: three_tokens(dice, [0, 1], dislikes, throw_away))[0],
                    target_distribution(big, [0, 1], 3))[1] for throw_away in (False, True)]
    print(f"{why:38}", *(f"{'off by nothing' if far < 1e-12 else f'off by {far:.3f}':26}" for far in off))

# %% [markdown]
# Thrown away *for what it is*, a guess is missed: tokens that the rule likes come too often. (For its coin: that is an
# old acquaintance, the replacement drawn from all of p_target.) The lemma, in nanospec/drafters/dynamic.py: whether a
# place has a guess must be settled before that guess and its coin are thrown; all else may be looked at. So keep what
# you dislike, and stop behind it.
#
# ## Is one more guess worth its time?
#
# It brings a token if it stands and all before it do. A draft knows how *sure* it was of a guess: the probability that
# it gave it. Count how often guesses so sure stand (in earlier rounds: the past may be looked at), and multiply; the
# last factor is alpha. It costs c and a row more in the pass; that time would have brought something elsewhere: `rate`,
# the tokens that good rounds make of a target step. Go on if one more brings more than that, or several do.

# %%
target, draft, tokenizer = load_pair()
settle(target, draft, [torch.float32])      # in bfloat16 a longer pass rounds to another text now and then (lesson 8)
tries = [[step_seconds(model, m, 64, repeats=1) for model, m in [(draft, 1), *((target, m) for m in range(1, 10))]]
         for turn in range(4)]
draft_step, *passes = map(min, zip(*tries))                                 # a pass is never dearer than a longer one:
c, v = draft_step / min(passes), {m: min(passes[m - 1:]) / min(passes) for m in range(1, 10)}
print(f"\nhere c = {c:.2f}, v(2) = {v[2]:.2f}, v(5) = {v[5]:.2f}, v(9) = {v[9]:.2f}; whether Goodput goes on:\n")
print(inspect.getsource(Goodput.goes_on))

# %% [markdown]
# Three rules in use beside it: a *heuristic*, two more than last time if all stood, else one fewer; *confidence*, which
# stops behind a guess of less than .2; *entropy* (arXiv 2410.18351), which draws none where the draft is undecided. At
# temperature 0 all write one text and differ in cost. A gamma needs no run: where is the draft's likeliest token right?

# %%
prompts = [tokenizer.encode(text) for text in ("import os\nfor i in", "class Stack:\n    def ",
                                               "    assert square(1) == 1\n" * 3)]
rules = {"heuristic": Heuristic(), "confidence": Confidence(), "entropy": Entropy(), "goodput": Goodput(c, v)}
runs = {name: [list(speculate(target, DynamicDrafter(draft, rule, 8), ids, 72, temperature=0)) for ids in prompts]
        for name, rule in rules.items()}
texts = [tokens_of(rounds) for rounds in runs["goodput"]]
assert all(tokens_of(rounds) == text for run in runs.values() for rounds, text in zip(run, texts))
right = [(draft(torch.tensor([ids + text]))[0, len(ids) - 1:-1].argmax(-1) == torch.tensor(text)).tolist()
         for ids, text in zip(prompts, texts)]


def calls(right, gamma):
    """Target calls for a text with a fixed gamma: right, wrong, right, right make two with gamma 2."""
    return 1 + calls(right[(right[:gamma] + [False]).index(False) + 1:], gamma) if right else 0


spent = {f"gamma {gamma}": [(n := calls(places, gamma), n * gamma, n * (gamma * c + v[gamma + 1])) for places in right]
         for gamma in range(1, 9)}                              # of each prompt: target calls, draft steps, cost
best = [min(cost for *_, cost in each) for each in zip(*spent.values())]
for name, run in runs.items():
    spent[name] = [(len(rounds), sum(done.steps for done in rounds),
                    sum(done.steps * c + v[len(done.tokens)] for done in rounds)) for rounds in run]
means = {name: torch.tensor([*map(sum, zip(*each)), len(sum(texts, []))]) / len(each) for name, each in spent.items()}
means = {name: mean / mean[0] for name, mean in means.items()}
table(["rule", "draft steps", "cost", "tokens", "tokens / cost", "worst prompt"],
      [[name, *(f"{number:.2f}" for number in (*means[name][1:], means[name][3] / means[name][2])),
        f"{min(least / cost - 1 for least, (*_, cost) in zip(best, each)):+.0%}"] for name, each in spent.items()],
      "means of a round; worst prompt: against the gamma that was best for it")
figure, (axes,) = picture("16. when to stop", 1)
axes.plot(*zip(*[means[f"gamma {gamma}"][2:] for gamma in range(1, 9)]), color=FAINT, marker="o", label="gamma 1 to 8")
for name, colour in zip(runs, (AMBER, BLUE, INK, GREEN)):
    axes.plot(*means[name][2:], color=colour, marker="D", markersize=9, linestyle="", label=name)
axes.axline((0.8 * means["goodput"][2:]).tolist(), means["goodput"][2:].tolist(), color=GREEN, ls=":", label="its pace")
axes.set(xlabel="cost of a round, in target steps", ylabel="tokens of a round")
axes.legend(frameon=False, loc="lower right")
save(figure, "16_when_to_stop")

# %% [markdown]
# So a length may be decided place by place, from all that is known before the guess is. Which rule pays is a matter of
# costs: `entropy` looks before it draws, and has paid for the look; `goodput` knows the prices, and counts.
#
# **Change this and run again.** `c = 0.4` behind its line, a dear draft: who still guesses far, at what cost? Is there
# one threshold for both prices, `Confidence(0.05)` or `Confidence(0.5)`? In the walk, dislike every guess but the
# likeliest, `x != q_draft.argmax()`: is not what is left the best of the draft?
#
# This was the last lesson; your own pair is next (`train_tiny.py`). Exercises: 16 (which stopping rules are lossless).
