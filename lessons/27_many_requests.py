# %% [markdown]
# # Many requests
#
# **Must a text whose draft was accepted wait for a text whose draft was rejected?**
#
# A server puts many texts into one *batch*, and one target call serves all of them. So far a single
# text had one round after the other. Now several texts share each round. One of them accepts all
# its draft tokens, and another accepts none.
#
# A *row* is the place of one text in the batch. We need `length` and stale slots (*The cache*), the
# walk, and the round. Most models here are tiny and random, in float64, so everything is exact and
# takes no time.

# %%
import torch

import figures
from kit import table
from oracles import completed
from nanospec import ModelDrafter, Sampling
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.serving.server import Server
from nanospec.speculate import one_round, speculate, tokens_of, verify
from nanospec.text import Text, prefill
from nanospec.theory import expected_tokens

# %% [markdown]
# ## Eight people, six steps
#
# The library's `Server` (nanospec/serving/server.py) does what this lesson explains. A request is
# handed in with `submit`. A *step* of the server is one round for all rows: one draft and one
# target call. Before a request's first step, the target reads its prompt.
#
# *Guess first:* after six steps, does everyone have the same number of tokens? Gamma is 4.

# %%
torch.set_num_threads(1)
big, small, tokenizer = load_pair()                 # the pair that ships: only for this table
starts = ["import os\n", "def add(a, b):\n", "class Stack:\n", "for i in range(", "try:\n",
          "with open(", "def main():\n", "numbers = ["]
server = Server(big, ModelDrafter(small, 4), rows=8)
eight = [server.submit(tokenizer.encode(start), max_new_tokens=40, temperature=0.8, seed=i)
         for i, start in enumerate(starts)]
for _ in range(6):
    server.step()
table(["prompt", "tokens", "text so far"],
      [[repr(start), len(asked.tokens), repr(tokenizer.decode(asked.tokens))[:60]]
       for start, asked in zip(starts, eight)])

# %% [markdown]
# *Answer:* no. No row waited, and each has gone as far as its own draft tokens were accepted.
#
# ## Every row has a length of its own
#
# Now we do it by hand, with a tiny GPT, two rows, and gamma 3. The temperature is 0, so a draft
# token is accepted if it is the target's likeliest token, and no dice are needed.
#
# The texts have 4 and 2 tokens. Both are read in one call, except for their last token. The shorter
# one is padded with zeros, and no token ever attends to the slots of the padding.

# %%
target, kv_length = small_gpt(5, layers=2, seed=1), 24      # kv_length: slots of the cache to read
prompts = [[1, 2, 3, 4], [2, 0]]
alone = [list(generate(target, ids, 12, 0)) for ids in prompts]         # what each one must write
texts = [list(ids) for ids in prompts]
cache = target.new_cache(rows=2, slots=kv_length)
target(torch.tensor([[1, 2, 3], [2, 0, 0]]), cache, kv_length)      # row 1: one token, and padding


def one_call(texts, drafts):
    """One target call for all rows -> for each row, the likeliest token after each place."""
    tokens = torch.tensor([text[-1:] + draft for text, draft in zip(texts, drafts)])
    cache.length = torch.tensor([len(text) - 1 for text in texts])      # NEW: one for each row
    return target(tokens, cache, kv_length).argmax(-1).tolist()


def ragged_round(texts, drafts):
    """Each row commits what it accepts, and one token more -> how many each has accepted."""
    accepted = []
    for text, draft, own in zip(texts, drafts, one_call(texts, drafts)):
        right = [drafted == best for drafted, best in zip(draft, own)]
        accepted.append([*right, False].index(False))           # up to the first that is rejected
        text += draft[:accepted[-1]] + [own[accepted[-1]]]
    return accepted


# %% [markdown]
# We play two rounds. The drafts are made so that row 0 accepts 3 tokens and row 1 none, and then
# the other way round. Before the second round we write rubbish into all stale slots, those above
# the committed text.
#
# The last token of a text has not been read yet. So the cache of a text of n tokens has a `length`
# of n - 1, and the next call fills slots n - 1 to n + 2, gamma + 1 = 4 of them.
#
# *Guess first:* after the first round, which slots of row 1 are stale?

