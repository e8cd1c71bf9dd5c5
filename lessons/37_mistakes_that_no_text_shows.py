# %% [markdown]
# # Mistakes that no text shows
#
# **Which mistakes in a draft model does no text show, and what does show them?**
#
# A draft model may be wrong in any way, and the text is still the target's. That is the promise of
# speculative decoding, and it has a price: a bug in a draft model costs speed and is seen by no
# test of the text. This lesson plants three such bugs and looks for the checks that find them.
#
# A draft model on hidden states is run by a *reader*, which hands it the right hidden states while
# it drafts. It keeps them by place: `kept[:, i]` are those before token i, and what was rejected is
# overwritten. The reader has these methods:
#
# - `start` reads the end of the text and predicts what follows it.
# - `step` reads one draft token more.
# - `commit` learns which nodes of a round were accepted (`path`) and how many (`count`).

# %%
import torch

import figures
from kit import learn_and_test, new_speculator, table, train
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.methods.draft_models.text_reader import LearnedReader
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, _, tokenizer = load_pair()
target.requires_grad_(False)

# %% [markdown]
# ## Two wrong readers
#
# The first two bugs are in the reader of the MLP speculator (*A state that reads its draft*).
#
# - *One place off.* The reader hands over the hidden states of the token before the right one.
# - *Rejected tokens count.* The reader puts the hidden states of a round where they would belong if
#   all draft tokens had been accepted. After a rejection they stand at the wrong places.


# %%
class OneOff(LearnedReader):
    def start(self, text, lag, kv_length):
        right = self.kept
        self.kept = before_tokens(right)                        # WRONG: all one place later
        logits = super().start(text, lag, kv_length)
        self.kept = right
        return logits


class CountsRejected(LearnedReader):
    def commit(self, path, count, hidden):
        gamma = path.shape[1] - 1
        super().commit(path, 0 * count + gamma, hidden)         # WRONG: accepted or not


readers = {"right": LearnedReader, "one place off": OneOff, "rejected count": CountsRejected}
small = small_gpt(3, 2, 5)                                      # float64, 3 tokens
model = small_learned("mlp", small)

# %% [markdown]
# We check each reader in three ways:
#
# 1. *The text.* Walk two tokens (two rounds, if the first one ends with a rejection), and compare
#    with the target's own distribution.
# 2. *Token by token.* Training reads whole texts, and drafting reads one token after the other.
#    Both must predict the same, at every place and for every step.
# 3. *After some rounds.* Let the reader draft for a while. Its prediction after this text must
#    equal that of a call on the whole text.
#
# *Guess first:* which check sees which mistake?


# %%
def whole_text(tokens, ahead):
    """What the network predicts for whole texts, given the true hidden states."""
    hidden = small(tokens, layers=model.layers)[1]
    return whole_texts(model, tokens, before_tokens(hidden), ahead).softmax(-1)


def token_by_token(reader):
    tokens = torch.randint(3, (1, 12), generator=torch.Generator().manual_seed(1))
    whole, gap = whole_text(tokens, 3), 0.0
    for length in range(2, 10):
        text = Text(tokens[:, :length].tolist(), 8, 3)
        reader.begin(text)
        reader.read(text, [0], prefill(small, text, layers=model.layers)[1])
        found = reader.start(text, reader.lag, 0)
        for k in range(3):
            gap = max(gap, (found[0, 0].softmax(-1) - whole[k, 0, length - 1]).abs().max().item())
            found = reader.step(tokens[:, length + k, None], 0)
    return gap

# %%
def drafter_with(reader, gamma):
    drafter = ModelDrafter(model, gamma)
    drafter.reader = reader
    return drafter


def after_rounds(reader):
    worst = 0.0
    for seed in range(6):                           # not every last round has a rejection
        drafter = drafter_with(reader, 3)
        list(speculate(small, drafter, [0, 1], 20, seed=seed))
        found = reader.start(reader.text, reader.lag, 0)[0, 0].softmax(-1)
        whole = whole_text(torch.tensor(reader.text.ids()), 1)
        worst = max(worst, (found - whole[0, 0, -1]).abs().max().item())
    return worst


def off_by(reader):
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(
        small, drafter_with(reader, 1), [0, 1], 2, dice=dice))))
    return distance(found, target_distribution(small, [0, 1], 2))[1]


lines, gaps = [], {}
for name, reader in readers.items():
    gaps[name] = [check(reader(model, 3)) for check in (off_by, token_by_token, after_rounds)]
    lines.append([name, *(f"{gap:.0e}" for gap in gaps[name])])
