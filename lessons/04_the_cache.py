# %% [markdown]
# # 4. The cache
#
# **What may a model keep of the text it has read, and what if part of that text is taken back?**
#
# Lesson 2 was fast with a cache, and lesson 3 put ten draft tokens into one call.
# Some draft tokens will be rejected. Then the cache has read tokens that are not in the text.
# This lesson builds a cache by hand. Then it takes tokens back, in the right way and in wrong ways.
# All numbers are float64. So a difference above 1e-12 is a mistake and not rounding.

# %%
import torch

import figures
from kit import table
from nanospec.files import load_pair
from nanospec.probs import probs

torch.set_num_threads(1)
target, draft, tokenizer = load_pair(dtype=torch.float64)

# %% [markdown]
# ## By hand: one head of attention
#
# Lesson 3: a token asks with its *query*. It sees the *keys* of itself and of all tokens before it.
# Its answer is a mean of their *values*.
#
# A token's key and value depend on nothing behind the token: the mask hides that.
# So they do not change while the text grows. We can keep them.
# Old queries are never asked again. So we keep keys and values, and no queries. That is the cache.
#
# Twelve random vectors of 8 numbers stand for twelve tokens.
# Three matrices make the query, the key and the value of a token.
# The tokens come one by one, and we answer each query in two ways:
# with all keys computed again, and with the kept ones.
#
# *Guess first:* how many keys does each way compute? The first: 1, then 2, and so on up to 12.

# %%
chance = torch.Generator().manual_seed(4)
w_query, w_key, w_value = torch.randn(3, 8, 8, generator=chance, dtype=torch.float64)
tokens = torch.randn(12, 8, generator=chance, dtype=torch.float64)


def attend(query, keys, values):
    """query (8,), keys and values (T, 8) -> (8,): of a single value, that value."""
    return (keys @ query / 8 ** 0.5).softmax(0) @ values


keys, values = [], []                                           # the cache
computed_again = 0
for t in range(1, 13):
    newest = tokens[t - 1]
    query = newest @ w_query
    without = attend(query, tokens[:t] @ w_key, tokens[:t] @ w_value)
    computed_again += t

    keys.append(newest @ w_key)                                 # one new key, one new value
    values.append(newest @ w_value)
    cached = attend(query, torch.stack(keys), torch.stack(values))
    assert (cached - without).abs().max() < 1e-12
print(f"{t} tokens: {computed_again} keys computed without a cache, {len(keys)} with one; "
      f"the same answers")

# %% [markdown]
# ## The library's cache: slots, and one number
#
# The cache of `nanospec/cache.py` has a row of *slots*.
# A slot is the place for the keys and values of one token.
# The number `length` says how many slots hold the text.
# (It is a tensor with one number for each text. We have one text.) Three rules:
#
# - New tokens go into the slots from `length` on, whatever was there before.
# - A token sees its own slot and all slots below it. It sees nothing above.
# - The model does not move `length`. Whoever calls the model does.
#
# The function `read` makes one call on some tokens, and moves `length`.
# `again` is what it is compared with: a call without a cache, on the whole text.


# %%
def read(model, cache, ids):
    """One call on ids, into the slots from `length` on -> (T, V), a distribution behind each."""
    rows = probs(model(torch.tensor([ids]), cache)[0])
    cache.length += len(ids)
    return rows


def again(model, text):
    """The distribution behind the whole text, (V,), without a cache."""
    return probs(model(torch.tensor([text]))[0, -1])


prompt = tokenizer.encode("import os\nfor i in")
drafted = tokenizer.encode(" range(10):\n")                     # the draft tokens
others = tokenizer.encode(" sys.argv")                          # what the text goes on with instead
cache = target.new_cache(1, 40)                                 # one text, 40 slots, all empty
print(f"\nlength {int(cache.length)}")
read(target, cache, prompt)
print(f"length {int(cache.length)}: the prompt is read")
after_draft = read(target, cache, drafted)[-1]
print(f"length {int(cache.length)}: {len(drafted)} draft tokens are read, too")
assert (after_draft - again(target, prompt + drafted)).abs().max() < 1e-12

