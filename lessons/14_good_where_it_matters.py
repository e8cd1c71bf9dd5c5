# %% [markdown]
# # Good where it matters
#
# **Where is a small draft model good enough?**
#
# *How fast* used one alpha for a whole text, but places differ. At each place a draft token is
# accepted with probability beta = sum min(p_target, q_draft). Computing beta needs no dice: both
# models read a finished text, and we compare what each of them expected at each place.

# %%
import re
from keyword import iskeyword

import torch

import figures
from kit import table
from nanospec import ModelDrafter, Sampling
from nanospec.cli.bench.acceptance import judged, places_of_rounds
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.probs import probs
from nanospec.speculate import speculate
from nanospec.theory import acceptance

torch.set_num_threads(1)        # nothing is timed here
target, draft_model, tokenizer = load_pair()
SNIPPET = '''class Thermometer:
    """Keeps the last readings of one sensor."""

    def __init__(self, limit=100):
        self.limit = limit
        self.readings = []

    def add(self, reading):
        # Forget the oldest one when there is no room.
        if len(self.readings) == self.limit:
            self.readings.pop(0)
        self.readings.append(reading)
'''

# %% [markdown]
# ## A map of one text
#
# We begin with a short text that is in no training file, and print the eight places with the
# smallest beta.
#
# *Guess first:* look at the code above. Where will the draft model be lost?


# %%
def distributions(model, ids):
    """(B, T) tokens -> (B, T - 1, V): what the model expects after each token but the last."""
    return probs(model(ids)[:, :-1])


ids = torch.tensor([[tokenizer.end_of_text] + tokenizer.encode(SNIPPET)])
pieces = [tokenizer.decode([token]) for token in ids[0, 1:]]
p_target, q_draft = distributions(target, ids), distributions(draft_model, ids)
beta = acceptance(p_target, q_draft)[0]                 # one number for each piece of SNIPPET

lines = []
for i in beta.argsort()[:8].tolist():
    token = ids[0, i + 1]                               # what really comes there
    before = "".join(pieces[:i])[-12:]
    lines.append([repr(before), repr(pieces[i]), f"{p_target[0, i, token]:.2f}",
                  f"{q_draft[0, i, token]:.2f}", f"{beta[i]:.2f}"])
table(["after", "comes", "p_target of it", "q_draft of it", "beta"], lines)

# %% [markdown]
# *Answer:* mostly where a name has to be copied that stands further up.
#
# The left panel of this lesson's picture shows beta at every place of this text, pale near 1 and
# dark near 0. The draft model knows by heart what is in every program, such as `def __init__(self`
# and the blanks at the start of a line.
#
# In `self.limit = limit` the last word only has to be copied. The target is nearly sure of it,
# while the draft model gives other words most of the probability. To copy, a model must find where
# the word occurred before and look at what followed there. That takes two layers, one for each step
# (Olsson et al. 2022, arXiv 2209.11895), and our draft model has only one.

# %%
print(f"\nlayers: target {target.config.layers}, draft model {draft_model.config.layers}")

# %% [markdown]
# ## What stands there?
#
# One short text is not enough. We take many texts that are new to both models and sort their places
# by what stands there: a keyword, a name, a comment and so on. A name that has occurred before is
# `name, again`. `PATTERNS` has a *regular expression* for each kind. A token may contain characters
# of several kinds, and its first non-blank character decides.

# %%
PATTERNS = {"docstring": r'"""[\s\S]*?"""', "comment": r"\#.*", "name": r"[^\W\d]\w*",
            "sign": r"""[^\w\s"']""",
            "literal": r"""\d[\w.]*|"(?:\\.|[^"\n])*"|'(?:\\.|[^'\n])*'"""}
KIND = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()))
CODE = ["blank", "keyword", "sign", "literal", "name", "name, again"]
PROSE = ["comment", "docstring"]


