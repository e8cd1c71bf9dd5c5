# %% [markdown]
# # The cache
#
# **What is kept between two calls, and how is it taken back?**
#
# A cache made *One token per call* fast, and in *Ten for the price of one* we put ten draft tokens
# into one call. Some draft tokens will be rejected. Then the cache has read tokens that are not
# part of the text.
#
# This lesson first builds a cache by hand and then takes tokens back, in the right way and in wrong
# ways. All numbers are float64, so a difference above 1e-12 is a mistake and not rounding.

# %%
import torch

import figures
from kit import table
from nanospec.files import load_pair
from nanospec.probs import probs

torch.set_num_threads(1)
target, draft_model, tokenizer = load_pair(dtype=torch.float64)

# %% [markdown]
# ## By hand: one head of attention
#
# A token asks with its *query*. It sees the *keys* of itself and of all tokens before it, and its
# answer is a mean of their *values*.
#
# The key and the value of a token do not depend on anything that comes after it, because the mask
# hides that. They never change while the text grows, so we can keep them. Old queries are never
# asked again. A cache therefore keeps keys and values, and no queries.
#
# Twelve random vectors of 8 numbers stand for twelve tokens, and three matrices make the query, the
# key and the value of a token. The tokens arrive one by one, and we answer each query in two ways:
# with all keys computed again, and with the kept ones.
#
# *Guess first:* how many keys does each way compute in total? The first way computes 1, then 2, and
# so on up to 12.

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
# *Answer:* 78 and 12. The first way computes 1 + 2 + ... + 12 keys, the second way one for each
# token.
#
# ## The library's cache: slots, and one number
#
# The cache of `nanospec/cache.py` is a line of *slots*, each with room for the keys and values of
# one token. The number `length` says how many slots hold the text. (It is a tensor with one number
# for each text, and we have one text.) Three rules apply:
#
# - New tokens go into the slots from `length` on, whatever these held before.
# - A token sees its own slot and all slots below it, and nothing above.
# - The model does not change `length`. The code that calls the model does.
#
# The function `read` makes one call on some tokens and advances `length`. We compare it with
# `again`, which calls the model on the whole text without a cache.


# %%
def read(model, cache, ids):
    """One call on ids, into the slots from `length` on -> (T, V): the distribution after each."""
    p = probs(model(torch.tensor([ids]), cache)[0])
    cache.length += len(ids)
    return p


def again(model, text):
    """The distribution after the whole text, (V,), without a cache."""
    return probs(model(torch.tensor([text]))[0, -1])


prompt = tokenizer.encode("import os\nfor i in")
drafted = tokenizer.encode(" range(10):\n")                     # the draft tokens
others = tokenizer.encode(" sys.argv")                          # how the text goes on instead
cache = target.new_cache(1, 40)                                 # one text, 40 slots, all empty
print(f"\nlength {int(cache.length)}")
read(target, cache, prompt)
print(f"length {int(cache.length)}: the prompt is read")
after_draft = read(target, cache, drafted)[-1]
print(f"length {int(cache.length)}: {len(drafted)} draft tokens are read as well")
assert (after_draft - again(target, prompt + drafted)).abs().max() < 1e-12

# %% [markdown]
# ## Taking back is lowering a number
#
# Suppose that all draft tokens are rejected and the text goes on with other tokens. Then we lower
# `length` by the number of draft tokens, and nothing has to be erased. The slots from `length` on
# are now *stale*: they hold tokens that are no longer in the text. No token sees them, and the next
# tokens overwrite them. (Some newer models have layers without slots, for which this does not
# work; *A state that cannot go back* shows what does.)
#
# What if we forget to do this? Then the model answers for a text that still contains the draft
# tokens. Nothing complains, and what comes out looks like a text.
#
# The next cell does the same thing three times: it reads the prompt and the draft, lowers `length`,
# and reads the other tokens. The first time is right. The second takes back one token too few, and
# the third takes back none.
#
# *Guess first:* which of the two mistakes makes the greater difference?


# %%
differences = {}                        # situation: (largest difference, total variation)


def compare(situation, found, right):
    """Note how far the distribution `found` is from the right one."""
    gap = (found - right).abs()
    differences[situation] = gap.max().item(), gap.sum().item() / 2


compare("draft tokens read after the prompt", after_draft, again(target, prompt + drafted))
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
# *Answer:* taking back none. But a single token that was not taken back is enough to spoil the
# distribution.
#
# ## The last draft token
#
# The draft model writes the draft one token per call, with a cache of its own. It draws its last
# draft token but never reads it, because no further draft token has to follow.
#
# Suppose that the target accepts all draft tokens. It then adds one token of its own, the *bonus
# token*. (*A draft and a bonus* explains why it can.) Two tokens of the text are now new to the
# draft model:
#
# | token of the text | drawn by | read by the draft model? |
# |---|---|---|
# | the last draft token but one | the draft model | yes |
# | the last draft token | the draft model | no |
# | the bonus token | the target | no |
#
# If the draft model reads only the bonus token, it looks at a slot that was never written. So in
# every round it reads the last two. (`GPTReader` in `nanospec/reader.py` does this and calls the
# number its `lag`.) Such a mistake does not even make the text wrong, since a draft may be bad
# (*Why it is lossless*). More draft tokens are rejected, and only the clock shows it.
#
# *Guess first:* how far off is the draft model if it reads only the last token?