# %%
slots = []
for round_number, good in enumerate((0, 1)):                    # good: the row whose draft is right
    before, drafts = [len(text) for text in texts], []
    for b in range(2):
        future = alone[b][before[b] - len(prompts[b]):][:3]
        drafts.append(future if b == good else [(future[0] + 1) % 5, 0, 0])
    accepted = ragged_round(texts, drafts)
    for b in range(2):
        first, after = before[b] - 1, len(texts[b])
        stale = list(range(after - 1, first + 4))
        slots.append([round_number + 1, b, before[b], f"{first} to {first + 3}", accepted[b],
                      after, " ".join(map(str, stale)) or "none"])
        for part in (*cache.k, *cache.v):
            part[b, after - 1:] = 1e9                           # rubbish
table(["round", "row", "tokens before", "slots written", "accepted", "tokens after", "stale"],
      slots)
assert all(text == ids + new[:len(text) - len(ids)]             # each is what it writes alone
           for text, ids, new in zip(texts, prompts, alone))

# %% [markdown]
# *Answer:* slots 2 to 4. The call filled slots 1 to 4, and of these only slot 1 holds text.
#
# In the second round row 1 begins at slot 2, the first stale one, and overwrites the rubbish.
# Nothing is moved, and no row depends on another one. This is called a *ragged* commit. Exercise 19
# writes it for tensors.
#
# ## Lockstep
#
# Some programs have one length for the whole batch, and all rows must advance equally. This is
# called *lockstep*: every row is cut to the fewest accepted tokens of any row.
#
# Let alpha be the same at every place, and let B be the number of rows. All rows accept the first i
# draft tokens with probability alpha^(i B), so a row brings 1 + alpha^B + alpha^(2B) + ... tokens.
# Eight rows with alpha .7 behave like one row with alpha .7^8 = .06.
#
# *Guess first:* alone, a round of gamma 4 brings 2.77 tokens. How many does it bring with eight
# rows in lockstep?

# %%
def lockstep_tokens(alpha, gamma, B):
    """Tokens of a row in a round: one, and the mean of the fewest accepted."""
    return 1 + sum(alpha ** (i * B) for i in range(1, gamma + 1))


counts, brought = (1, 2, 4, 8), {}
own_pace = expected_tokens(.7, 4)                               # Eq. 1 of "How fast"
for B in counts:
    brought[B] = lockstep_tokens(.7, 4, B)
table(["rows", "at its own pace", "in lockstep", "accepted tokens thrown away"],
      [[B, f"{own_pace:.2f}", f"{brought[B]:.2f}",
        f"{(own_pace - brought[B]) / (own_pace - 1):.0%}"] for B in counts],
      "alpha .7, gamma 4")

# %% [markdown]
# *Answer:* 1.06. With eight rows, nearly every round has a row whose first draft token is rejected.
#
# ## What may be cut, and where
#
# Lockstep is slow, but it is exact if it is done right.
#
# **Claim.** Let k be the fewest accepted tokens. Every row may commit the first k + 1 tokens of its
# own output: accepted draft tokens, and then its replacement or bonus token.
#
# **Proof.**
#
# 1. At every place of a row's output, the token has the target's distribution.
# 2. All rows go on to the next place if all have accepted the draft token at this one.
# 3. So this decision is made after the token at this place, and it does not look at what follows.
# 4. What is cut is thrown away. The next round draws it afresh, with new random numbers.
#
# Two mistakes are easy to make. Here are four functions for one row, which has drafted `x`.
# `p_target` has the target's distributions at all places.

# %%
def own(x, accepted, token, k, p_target, dice):
    return x[:accepted] + [token]                           # no lockstep


def cut(x, accepted, token, k, p_target, dice):
    return (x[:accepted] + [token])[:k + 1]


