# %% [markdown]
# # A model that people know
#
# **Does speculation pay on a model that somebody else trained?**
#
# Our own pair is small enough to be trained in minutes on a GPU, and so it is a hard case: a call
# of so small a target spends much of its time on something else than reading weights. Here the
# target is SmolLM2-135M-Instruct, a chat model of thirty layers with 49,152 tokens. Others trained
# it, on two trillion tokens (Allal et al. 2025, arXiv 2502.02737). It came without a draft model,
# so we trained one on nothing but conversations that the target wrote itself.
#
# The rule of verification stays as it was in *Accept or replace*, to the letter. What changes is
# the size of the numbers. We use *How fast* and *Copying from the past*.

# %%
import sys
from statistics import mean

import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.bench.prompts import CHAT
from nanospec.cli.bench.question_file import read_questions
from nanospec.cli.bench.questions import ids_of
from nanospec.cli.quantities import betas_of
from nanospec.errors import NanospecError
from nanospec.fast.autotune import autotune
from nanospec.files import load_pair
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)
try:
    target, draft_model, tokenizer = pair = load_pair("smollm2")
except NanospecError as error:
    sys.exit(f"This lesson needs a model of others. {error}")
how = autotune(target, draft_model)
print(f"{target.config.layers} layers, {target.config.vocab_size:,} tokens; {how}")

# %% [markdown]
# ## What a draft token costs
#
# The cost c is the time of a draft step divided by the time of a plain step of the target, and v(m)
# is the time of a call on m tokens in the same unit. We measure both for this pair and for our own,
# whose target has fewer and smaller layers. *Guess first:* does the larger target raise or lower
# them?

# %%
GAMMA = 4
ours, lines = load_pair(), []
autotune(ours.target, ours.draft_model)
measured = {"SmolLM2": measure_costs(target, draft_model, [2, 3, 5, 9], turns=5),
            "our own": measure_costs(ours.target, ours.draft_model, [2, 3, 5, 9], turns=5)}
for (name, costs), both in zip(measured.items(),
                               ((target, draft_model), (ours.target, ours.draft_model))):
    count = [sum(p.numel() for p in model.parameters()) for model in both]
    lines.append([name, *(f"{number:,}" for number in count), f"{costs.c:.2f}",
                  *(f"{costs.v[m]:.2f}" for m in costs.v)])
costs = measured["SmolLM2"]
table(["pair", "target", "draft model", "c", *(f"v({m})" for m in costs.v)], lines,
      "parameters of both, and what a draft step and a call on m tokens cost, in plain steps")

# %% [markdown]
# *Answer:* neither by itself. c is roughly the draft model's weights divided by the target's,
# because the time of a step goes into reading weights. To start a small operation takes time, too,
# and a large target hardly feels it. On a quiet AMD core, SmolLM2 in bfloat16 had a v(5) of .98,
# and in float16 of 1.48, so v(m) depends less on the model than on how the weights are kept. A
# v(5) of 1 can have two reasons. A good one: reading takes all the time, and five tokens need the
# same weights as one. A bad one: the product for one token is badly made, and takes as long as that
# for five. In bfloat16 it was the bad one, for a step took 30.3 ms there and 20.2 in float16. A
# slow baseline flatters. (On a machine that others use at the same time, single figures may be far
# off.)
#
# ## What is easy to foresee
#
# Three requests of different kinds: a story, a question about a text, and a text to be rewritten.
# The target answers each of them twice at temperature 0: once with the draft model, and once with
# copies from the request and from the answer so far.
#
# *Guess first:* on which request does the draft model help most? On which do the copies?

# %%
NEW = 64
asked = [ids_of(tokenizer, question.turns) for question in read_questions(CHAT).each]
chosen = {"story": asked[2], "question": asked[16], "rewriting": asked[9]}
found, betas, rounds_of = [], {}, {}
for kind, ids in chosen.items():
    calls = {}
    for name, drafter in (("draft model", ModelDrafter(draft_model, GAMMA)),
                          ("copies", SuffixDrafter())):
        rounds = list(speculate(target, drafter, ids, NEW, temperature=0, stop=tokenizer.ends))
        calls[name], rounds_of[kind, name] = len(tokens_of(rounds)) / len(rounds), rounds
    betas[kind] = [mean(column) for column in betas_of(rounds_of[kind, "draft model"])]
    gain = calls["draft model"] / (GAMMA * costs.c + costs.v[GAMMA + 1])
    found.append([kind, f"{calls['draft model']:.2f}", f"{calls['copies']:.2f}", f"{gain:.2f}"])
    both = zip(*(tokens_of(rounds_of[kind, name]) for name in calls))
    found[-1].append(next((i for i, (a, b) in enumerate(both) if a != b), "all"))