# %%
text = prompt + drafted + others[:1]                            # others[:1]: the bonus token
for fed in (1, 2):
    cache = draft_model.new_cache(1, 40)
    read(draft_model, cache, prompt + drafted[:-1])  # all draft tokens but the last
    cache.length[:] = len(text) - fed                           # as if all before were read
    compare(f"it reads the last {fed}", read(draft_model, cache, text[-fed:])[-1],
            again(draft_model, text))

names = ["it reads the last 1", "it reads the last 2"]
table(["all accepted; the draft model", "largest difference to reading again", "total variation"],
      [[name, f"{differences[name][0]:.0e}", f"{differences[name][1]:.3f}"] for name in names])
assert [differences[name][0] < 1e-12 for name in names] == [False, True]

# %% [markdown]
# *Answer:* so far that one sees it in the total variation: more than a tenth. If it reads the last
# two, only rounding is left.
#
# ## Three rounds by hand
#
# To *commit* tokens is to make them part of the text. A round drafts, verifies the draft in one
# call of the target, and commits what was accepted and one token more. Here is the target's side.
#
# At the start of a round, the last token of the text is not in the cache yet. It was drawn from the
# distribution after the token before it, and no call has read it since. The call of a round
# therefore reads 1 + gamma tokens: the last token and gamma draft tokens. Then `length` goes back
# by the number of rejected draft tokens. Finally one token of the target's own is appended, a
# replacement or the bonus token.
#
# Later lessons decide which draft tokens are accepted. Here we choose: the first 2 of 4, then all
# 4, then none.
#
# A worked number: the text has 7 tokens, and 6 slots are in use. The call fills 1 + 4 slots, so
# `length` is 11. Of the 4 draft tokens 2 are accepted and 2 are taken back, which leaves a length
# of 9. The text then has 7 + 2 + 1 = 10 tokens.
#
# *Guess first:* after each round, by how much is `length` smaller than the number of tokens?


# %%
def round_by_hand(cache, text, drafted, accepted, token):
    """One round of the target. `accepted` draft tokens are accepted -> the longer text."""
    p = read(target, cache, [text[-1], *drafted])               # 1 + gamma tokens, in one call
    assert (p[0] - again(target, text)).abs().max() < 1e-12     # p[0]: after the text so far
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
    begin = len(written) - len(prompt)                          # how much of the story is written
    right = story[begin:begin + accepted]
    drafted_now = right + no_story[accepted:4]
    before = int(cache.length)
    slots = slots[:before] + [written[-1], *drafted_now]
    written = round_by_hand(cache, written, drafted_now, accepted, story[begin + accepted])
    rounds.append((before, int(cache.length), slots, len(written)))

# %%
table(["round", "length before", "slots after the call", "length after", "tokens of the text"],
      [[number, before, len(slots), after, tokens]
       for number, (before, after, slots, tokens) in enumerate(rounds, 1)])
assert all(after == tokens - 1 for _, after, _, tokens in rounds)
assert written == prompt + story[:len(written) - len(prompt)]

# %% [markdown]
# *Answer:* by one, after every round. The last token has been drawn and not yet read.
#
# ## How big is a slot?
#
# A slot holds a key and a value for every layer of the model, and a float32 number has 4 bytes. A
# layer asks several queries for each token side by side, one for each *head*. In our target,
# several heads of queries share one head of keys and values. That makes its slots smaller, and a
# call fetches fewer bytes.
#
# The picture shows the three rounds, with one bar for each slot. The thick lines mark `length`,
# dotted before the round and solid after it. The first slots are left out.

# %%
one_slot = target.new_cache(1, 1)
numbers = sum(layer.numel() for layer in one_slot.k + one_slot.v)
group = target.config.heads // target.config.kv_heads           # heads of queries that share keys
print(f"\na slot of the target: {4e-3 * numbers:.1f} kB in float32; "
      f"{4e-3 * group * numbers:.1f} kB if its {group} heads did not share keys")

named = [(before, after, [tokenizer.decode([token]) for token in slots])
         for before, after, slots, _ in rounds]
figures.slots(named, first=len(prompt) - 4)

# %% [markdown]
# ## Three things to know
#
# 1. A cache keeps the keys and values of the tokens that were read, which never change.
# 2. To take tokens back, lower `length`. What lies above it is never seen.
# 3. After every round the cache holds all of the text except its last token.
#
# ## Change this and run again
#
# 1. Take back one token too *many*: write `len(drafted) + 1` in the line named "all". An assert
#    complains. Is this mistake better or worse than one too few?
# 2. Fill the stale slots with rubbish: below `cache.length -= back`, write
#    `cache.k[0][:, int(cache.length):] = 1e9`. Which lines of the table change?
# 3. Write `(0, 0, 0)` in place of `(2, 4, 0)`. What does a round leave in the cache if it accepts
#    nothing?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* which draft tokens should be accepted? *Rejection sampling* begins with this question.
# Exercise 7 (roll back two caches) belongs here, but needs *A draft and a bonus* first.
