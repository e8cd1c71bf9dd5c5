# %% [markdown]
# # A look back
#
# **Can a cheap state copy a name that stands far back in the text?**
#
# *A state that reads its draft* had a list of numbers that every draft token changes. It costs
# little, but everything that it knows of the text must fit into these numbers. EAGLE (*Drafting
# hidden states*) runs a whole decoder layer for every draft token. It sees all the text, and it
# costs more.
#
# This lesson combines the two. Its draft model is the one that ships beside the GPT:
# `nanospec demo --draft-model prefix`, in nanospec/methods/draft_models/prefix.py.
#
# | | reads the committed text | reads each draft token |
# |---|---|---|
# | MLP speculator | with nothing: it begins with hidden states | changes the state |
# | EAGLE | with its layer | with its layer |
# | this one | with a layer, once per round | changes the state, and looks back with attention |

# %%
from copy import deepcopy

import torch
import torch.nn.functional as F

import figures
from kit import Quiet, table
from nanospec import ModelDrafter
from nanospec.fast.clock import median_seconds, step_seconds
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.model import rotate
from nanospec.proof.tables import TableModel, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, model, tokenizer = load_pair(draft_model="prefix")
gpt = load_pair().draft_model
STEPS, V = 5, target.config.vocab_size

# %% [markdown]
# ## What a draft token does
#
# Once per round the layer reads the new tokens of the text. It is ordinary attention, so it keeps a
# key and a value for every token of the text.
#
# Then each draft token x is read in four steps. z is the state before it.
#
# 1. y = carry z + embedding of x, as in the MLP speculator.
# 2. A query, made from y, is compared with all keys *that the layer has kept anyway*.
# 3. y = y + answer. The answer is a matrix times the mean of the values, weighted by attention.
#    Steps 2 and 3 are new.
# 4. z = silu(norm y). The output head turns z into logits.
#
# In other words, a draft token asks the text a question. It adds no key and no value of its own,
# and what has been drafted so far is in the state.
#
# The first cell runs the layer on a text and shows what it keeps.

# %%
SOURCE = '''class Fridge:
    def __init__(self, temperature_inside, number_of_eggs):
        self.temperature_inside = temperature_inside
        self.number_of_eggs = number_of_eggs
'''
ids = torch.tensor([tokenizer.encode(SOURCE)])
length = ids.shape[1]


@torch.no_grad()
def hidden_before(tokens):
    """The target's hidden states before each token, (B, T, layers, C)."""
    return before_tokens(target(tokens, layers=model.layers)[1])


@torch.no_grad()
def entrance(tokens):
    """What attention reads of each token; and the states before, made of hidden states."""
    state = model.fuse(model.normed(hidden_before(tokens)))
    embedded = target.embedding(tokens)
    return torch.cat([model.layer.token_norm(embedded), model.layer.state_norm(state)], -1), state


@torch.no_grad()
def kept_of(tokens):
    """What the layer keeps of a text: keys and values, (B, 1, T, D) each."""
    read, _ = entrance(tokens)
    _, keys, values = model.layer.attention.turned(read, model.rope(tokens.shape[1]))
    return keys, values


keys, values = kept_of(ids)
print(f"\n{length} tokens, and for each a key and a value of {keys.shape[-1]} numbers")

# %% [markdown]
# Now we read a draft token by hand.

# %%
@torch.no_grad()
def look(y, position, keys, values):
    """What y (width,) finds: the answer (width,), and how much of it is each place's (heads, T)."""
    D = keys.shape[-1]
    q = model.query(y).view(1, -1, 1, D)                            # a query for each head
    q = rotate(q, model.rope(position + 1)[:, position:])           # it knows its position
    weights = (q @ keys.transpose(2, 3) / D ** 0.5).softmax(-1)     # (1, heads, 1, T)
    return model.answer((weights @ values).flatten()), weights[0, :, 0]


@torch.no_grad()
def one_token(z, x, position, keys, values):
    """State and draft token -> the next state, logits, and where it looked."""
    y = model.carry(z) + model.embedding(x)
    answer, weights = look(y, position, keys, values)               # NEW
    z = F.silu(model.norm(y + answer))
    return z, model.head(z), weights


# %% [markdown]
# The state after a text that ends at `place` comes from the layer's attention, its MLP, and the
# last token once more.

# %%
@torch.no_grad()
def attend(read, place):
    """The layer's own attention at one place: what it finds in the places up to it."""
    q, keys, values = model.layer.attention.turned(read, model.rope(read.shape[1]))
    seen = slice(place + 1)
    scores = q[0, :, place] @ keys[0, 0, seen].T / keys.shape[-1] ** 0.5
    return model.layer.attention.out((scores.softmax(-1) @ values[0, 0, seen]).flatten())