def kinds_of(text):
    """A kind for each character of a text: "x = x" has a name, a sign, and that name again."""
    kinds, seen = ["blank"] * len(text), set()
    for hit in KIND.finditer(text):
        word, kind = hit[0], hit.lastgroup
        if iskeyword(word) or word == "self":
            kind = "keyword"
        elif kind == "name":
            kind = "name, again" if word in seen else "name"
            seen.add(word)
        kinds[hit.start():hit.end()] = [kind] * len(word)
    return kinds


# %%
def labelled(text):
    """[(token, what stands there), ...] of a text."""
    kinds, at, found = kinds_of(text), 0, []
    for token in tokenizer.encode(text):
        piece = tokenizer.decode([token])
        blanks = len(piece) - len(piece.lstrip())
        first = min(blanks, len(piece) - 1)             # of a piece that is all blank: its last
        found.append((token, kinds[at + first]))
        at += len(piece)
    return found


print("\nx = x  # y\n", labelled("x = x  # y"))

# %% [markdown]
# ## Ten windows of code
#
# `read_texts` gives the texts that our models were trained on, and texts that were held out. From
# ten of the held-out files we take 300 tokens each, from the start of a method.

# %%
train, held_out = read_texts()
train = [text for text in train if text.isascii()]              # there a byte is a character
windows = []
for text in held_out:
    at = text.find("\n    def ", len(text) // 3)
    if text.isascii() and 0 <= at < len(text) - 2000 and len(windows) < 10:
        windows.append(labelled(text[at:at + 2000])[:300])
texts = torch.tensor([[token for token, _ in window] for window in windows])    # (10, 300)
labels = [kind for window in windows for _, kind in window[1:]]                 # of 10 * 299 places

places = {}                         # a kind -> True where it stands
for kind in CODE + PROSE:
    places[kind] = torch.tensor([label == kind for label in labels])
places["ALL CODE"] = torch.tensor([label in CODE for label in labels])
places["ALL PROSE"] = torch.tensor([label in PROSE for label in labels])

# %% [markdown]
# ## Draft models that know one thing
#
# For comparison we make two draft models that are as cheap as possible: *bigrams*. A bigram is a
# pair of adjacent tokens. We count all pairs in every fortieth training text, and after each token
# the draft model proposes what followed it there, in proportion to the counts.
#
# One draft model counts only where code stands, and the other only in comments and docstrings.
#
# *Guess first:* how good will each be in code, and how good in prose?

# %%
seen = [pair for text in train[::40] for pair in labelled(text)]
tokens_seen = torch.tensor([token for token, _ in seen])
is_prose = torch.tensor([kind in PROSE for _, kind in seen])
V = tokenizer.vocab_size


def bigrams(where):
    """(V, V): for each token x, the distribution after it. A pair never seen counts 0.01.

    where: for each token seen, whether the pair that ends in it counts.
    """
    pairs = (tokens_seen[:-1] * V + tokens_seen[1:])[where[1:]]         # a number for each pair
    counts = torch.bincount(pairs, minlength=V * V).view(V, V) + 0.01
    return counts / counts.sum(1, keepdim=True)


before = texts[:, :-1]
q_drafts = {"shipped draft model": distributions(draft_model, texts),
            "bigrams of code": bigrams(~is_prose)[before],
          "bigrams of prose": bigrams(is_prose)[before]}

# %%
p_target = distributions(target, texts)
alpha = {}                          # a draft model -> its mean beta at each kind of place
for name, q_draft in q_drafts.items():
    betas = acceptance(p_target, q_draft).flatten()
    alpha[name] = [betas[here].mean().item() for here in places.values()]

lines = []
for i, (kind, here) in enumerate(places.items()):
    means_here = [f"{means[i]:.2f}" for means in alpha.values()]
    lines.append([kind, f"{here.double().mean():.1%}", *means_here])
table(["what stands there", "share", *q_drafts], lines, f"mean beta over {len(labels)} places")

# %% [markdown]
# *Answer:* each bigram is the better one in its own field, and the shipped draft model is better
# than both everywhere.
#
# Read the table in three steps.
#
# - *A column.* The shipped draft model is better at some kinds than at others. Compare `name` with
#   `name, again`: the second could be copied, and yet beta is hardly higher there.
# - *The two bigrams.* Each is the better one in its own field and the worse one in the other.
# - *The share.* The alpha of a text is the mean over its places. A kind with beta .9 that fills 5%
#   of the text adds .045, and one with .6 that fills 30% adds .18.
#
# A draft model does not have to be good everywhere. It should be good at what fills *your* texts.
# Elsewhere it costs time and nothing else.
#
# Here is the map, with the table as bars beside it.

# %%
lines = SNIPPET.splitlines(keepends=True)
of_characters = []                              # beta of each character's token
for piece, number in zip(pieces, beta.tolist()):
    of_characters += [number] * len(piece)
grid, at = [], 0
for line in lines:
    grid.append(of_characters[at:at + len(line)])
    at += len(line)
figures.code_map(lines, grid, CODE + PROSE, {name: means[:-2] for name, means in alpha.items()})

# %% [markdown]
# ## Tokens per call, without decoding
#
# Reading a text also tells how many tokens a call of the target would have brought. Take a place
# where the token x stands. Of all rounds that come to this place, a fraction p_target(x) writes x
# here, as an accepted draft token or as a replacement. A fraction min(p_target(x), q_draft(x))
# writes it as an accepted draft token. So once we know that x was written, it was an accepted draft
# token with probability min(1, q_draft(x) / p_target(x)).
#
# If it was not, the next place begins a new round. From place to place this tells how likely a
# round begins there, and every beginning is one call. `judged` and `places_of_rounds`
# (nanospec/cli/bench/acceptance.py) do this, for a first, a second, ... draft token of a round.


# %%
def read(texts, gamma, since=0):
    """(N, T) tokens -> tokens per target call that rounds of gamma draft tokens would bring."""
    stood, _ = judged(target, draft_model, texts, Sampling(), gamma)
    begins = places_of_rounds(stood[:, :, since:])[:, 0]        # how likely, at each place
    return begins.numel() / begins.sum().item()


counts, own = [], []
for turn, start in enumerate(texts[:4, :64].tolist()):
    rounds = list(speculate(target, ModelDrafter(draft_model, 4), start, 64, seed=turn))
    counts += [len(done.emitted) for done in rounds]
    own.append(start + sum((done.emitted for done in rounds), []))

counted = torch.tensor(counts).double()
error = counted.std() / len(counts) ** 0.5                      # the standard error of their mean
table(["gamma 4", "tokens per call"],
      [["the ten windows, read", f"{read(texts, 4):.2f}"],
       ["what the target wrote, read", f"{read(torch.tensor(own), 4, since=63):.2f}"],
       ["what the target wrote, counted", f"{counted.mean():.2f}"]],
      f"counted in {len(counts)} rounds, +- {error:.2f}")

# %% [markdown]
# On a text that the target wrote, reading and decoding agree up to luck, and exactly on average
# over all such texts. On a text by somebody else reading is only an estimate: people choose tokens
# that the target would not have chosen, and at temperature 1 the target chooses some that people
# would not.
#
# `nanospec bench acceptance` does this for any pair and text, measures c and v, and names
# the gamma that should be best.
#
# ## Three things to know
#
# 1. beta can be measured without dice, by letting both models read the same text. So can the tokens
#    per call of any gamma.
# 2. A draft model is good at what it knows. alpha is a mean over all places, weighted by their
#    share.
# 3. A bad draft model costs time, never correctness.
#
# ## Change this and run again
#
# 1. Rename the `limit` of the snippet to `zorb` everywhere. Is the draft model lost in the name, or
#    after it?
# 2. Write `probs(..., temperature=0)` in `distributions`, and then 3. How does alpha change in
#    code, and how in prose?
# 3. Mix two draft models: add to `q_drafts` the entry `"mixed": 0.9 * distributions(draft_model,
#    texts) + 0.1 * bigrams(is_prose)[before]`. Is prose, at least, better off?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *How to test a sampler* asks how one would notice a wrong distribution. Exercises: 10
# (copy from the text, which this draft model cannot).
