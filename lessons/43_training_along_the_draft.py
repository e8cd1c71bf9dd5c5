# %% [markdown]
# # Training along the draft
#
# **Can a draft model be trained on the predictions that it will have to read?**
#
# EAGLE is trained on the target's hidden states, and while it drafts it reads its own predictions
# (*Drafting hidden states*). It never practised that. EAGLE-3 (arXiv 2503.01840) changes three
# things:
#
# 1. There is no loss on hidden states. What the layer passes on need not resemble the target's.
# 2. It reads three layers of the target, not only the last, and a matrix makes one state of them.
# 3. It is *unrolled* in training: the layer reads its own states for some steps, and every step has
#    a loss. The paper calls this *training-time test*.
#
# This lesson builds the attention mask that unrolling needs, and trains the same layer with and
# without it.

# %%
import torch

import figures
from kit import along, table, train_layer, windows
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.proof.tables import TableModel, small_learned
from nanospec.text import Text, prefill
from nanospec.training.unrolled import before_tokens, whole_texts

torch.set_num_threads(1)                                    # nothing is timed here
target, _, tokenizer = load_pair()
C, V, L = target.config.channels, target.config.vocab_size, target.config.layers
LAYERS = [L // 4, L // 2, L - 1]

# %% [markdown]
# ## A mask for many drafts at once
#
# All places of a text are trained at once. Place i at step k stands for a draft that began after
# place i, k tokens ago. It attends to
#
# - all places up to i, as they were at step 0: the text, read with the target's hidden states;
# - itself at the steps 1 to k: its own draft.
#
# It must not attend to the predictions of another place, since these belong to another draft.
#
# *Guess first:* draw the mask of 4 places and 3 steps, and mark where it is filled.


# %%
def mask_unrolled(places, steps):
    """Row (k, i) is place i at step k, so are the columns. True: the row attends to the column."""
    mask = torch.zeros(steps * places, steps * places, dtype=torch.bool)
    for k in range(steps):
        for i in range(places):
            mask[k * places + i, :i + 1] = True                         # step 0, up to its own
            for own in range(1, k + 1):
                mask[k * places + i, own * places + i] = True           # itself, afterwards
    return mask


grid = mask_unrolled(places=4, steps=3)
for row, marks in enumerate(grid.tolist()):
    print(f"step {row // 4}, place {row % 4}: ", "".join(".#"[mark] for mark in marks))

# %% [markdown]
# *Answer:* here a line is a place at a step, and the columns are the places of step 0, then those
# of step 1, and so on. The first columns are filled up to the place itself, and after them one for
# each step of its own.
#
# `Unrolled` in nanospec/training/unrolled.py computes attention under this mask. Does a draft that
# is made token by token attend to the same places? The library runs a draft model token by token
# with an object called a *reader*. The reader must predict what the unrolled layer predicts for a
# whole text. The reader's cache holds one draft, so there is no other one to look at. (`Text` holds
# the tokens of a text, and `prefill` lets the target read them. *Mistakes that no text shows* makes
# more of this check.)

# %%
table_model = TableModel(3, seed=5)
small, some_tokens = small_learned("eagle", table_model), torch.tensor([[0, 2, 1, 1, 0, 2]])
before = before_tokens(table_model(some_tokens, layers=small.layers)[1])
unrolled = whole_texts(small, some_tokens, before, 3)
for place in range(1, 4):                                   # the text ends there, and is drafted on
    begun, reader = Text(some_tokens[:, :place + 1].tolist(), 4, 3), small.reader(3)
    reader.begin(begun, [0], prefill(table_model, begun, layers=small.layers)[1])
    for k in range(3):
        logits = (reader.step(some_tokens[:, place + k, None], 6) if k else
                  reader.start(begun, reader.lag, 6))
        assert (logits[:, 0] - unrolled[k, :, place]).abs().max() < 1e-12

# %% [markdown]
# ## The same weights, trained twice
#
# Now we train EAGLE-3 twice from the same weights, on one step and unrolled over three. Three steps
# cost three times as much, so the second gets a third of the training steps. `windows`,
# `train_layer` and `along` (in kit.py) are those of *Drafting hidden states*: 128 tokens of a file,
# the same windows in the same order for every model, and alpha on held-out text for draft tokens 1
# to 5.
#
# *Guess first:* which of the two is better at draft token 1, and which one falls less?


# %%
@torch.no_grad()
def of_target(tokens):
    """Windows -> hidden states of three layers (B, T, 3, C), log-probabilities after each token."""
    logits, hidden = target(tokens, layers=LAYERS)
    return hidden, logits.log_softmax(-1)


train_texts, held_texts = read_texts()
tokens, held = windows(tokenizer, train_texts, 64), windows(tokenizer, held_texts, 12)
hidden, p_target = of_target(tokens)
held_hidden, held_p = of_target(held)


def new_eagle3(unrolled):
    torch.manual_seed(1)
    heads = target.config.heads, target.config.kv_heads
    model = Eagle3(V, C, LAYERS, *heads, hidden=C, spoken=V).attach(target)
    model.head.weight.data.copy_(target.head.weight)    # its own head starts as the target's
    model.steps = unrolled
    return model


fall = {}
for name, unrolled_steps, steps in ("EAGLE-3", 1, 60), ("EAGLE-3, unrolled", 3, 20):
    eagle = train_layer(new_eagle3(unrolled_steps), (tokens, hidden, p_target), steps)
    fall[name] = along(eagle, (held, held_hidden, held_p))
left_at_5 = {name: row[4] / row[0] for name, row in fall.items()}
table(["alpha at", "draft token 1", "2", "3", "4", "5", "left at 5"],
      [[name, *(f"{a:.3f}" for a in row), f"{left_at_5[name]:.0%}"] for name, row in fall.items()])
assert left_at_5["EAGLE-3, unrolled"] > left_at_5["EAGLE-3"] + .05
figures.training_along_the_draft(grid.tolist(), 4, fall)

# %% [markdown]
# *Answer:* the one of a single step is better at draft token 1, and the unrolled one falls less.
# Read the table from left to right. Trained on one step, the layer is good at draft token 1 and
# much worse at the next ones. It may pass on whatever it likes and never had to read that itself.
# Unrolled, it falls much less. It has seen fewer texts, so its first number is lower.
#
# The paper reports that unrolled training wins along the whole draft after hours of training, which
# our seconds do not show.
#
# ## A smaller vocabulary
#
# EAGLE-3 has an output head of its own, which may leave out rare tokens and thereby become smaller
# and faster. A token that is left out has q_draft = 0: it is never drafted, and the rule stays
# exact. Since it is never accepted either, the probability that the target gives to the remaining
# tokens is an upper bound for alpha.
#
# *Guess first:* what is the bound if the head keeps a quarter of the vocabulary?

# %%
short = Eagle3(V, C, LAYERS, 1, 1, C, spoken=V // 4).attach(target)
short.prepare(tokens.flatten())                         # the most frequent tokens of our text
ceiling = held_p.exp()[..., short.ids].sum(-1).mean().item()
print(f"\n{V // 4} of {V} tokens: alpha can be {ceiling:.2f} at most")

# %% [markdown]
# *Answer:* about .7. The target gives so much to the tokens that are left.
#
# ## Three things to know
#
# 1. A draft model has to read its own predictions, so it should be trained on them.
# 2. In unrolled training, each place attends to the text up to its own place and to its own earlier
#    steps.
# 3. A smaller vocabulary limits alpha and makes the step cheaper. It never changes the text.
#
# ## Change this and run again
#
# 1. Print `mask_unrolled(5, 1)`. Where have you seen this mask before?
# 2. Write `spoken=V // 16` for `spoken=V // 4`. What is the bound now? Why may so small a head pay
#    all the same?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Mistakes that no text shows* looks for bugs in draft models.