# %% [markdown]
# ## Taking back is lowering a number
#
# All draft tokens are rejected, say, and the text goes on with other tokens.
# Then `length` goes back by the number of draft tokens. That is all. Nothing is erased.
# The slots from `length` on are now *stale*: they hold tokens that are no longer in the text.
# No token sees them, and the next tokens are written over them.
#
# What if we forget it? Then the model answers for a text that still holds the draft tokens.
# Nothing complains, and what comes out looks like a text.
#
# Three times the same: the prompt, the draft, then `length` lowered, then the other tokens.
# The first is right. The second takes back one too few. The third takes back none.
#
# *Guess first:* which of the two mistakes makes the greater difference?


# %%
differences = {}                        # situation: (largest difference, total variation)


def compare(situation, found, right):
    """Note how far the distribution `found` is from the right one."""
    gap = (found - right).abs()
    differences[situation] = gap.max().item(), gap.sum().item() / 2


compare("draft tokens read behind the prompt", after_draft, again(target, prompt + drafted))
for name, back in [("all", len(drafted)), ("all but one", len(drafted) - 1), ("none", 0)]:
    cache = target.new_cache(1, 40)
    read(target, cache, prompt)
    read(target, cache, drafted)
    cache.length -= back
    answer = read(target, cache, others)[-1]
    compare(f"{name} taken back, others read", answer, again(target, prompt + others))

table(["situation of the target", "largest difference to reading again", "total variation"],
      [[name, f"{most:.0e}", f"{far:.3f}"] for name, (most, far) in differences.items()])
assert [most < 1e-12 for most, _ in differences.values()] == [True, True, False, False]

# %% [markdown]
# ## The last draft token
#
# The draft model writes the draft one token per call, with a cache of its own.
# It draws its last draft token, and never reads it: no further draft token is needed behind it.
#
# Suppose that the target accepts all draft tokens. It adds one token of its own, the bonus token.
# (Lesson 8 says why it can.) Now two tokens of the text are new to the draft model:
#
# | token of the text | who drew it | read by the draft model? |
# |---|---|---|
# | the last draft token but one | the draft model | yes |
# | the last draft token | the draft model | no |
# | the bonus token | the target | no |
#
# If the draft model now reads the bonus token only, it looks at a slot that was never written.
# So it must always read the last two. (`GPTReader` in `nanospec/reader.py` does. It calls them
# its `lag`.)
# A mistake here does not even make the text wrong, as lesson 7 shows: a draft may be bad.
# More draft tokens are rejected, and only the clock tells.
#
# *Guess first:* how far off is the draft model if it reads only the last token?

# %%
text = prompt + drafted + others[:1]                            # others[:1]: the bonus token
for fed in (1, 2):
    cache = draft.new_cache(1, 40)
    read(draft, cache, prompt + drafted[:-1])                   # all draft tokens but the last
    cache.length[:] = len(text) - fed                           # as if all before were read
    compare(f"it reads the last {fed}", read(draft, cache, text[-fed:])[-1], again(draft, text))

names = ["it reads the last 1", "it reads the last 2"]
table(["all accepted; the draft model", "largest difference to reading again", "total variation"],
      [[name, f"{differences[name][0]:.0e}", f"{differences[name][1]:.3f}"] for name in names])
assert [differences[name][0] < 1e-12 for name in names] == [False, True]

# %% [markdown]
# ## Three rounds by hand
#
# A *round* has three steps: draft, verify in one target call, commit.
# To *commit* is to make tokens part of the text. Here is the target's part of it.
#
# At the start of a round the text's last token is not in the cache yet. Nobody has read it:
# it was drawn from the distribution behind the token before it.
# So the call of a round reads 1 + gamma tokens: the last token, and gamma draft tokens.
# Then `length` goes back by the number of rejected draft tokens.
# Last, one token of the target's own is appended: a replacement or the bonus token.
#
# Lessons 6 and 8 decide which draft tokens are accepted.
# Here we choose: the first 2 of 4, then all 4, then none.
#
# A worked number: 7 tokens of text, 6 slots in use. The call fills 1 + 4 slots: length 11.
# 2 of 4 are accepted, so 2 are taken back: length 9. The text has 7 + 2 + 1 = 10 tokens.
#
# *Guess first:* behind each round, by how much is `length` smaller than the number of tokens?


