# %% [markdown]
# # A state that reads its draft
#
# **How can a draft model look far ahead for almost nothing?**
#
# In lesson 23, Medusa's heads cost little. But they fall fast with depth.
# They do not know the tokens in between.
# A GPT as a draft model knows them. But for each token it runs attention over the whole text.
#
# The *MLP speculator* (Wertheimer et al. 2024) stands between the two.
# It has a *state*, a list of numbers, and nothing else.
# The state begins with the target's hidden states. Each draft token changes it.
# It has no attention and no cache.
#
# You need lesson 11 (alpha, c and the formula) and lesson 23 (hidden states before a token).
# As there, the training takes seconds, so this draft model stays weak.
# `python train_tiny.py --what mlp` trains a good one.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import figures
from kit import Quiet, table
from nanospec import ModelDrafter
from nanospec.draft_models.medusa import Medusa
from nanospec.draft_models.mlp import MLPSpeculator
from nanospec.draft_models.reader import LearnedReader
from nanospec.fast.clock import draft_seconds, step_seconds
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from nanospec.theory import acceptance, best_gamma, speedup
from nanospec.training.whole import before_tokens, whole_texts

# %% [markdown]
# ## The whole network
#
# x is a token, z is the state.
#
# - Begin: z = start(norm of the hidden states before the last token of the text).
#   `start` is a matrix.
# - Read the last token of the text, and later each draft token x:
#   z = silu(norm(carry z + embedding of x)). `carry` is a matrix, `embedding` has a row for each x.
# - Say the next token: logits = head z. `head` is a matrix.
#
# `norm` divides by the size of the numbers, so that they neither grow nor vanish on the way.
# `silu` bends. Without it, many steps would be no more than one matrix.
#
# That is all.

# %%
class Speculator(nn.Module):
    def __init__(self, V, hidden, width):
        super().__init__()
        self.start = nn.Linear(hidden, width, bias=False)
        self.carry = nn.Linear(width, width, bias=False)
        self.embedding, self.norm = nn.Embedding(V, width), nn.RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, V, bias=False)

    def step(self, z, x):
        """State and token -> the next state, and the logits of the token behind x."""
        z = F.silu(self.norm(self.carry(z) + self.embedding(x)))
        return z, self.head(z)


torch.set_num_threads(1)
target, gpt, tokenizer = pair = load_pair()
target.requires_grad_(False)
V, C, last, width = target.config.vocab_size, target.config.channels, target.config.layers - 1, 128

# %% [markdown]
# The library has the same network as `MLPSpeculator` (nanospec/draft_models/mlp.py).
# Give both the same weights. Let both draft four tokens behind one text, and compare the logits.
# The library's `whole_texts(model, tokens, before, steps)` does all places of a text at once.
# For step k + 1 at place i it reads token i + k.

# %%
torch.manual_seed(0)
by_hand, library = Speculator(V, C, width), MLPSpeculator(V, C, [last], width=width).attach(target)
library.load_state_dict(by_hand.state_dict())
tokens = torch.randint(V, (1, 12))
with torch.no_grad():
    hidden = target(tokens, layers=[last])[1]                     # (1, 12, 1, C)
    before = before_tokens(hidden)                                  # lesson 23: before each token
    whole = whole_texts(library, tokens, before, 4)                 # (4, 1, 9, V)
    place, gap = 5, 0.0
    z = by_hand.start(F.rms_norm(before[0, place, 0], (C,), eps=1e-5))
    for k in range(4):
        z, logits = by_hand.step(z, tokens[0, place + k])
        gap = max(gap, (logits - whole[k, 0, place]).abs().max().item())
print(f"\nby hand and the library: the logits differ by at most {gap:.0e}")
assert gap < 1e-3

# %% [markdown]
# ## The texts, read once
#
# As in lesson 23.