table(["reader", "the text", "token by token", "after some rounds"], lines, "greatest difference")
assert max(gaps["right"]) < 1e-12 and max(found[0] for found in gaps.values()) < 1e-12
assert gaps["one place off"][1] > 1e-3 and min(found[2] for found in list(gaps.values())[1:]) > 1e-3

# %% [markdown]
# *Answer:* the text shows neither of them. Token by token shows the first, and after some rounds
# shows both.
#
# What the first mistake costs is acceptance. We train the speculator
# for a few seconds and measure beta, with the right hidden states and with those one place off:

# %%
texts, (test, before_test, p_test) = learn_and_test(target, tokenizer, 40)
mlp = train(new_speculator(target, width=128), texts, steps=90, ahead=1, slow="start")
betas = {}
for name, before in ("right", before_test), ("one place off", before_tokens(before_test)), (
        "zeros", 0 * before_test):
    q_draft = whole_texts(mlp, test, before, 1)[0].softmax(-1)
    betas[name] = acceptance(p_test, q_draft).mean().item()
table(["hidden states", "beta of the first draft token"],
      [[name, f"{beta:.3f}"] for name, beta in betas.items()])

# %% [markdown]
# Compare the last two lines: the hidden states of a wrong token are hardly better than none. Would
# you have noticed this from the speed alone?
#
# ## Predictions left in the cache
#
# The third bug needs a draft model with a cache. EAGLE (*Drafting hidden states*) has one. While it
# drafts, it reads its own predictions, and they go into the cache. Then the target reads the draft,
# and the target's hidden states of the accepted tokens become known. So the layer must read these
# tokens a second time, with the target's hidden states.
#
# In code, `start` reads the last `lag` tokens of the text again. For EAGLE, `lag` is gamma + 1. For
# a GPT as draft model it is 2, since it needs no hidden states and its cache is right already. What
# happens if we take 2 for EAGLE, too?
#
# We let a small EAGLE draft 40 tokens and count the cache slots that hold a prediction. *Guess
# first:* does the text show it?

# %%
layer = small_learned("eagle", small)


@torch.no_grad()
def predictions_left(lag):
    """(slots that differ from a layer that has read the text with the target's own, slots)."""
    drafter = ModelDrafter(layer, 4)
    drafter.reader.lag = lag
    written = tokens_of(speculate(small, drafter, [0, 1], 40, seed=1))
    text = Text([[0, 1] + written], 5, 3)
    fresh, (_, hidden) = layer.reader(4), prefill(small, text, layers=layer.layers)
    fresh.begin(text)
    fresh.read(text, [0], hidden)
    known = 2 + len(written) - 10                       # the last round is not read again yet
    keys = [reader.cache.k[0][0, :known].flatten(1) for reader in (drafter.reader, fresh)]
    differ = (keys[0] - keys[1]).norm(dim=1) > 0.01 * keys[1].norm(dim=1)
    return int(differ.sum()), known

# %%
def text_is_off(lag):
    """Walk four tokens of a table of two tokens, with a random EAGLE layer and drafts of two."""
    big = TableModel(2, seed=6, zeros=.5)

    def text(dice):
        drafter = ModelDrafter(small_learned("eagle", big), 2)
        drafter.reader.lag = lag
        return tuple(tokens_of(speculate(big, drafter, [0, 1], 4, dice=dice)))
    return distance(walk(text)[0], target_distribution(big, [0, 1], 4))[1]


left_over = {lag: predictions_left(lag) for lag in (5, 2)}
print()
for lag, (stale, slots) in left_over.items():
    print(f"reads the last {lag} again: {stale} of {slots} slots hold a prediction")
off_lag = text_is_off(2)
print(f"lag 2, walked: the text is off by {off_lag:.0e}")
assert left_over[5][0] == 0 < left_over[2][0] and off_lag < 1e-12
figures.what_shows_a_mistake(gaps)

# %% [markdown]
# *Answer:* no. With 2, accepted draft tokens stay in the cache as predictions, and the text is
# exact here, too. The layer attends to slots that hold something it was not trained on. A real
# server had this bug, too: vLLM, issue 14649.
#
# ## Three things to know
#
# 1. Wrong hidden states cost acceptance, and no test of the text can show it.
# 2. Compare what is predicted for a whole text with what is predicted token by token, and again
#    after some rounds.
# 3. What a draft model keeps of a round has to be replaced once the target has read the draft.
#
# ## Change this and run again
#
# 1. In `CountsRejected`, write `0 * count` without `+ gamma`: the reader takes every round as
#    rejected. Which check sees it?
# 2. Let `after_rounds` take only `range(1)`, one seed. Why is that not enough?
# 3. Write `(5, 4, 3, 2)` in place of `(5, 2)`. How many slots hold a prediction each time?
#
# The answers are in the file of the same name in `lessons/answers/`.