# %%
def round_by_hand(cache, text, drafted, accepted, token):
    """One round of the target. `accepted` draft tokens are accepted -> the longer text."""
    rows = read(target, cache, [text[-1], *drafted])            # 1 + gamma tokens, in one call
    assert (rows[0] - again(target, text)).abs().max() < 1e-12  # row 0: behind the text so far
    cache.length -= len(drafted) - accepted                     # take back what is rejected
    return [*text, *drafted[:accepted], token]


story = tokenizer.encode(" range(10):\n    print(i)\n    print(i * i)\n")       # to be written
no_story = tokenizer.encode(" sys.argv[1:]\n")                  # for draft tokens that are rejected
written = prompt
cache = target.new_cache(1, 40)
read(target, cache, prompt[:-1])                                # all but the last token
slots = prompt[:-1]                                             # the tokens that the slots hold
rounds = []                                                     # for the table and the picture
for accepted in (2, 4, 0):
    begin = len(written) - len(prompt)                          # so much of the story is written
    right = story[begin:begin + accepted]
    drafted_now = right + no_story[accepted:4]
    before = int(cache.length)
    slots = slots[:before] + [written[-1], *drafted_now]
    written = round_by_hand(cache, written, drafted_now, accepted, story[begin + accepted])
    rounds.append((before, int(cache.length), slots, len(written)))

# %%
table(["round", "length before", "slots after the call", "length behind", "tokens of the text"],
      [[number, before, len(slots), behind, tokens]
       for number, (before, behind, slots, tokens) in enumerate(rounds, 1)])
assert all(behind == tokens - 1 for _, behind, _, tokens in rounds)
assert written == prompt + story[:len(written) - len(prompt)]

# %% [markdown]
# ## How big is a slot?
#
# A slot holds a key and a value for every layer of the model.
# In float32 each number has 4 bytes.
# A layer asks with several queries for each token, side by side: with several *heads*.
# In our target, heads of queries share one head of keys and values.
# So its slots are smaller, and a call fetches fewer bytes.
#
# The picture shows the three rounds. A bar is a slot. The thick lines are `length`: dotted before
# the round, whole behind it.
# The first slots are not drawn.

# %%
one_slot = target.new_cache(1, 1)
numbers = sum(layer.numel() for layer in one_slot.k + one_slot.v)
group = target.config.heads // target.config.kv_heads           # heads of queries that share keys
print(f"\na slot of the target: {4e-3 * numbers:.1f} kB in float32; "
      f"{4e-3 * group * numbers:.1f} kB if its {group} heads did not share keys")

named = [(before, behind, [tokenizer.decode([token]) for token in slots])
         for before, behind, slots, _ in rounds]
figures.slots(named, first=len(prompt) - 4)

# %% [markdown]
# ## Three things to know
#
# 1. A cache keeps the keys and values of the tokens that were read. They never change.
# 2. To take tokens back, lower `length`. What lies above it is never seen.
# 3. Behind every round the cache holds all of the text but its last token.
#
# ## Change this and run again
#
# 1. Take back one too *many*: write `len(drafted) + 1` in the row named "all". An assert complains.
#    Is it better or worse than one too few?
# 2. Fill the stale slots with rubbish: below `cache.length -= back`, write
#    `cache.k[0][:, int(cache.length):] = 1e9`. Which rows of the table change?
# 3. Write `(0, 0, 0)` in place of `(2, 4, 0)`. What does a round leave behind that accepts nothing?
#
# The answers are in `lessons/answers/04_the_cache.md`.
#
# Next: lesson 5 begins with the question that this lesson has left open: which draft tokens are
# accepted? Exercises: 7 (roll back two caches), after lesson 8.
