# %% [markdown]
# # Leaving early
#
# **Can the target draft for itself?**
#
# So far a second network drafted. It must be trained, stored and supplied with the text. But a
# target of 24 layers contains a smaller model: its own first layers. Let a token go through six
# layers, and then ask the output head what comes next. This is *early exit* (LayerSkip, Elhoushi et
# al. 2024). It drafts badly, but nearly everything that it computes is used again.
#
# We need *The cache*, the formula of *How fast*, and the hidden states of *What the target knows
# ahead*.

# %%
import torch

import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.generate import generate
from nanospec.methods.draft_models.early_exit import EarlyExit, first_blocks, target_for
from nanospec.model import cached_call
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance, best_gamma, expected_tokens

torch.set_num_threads(1)
target, gpt, tokenizer = load_pair()
target.requires_grad_(False)                    # it stays as it is
L, C = target.config.layers, target.config.channels

# %% [markdown]
# ## What does the target think after two layers?
#
# Every layer reads x, C numbers for each token, and adds something to it: x = x + layer(x). At the
# end come a norm and the output head, but they can be applied earlier, too.
# `first_blocks(target, depth, tokens)` returns x after the first `depth` layers.
#
# We leave after 3, 6, ... 24 layers, train nothing, and measure beta = sum min(p_target, q_draft),
# averaged over held-out text.
#
# *Guess first:* after how many of the 24 layers is beta above one half?

