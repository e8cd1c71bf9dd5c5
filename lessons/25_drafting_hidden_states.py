# %% [markdown]
# # Drafting hidden states
#
# **Can a draft model go on thinking where the target stopped?**
#
# The target's last layer computes a vector for every token, its *hidden state*, and the output head
# turns this vector into a distribution. So a model that predicts the next hidden state predicts the
# next distribution. One small layer may be enough, because the target has done most of the work.
# This is EAGLE (Li et al. 2024, arXiv 2401.15077).
#
# We build on the hidden states of *What the target knows ahead* and on the idea of *A state that
# reads its draft*. The training takes some seconds on a few thousand tokens, so alpha is low. Watch
# how it changes from line to line, and along the draft. The last line is of `prefix`, a draft model
# that ships and was trained far longer.

# %%
import torch
import torch.nn.functional as F

import figures
from kit import along, of_target, table, train_layer, windows
from nanospec.attention import Call
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.methods.draft_models.eagle import Eagle
from nanospec.methods.draft_models.losses import total_variation
from nanospec.methods.draft_models.unrolled import before_tokens, whole_texts

torch.set_num_threads(1)                                    # nothing is timed here
target, prefix, tokenizer = load_pair(draft_model="prefix")
target.requires_grad_(False)
C, V, L = target.config.channels, target.config.vocab_size, target.config.layers

# %% [markdown]
# ## One hidden state, two futures
#
# A text ends in "for i in". The target has read it, and its last hidden state tells which tokens
# may come. Suppose that these are "range" and "self". One of them is drawn with dice, and the
# hidden state cannot know which one, because it was there before the token was drawn. (Tokens are
# pieces of words: " r" may be the beginning of " range".)
#
# *Guess first:* how far apart are the target's next distributions after the two tokens? (Total
# variation: 0 is the same, 1 is nothing in common.)

# %%
ids = tokenizer.encode("import os\n\ndef total(numbers):\n    for i in")
with torch.no_grad():
    first, second = target(torch.tensor([ids]))[0, -1].topk(2).indices.tolist()
    futures = target(torch.tensor([ids + [first], ids + [second]]))[:, -1].log_softmax(-1)
apart = total_variation(futures[0], futures[1]).item()
pieces = [repr(tokenizer.decode([token])) for token in (first, second)]
print(f"\nafter {pieces[0]} and after {pieces[1]}: {apart:.2f} apart")

# %% [markdown]
# *Answer:* hardly anything is common to both. Different distributions come from different hidden
# states, so two next hidden states are possible after this one.
#
# So the layer also needs the token, which stands *one ahead* of the hidden state:
#
# | | | | | | |
# |---|---|---|---|---|---|
# | tokens | x_0 | x_1 | x_2 | x_3 | |
# | hidden state before it | zeros | h_0 | h_1 | h_2 | |
# | the layer predicts | h_0 | h_1 | h_2 | h_3 | read by the output head: x_4 may be ... |
#
# x_3 is the last token of the text. The target has drawn it and has not read it yet, so h_3 is
# missing.
#
# ## With and without the token
#
# To see how much the token is worth, we first collect hidden states. The target reads `windows` of
# 128 tokens once, from the middle of training files and of held-out files. `of_target` (in kit.py)
# returns its hidden states, and the logarithms of its distributions.

# %%
train_texts, held_texts = read_texts()
tokens, held = windows(tokenizer, train_texts, 64), windows(tokenizer, held_texts, 12)
hidden, p_target = of_target(target, tokens, [L - 1])
held_hidden, held_p = of_target(target, held, [L - 1])
print(f"{tokens.numel():,} tokens to train on, {held.numel():,} to judge by")