table(["request", "tokens per call: draft model", "copies", "draft model: expected speed-up",
       "tokens that agree"], found)
shown = "".join(f"[{tokenizer.decode(done.emitted)}]"
                for done in rounds_of["story", "draft model"][:14])
print(f"\nthe story begins, a bracket for each call: {shown}")
figures.a_model_that_people_know(betas, {
    line[0]: (float(line[1]), float(line[2])) for line in found})

# %% [markdown]
# *Answer:* the copies help most where a text is rewritten. The draft model helps everywhere, and
# least in the story.
#
# The last column counts the tokens up to the first one in which the two answers differ. In exact
# arithmetic they never would. If the first line above says bfloat16, a number keeps 8 binary digits
# here, and a call on five tokens adds in a different order than a call on nine, so a near tie may
# fall either way. If it says float16, only the weights are rounded, and the arithmetic is that of
# float32: the answers agree.
#
# A language model finds some words easy and others hard. The end of a phrase, a full stop, or the
# second half of a name is easy, and a small model foresees it. The first word of a new thought is
# hard even for the target. A rewritten text is easy for a drafter that may look at the original,
# and that is what the copies do.
#
# ## A draft model that speaks a sixth of the vocabulary
#
# The output head is the largest part of a small draft model. With all 49,152 tokens it would have
# 28 million weights, nearly four times as many as everything else. So it has scores for 8,192
# tokens alone, the most frequent ones in the target's own texts.
#
# *Guess first:* the target may write any of its tokens. What happens when it writes one that the
# draft model does not have?

# %%
ids = torch.tensor(sum((tokens_of(rounds_of[kind, "draft model"]) for kind in chosen), []))
known = torch.isin(ids, draft_model.ids).float().mean().item()
spoken = len(draft_model.ids)
print(f"\n{spoken:,} tokens: {spoken / target.config.vocab_size:.0%} of the vocabulary, and "
      f"{known:.1%} of the answers above")


class Without:
    """A draft model that can draft the first tokens of its vocabulary alone."""

    def __init__(self, model, spoken):
        self.model, self.spoken = model, spoken

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *args, **kwargs):
        logits = self.model(*args, **kwargs)
        logits[..., self.spoken:] = float("-inf")
        return logits


small, silent = TableModel(5, 1), Without(TableModel(5, 2), 3)
right = target_distribution(small, [1], 3)
drafted, paths = walk(lambda dice: tuple(tokens_of(
    speculate(small, ModelDrafter(silent, 2), [1], 3, dice=dice))))
off, _ = distance(drafted, right)
print(f"a target of 5 tokens, a draft model of 3: off by {off:.1e} in {paths:,} paths to "
      f"{len(right)} texts")
assert off < 1e-12

# %% [markdown]
# *Answer:* nothing happens. A token that is never drafted has q_draft = 0, so the residual
# distribution keeps all of its probability, and the replacement is drawn from there. A missing
# token costs a rejected draft, and never exactness. The walk over all paths of a small case shows
# it.
#
# ## Three things to know
#
# 1. c is about the draft model's share of the weights. v(m) is low where a plain step does nothing
#    but read the weights, and it is also low where a plain step wastes time.
# 2. How much is accepted depends on the text. Answers that copy gain most, stories least.
# 3. What the draft model cannot say costs speed alone, because q_draft is 0 there.
#
# ## Change this and run again
#
# 1. Set the temperature to 1. Which of the three requests loses most tokens per call?
# 2. Set GAMMA to 2 and to 8. What does the expected speed-up say, and what does `nanospec bench
#    speed --weights smollm2 --prompts chat` measure?
# 3. Ask something of your own: `nanospec chat` shows which tokens were drafted.
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# This is the last lesson; the appendix is for those who need one of its lessons. Where to go from
# here? Read `nanospec/speculate.py` from top to bottom, judge another program's sampler
# (docs/JUDGE.md), or write a drafter of your own (docs/CONTRIBUTING.md).