# %%
def pieces_of(texts, count):
    """(count, 256) tokens, each piece from the start of a method."""
    found = []
    for text in texts:
        at = text.find("\n    def ", len(text) // 3)
        ids = tokenizer.encode(text[at:at + 1500])[:256] if at >= 0 else []
        if len(ids) == 256 and len(found) < count:
            found.append(ids)
    return torch.tensor(found)


@torch.no_grad()
def read(tokens):
    """-> hidden states before each token (B, T, 1, C), the distribution behind each (B, T, V)."""
    logits, hidden = target(tokens, layers=[last])
    return before_tokens(hidden), logits.softmax(-1)


train_texts, held_out = read_texts()
learn, test = pieces_of(train_texts[::7], 40), pieces_of(held_out[::2], 6)
before_learn, p_learn = read(learn)
before_test, p_test = read(test)

# %% [markdown]
# ## Training
#
# The labels are those of lesson 23: step k + 1 at place i learns the distribution of token
# i + k + 1. New: on its way the model reads the true tokens i, i + 1, ..., i + k.
#
# One detail matters in a short training. Hidden states are many numbers.
# A small change of `start` moves the state far. So `start` begins at zero, and takes steps that are
# ten times smaller.

# %%
def train(model, steps, ahead):
    """ahead: so many tokens behind each place are learned."""
    groups = [{"params": [weight], "most": 0.001 if name.startswith("start") else 0.01}     # NEW
              for name, weight in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0)
    chance = torch.Generator().manual_seed(1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = group["most"] * min(1, (step + 1) / 10, 2 - 2 * step / steps)
        rows = torch.randint(len(learn), (8,), generator=chance)
        at = int(torch.randint(256 - 63, (1,), generator=chance))
        part = slice(at, at + 64)
        log_q = whole_texts(model, learn[rows, part], before_learn[rows, part], ahead)
        log_q = log_q.log_softmax(-1)
        labels, places, loss = p_learn[rows, part], log_q.shape[2], 0
        for k in range(ahead):
            loss = loss - (labels[:, k:k + places] * log_q[k]).sum(-1).mean() / ahead
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False)


# %%
def new_speculator():
    torch.manual_seed(0)
    model = MLPSpeculator(V, C, [last], width=width).attach(target)
    nn.init.zeros_(model.start.weight)
    return model


mlp = train(new_speculator(), 90, ahead=4)
medusa = train(Medusa(V, C, [last], heads=2).attach(target), 50, ahead=2)

# %% [markdown]
# ## Along the draft
#
# beta is sum min(p_target, q_draft): how often a draft token is accepted (lesson 7).
# We measure it on the held-out pieces, for each token of a draft.
# (Before it stand the true tokens, as if all of them had been accepted.)
# The GPT that ships as draft model reads everything. So its beta does not depend on the depth.
#
# *Guess first:* Medusa's second head is much worse than its first.
# And the state, after four tokens?

# %%
def betas_of(model, ahead):
    """The mean of beta for the first, second, ... draft token."""
    q_draft = whole_texts(model, test, before_test, ahead).softmax(-1)
    places = q_draft.shape[2]
    return [acceptance(p_test[:, k:k + places], q_draft[k]).mean().item() for k in range(ahead)]


with torch.no_grad():
    of_gpt = acceptance(p_test, gpt(test).softmax(-1)).mean().item()
betas = {"the state": betas_of(mlp, 4), "the draft GPT": [of_gpt] * 4,
         "Medusa": betas_of(medusa, 2)}
table(["draft token", "1st", "2nd", "3rd", "4th"],
      [[name, *(f"{beta:.2f}" for beta in found), *[""] * (4 - len(found))]
       for name, found in betas.items()], "mean beta on held-out text")

# %% [markdown]
# The state hardly falls. It has read every token before its place, so each step is as easy as the
# first. What it loses slowly is the hidden states: they get older.
# The GPT is better, after a training of hours. So look at the slopes here, not at the heights.
#
# Does the state need the hidden states at all? Give it zeros instead.

# %%
nothing = whole_texts(mlp, test, 0 * before_test, 1)[0].softmax(-1)
without = acceptance(p_test[:, :nothing.shape[1]], nothing).mean().item()
print(f"\nbeta of the first draft token: {betas['the state'][0]:.3f}; "
      f"with zeros for hidden states: {without:.3f}")

# %% [markdown]
# ## What a step costs
#
# Count multiplications by hand. A product of a vector with a matrix takes one for each weight.
#
# - The state: carry z takes width x width. head z takes width x V. The embedding is a row of a
#   table: no multiplication at all.
# - The draft GPT: each weight once. (Its embedding matrix is its output head, too.)
#   Attention over the text comes on top.
#
# *Guess first:* by how much is a step of the state cheaper? And by the clock?

# %%
operations = {"the state": width * width + width * V,
              "the draft GPT": sum(weight.numel() for weight in gpt.parameters())}
of_target = sum(weight.numel() for weight in target.parameters())
quiet = Quiet(lambda: step_seconds(target, repeats=3))
step = step_seconds(target)
seconds = {"the state": draft_seconds(mlp), "the draft GPT": step_seconds(gpt)}
quiet.look()
c = {name: seconds[name] / step for name in seconds}
table(["a step of", "multiplications", "in target steps", "by the clock: c"],
      [[name, f"{count:,}", f"{count / of_target:.3f}", f"{c[name]:.3f}"]
       for name, count in operations.items()])

# %% [markdown]
# By the clock the state gains less than by the count. A small product takes hardly any time.
# What remains is the starting of each operation, and the drawing of the token.
#
# ## Is it worth it?
#
# The formula of lesson 11: a draft of gamma tokens gives
# (1 + alpha + ... + alpha^gamma) / (gamma c + v(gamma + 1)).
# Cheap steps help twice: gamma c gets smaller, and a longer draft pays.
# But a lower alpha takes tokens away, most of all from a long draft.
#
# We take alpha to be the mean of beta. v(m) is the time of a target call on m tokens, in target
# steps. We measure v(9), and draw a straight line from v(1) = 1.

# %%
more = max(0, step_seconds(target, tokens=9) / step - 1) / 8          # what one more token costs


def v(m):
    return 1 + more * (m - 1)


def best_speed(alpha, c):
    """-> the best gamma, and the speed-up that the formula gives for it."""
    gamma = best_gamma(alpha, c, v, most=16)
    return gamma, speedup(alpha, gamma, c, v(gamma + 1))


alphas = {"the state": sum(betas["the state"]) / 4, "the draft GPT": of_gpt}
points = {name: (c[name], alphas[name], *best_speed(alphas[name], c[name])) for name in c}
for percent in range(100):                              # how good would the state have to be?
    gamma, speed = best_speed(percent / 100, c["the state"])
    if speed >= points["the draft GPT"][3]:
        points["the state, to tie with it"] = c["the state"], percent / 100, gamma, speed
        break
table(["draft model", "c", "alpha", "best gamma", "speed-up by the formula"],
      [[name, f"{cost:.3f}", f"{alpha:.2f}", gamma, f"{speed:.2f}"]
       for name, (cost, alpha, gamma, speed) in points.items()])
quiet.tell("c 0.03 for the state, and 0.16 for the draft GPT")

# %% [markdown]
# Read the last line: the state may accept less often than the GPT, and still be as fast.
# After a training of seconds it is far below that alpha. A training of minutes gets near.
#
# The picture: on the left beta along the draft. On the right the speed-up against c, a line for
# each alpha. To go left along a line is to get cheaper. To go down is to accept less.

# %%
costs = [i / 100 for i in range(31)]
lines = {alpha: [best_speed(alpha, cost)[1] for cost in costs] for alpha in (.3, .5, .7, .9)}
figures.the_state(betas, costs, lines,
                  {name: (cost, speed) for name, (cost, _, _, speed) in points.items()})

# %% [markdown]
# ## Two mistakes that no text shows
#
# A draft model may be wrong in any way, and the text stays the target's. So look elsewhere.
#
# - *One place off.* The reader (it runs the network while drafting) hands over the hidden states of
#   the token before the right one.
# - *Rejected tokens count.* The reader puts the hidden states of a round where they would belong if
#   all draft tokens had been accepted. After a rejection they stand at the wrong places.
#
# The right reader keeps the hidden states by place: `kept[:, i]` are those before token i.
# What was rejected is written over. So it also works for a text that shrinks, if tokens are taken
# back. (`start` reads the end of the text. `commit` hears which rows of a round were accepted,
# `path`, and how many draft tokens these are, `count`.)

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
# Three checks for each reader:
#
# 1. *The text.* Walk two tokens (two rounds, if the first one ends with a rejection), and compare
#    with the target's own distribution.
# 2. *Token by token.* Training reads whole texts, drafting reads one token after the other.
#    Both must say the same, at every place and for every step.
#    (tests/models/test_learned.py does that.)
# 3. *After some rounds.* Let it draft for a while. What does it say behind this text?
#    A call on the whole text must say the same.
#
# A reader's `start` says what follows the text. Its `step` reads one draft token more.
#
# *Guess first:* which check sees which mistake?

# %%
def whole_text(tokens, ahead):
    """What the network says of whole texts, given the true hidden states."""
    hidden = small(tokens, layers=model.layers)[1]
    return whole_texts(model, tokens, before_tokens(hidden), ahead).softmax(-1)


def token_by_token(reader):
    tokens = torch.randint(3, (1, 12), generator=torch.Generator().manual_seed(1))
    whole, gap = whole_text(tokens, 3), 0.0
    for length in range(2, 10):
        text = Text(tokens[:, :length].tolist(), 8, 3)
        reader.begin(text, [0], prefill(small, text, layers=model.layers)[1])
        said = reader.start(text, reader.lag, 0)
        for k in range(3):
            gap = max(gap, (said[0, 0].softmax(-1) - whole[k, 0, length - 1]).abs().max().item())
            said = reader.step(tokens[:, length + k, None], 0)
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
        said = reader.start(reader.text, reader.lag, 0)[0, 0].softmax(-1)
        whole = whole_text(torch.tensor(reader.text.ids()), 1)
        worst = max(worst, (said - whole[0, 0, -1]).abs().max().item())
    return worst


def off_by(reader):
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(
        small, drafter_with(reader, 1), [0, 1], 2, dice=dice))))
    return distance(found, target_distribution(small, [0, 1], 2))[1]