# %% [markdown]
# The simplest prediction of the next hidden state is linear: prediction = inputs @ weights, with
# the weights of the smallest squared error. A formula gives these weights, and nothing has to be
# trained.
#
# We compute it twice: from h_(i-1) alone, and from the embedding of x_i together with h_(i-1).
# "Hidden state" means here what the output head reads, so after the last norm.
#
# We judge both on held-out text. *Explained* is 1 - squared error / squared distance from the mean.
# alpha is the mean of sum min(p_target, q_draft) over all places. (The last two lessons called it
# mean beta.) Here q_draft is the target's output head applied to the prediction.
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
    """(2C, C): the weights of the smallest squared error, slightly regularised."""
    a = inputs_of(tokens, hidden, with_token).flatten(0, 1)
    wanted = target.norm(hidden[:, 1:, -1]).flatten(0, 1)
    return torch.linalg.solve(a.T @ a + 10 * torch.eye(2 * C), a.T @ wanted)

# %%
shown, line, lines_alpha = [], {}, {}
real = target.norm(held_hidden[:, 1:, -1])
for with_token in 0, 1:
    line[with_token] = straight_line(with_token)
    with torch.no_grad():
        predicted = inputs_of(held, held_hidden, with_token) @ line[with_token]
        q_draft = target.head(predicted).log_softmax(-1)
    left = ((predicted - real) ** 2).sum() / ((real - real.mean((0, 1))) ** 2).sum()
    lines_alpha[with_token] = 1 - total_variation(held_p[:, 1:], q_draft).mean().item()
    shown.append(["hidden state and token" if with_token else "hidden state alone",
                  f"{1 - left:.2f}", f"{lines_alpha[with_token]:.2f}"])
table(["a straight line from", "explained", "alpha"], shown)
assert lines_alpha[1] > lines_alpha[0] + .05

# %% [markdown]
# *Answer:* much better. With the token, the layer knows which of the futures was taken. That is the
# idea of EAGLE.
#
# ## The layer
#
# EAGLE's layer begins with such a linear map, called `fuse`. One layer of a GPT follows: attention,
# so that it can look back, and then an MLP. Its result is the prediction. The output head is the
# target's own and is not trained.
#
# We start from the linear prediction: `fuse` gets its weights, and the rest adds nothing yet. The
# cell also writes the layer out by hand. After training we compare it with
# nanospec/methods/draft_models/eagle.py.

# %%
def new_eagle():
    torch.manual_seed(1)
    model = Eagle(V, C, [L - 1], target.config.heads, target.config.kv_heads, C).attach(target)
    weights = line[1].T.clone()                         # (C, 2C): the embedding's part stands first
    weights[:, :C] /= spread
    model.fuse.weight.data = weights
    for matrix in model.attention.out, model.mlp.down:  # what these two compute is added
        matrix.weight.data.zero_()
    return model


@torch.no_grad()
def by_hand(model, tokens, hidden):
    before = F.pad(target.norm(hidden[:, :-1, -1]), (0, 0, 1, 0))     # shifted; zeros at first
    x = model.fuse(torch.cat([target.embedding(tokens), before], -1))
    call = Call(model.rope(tokens.shape[1]))            # positions; attention sees all before
    x = x + model.attention(model.attention_norm(x), call, 0)
    x = x + model.mlp(model.mlp_norm(x))
    return target.head(x)


eagle = new_eagle()

# %% [markdown]
# The loss has two parts. The prediction should be near the target's hidden state (`hidden_loss`),
# and the distribution read from it should be near the target's distribution (`token_loss`: forward
# KL, the mean of log(p_target / q_draft) over tokens drawn from p_target, with weight 0.1).
# `train_layer` (in kit.py) lowers this loss with AdamW, on four windows per step.
#
# After the text, the layer has no hidden states of the target. It reads its own predictions:
#
# | draft token | the layer reads | and predicts | the output head says |
# |---|---|---|---|
# | 1 | x_3 and the target's h_2 | h'_3 | x_4 may be ... |
# | 2 | x_4 and its own h'_3 | h'_4 | x_5 may be ... |
# | 3 | x_5 and its own h'_4 | h'_5 | x_6 may be ... |
#
# Once the draft is verified, the target's hidden states take the place of the predictions.
#
# `along` measures alpha on held-out text for draft tokens 1 to 5. (The draft tokens are those of
# the text, because token 3 is judged only if tokens 1 and 2 were accepted.)
#
# *Guess first:* of EAGLE's alpha at draft token 1, how much is left at draft token 5: a quarter,
# half, or more?