@torch.no_grad()
def state_at(tokens, place):
    """The state after a text that ends at `place` (width,)."""
    read, state = entrance(tokens)
    x = state[0, place] + attend(read, place)
    x = x + model.layer.mlp(model.layer.mlp_norm(x))
    y = model.start(model.read_norm(x)) + model.embedding(tokens[0, place])
    return F.silu(model.norm(y))


# %% [markdown]
# The library evaluates all places at once with `whole_texts(model, tokens, before, steps)`. We let
# the text end in the middle, at the place `first`, and draft the true tokens after it.

# %%
first, gap = length // 2, 0.0
with torch.no_grad():
    whole = whole_texts(model, ids, hidden_before(ids), STEPS)      # (STEPS, 1, places, V)
z = state_at(ids, first)
gap = (model.head(z) - whole[0, 0, first]).abs().max().item()
text_keys, text_values = keys[:, :, :first + 1], values[:, :, :first + 1]
for k in range(1, STEPS):
    z, logits, _ = one_token(z, ids[0, first + k], first + k, text_keys, text_values)
    gap = max(gap, (logits - whole[k, 0, first]).abs().max().item())
print(f"by hand and the library: the logits differ by at most {gap:.0e}")
assert gap < 1e-2

# %% [markdown]
# ## Where does it look?
#
# The text ends after the last "self.number", and what follows has occurred in the text already. We
# read the true tokens as draft tokens. For each we print the three places that it attends to most
# (averaged over the heads), and the token before each place.
#
# *Guess first:* a draft token wants to know what comes next. Which places could tell it?

# %%
begin = next(i for i in range(length - 1, 0, -1)
             if tokenizer.decode(ids[0, :i].tolist()).endswith("self.number")) - 1
text_keys, text_values = keys[:, :, :begin + 1], values[:, :, :begin + 1]
z, lines, seen = state_at(ids, begin), [], []
for k in range(1, STEPS):
    x = ids[0, begin + k]
    z, logits, weights = one_token(z, x, begin + k, text_keys, text_values)
    seen.append(weights.mean(0))
    best = seen[-1].topk(3).indices.tolist()
    told = ["{!r} {:.2f}".format(tokenizer.decode(ids[0, max(0, i - 1):i + 1].tolist()),
                                 seen[-1][i].item()) for i in best]
    predicted = repr(tokenizer.decode([int(logits.argmax())]))
    lines.append([repr(tokenizer.decode([x])), *told, predicted])
table(["draft token", "looks at", "", "", "predicts next"], lines,
      "two tokens each: the one before the place, and the one there")

# %% [markdown]
# *Answer:* those which stand after an earlier copy of the token that was just read.
#
# Compare the first and second token of each pair. A place of the layer knows two things: its own
# token, and the hidden states before it, which know the token before. So a place can tell "after
# *this* came *that*", and a query can ask: where did the token that I have just read occur before,
# and what came then? Such attention heads are called *induction heads* (Olsson et al. 2022, arXiv
# 2209.11895).
#
# ## What it brings
#
# We compare with the same draft model with its eyes shut, whose `answer` is a matrix of zeros. On
# held-out files we measure beta = sum min(p_target, q_draft) at two kinds of places. At a place of
# the first kind, the draft token and the next true token have stood side by side before in the
# text, so the next one can be copied. At the other places it cannot.
#
# *Guess first:* where does it lose more without a look, and at which draft token?

