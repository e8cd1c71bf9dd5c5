# %% [markdown]
# # 10. Good where it matters
#
# **Where is the draft right, and does it have to be right everywhere?**
#
# Lesson 9 had one alpha for a whole text, but places differ. At each, a guess is kept with beta = sum min(p_target,
# q_draft), and no coin is needed to know it: let both models read a finished text, and compare what each expected.

# %%
import re
from keyword import iskeyword

import torch

from kit import AMBER, FAINT, GREEN, INK, bars, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.files.corpus import read_texts
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance

torch.set_num_threads(1)                        # nothing is timed here; one core is gentle to whoever has the other
target, draft, tokenizer = load_pair()
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


def laws(model, ids):
    """(B, T - 1, V): what the model expects behind ids[:, :1], ids[:, :2] and so on."""
    return probs(model(ids)[:, :-1])


ids = torch.tensor([[tokenizer.end_of_text] + tokenizer.encode(SNIPPET)])
pieces, p_target, q_draft = [tokenizer.decode([token]) for token in ids[0, 1:]], laws(target, ids), laws(draft, ids)
beta = acceptance(p_target, q_draft)[0]                             # one for each piece of SNIPPET
for i in beta.argsort()[:8].tolist():
    p, q = (law[0, i, ids[0, i + 1]] for law in (p_target, q_draft))
    print(f"behind {''.join(pieces[:i])[-9:]!r} comes {pieces[i]!r}, target {p:.2f}, draft {q:.2f}: beta {beta[i]:.2f}")

# %% [markdown]
# Look at the picture: the draft knows `def __init__(self` and indentation by heart. In `self.limit = limit` the last
# word needs only to be copied: the target is sure, the draft has no idea. One layer is too few to look up what followed
# last time (Olsson et al. 2022, arXiv 2209.11895). Is a name hard when it comes again? Ask texts that are new to both.

# %%
KIND = re.compile(r'''(?P<docstring>"""[\s\S]*?""")|(?P<comment>\#.*)|(?P<name>[^\W\d]\w*)|(?P<sign>[^\w\s"'])|'''
                  r'''(?P<literal>\d[\w.]*|"(?:\\.|[^"\n])*"|'(?:\\.|[^'\n])*')''')
CODE, PROSE = ["blank", "keyword", "sign", "literal", "name", "name, again"], ["comment", "docstring"]


def labelled(text):
    """(token, what stands there) of a text: "x = x" has a name, a sign, and that name again."""
    kinds, seen, at = ["blank"] * len(text), set(), 0
    for hit in KIND.finditer(text):
        again = "name, again" if hit[0] in seen else hit.lastgroup
        kinds[hit.start():hit.end()] = ["keyword" if iskeyword(hit[0]) or hit[0] == "self" else again] * len(hit[0])
        seen.add(hit[0] if hit.lastgroup == "name" else None)
    for token in tokenizer.encode(text):                    # its first character that is not blank decides
        piece = tokenizer.decode([token])
        yield token, kinds[at + min(len(piece) - len(piece.lstrip()), len(piece) - 1)]
        at += len(piece)


train, held_out = [[text for text in texts if text.isascii()] for texts in read_texts()]    # a byte is a character
windows = [list(labelled(text[at:at + 2000]))[:300] for text in held_out
           if 0 <= (at := text.find("\n    def ", len(text) // 3)) < len(text) - 2000][:10]
texts = torch.tensor([[token for token, _ in window] for window in windows])
labels = [kind for window in windows for _, kind in window[1:]]

# %% [markdown]
# Now **drafts that know one thing**, as cheap as can be: count which token follows which (*bigrams*), in code or in
# comments and docstrings. Each is at home in one domain. What a wrong guess costs is time, never truth: walk every path
# of the dice (lesson 6) with drafts that are right everywhere, in half of their contexts, nowhere.

# %%
seen, kinds = zip(*[pair for text in train[::40] for pair in labelled(text)])
seen, is_prose, V = torch.tensor(seen), torch.tensor([kind in PROSE for kind in kinds]), tokenizer.vocab_size


def bigrams(where):
    """(V, V): the law of the next token behind each; a pair never seen counts for a hundredth."""
    counts = torch.bincount((seen[:-1] * V + seen[1:])[where[1:]], minlength=V * V).view(V, V)
    return (counts + 0.01) / (counts + 0.01).sum(1, keepdim=True)


drafts = {"shipped draft": laws(draft, texts), "bigrams of code": bigrams(~is_prose)[texts[:, :-1]],
          "bigrams of prose": bigrams(is_prose)[texts[:, :-1]]}
p_target = laws(target, texts)
groups = {kind: [kind] for kind in CODE + PROSE} | {"ALL CODE": CODE, "ALL PROSE": PROSE}
places = {name: torch.tensor([label in group for label in labels]) for name, group in groups.items()}
alpha = {name: [acceptance(p_target, q_draft).flatten()[here].mean().item() for here in places.values()]
         for name, q_draft in drafts.items()}

model, half, stranger = TableModel(3, seed=1), TableModel(3, seed=2), TableModel(3, seed=2)
half.logits[::2] = model.logits[::2]                        # every other row of its table is the target's
for name, guesser in ("everywhere", model), ("in half of its contexts", half), ("nowhere", stranger):
    law, paths = walk(lambda dice: tuple(tokens_of(speculate(model, ModelDrafter(guesser, 1), [0], 3, dice=dice))))
    off, _ = distance(law, target_distribution(model, [0], 3))
    print(f"a draft that is right {name}: {paths} paths, the law of the text is off by at most {off:.0e}")
    assert off < 1e-12
table(["what stands there", "share", *drafts],
      [[name, f"{here.double().mean():.1%}", *(f"{means[i]:.2f}" for means in alpha.values())]
       for i, (name, here) in enumerate(places.items())], f"mean acceptance over {len(labels)} places")

# %%
figure, (left, right) = picture("10. good where it matters", 2)
lines = SNIPPET.splitlines(keepends=True)
chances = beta.repeat_interleave(torch.tensor([len(piece) for piece in pieces])).split([len(line) for line in lines])
grid = torch.nn.utils.rnn.pad_sequence(chances, batch_first=True, padding_value=float("nan"))
for y, line in enumerate(lines):
    for x, character in enumerate(line):
        left.text(x, y, character.strip(), family="monospace", fontsize=8.5, ha="center", va="center", color=INK)
shown = left.imshow(grid.numpy(), cmap="RdYlGn", vmin=0, vmax=1, aspect="auto", alpha=0.6)
left.set_axis_off()
figure.colorbar(shown, ax=left, location="bottom", aspect=50, pad=0.02, label="chance that a guess is kept there")
bars(right, [name.replace(" ", "\n") for name in CODE + PROSE],
     *((means[:-2], colour, name) for (name, means), colour in zip(alpha.items(), (GREEN, FAINT, AMBER))))
right.tick_params(axis="x", labelsize=8)
right.set(ylim=(0, 1), ylabel="mean acceptance, by what stands there")
save(figure, "10_good_where_it_matters")

# %% [markdown]
# **Change this and run again.** Call the `limit` of the snippet `zorb`, everywhere: does the draft get lost in the name
# or behind it? `probs(..., temperature=0)` in `laws`, then 3: code and prose, which of them gains, which loses? Mix two
# drafts, `0.9 * laws(draft, texts) + 0.1 *` the bigrams of prose: is prose, at least, better off?
#
# Next: lesson 11 asks how one would notice a wrong law. Exercises: 10 (n-gram drafting).