# %%
held_out = held, held_hidden, held_p
fall = {"the straight line": along(eagle, held_out)}
train_layer(eagle, (tokens, hidden, p_target), steps=40)
fall["EAGLE"] = along(eagle, held_out)
eagle.requires_grad_(False)
theirs = whole_texts(eagle, held, before_tokens(held_hidden), 1)[0]
assert (by_hand(eagle, held, held_hidden) - theirs).abs().max() < 1e-3


def show(fall):
    table(["alpha at draft token", "1", "2", "3", "4", "5", "left at 5"], [
        [name, *(f"{a:.3f}" for a in alphas), f"{alphas[4] / alphas[0]:.0%}"]
        for name, alphas in fall.items()])


show(fall)
assert fall["EAGLE"][0] > fall["the straight line"][0] + .01
assert fall["EAGLE"][4] < fall["EAGLE"][0] - .02

# %% [markdown]
# *Answer:* 80%. A few seconds of training help, by .026 at draft token 1 and by .007 at draft token
# 5. So alpha falls more steeply than before: a prediction made from predictions is worse. EAGLE is
# trained on the target's hidden states, and while it drafts it reads its own predictions, which it
# has never practised.
#
# `prefix` also reads the target's hidden states. After the text it continues a state of its own, as
# in *A state that reads its draft*.
#
# *Guess first:* it was trained for as long as it takes to be useful. How much of its alpha is left
# at draft token 5?

# %%
fall["prefix, trained longer"] = along(prefix, (held, *of_target(target, held, prefix.layers)))
show(fall)
left_at_5 = {name: alphas[4] / alphas[0] for name, alphas in fall.items()}
assert fall["prefix, trained longer"][0] > fall["EAGLE"][0] + .1
assert left_at_5["prefix, trained longer"] > left_at_5["EAGLE"] + .1
figures.drafting_hidden_states(fall)

# %% [markdown]
# *Answer:* 94%, and its alpha is far above that of the others. It had more training, and it has
# practised reading its own states; which of the two counts for how much, this table does not show.
# *Practice on its own drafts*, in the appendix, takes the second by itself.
#
# ## Relatives
#
# *Early exit* adds no layer at all: the target's own first layers draft (LayerSkip, Elhoushi et al.
# 2024). *Multi-token prediction* trains such a layer together with the target, and publishes both
# (DeepSeek-V3, 2024). `python -m training early_exit` and `mtp` make one of each, and
# `lessons/FURTHER.md` says what they cost and bring.
#
# ## Three things to know
#
# 1. A hidden state does not tell which token was drawn, so the layer reads the token one ahead of
#    it. One layer can be enough, because the target has done most of the work.
# 2. The layer predicts the hidden state, and the target's own output head makes a distribution of
#    it. So one layer is all that is trained.
# 3. After the text the layer reads its own predictions, and it gets worse from token to token.
#
# ## Change this and run again
#
# 1. Set `eagle.hidden_loss, eagle.token_loss = 0, 1` before `train_layer(eagle, ...)`. What becomes
#    of draft token 1, and of draft token 5?
# 2. Write `before * 0` in place of `before` in the last line of `inputs_of`. Now the second line is
#    a linear prediction from the token alone. What is the hidden state worth? (Look at this table
#    only. What follows was made for the better prediction.)
# 3. Train for 120 steps instead of 40. Which draft tokens gain most?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *What to train on* asks what a draft model should be taught, and on which text. Exercises:
# 18 (one ahead).
