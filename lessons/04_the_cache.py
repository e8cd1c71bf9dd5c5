# %% [markdown]
# # 4. The cache
#
# **What may a model keep of the text it has read, and what if part of that text is taken back?**
#
# Lesson 2 was fast with a cache, and lesson 3 put ten tokens into one. If those are guesses, some will be refused, and
# the cache has read what is not in the text. Here we build a cache, then take tokens back, in the right way and in
# wrong ones; in float64, so that a difference is a mistake and not rounding, and on one core.

# %%
import torch

from kit import BLUE, GREEN, INK, RED, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.probs import probs
from nanospec.speculate import speculate

torch.set_num_threads(1)
target, draft, tokenizer = load_pair(dtype=torch.float64)

# %% [markdown]
# ## By hand: one head of attention
#
# A token asks with its *query*; itself and all before it offer a *key* and a *value*. How well query and key agree says
# how much of the value is taken. Key and value depend on nothing behind the token (lesson 3: the mask), so they stay
# as they are while the text grows; old queries are never asked again. So keep keys and values.

# %%
chance = torch.Generator().manual_seed(4)
w_query, w_key, w_value = torch.randn(3, 8, 8, generator=chance, dtype=torch.float64)
tokens = torch.randn(12, 8, generator=chance, dtype=torch.float64)             # twelve tokens, as vectors


def attention(query, keys, values):
    """What a query (8,) takes from T values (T, 8), by the keys beside them; of a single one it takes all."""
    return (keys @ query / 8 ** 0.5).softmax(0) @ values


keys, values = [], []
for t, newest in enumerate(tokens, 1):
    anew = attention(newest @ w_query, tokens[:t] @ w_key, tokens[:t] @ w_value)
    keys, values = keys + [newest @ w_key], values + [newest @ w_value]
    cached = attention(newest @ w_query, torch.stack(keys), torch.stack(values))
    assert (cached - anew).abs().max() < 1e-12
print(f"by hand, {t} tokens: {sum(range(t + 1))} keys computed if always anew, {len(keys)} if kept; the same answers")

# %% [markdown]
# ## The library's: slots and a number
#
# `nanospec/cache.py` has a row of *slots*, one a token, and `length`, how many of them hold the text. New tokens go
# into the slots right above `length`, and see nothing above their own. Taking back is lowering that number: nothing is
# erased, what lies above it is *stale*, and what is read next is written over it. Forget it, and the model answers for
# a text that still holds the guesses; nothing complains, and what comes out looks like a text.

# %%
prompt, guesses, others = map(tokenizer.encode, ["import os\nfor i in", " range(10):\n", " sys.argv"])
gaps = {}                                                           # situation: (largest difference, total variation)


def read(model, cache, ids):
    """Read ids into the slots above `length` and move it; the law behind the last one, (V,)."""
    law = probs(model(torch.tensor([ids]), cache)[0, -1])
    cache.length += len(ids)
    return law


def compare(situation, model, cache, ids, text):
    """Read ids; how far is the law from the one that the model gives without a cache, reading the whole text anew?"""
    gap = (read(model, cache, ids) - probs(model(torch.tensor([text]))[0, -1])).abs()
    gaps[situation] = gap.max().item(), gap.sum().item() / 2        # total variation: lesson 1


for situation, back in [("all", len(guesses)), ("all but one", len(guesses) - 1), ("none", 0)]:
    cache = target.new_cache(1, 40)
    read(target, cache, prompt)
    compare("guesses read behind the prompt", target, cache, guesses, prompt + guesses)
    cache.length -= back
    compare(f"{situation} taken back, others read", target, cache, others, prompt + others)

# %% [markdown]
# ## The draft's last guess
#
# The draft has a cache too. It draws its last guess and never reads it, for there is nothing left to guess. If all
# guesses stand and the target adds a token, two tokens are new to the draft: fed only the last, it looks back at a slot
# that nobody has written. So `ModelDrafter` always feeds two. (The text would be right even so, as lesson 6 shows: a
# draft may be wrong. It would be wrong more often, and the only trace is on the clock.)

# %%
text = prompt + guesses + others[:1]
for fed in (1, 2):
    cache = draft.new_cache(1, 40)
    read(draft, cache, prompt + guesses[:-1])
    cache.length[:] = len(text) - fed
    compare(f"draft, all guesses stand, fed the last {fed}", draft, cache, text[-fed:], text)

slot, group = target.new_cache(1, 1), target.config.heads // target.config.kv_heads
size = sum(4e-3 * kept.numel() for kept in slot.k + slot.v)         # four bytes a number in float32
print(f"a slot of the target: {size:.1f} kB in float32; {group * size:.1f} kB if its {group} heads did not share keys")
table(["situation", "largest difference to reading anew", "total variation"],
      [[name, f"{most:.0e}", f"{moved:.3f}"] for name, (most, moved) in gaps.items()], "probabilities of all tokens")
assert [gap < 1e-12 for gap, _ in gaps.values()] == [True, True, False, False, False, True]

# %% [markdown]
# ## Three rounds of the real thing
#
# A hook notes what every pass of the target is given: `length`, and tokens. First the prompt without its last token,
# then in each round the newest token of the text and four guesses. The picture shows `length` as each round leaves it.

# %%
passes = []
with target.register_forward_pre_hook(lambda _, given: passes.append((int(given[1].length), given[0][0].tolist()))):
    rounds = list(speculate(target, ModelDrafter(draft, 4), prompt, max_new_tokens=12, seed=12))
for (length, fed), done, (after, _) in zip(passes[1:], rounds, passes[2:]):
    assert fed == done.tokens and after == length + 1 + len(done.path)          # a number moves, and that is all

figure, (axes,) = picture("4. the cache: slots of the target in three rounds", 1)
figure.set_size_inches(11.6, 3.6)
slots, labels = passes[0][1], {BLUE: "read before", GREEN: "written, accepted", RED: "written, rejected: stale"}
shown = range(len(slots) - 4, passes[3][0] + 5)                     # the older ones are not drawn
for number, ((length, fed), done) in enumerate(zip(passes[1:4], rounds)):
    slots, newest = slots[:length] + fed, length + len(done.path)
    for slot in range(shown[0], len(slots)):
        colour = BLUE if slot < length else GREEN if slot <= newest else RED
        axes.barh(number, 1, 0.62, left=slot - 0.5, color=colour, edgecolor="white", hatch="//" * (colour == RED),
                  label=labels.pop(colour, None))
        axes.text(slot, number, repr(tokenizer.decode([slots[slot]])), ha="center", va="center", fontsize=8,
                  color="white", fontweight="bold", bbox={"color": colour, "pad": 1})
    axes.vlines(newest + 0.5, number - 0.4, number + 0.4, INK, linewidth=3, label="length" * (not number))
axes.set(xticks=shown, xlabel="slot", ylim=(2.6, -0.6), yticks=range(3),
         yticklabels=[f"round {i + 1}: accepted {len(done.path)} of 4" for i, done in enumerate(rounds[:3])])
axes.grid(False)
axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16))
save(figure, "04_the_cache")

# %% [markdown]
# **Change this and run again.** Take back one too *many* (`len(guesses) + 1`; the assert complains): is it worse? Fill
# the stale slots with rubbish, `cache.k[0][:, len(prompt):] = 1e9`, before `others` are read: who notices? `seed=0`:
# what does a round leave behind that keeps none of its guesses?
#
# Next: lesson 5 decides which guesses stand. Exercises: 7 (cache rollback), after lesson 7.
