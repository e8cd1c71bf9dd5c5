# %% [markdown]
# # Drafting hidden states
#
# **Can a draft model go on thinking where the target stopped?**
#
# The target's last layer puts out a vector for every token: its *hidden state* (lesson 23).
# (EAGLE's authors call it a feature.)
# The target's output head turns this vector into a distribution.
# So a model that predicts the next hidden state predicts the next distribution.
# One small layer may be enough, because the target has done most of the work.
# This is EAGLE (Li et al. 2024, arXiv 2401.15077).
#
# This lesson builds on lesson 23 (hidden states) and lesson 24 (a state that reads draft tokens).
# All training here takes some ten seconds on a few thousand tokens.
# `python train_tiny.py --what eagle` makes a better one, in hours.

# %%
import torch
import torch.nn.functional as F

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.draft_models.eagle import Eagle, EagleReader
from nanospec.draft_models.eagle3 import Eagle3
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.model import Call
from nanospec.proof.tables import TableModel, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from nanospec.training.learned import learned_loss
from nanospec.training.losses import forward_kl, total_variation
from nanospec.training.whole import before_tokens, whole_texts

torch.set_num_threads(1)                                    # nothing is timed here
target, _, tokenizer = load_pair()
C, V, L = target.config.channels, target.config.vocab_size, target.config.layers

# %% [markdown]
# ## One hidden state, two futures
#
# A text ends in "for i in". The target has read it, and its last hidden state says which tokens
# may come.
# Say that "range" and "self" may come. One of them is drawn, with dice.
# The hidden state cannot know which one. It was there before the dice were thrown.
# (Tokens are pieces of words: " r" may be the beginning of " range".)
#
# *Guess first:* how far apart are the target's next distributions behind the two tokens?
# (Total variation: 0 is the same, 1 is nothing in common.)

# %%
ids = tokenizer.encode("import os\n\ndef total(numbers):\n    for i in")
with torch.no_grad():
    first, second = target(torch.tensor([ids]))[0, -1].topk(2).indices.tolist()
    futures = target(torch.tensor([ids + [first], ids + [second]]))[:, -1].log_softmax(-1)
apart = total_variation(futures[0], futures[1]).item()
pieces = [repr(tokenizer.decode([token])) for token in (first, second)]
print(f"\nbehind {pieces[0]} and behind {pieces[1]}: {apart:.2f} apart")

# %% [markdown]
# So give the layer the token too. It stands *one ahead* of the hidden state:
#
# | | | | | | |
# |---|---|---|---|---|---|
# | tokens | x_0 | x_1 | x_2 | x_3 | |
# | hidden state before it | zeros | h_0 | h_1 | h_2 | |
# | the layer predicts | h_0 | h_1 | h_2 | h_3 | read by the output head: x_4 may be ... |
#
# x_3 is the last token of the text. The target has drawn it and has not read it. So h_3 is missing.
#
# ## With and without the token
#
# How much is the token worth? First we collect hidden states: once, for windows of 128 tokens.
# The target reads windows of training files, and some of held-out files.

