# %% [markdown]
# # Practice on its own drafts
#
# **How does a draft model learn to read its own predictions?**
#
# The layer of *Drafting hidden states* is trained on the target's hidden states. While it drafts,
# there are none after the text, so it reads its own predictions instead. It never practised that,
# and alpha falls along the draft.
#
# EAGLE-3 (Li et al. 2025, arXiv 2503.01840) practises it. Three things are changed:
#
# 1. The layer is *unrolled* in training: it reads its own states for some steps, and every step has
#    a loss. The paper calls this *training-time test*.
# 2. There is no loss on hidden states. What the layer passes on need not resemble the target's.
# 3. It reads three layers of the target, not only the last, and a matrix makes one state of them.
#
# This lesson is about the first of them. (The head that makes a distribution of its state is its
# own, too, and begins as the target's.)

# %%
import torch

import figures
from kit import along, of_target, table, train_layer, windows
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.eagle3 import Eagle3

torch.set_num_threads(1)                                    # nothing is timed here
target, prefix, tokenizer = load_pair(draft_model="prefix")
target.requires_grad_(False)
C, V, L = target.config.channels, target.config.vocab_size, target.config.layers

# %% [markdown]
# ## Which place may read which state?
#
# All places of a text are trained at once. Place i at step k stands for a draft that began at place
# i and has gone k tokens further: it reads token i + k of the text and predicts the next one. So
# step 0 trains draft token 1, from the target's hidden states, and step k trains draft token k + 1.
#
# A place attends to all places up to its own, as they were at step 0, and to itself at the steps 1
# to k. It must not attend to the predictions of another place, since these belong to another draft.
#
# *Guess first:* the mask of 4 places and 3 steps has 12 rows and 12 columns: the places of step 0,
# then those of step 1, then those of step 2. A row marks what it attends to. Draw it.

# %%
def mask_unrolled(places, steps):
    """[(k, i), (l, j)]: does place i at step k attend to place j at step l?"""
    mask = torch.zeros(steps * places, steps * places, dtype=torch.bool)
    for k in range(steps):
        for i in range(places):
            mask[k * places + i, :i + 1] = True                         # step 0, up to its own
            for own in range(1, k + 1):
                mask[k * places + i, own * places + i] = True           # itself, afterwards
    return mask


grid = mask_unrolled(places=4, steps=3)
for number, marks in enumerate(grid.tolist()):
    print(f"step {number // 4}, place {number % 4}: ", "".join(".#"[mark] for mark in marks))

# %% [markdown]
# *Answer:* the first four columns are filled up to the place itself, and after them one for each
# step of its own. (`Unrolled` in nanospec/methods/draft_models/unrolled.py computes attention
# under this mask.)
#
# ## With and without practice
#
# The same EAGLE-3 is trained twice from the same weights, on one step and unrolled over three. Both
# get 60 training steps, which take three times as long when unrolled. The texts are a few thousand
# tokens, so the heights are low, and what counts is how they change along the draft. `along` (in
# kit.py) measures alpha on held-out text for draft tokens 1 to 5.
#
# *Guess first:* which of the two is better at draft token 1, and which one at draft token 5?

# %%
train_texts, held_texts = read_texts()
tokens, held = windows(tokenizer, train_texts, 64), windows(tokenizer, held_texts, 12)
layers = [L // 4, L // 2, L - 1]
texts = tokens, *of_target(target, tokens, layers)
judged = held, *of_target(target, held, layers)


def new_eagle3(unrolled):
    torch.manual_seed(1)
    heads = target.config.heads, target.config.kv_heads
    model = Eagle3(V, C, layers, *heads, hidden=C, spoken=V).attach(target)
    model.head.weight.data.copy_(target.head.weight)    # its own head starts as the target's
    model.steps = unrolled
    return model

# %%
fall = {}
for name, unrolled, training_steps in ("EAGLE-3", 1, 60), ("EAGLE-3, unrolled", 3, 60):
    fall[name] = along(train_layer(new_eagle3(unrolled), texts, training_steps), judged)
fall["prefix, trained longer"] = along(prefix, (held, *of_target(target, held, prefix.layers)))
table(["alpha at draft token", "1", "2", "3", "4", "5", "left at 5"], [
    [name, *(f"{a:.3f}" for a in alphas), f"{alphas[4] / alphas[0]:.0%}"]
    for name, alphas in fall.items()])
left_at_5 = {name: alphas[4] / alphas[0] for name, alphas in fall.items()}
assert left_at_5["EAGLE-3, unrolled"] > left_at_5["EAGLE-3"] + .05
figures.practice_on_its_own_drafts(grid.tolist(), 4, fall)

# %% [markdown]
# *Answer:* the one of a single step is better at draft token 1, by a little, and the unrolled one
# at all others, also at 4 and 5, which it has not practised. Trained on one step, the layer may
# pass on whatever it likes and never had to read that itself. Unrolled, it has read its own states.
# `prefix` was unrolled in training as well, and trained far longer.
#
# (Do not compare these two with EAGLE in *Drafting hidden states*, which is above both: it began as
# the linear prediction, and they began from nothing. It also keeps 80% of its alpha without
# practice. Its loss makes it pass on states like the target's, and these it has learned to read.)
#
# ## Three things to know
#
# 1. A draft model that reads its own predictions should be trained on them.
# 2. In unrolled training, each place attends to the text up to its own place and to its own earlier
#    steps, and to no other draft.
# 3. Unrolled over three steps, training costs about three times as much. Drafting costs the same.
#
# ## Change this and run again
#
# 1. Print `mask_unrolled(5, 1)`. Where have you seen this mask before?
# 2. Give both the same computation: 180 training steps to the first and 60 to the second. Is
#    practice still worth it?
#
# The answers are in the file of the same name in `lessons/answers/`.