# %%
held = [tokenizer.encode(text[len(text) // 3:][:2400])[:256] for text in read_texts()[1]]
held = torch.tensor([piece for piece in held if len(piece) == 256][:10])


def can_be_copied(tokens):
    """(B, T - 1): whether this token and the next one stood side by side, far enough before."""
    pairs = tokens[:, :-1] * V + tokens[:, 1:]
    places = torch.arange(pairs.shape[1])
    earlier = places < places[:, None] - STEPS                      # (T - 1, T - 1)
    return ((pairs[:, :, None] == pairs[:, None]) & earlier).any(-1)


@torch.no_grad()
def betas_of(draft_model, before, p_target, copied):
    """kind -> the mean of beta for the first, second, ... draft token."""
    q_draft = whole_texts(draft_model, held, before, STEPS).softmax(-1)
    places, found = q_draft.shape[2], {True: [], False: []}
    for k in range(STEPS):
        beta = acceptance(p_target[:, k:k + places], q_draft[k])
        for kind in found:
            found[kind].append(beta[copied[:, k:k + places] == kind].mean().item())
    return found


# %%
blind = deepcopy(model)
torch.nn.init.zeros_(blind.answer.weight)
before, copied = hidden_before(held), can_be_copied(F.pad(held, (0, 1)))
with torch.no_grad():
    p_target = target(held).softmax(-1)
betas = {"it looks": betas_of(model, before, p_target, copied),
         "eyes shut": betas_of(blind, before, p_target, copied)}
for kind, words in (True, "where it can be copied"), (False, "at other places"):
    table(["draft token", *range(1, STEPS + 1)],
          [[name, *(f"{beta:.2f}" for beta in found[kind])] for name, found in betas.items()],
          f"mean beta {words} ({(copied == kind).float().mean():.0%})")
lost = {kind: [a - b for a, b in zip(betas["it looks"][kind], betas["eyes shut"][kind])]
        for kind in (True, False)}
assert min(lost[True][1:]) > 0 and max(map(abs, (lost[True][0], lost[False][0]))) < 1e-6

# %% [markdown]
# *Answer:* where something can be copied, from the second draft token on. The first draft token
# loses nothing, because it does not look back: the layer has looked for it. All others lose, most
# of all where something could be copied.
#
# The comparison is not quite fair. This state has learned that it can look, and it remembers less.
# A state trained without the look from the beginning may do better than one whose eyes are shut.
#
# ## What it costs
#
# The reader calls `start` for the first draft token and `step` for each of the others. EAGLE would
# pay for `start` at every token.
#
# *Guess first:* what do four draft tokens cost, compared with four of the draft GPT?

# %%
quiet = Quiet(lambda: step_seconds(target, repeats=3))
step = step_seconds(target)
text = Text([held[0, :200].tolist()], 56, V)
reader = model.reader(4)
with torch.inference_mode():
    reader.begin(text)
    reader.read(text, [0], prefill(target, text, layers=model.layers)[1])
    some = text.last(1)
    seconds = {"the first": median_seconds(lambda: reader.start(text, 2, 200), target.device),
               "each other": median_seconds(lambda: reader.step(some, 200), target.device)}
seconds["the draft GPT, each"] = step_seconds(gpt)
quiet.look()
c = {name: took / step for name, took in seconds.items()}
of_four = {"this one": c["the first"] + 3 * c["each other"], "an EAGLE": 4 * c["the first"],
           "the draft GPT": 4 * c["the draft GPT, each"]}
table(["draft token", "target steps"], [[name, f"{cost:.3f}"] for name, cost in c.items()])
table(["four draft tokens of", "target steps"],
      [[name, f"{cost:.2f}"] for name, cost in of_four.items()])
quiet.tell("four draft tokens of this one cost 0.27, and of the draft GPT 0.40, in float16 "
           "(one core of an Intel Xeon)")

# %% [markdown]
# *Answer:* about two thirds. On one core of an Intel Xeon, four draft tokens of this model took
# 0.27 target steps, and those of the draft GPT 0.40. The first draft token reads the text with a
# layer and is the most expensive one; all others only add a query.
#
# ## Lossless, as always
#
# It does not matter which model drafts, and from what, as long as q_draft is what was drawn from.
# We walk a small model of this kind: all texts of two tokens, in up to two rounds.

# %%
big = TableModel(3, seed=5)
found, paths = walk(lambda dice: tuple(tokens_of(speculate(
    big, ModelDrafter(small_learned("prefix", big), 2), [0, 1], 2, dice=dice))))
off = distance(found, target_distribution(big, [0, 1], 2))[1]
print(f"\n{paths} paths walked, the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# In the picture, the left panel shows where the draft tokens look. The right panel shows beta with
# and without the look.

# %%
names = [tokenizer.decode([token]) for token in ids[0, :begin + 1].tolist()]
figures.a_look_back([line.tolist() for line in seen], names, [line[0] for line in lines], betas)

# %% [markdown]
# ## Three things to know
#
# 1. A layer that reads the text once per round keeps keys and values. A draft token may query them,
#    for the price of one query.
# 2. A look back helps most where something can be copied, and program text repeats its names.
# 3. The first draft token is the most expensive one, and all others depend on its acceptance.
#
# ## Change this and run again
#
# 1. Write a text of your own for `SOURCE`, in which no name comes twice. Let it end with
#    `self.number_of_eggs = 0`. Where does it look now?
# 2. In the cell of the first table write `text_keys = 0 * text_keys` below the line that makes it.
#    Now every place gets equal attention, and what does the model predict next?
# 3. In the cell of the costs, take a text of 20 tokens instead of 200. What becomes cheaper?
#
# The answers are in the file of the same name in `lessons/answers/`.