rows, gaps = [], {}
for name, reader in readers.items():
    gaps[name] = [check(reader(model, 3)) for check in (off_by, token_by_token, after_rounds)]
    rows.append([name, *(f"{gap:.0e}" for gap in gaps[name])])
table(["reader", "the text", "token by token", "after some rounds"], rows, "greatest difference")
assert max(gaps["right"]) < 1e-12 and max(found[0] for found in gaps.values()) < 1e-12
assert gaps["one place off"][1] > 1e-3 and min(found[2] for found in list(gaps.values())[1:]) > 1e-3

# %% [markdown]
# The text sees neither. What the mistake costs is acceptance:

# %%
q_late = whole_texts(mlp, test, before_tokens(before_test), 1)[0].softmax(-1)
of_late = acceptance(p_test, q_late).mean().item()
print(f"\nbeta of the first draft token: {betas['the state'][0]:.3f}; "
      f"with hidden states one place off: {of_late:.3f}")

# %% [markdown]
# Compare with the beta for zeros, above. Those of the wrong token are hardly better than none.
# Would you have noticed that from the speed alone? Hardly.
#
# ## Three things to know
#
# 1. A state that each draft token changes knows what stands before its place. So acceptance hardly
#    falls along the draft. A step is two products and a row of a table.
# 2. A cheaper step allows a lower alpha, and pays for a longer draft. The formula of lesson 11 says
#    how much lower.
# 3. Wrong hidden states cost acceptance, and the text does not show it. Compare what is predicted
#    for a whole text with what is predicted token by token, and again after some rounds.
#
# ## Change this and run again
#
# 1. Take the special treatment of `start` away: write `0.01` for `0.001`, and take the line with
#    `nn.init.zeros_` out. What becomes of the first draft token, and what of the fourth?
# 2. Write `width = 512`. How do c, the multiplications and alpha change?
# 3. Write `whole_texts(mlp, test, 0 * before_test, 4)` in a line of your own, and measure all four
#    betas.
#    At which draft token do zeros in place of the hidden states cost least, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# Next: lesson 25 drafts the target's hidden states themselves.