def token_from_elsewhere(x, accepted, token, k, p_target, dice):
    return x[:k] + [token]                                  # WRONG: drawn for place `accepted`


def cut_too_much(x, accepted, token, k, p_target, dice):
    if accepted == k:
        return x[:k] + [token]
    return x[:k] + [int(dice.pick(p_target[None, k]))]      # WRONG: a coin has judged this place


# %% [markdown]
# The last one throws away an accepted draft token and draws for its place again. But it does so
# only if the coin accepted, and after a rejection it keeps the replacement. Accepted draft tokens
# and replacements add up to p_target only together. Here one of the two parts has been exchanged,
# so the sum is no longer p_target. (The first mistake is in our zoo of planted bugs, under the name
# `lockstep`.)
#
# We walk one round of two rows with gamma 2 and a vocabulary of two tokens, and look at row 1. The
# target completes shorter outputs to 3 tokens.
#
# *Guess first:* which of the two mistakes is further off?

# %%
p_model, q_model = TableModel(2, seed=7, zeros=0), TableModel(2, seed=6, zeros=0)
ids = [[1, 0, 1], [0]]


def row_1(rule, dice):
    """One round of two rows -> what row 1 has written."""
    text, drafter = Text(ids, 8, vocab_size=2), ModelDrafter(q_model, 2)
    cache, _ = prefill(p_model, text)
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    draft, p_target, _, accepted, token = one_round(p_model, cache, drafter, verify, text,
                                                    Sampling(), dice, kv_length=8)
    k = int(accepted.min())
    x = draft.tokens[1, 1:].tolist()                        # node 0 is no draft token
    return tuple(rule(x, int(accepted[1]), int(token[1]), k, p_target[1], dice))


truth, off, length = target_distribution(p_model, ids[1], 3), {}, {}
for rule in own, cut, token_from_elsewhere, cut_too_much:
    found, _ = walk(lambda dice: row_1(rule, dice))
    length[rule.__name__] = sum(weight * len(new) for new, weight in found.items())
    off[rule.__name__] = distance(completed(found, p_model, ids[1], 3), truth)[1]
table(["rule", "tokens of a round", "off by"],
      [[name, f"{length[name]:.2f}", f"{off[name]:.3f}"] for name in off],
      "walked; off by: total variation of three tokens from the target alone")

# %% [markdown]
# *Answer:* the first, a token from elsewhere.
#
# ## Dice of one's own
#
# The same seed should write the same text. Does it do so in the company of other texts? In a
# `Server` every request has dice of its own. All drafts here have one size, so each round takes
# equally many random numbers from them, whatever else is in the batch. We compare the third of
# three requests with the same request alone, and with `speculate`.
#
# *Guess first:* does it write other tokens in company?

# %%
helper = small_gpt(5, layers=1, seed=2)                     # drafts for the tiny GPT from above
asked = [([1, 2], 11), ([4, 4, 0], 12), ([3, 1], 13)]       # a prompt, a seed


def served(asked):
    """The tokens of all requests."""
    server = Server(target, ModelDrafter(helper, 3), rows=3)
    requests = [server.submit(ids, max_new_tokens=12, seed=seed) for ids, seed in asked]
    while not all(request.done for request in requests):
        server.step()
    return [request.tokens for request in requests]


rounds = speculate(target, ModelDrafter(helper, 3), [3, 1], 12, seed=13)
written = {"among three": served(asked)[2], "alone": served(asked[2:])[0],
           "by speculate": tokens_of(rounds)}
table(["where", "tokens of the third request"],
      [[where, " ".join(map(str, tokens))] for where, tokens in written.items()])
assert written["among three"] == written["alone"] == written["by speculate"]