# %%
def windows(texts, count):
    """(count, 128) tokens, from the middle of so many files."""
    middles = [text[len(text) // 3:][:3000] for text in texts if len(text) > 6000]
    chosen = middles[::max(1, len(middles) // count)]
    return torch.tensor([tokenizer.encode(text)[:128] for text in chosen[:count]])


@torch.no_grad()
def of_target(tokens):
    """Windows -> hidden states of three layers (B, T, 3, C), log-probabilities after each token."""
    logits, hidden = target(tokens, layers=LAYERS)
    return hidden, logits.log_softmax(-1)


LAYERS = [L // 4, L // 2, L - 1]
train_texts, held_texts = read_texts()
tokens, held = windows(train_texts, 64), windows(held_texts, 12)
hidden, p_target = of_target(tokens)
held_hidden, held_p = of_target(held)
print(f"{tokens.numel():,} tokens to train on, {held.numel():,} to judge by")

# %% [markdown]
# Now the simplest prediction of the next hidden state: a straight line.
# prediction = inputs @ weights, with the weights of the smallest squared error.
# A formula gives these weights. There is nothing to train.
#
# We compute it twice: from h_(i-1) alone, and from the embedding of x_i beside h_(i-1).
# "Hidden state" means here what the output head reads, so after the last norm.
#
# *Guess first:* how much better is the second?

# %%
spread = target.embedding.weight.std().item()           # embeddings are small numbers: make them 1


@torch.no_grad()
def inputs_of(tokens, hidden, with_token):
    """For every token but the first: [embedding of the token, hidden state before it]."""
    before = target.norm(hidden[:, :-1, -1])
    embedded = target.embedding(tokens[:, 1:]) / spread
    return torch.cat([embedded * with_token, before], -1)


@torch.no_grad()
def straight_line(with_token):
    """(2C, C): the weights of the smallest squared error, ever so slightly held back."""
    a = inputs_of(tokens, hidden, with_token).flatten(0, 1)
    wanted = target.norm(hidden[:, 1:, -1]).flatten(0, 1)
    return torch.linalg.solve(a.T @ a + 10 * torch.eye(2 * C), a.T @ wanted)


# %% [markdown]
# Judge both on held-out text. *Explained* is 1 - squared error / squared distance from the mean.
# alpha is sum min(p_target, q_draft), a mean over all places (lesson 12).
# q_draft is what the target's output head says of the prediction.

# %%
rows, line, lines_alpha = [], {}, {}
real = target.norm(held_hidden[:, 1:, -1])
for with_token in 0, 1:
    line[with_token] = straight_line(with_token)
    with torch.no_grad():
        predicted = inputs_of(held, held_hidden, with_token) @ line[with_token]
        q_draft = target.head(predicted).log_softmax(-1)
    left = ((predicted - real) ** 2).sum() / ((real - real.mean((0, 1))) ** 2).sum()
    lines_alpha[with_token] = 1 - total_variation(held_p[:, 1:], q_draft).mean().item()
    rows.append(["hidden state and token" if with_token else "hidden state alone",
                 f"{1 - left:.2f}", f"{lines_alpha[with_token]:.2f}"])
table(["a straight line from", "explained", "alpha"], rows)
assert lines_alpha[1] > lines_alpha[0] + .05

# %% [markdown]
# The token decides. That is the first idea of EAGLE.
#
# ## The layer
#
# EAGLE's layer begins with such a straight line, called `fuse`.
# Behind it stands one layer of a GPT: attention, so that it can look back, and an MLP.
# Its result is the prediction.
# The output head is the target's own. It is not trained.
#
# We start at the straight line: `fuse` gets its weights, and the rest adds nothing yet.
# The cell also writes the layer out by hand.
# After training we compare it with nanospec/draft_models/eagle.py.

# %%
def new_eagle():
    torch.manual_seed(1)
    model = Eagle(V, C, LAYERS[-1:], target.config.heads, target.config.kv_heads, C).attach(target)
    weights = line[1].T.clone()                         # (C, 2C): the embedding's part stands first
    weights[:, :C] /= spread
    model.fuse.weight.data = weights
    for matrix in model.attention.out, model.mlp.down:  # whatever these two say is added
        matrix.weight.data.zero_()
    return model


@torch.no_grad()
def by_hand(model, tokens, hidden):
    before = F.pad(target.norm(hidden[:, :-1, -1]), (0, 0, 1, 0))     # one ahead: shift by one
    before[:, 0] = target.norm(torch.zeros(C))          # before the first token there is none
    x = model.fuse(torch.cat([target.embedding(tokens), before], -1))
    call = Call(model.rope(tokens.shape[1]))            # positions; attention sees all before
    x = x + model.attention(model.attention_norm(x), call, 0)
    x = x + model.mlp(model.mlp_norm(x))
    return target.head(x)


eagle = new_eagle()

# %% [markdown]
# The loss has two parts. The prediction shall be near the target's hidden state.
# The distribution read from it shall be near the target's distribution (weight 0.1).
#
# `train` deals out four windows a step. `along` measures alpha on held-out text at each place of a
# draft: draft token 1, 2, ... 5. After the text the layer has no hidden states of the target.
# So for draft token 2 it reads its own prediction. For token 3 it reads what it made of that.
# (The draft tokens are those of the text: somebody looks at token 3 only if 1 and 2 were accepted.)
#
# *Guess first:* how much of alpha is left at draft token 5?

# %%
def train(model, steps, loss, rate=3e-3):
    """AdamW on the cached hidden states. The same windows in the same order for every model."""
    shuffle, where = torch.Generator().manual_seed(0), [LAYERS.index(n) for n in model.layers]
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:            # up in 5 steps; down over the last half
            group["lr"] = rate * min(1, (step + 1) / 5, 2 * (steps - step) / steps)
        some = torch.randperm(len(tokens), generator=shuffle)[:4]
        optimizer.zero_grad()
        loss(model, tokens[some], hidden[some][:, :, where], p_target[some]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def along(model, before=before_tokens):
    """alpha at draft tokens 1 to 5, on the held-out windows."""
    where = [LAYERS.index(n) for n in model.layers]
    logits = whole_texts(model, held, before(held_hidden[:, :, where]), 5)      # (5, B, places, V)
    places, q_draft = logits.shape[2], logits.log_softmax(-1)
    return [1 - total_variation(held_p[:, k:k + places], q_draft[k]).mean().item()
            for k in range(5)]


# %%
def own_loss(model, tokens, hidden, p_target):
    return learned_loss(model, tokens, hidden, p_target, forward_kl)


fall = {"the straight line": along(eagle)}
train(eagle, 40, own_loss)
fall["EAGLE"] = along(eagle)
eagle.requires_grad_(False)
theirs = whole_texts(eagle, held, before_tokens(held_hidden[:, :, -1:]), 1)[0]
assert (by_hand(eagle, held, held_hidden) - theirs).abs().max() < 1e-3
numbers = ["draft token 1", "2", "3", "4", "5"]
table(["alpha at", *numbers], [[name, *(f"{a:.3f}" for a in row)] for name, row in fall.items()])
assert fall["EAGLE"][0] > fall["the straight line"][0] + .01
assert fall["EAGLE"][4] < fall["EAGLE"][0] - .02

# %% [markdown]
# Some seconds of training help. And alpha falls along the draft:
# a prediction made from predictions is worse.
#
# ## One off
#
# The commonest mistake with EAGLE is the pairing. Say that every token is read with the hidden
# state of one place too early: x_i beside h_(i-2). Nothing crashes. What is lost?
#
# *Guess first:* two numbers. alpha at draft token 1, and how far off the text's distribution is.
#
# `reader` is what runs a draft model (lesson 24). `kept` are the hidden states before each token.

# %%
class OneLate(EagleReader):
    """EAGLE's reader with a wrong pairing."""

    def start(self, text, lag, kv_length):
        right = self.kept
        self.kept = before_tokens(right)                                # WRONG: all one place later
        logits = super().start(text, lag, kv_length)
        self.kept = right
        return logits


def text_is_off(reader_kind, new=3, lag=None):
    """Walk `new` tokens of a table of two tokens, with a random EAGLE layer: total variation."""
    big = TableModel(2, seed=6, zeros=.5)
    truth = target_distribution(big, [0, 1], new)
    drafter = ModelDrafter(small_learned("eagle", big), 2)
    drafter.reader = reader_kind(drafter.draft, 2)
    drafter.reader.lag = lag or drafter.reader.lag
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(big, drafter, [0, 1], new, dice=dice))))
    return distance(found, truth)[1]


# %%
fall["one late"] = along(eagle, lambda hidden: before_tokens(before_tokens(hidden)))
off = {"EAGLE": text_is_off(EagleReader), "one late": text_is_off(OneLate)}
table(["pairing", "alpha at draft token 1", "the text is off by"],
      [[name, f"{fall[name][0]:.3f}", f"{off[name]:.0e}"] for name in off])
assert fall["one late"][0] < fall["EAGLE"][0] - .03
assert max(off.values()) < 1e-12

# %% [markdown]
# The text is exact with both. A test of the text will never find this mistake.
# Only a test of what the draft model says can find it. Exercise 18 is such a test.
#
# ## After acceptance: read again
#
# The layer keeps a cache of what it has read (lesson 4). While it drafts, it reads its own
# predictions, and they go into the cache. Then the target reads the draft.
# Now the target's hidden states of the accepted tokens are there.
# So the layer reads these tokens a second time, with the target's hidden states.
#
# In code: `start` reads the last `lag` tokens of the text again. For EAGLE, `lag` is gamma + 1.
# For a GPT as draft model it is 2: it needs no hidden states, so its cache is right already.
# What if we take 2 for EAGLE, too? We count cache slots that hold a prediction, after 40 tokens.

# %%
@torch.no_grad()
def predictions_left(lag):
    """(slots that differ from a layer which has read the text with the target's own, slots)."""
    drafter = ModelDrafter(eagle, 4)
    drafter.reader.lag = lag
    written = tokens_of(speculate(target, drafter, ids, 40, temperature=0, seed=1))
    text = Text([ids + written], 5, V)
    fresh, (_, read) = eagle.reader(4), prefill(target, text, layers=eagle.layers)
    fresh.begin(text, [0], read)
    known = len(ids) + len(written) - 10                # the last round is not read again yet
    keys = [reader.cache.k[0][0, :known].flatten(1) for reader in (drafter.reader, fresh)]
    differ = (keys[0] - keys[1]).norm(dim=1) > 0.01 * keys[1].norm(dim=1)
    return int(differ.sum()), known


left_over = {lag: predictions_left(lag) for lag in (5, 2)}
off["lag 2"] = text_is_off(EagleReader, new=4, lag=2)
for lag, (stale, slots) in left_over.items():
    print(f"reads the last {lag} again: {stale} of {slots} slots hold a prediction")
print(f"lag 2, walked: the text is off by {off['lag 2']:.0e}")
assert left_over[5][0] == 0 < left_over[2][0] and off["lag 2"] < 1e-12

# %% [markdown]
# With 2, accepted draft tokens stay in the cache as predictions. The text is exact again.
# But the layer looks back at these slots, and what stands there is not what it was trained on.
# This bug was found in a real server, too: vllm, issue 14649.
#
# ## EAGLE-3: practise what you will do
#
# EAGLE-1 is trained on the target's hidden states, and then reads its own predictions.
# It never practised that. EAGLE-3 (arXiv 2503.01840) changes three things:
#
# 1. No loss on hidden states. What the layer passes on need not look like the target's.
# 2. It reads three layers of the target, not only the last.
#    A straight line makes one state of them.
# 3. It is *unrolled* in training: the layer reads its own states for some steps, and every step has
#    a loss. The paper calls this *training-time test*.
#
# Unrolling needs a mask. All places of a text are trained at once. Place i at step k stands for a
# draft that began after place i, k tokens ago. It attends to
# - all places up to i, as they were at step 0: the text, read with the target's hidden states;
# - itself at the steps 1 to k: its own draft.
#
# It must not attend to another place's predictions: these belong to another draft.

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
# `Unrolled` in nanospec/training/whole.py computes attention under this mask. Does a draft attend
# to the same? As in lesson 24: a reader that drafts token by token must predict what the unrolled
# layer predicts for a whole text. The reader's cache holds one draft, so there is no other one.

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
# Now train EAGLE-3 twice from the same weights: on one step, and unrolled over three.
# Three steps cost three times as much. So the second gets a third of the training steps.
# Both start without our straight line, so the first number is no fair match for EAGLE's above.
# Look at how the numbers fall from left to right.
#
# *Guess first:* which of the two is better at draft token 1? Which one falls less?

# %%
def new_eagle3(unrolled):
    torch.manual_seed(1)
    heads = target.config.heads, target.config.kv_heads
    model = Eagle3(V, C, LAYERS, *heads, hidden=C, spoken=V).attach(target)
    model.head.weight.data.copy_(target.head.weight)    # its own head starts as the target's
    model.steps = unrolled
    return model


for name, unrolled_steps, steps in ("EAGLE-3", 1, 60), ("EAGLE-3, unrolled", 3, 20):
    fall[name] = along(train(new_eagle3(unrolled_steps), steps, own_loss))
shown = [name for name in fall if name != "one late"]
table(["alpha at", *numbers, "of it left at 5"],
      [[name, *(f"{a:.3f}" for a in fall[name]), f"{fall[name][4] / fall[name][0]:.0%}"]
       for name in shown])
left_at_5 = {name: fall[name][4] / fall[name][0] for name in shown}
assert left_at_5["EAGLE-3, unrolled"] > left_at_5["EAGLE-3"] + .05

# %% [markdown]
# Not unrolled, the layer is good at draft token 1, and much worse at the next ones.
# It may pass on what it likes, and it never had to read that itself.
# Unrolled, it falls much less. It has seen fewer texts, so its first number is lower.
# EAGLE-1 falls little, too: the loss on hidden states keeps its predictions near what it was
# trained on.
# With hours in place of seconds, unrolled training wins along the draft: the paper's result.
#
# ## A smaller vocabulary
#
# EAGLE-3's own output head may leave out rare tokens, which makes it smaller and faster.
# A left-out token has q_draft = 0: it is never drafted, and the rule of lesson 6 stays exact.
# But it is never accepted either. So what the target gives to the tokens that are left is a ceiling
# for alpha.

# %%
short = Eagle3(V, C, LAYERS, 1, 1, C, spoken=V // 4)
short.prepare(tokens.flatten())                         # the most frequent tokens of our text
ceiling = held_p.exp()[..., short.ids].sum(-1).mean().item()
print(f"\n{V // 4} of {V} tokens: alpha can be {ceiling:.2f} at most")

figures.drafting_hidden_states(grid.tolist(), 4, {name: fall[name] for name in shown[1:]})

# %% [markdown]
# ## Three things to know
#
# 1. A hidden state does not say which token was drawn. So the token stands one ahead of it.
# 2. After the text the layer reads its own predictions, and gets worse from token to token.
#    A loss on hidden states or unrolled training lessens that.
#    After acceptance it reads the target's hidden states.
# 3. Wrong pairing, old predictions in the cache, a small vocabulary: all of them change the speed.
#    None of them changes the text.
#
# ## Change this and run again
#
# 1. Set `eagle.hidden_loss, eagle.token_loss = 0, 1` before `train(eagle, ...)`.
#    What becomes of draft token 1, and of draft token 5?
# 2. Write `before * 0` in place of `before` in the last line of `inputs_of`.
#    Now the second row is a straight line from the token alone. What is the hidden state worth?
#    (Look at this table only. What comes behind it was made for the better line.)
# 3. Write `spoken=V // 16` for `spoken=V // 4`. What is the ceiling now?
#    Why may so small a head pay all the same?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# Next: lesson 26 asks what a draft model should be taught, and on which text.
# Exercises: 18 (one ahead).