# %%
def pieces_of(texts, count):
    """(count, 128) tokens, each piece from the middle of a text."""
    found = [tokenizer.encode(text[len(text) // 2:][:1200])[:128] for text in texts]
    return torch.tensor([ids for ids in found if len(ids) == 128][:count])


train_texts, held_out = read_texts()
learn, test = pieces_of(train_texts, 96), pieces_of(held_out, 12)
with torch.no_grad():
    p_learn, p_test = target(learn).softmax(-1), target(test).softmax(-1)
    untrained = {}
    for depth in range(3, L + 1, 3):
        early = target.head(target.norm(first_blocks(target, depth, test))).softmax(-1)
        untrained[depth] = acceptance(p_test, early).mean().item()
table(["layers", *untrained], [["beta", *(f"{beta:.2f}" for beta in untrained.values())]])
assert untrained[L] > 0.999

# %% [markdown]
# *Answer:* only after the last ones. The first layers alone predict little, because their output is
# made for the next layer.
#
# ## An exit of its own
#
# So we give the exit a *translator*, a small network between the layer and the target's own head.
#
#     logits = output head(norm(h + mlp(norm(h))))
#
# `EarlyExit` consists of this. It is trained by the cross-entropy with the target's own
# distribution. The layers are frozen, so h is computed only once.

# %%
def trained_exit(depth, steps=60):
    """An exit after `depth` layers, and beta on held-out text."""
    torch.manual_seed(0)
    model = EarlyExit(target.config.vocab_size, C, [depth - 1], hidden=C).attach(target)
    with torch.no_grad():
        h_learn, h_test = (first_blocks(target, depth, some) for some in (learn, test))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        some = torch.arange(8) + 8 * (step % 12)                    # 8 of the 96 pieces
        loss = -(p_learn[some] * model.leave(h_learn[some]).log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        beta = acceptance(p_test, model.leave(h_test).softmax(-1)).mean().item()
    return model.requires_grad_(False), beta


exits = {depth: trained_exit(depth) for depth in (3, 6, 12)}
table(["layers", *exits], [["untrained", *(f"{untrained[depth]:.2f}" for depth in exits)],
                           ["trained", *(f"{beta:.2f}" for _, beta in exits.values())]],
      "60 steps, some seconds; docs/results/ has longer ones")
assert all(beta > untrained[depth] + 0.04 for depth, (_, beta) in exits.items())

# %% [markdown]
# ## Whose keys and values may stay?
#
# The draft reads token x with the first six layers, and they write keys and values of x into a
# cache. Later the target reads x with all 24 layers. *Guess first:* must its first six layers write
# their keys and values again?

# %%
@torch.no_grad()
def kept(tokens, layers):
    """Keys and values (layers, 2, T, D) that these layers write if the other ones are left out."""
    cache, T = target.new_cache(1, tokens.shape[1]), tokens.shape[1]
    x, call = target.embedding(tokens), cached_call(target.config, T, cache, T)
    for layer in layers:
        x = target.blocks[layer](x, call, layer)
    return cache.kv[list(layers), :, 0, :, 0]


some = test[:1, :32]
whole = kept(some, range(L))
early, skipping = kept(some, range(6)), kept(some, [*range(6), L - 2, L - 1])
gap = {"first six layers, the rest left out": (early - whole[:6]).abs().max().item(),
       "the same, with the last two after them": (skipping[:6] - whole[:6]).abs().max().item(),
       "the last two layers, fed by layer 6": (skipping[6:] - whole[-2:]).abs().max().item()}
table(["keys and values of", "off by"], [[name, f"{off:.3g}"] for name, off in gap.items()],
      "from those that the whole target writes")
alone, _, late = gap.values()
assert alone < 1e-4 < late

# %% [markdown]
# *Answer:* no. The first layers have the same weights and read the same tokens. So their keys and
# values are *the target's* and not a guess, and they may stay. Draft and target share one cache.
#
# Other methods leave out layers in the middle (Draft & Verify, Zhang et al. 2023). Then the layers
# after the gap get a different input, their keys and values are wrong, and the target has to write
# them again.
#
# ## Going on instead of starting again
#
# The target need not even read the draft tokens with its first layers. Their output is there, and
# the other layers can go on from it. `target_for(target, drafter)` makes an object that does so. It
# stands in the target's place and answers as the target does. (For a drafter of another kind it is
# the target itself.)
#
# *Guess first:* how many rows go through each layer in a round with gamma = 4?

# %%
rows, model, prompt, counts = [0] * L, exits[6][0], test[0, :32].tolist(), {}


def counting(layer):
    """What torch calls after each call of a layer."""
    def add(block, inputs, out):
        rows[layer] += inputs[0].shape[1]
    return add


hooks = [block.register_forward_hook(counting(i)) for i, block in enumerate(target.blocks)]
for name, drafter in (("leaves after six layers", ModelDrafter(model, 4)),
                      ("draft GPT", ModelDrafter(gpt, 4))):
    rows[:] = [0] * L
    rounds = list(speculate(target_for(target, drafter), drafter, prompt, 40, seed=1))
    counts[name] = [(count - len(prompt) + 1) / len(rounds) for count in rows]      # no prompt
for hook in hooks:
    hook.remove()
shown = 1, 6, 7, L
table(["rows in a round, of layer", *shown],
      [[name, *(f"{row[layer - 1]:.0f}" for layer in shown)] for name, row in counts.items()])
assert all(row == [5.0] * L for row in counts.values())

# %% [markdown]
# *Answer:* five, whichever of the two drafts. With the draft GPT, each layer reads five rows in one
# call, and the draft's own work comes on top. With the exit it is five rows as well, and nothing
# comes on top, because four of them *were* the draft. (Layers 1 to 6 read them one by one. A call
# on one row costs nearly as much as a call on five, so this is where the time goes.)
#
# The text is still what the target alone writes.

# %%
drafter = ModelDrafter(model, 4)
goes_on = target_for(target, drafter)
greedy = tokens_of(speculate(goes_on, drafter, prompt, 40, temperature=0))
assert greedy == list(generate(target, prompt, 40, temperature=0))
small = small_gpt(3, 2, 5)
drafter = ModelDrafter(small_learned("early_exit", small), 2)
goes_on = target_for(small, drafter)
found, paths = walk(lambda dice: tuple(tokens_of(speculate(
    goes_on, drafter, [0, 1], 2, dice=dice, top_k=2))))
off = distance(found, target_distribution(small, [0, 1], 2, top_k=2))[1]
print(f"\ngreedy: the same {len(greedy)} tokens; {paths} paths, the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# ## Does it pay?
#
# A draft token that goes through d of L layers costs about d / L of a target step, so c = d / L.
# The target then saves its first d layers but not their time, because it still has to run them for
# the last draft token. The cost of a round is again gamma c + v(gamma + 1). We take round numbers,
# v(m) = 1 + 0.05 (m - 1), and c = 0.12 for the draft GPT; *How fast* measures both on your machine.
#
# *Guess first:* which exit is the best? Is it better than the draft GPT?

# %%
with torch.no_grad():
    of_gpt = acceptance(p_test, gpt(test).softmax(-1)).mean().item()
candidates = {f"exit after {depth}": (beta, depth / L) for depth, (_, beta) in exits.items()}
candidates["draft GPT"] = of_gpt, 0.12


def v(m):
    return 1 + 0.05 * (m - 1)
speed = {}
for name, (alpha, c) in candidates.items():
    gamma = best_gamma(alpha, c, v)
    speed[name] = alpha, c, gamma, expected_tokens(alpha, gamma) / (gamma * c + v(gamma + 1))
table(["drafter", "alpha", "c", "best gamma", "speed-up by the formula"],
      [[name, f"{alpha:.2f}", f"{c:.2f}", gamma, f"{times:.2f}"]
       for name, (alpha, c, gamma, times) in speed.items()])

# %% [markdown]
# *Answer:* none is better than the draft GPT. Three of the 24 layers cost as much as it does, and
# what they draft is accepted less often. After twelve layers a draft token costs half a step of the
# target, and no acceptance makes up for that. A target can also be trained to be left early, as
# LayerSkip does, and then no translator is needed. The target that ships was not; docs/results/ has
# what was measured with one of eight layers.

# %%
figures.leaving_early(untrained, {depth: beta for depth, (_, beta) in exits.items()}, of_gpt,
                      {name: times for name, (_, _, _, times) in speed.items()})

# %% [markdown]
# ## Three things to know
#
# 1. A target's first layers can draft. They need an exit of their own, or a target that was trained
#    to be left early.
# 2. Their keys and values are the target's. Draft and target share one cache, and the target goes
#    on where the draft has left. After a gap in the layers this does not hold.
# 3. c is the share of the layers. Early exit pays where that share is small.
#
# ## Change this and run again
#
# 1. Train for 10 steps, then for 240 (`trained_exit(depth, 240)`). Which exit gains most?
# 2. In `kept`, leave out layer 3 alone: `[0, 1, *range(3, L)]`. Which keys are still right?
# 3. Let it draft a tree: `TreeDrafter(model, shape(2, 2))` instead of `ModelDrafter(model, 4)` in
#    the cell that counts (imports: nanospec.methods.trees.drawn, nanospec.methods.trees.shapes),
#    and take out its `assert`. What do layers 1 to 6 do now, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Mixing on purpose* gives up that every token is the target's.