# %% [markdown]
# *Answer:* no, it writes the same tokens.
#
# ## Joining and leaving
#
# Requests arrive at any time. Between two steps, those that are done leave and others take their
# place. This is called *continuous batching*. A long prompt must be read first, and if it were read
# in one call, all others would wait for it.
#
# So it is read in *pieces* of 64 tokens, one before each round of the rows that write, and in a
# cache of its own. When it has been read, it gets a row of the batch. If no row is free, one prompt
# is read ahead, for the next row that becomes free.
#
# Why is it not read in the rounds of the others? A call is a rectangle. Beside a piece of 64
# tokens, every row would be 64 tokens wide, and the padding would be computed and thrown away.
#
# Consider a server with room for two. A has a short prompt, B has one of 80 tokens, and C must
# wait.
#
# *Guess first:* for how many steps does B read? And does A wait in the meantime?

# %%
server = Server(target, ModelDrafter(helper, 3), rows=2)
requests = {"A": server.submit([1, 2, 3], max_new_tokens=9, seed=1),
            "B": server.submit([1, 2, 4, 0] * 20, max_new_tokens=9, seed=2),
            "C": server.submit([3, 1], max_new_tokens=6, seed=3)}


def has_read(name):
    """Tokens of its prompt, but the last, which its first round reads."""
    waiting = {prompt.request: prompt.length for prompt in server.waiting}
    request = requests[name]
    return waiting.get(request, len(request.ids) - 1 if request.tokens else 0)


timetable = []          # for each step, for each person: what it does in this step
while not all(request.done for request in requests.values()):
    before = {name: (has_read(name), len(requests[name].tokens)) for name in requests}
    ended = [name for name, request in requests.items() if request.done]
    server.step()
    line = []
    for name, (read, wrote) in before.items():
        counts = ("reads", has_read(name) - read), ("writes", len(requests[name].tokens) - wrote)
        does = ", ".join(f"{what} {count}" for what, count in counts if count)
        line.append(does or ("has left" if name in ended else "waits"))
    timetable.append(line)

# %%
table(["step", *requests], [[step, *line] for step, line in enumerate(timetable, 1)])
for request in requests.values():           # each has written what it writes alone
    assert request.tokens == tokens_of(speculate(
        target, ModelDrafter(helper, 3), request.ids, request.max_new_tokens, seed=request.seed))

# %% [markdown]
# *Answer:* two, for its prompt comes in two pieces. In the second of these steps it also writes. A
# does not wait.
#
# The number after *reads* counts the tokens of the prompt that are read in this step. The last
# token of a prompt is read only in the first round, as the first token of that call, and is not
# counted.
#
# A is not stopped by B's long prompt. C starts in the step after A's last one, with its prompt read
# beforehand.
#
# ## What it costs
#
# All rows share the reading of the weights, and that is why a batch is cheap. But a round of B rows
# has B (gamma + 1) tokens in one call, and they must be computed. In a large batch a draft token
# costs as much as any other token, and the rejected ones are wasted. *A full batch* measures this
# on your machine, with up to 32 texts.
#
# The picture shows lockstep beside each row at its own pace, and the timetable from above.

# %%
batches = range(1, 17)
lines = {alpha: [lockstep_tokens(alpha, 4, B) for B in batches] for alpha in (.5, .7, .9)}
paces = {alpha: expected_tokens(alpha, 4) for alpha in lines}
figures.many_requests(batches, lines, paces, list(requests), timetable)

# %% [markdown]
# ## Three things to know
#
# 1. No row needs to wait for another row's rejected draft. It needs a length of its own, and its
#    stale slots are overwritten.
# 2. Lockstep is exact if every row commits the first k + 1 tokens of its own output, but with many
#    rows it can waste nearly all that drafts bring.
# 3. With dice of its own, a text does not depend on the company. A long prompt is read in pieces
#    between the rounds, so that the others do not wait for all of it.
#
# ## Change this and run again
#
# 1. Write `float("nan")` for `1e9`. What happens now, and what must be done with a row before
#    another request gets it?
# 2. Write .95 for .7 in the cell of `lockstep_tokens`, three times. Does lockstep pay with 8 rows?
# 3. In the cell of the timetable write `rows=1`, and then `rows=3`. What changes, and what does
#    not?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A full batch* increases the batch until draft tokens are no longer free. Exercises: 19
# (ragged commit).
