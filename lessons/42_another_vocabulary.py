# %% [markdown]
# # Another vocabulary
#
# **Can a model draft for a target whose tokens it does not have?**
#
# So far a draft model was a smaller model of the same family, because coin and residual compare two
# distributions over the same tokens. Most models have no smaller sibling, and a small model from
# elsewhere cuts text into other tokens and numbers them in another order.
#
# There are two ways out (Timor et al. 2025, arXiv 2502.05202). The draft model may write only the
# tokens that both have, or it may write a string, which the target's tokenizer cuts up. Both are
# exact. The lesson uses *Report what you sample*, and the one-hot drafts of *Copying from the
# past*.

# %%
from functools import lru_cache

import torch

import figures
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.cache import Cache
from nanospec.files import Tokenizer, load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.tokenizer import train
from nanospec.methods.wrappers.string_match import StringDrafter
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, tables_of
from nanospec.model import Config
from nanospec.probs import residual
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance

torch.set_num_threads(1)
target, _, ours = load_pair()
train_texts, held_out = read_texts()
other = Tokenizer(train("".join(train_texts[::90])[:80_000], 700))    # and end of text

# %% [markdown]
# ## Which tokens are the same?
#
# The target is the one that ships, with its tokenizer. The other tokenizer was made just now, from
# fewer files and with fewer tokens. Here is one line, cut in both ways:

# %%
LINE = "    def read_header(self, position):"


def cut(tokenizer, text):
    return "|".join(tokenizer.decode([token]) for token in tokenizer.encode(text))


print(f"the target's tokens: {cut(ours, LINE)}\nthe other's tokens:  {cut(other, LINE)}")
tables = tables_of(other, ours, target.config.vocab_size)     # .ids, .own: the shared tokens' ids
same_id = sum(token == own for token, own in zip(tables.ids.tolist(), tables.own.tolist()))
ids = to_ids(held_out[:20], ours)
share = torch.isin(ids, tables.ids).float().mean().item()
table(["tokens", "how many"], [
    ["the target's", ours.vocab_size], ["the other's", other.vocab_size],
    ["of the same bytes", len(tables.ids)], ["and of the same id", same_id]])
print(f"\nthe shared tokens are {share:.0%} of the target's tokens in held-out code")
figures.another_vocabulary({
    name: [(a.decode([token]), a.pieces[token] in b.ranks) for token in a.encode(LINE)]
    for name, a, b in (("the target's", ours, other), ("the other's", other, ours))})

# %% [markdown]
# Two tokens are the same if their *bytes* are. Ids say nothing: beyond the 256 bytes, with which
# both lists happen to begin, hardly any agree. What a tokenizer's file shows says little, too.
# GPT-2's files write `Ġdef` for what Llama 2's write as `▁def`, and both mean a blank and three
# letters. Some tokens are half a character, which no text can show. And a special token, such as
# the beginning of a user's turn, has no bytes at all: it is shared with none. Only the end of text
# has the same meaning everywhere, so it is paired by its meaning.
#
# ## Which q_draft?
#
# Now a small case to walk through. The target has the tokens a, b, c and d. The draft model has
# c, x, a, b, in this order. So three tokens are shared, and the target does not know x. There are
# four ways to write a draft token and to report a q:
#
# 1. Draw among the shared tokens alone, and report their probabilities *over their sum*.
# 2. Draw among them, and report the draft model's own probabilities, not divided by their sum.
# 3. Draw among all, write `a` for x, and report what the draft model thinks of each token.
# 4. Draw among all, write `a` for x, and report for `a` the sum of both.
#
# *Guess first:* which of the four are exact?

# %%
TARGET, OTHER = TableModel(4, 8, zeros=0.3), TableModel(4, 58, zeros=0)
TO_TARGET = [2, None, 0, 1]                     # the draft model's c, x, a, b in the target's ids
READ_AS = [2, 3, 0, 1]                          # the target's a, b, c, d; d is read as x, see below
START, NEW = (1, 3, 0), 2


@lru_cache(maxsize=None)
def after(model, text):
    """(V,): the model's distribution of the token after this text, a tuple."""
    return model(torch.tensor([text]))[0, -1].softmax(-1)


def weights(text, unknown_is_a):
    """(4,): what the draft model thinks of the target's tokens; x is left out, or counts as a."""
    q = torch.zeros(4, dtype=torch.float64)
    for own, probability in enumerate(after(OTHER, tuple(READ_AS[token] for token in text))):
        if TO_TARGET[own] is not None:
            q[TO_TARGET[own]] += probability
        elif unknown_is_a:
            q[0] += probability
    return q


# %%
def text_of(dice, unknown_is_a, report):
    """NEW tokens, each with a draft of one. The dice draw in proportion to any weights."""
    text, dice = START, OneRow(dice)
    while len(text) < len(START) + NEW:
        drawn = weights(text, unknown_is_a)
        p, q = after(TARGET, text), report(drawn, weights(text, False))
        x = dice.pick(drawn)
        text += (x,) if dice.flip(p[x] / q[x]) else (dice.pick(residual(p, q)),)
    return text[len(START):]


# %%
right, off = target_distribution(TARGET, START, NEW), {}
for name, unknown_is_a, report in (
        ("shared tokens, over their sum", False, lambda drawn, own: drawn / drawn.sum()),
        ("shared tokens, as they are", False, lambda drawn, own: own),
        ("all, x written as a, as they are", True, lambda drawn, own: own),
        ("all, x written as a, and added to it", True, lambda drawn, own: drawn)):
    found, paths = walk(lambda dice: text_of(dice, unknown_is_a, report))
    off[name] = distance(found, right)[1]
table(["drawn, and reported", "off from the target"],
      [[name, f"{tv:.1e}"] for name, tv in off.items()], f"{NEW} tokens, every path walked")
assert [tv < 1e-12 for tv in off.values()] == [True, False, False, True]

# %% [markdown]
# *Answer:* the first and the last are exact. It is the old rule once more: what is reported must be
# what was drawn from. In the second line the reported numbers add up to less than 1. The coin then
# accepts too often, and the residual has too much of every token that may be drafted. In the third,
# `a` is drafted more often than reported.
#
# `OtherTokenizer` is the first way, and it cannot make the mistakes of the other two. It answers as
# a language model over the target's tokens, with a logit of -infinity for what is not shared. The
# softmax that follows divides by the sum, for the draw and for the report alike.
#
# ## What does the draft model read?
#
# The text has tokens that the draft model lacks, and it must read something in their place. This
# cannot spoil the text, since the proof never asks where q_draft came from. It can spoil the
# guesses.
#
# The draft model here is a table of which token follows which, counted in training text that was
# cut by *its* tokenizer. We try four ways to read. *Guess first:* which is the best, and how far
# does the worst fall?


# %%
class Bigrams:
    """What follows each token, as a language model. Its cache holds nothing."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, tokenizer, texts):
        V = tokenizer.vocab_size
        ids = to_ids(texts, tokenizer)
        counts = torch.zeros(V, V).index_put_((ids[:-1], ids[1:]), torch.ones(()), accumulate=True)
        # A token that was rarely seen has few followers: a little of how often each token occurs.
        counts += 0.02 * counts.sum(0) / counts.sum() * V + 1e-6
        self.logits = counts.log()
        self.config = Config(V, context=512, layers=1, channels=2, heads=1, kv_heads=1, hidden=1)

    def new_cache(self, rows, slots):
        return Cache(rows, 1, 1, torch.zeros(2, slots, 1))

    def __call__(self, tokens, *call, **more):
        return self.logits[tokens]


some = [text[len(text) // 2:][:1200] for text in held_out if len(text) > 4000][:6]
texts = torch.tensor([ids[:193] for ids in map(ours.encode, some) if len(ids) >= 193])
with torch.inference_mode():
    p_target = target(texts).softmax(-1)

# %%
read = train_texts[::60]
bigrams = Bigrams(other, read)


def longest(spelling, pieces):
    """Of the pieces of a token, longest first, the first that is a token of the draft model.

    spelling: the token's bytes; None if it is a special one.
    """
    found = (piece for piece in pieces(spelling or b"") if piece in other.ranks)
    return other.ranks.get(next(found, None), other.end_of_text)


def endings(spelling):
    return [spelling[i:] for i in range(len(spelling))]


def beginnings(spelling):
    return [spelling[:i] for i in range(len(spelling), 0, -1)]


def whole(spelling):
    return [spelling] * (spelling != b"")


# %%
ways = {name: torch.tensor([longest(spelling, pieces) for spelling in ours.spellings])
        for name, pieces in (("its longest ending", endings), ("its longest beginning", beginnings),
                             ("end of text", whole))}
ways["the same id, whatever that means"] = torch.arange(ours.vocab_size).clamp(
    max=other.end_of_text)
alpha = {}
for name, read_as in ways.items():
    q_draft = OtherTokenizer(bigrams, tables._replace(read_as=read_as))(texts).softmax(-1)
    alpha[name] = acceptance(p_target, q_draft).mean().item()
own = Bigrams(ours, read)(texts).softmax(-1)
alpha["(a table of the target's own tokens)"] = acceptance(p_target, own).mean().item()
table(["a token that it lacks is read as", "alpha"],
      [[name, f"{value:.3f}"] for name, value in alpha.items()], "T = 1")

# %% [markdown]
# *Answer:* the longest ending is best, and ids that mean something else are far worse than all. The
# longest ending is what `OtherTokenizer` reads, since what comes next depends most on the last
# letters. The last line has the same table counted in the target's own tokens: what is missing
# between the two is the price of another vocabulary. All lines would write the same distribution of
# texts, so no test of the text can tell a good table from a wrong one. That is why the proof has a
# second check here, which compares every q_draft with one that is computed in another way.
#
# ## A string for a draft
#
# The second way needs no shared tokens. The text is decoded and cut anew into the draft model's
# tokens. The draft model then writes its likeliest continuation, token by token. This is decoded
# too, and the target's tokenizer cuts it into draft tokens. Nothing was drawn, so q_draft is
# one-hot.
#
# A token is then accepted with p_target(x), which is how often the target alone would have written
# x. *Guess first:* which way brings more tokens per call at T = 0, and which at T = 1?

# %%
prompts, per_call = texts[:4, :96].tolist(), {}
for name, make in (("shared tokens", lambda: ModelDrafter(OtherTokenizer(bigrams, tables), 3)),
                   ("strings", lambda: StringDrafter(bigrams, other, ours, 3))):
    for temperature in (0, 1):
        rounds = [done for seed, ids in enumerate(prompts)
                  for done in speculate(target, make(), ids, 32, temperature, seed=seed)]
        per_call[name, temperature] = len(tokens_of(rounds)) / len(rounds)
table(["the draft", "tokens per call, T = 0", "T = 1"],
      [[name, *(f"{per_call[name, T]:.2f}" for T in (0, 1))]
       for name in ("shared tokens", "strings")])

# %% [markdown]
# *Answer:* with this table strings gain nothing: at T = 1 they lose, and at T = 0 the two are about
# equal. (The texts are those of your Python's library, so the figures differ a little from one
# version to the next.) At T = 1 the reason is the rule of acceptance. min(1, p / q) needs the
# probability of the string, which is a sum over all the ways to cut it, and is not known. So its
# tokens are judged as copies are. At T = 0 nothing is lost by that. There a string could gain from
# two things: it can hold any token, and the draft model reads the text in its own tokens. A table
# gains nothing from the second, since it reads one token.
#
# A cut can also fall in the wrong place. The text may end in the middle of one of the draft model's
# tokens, and the draft in the middle of one of the target's. The last draft token is then the
# beginning of a token, which the target would not have written. The target's own tokens, once
# committed, are never cut again.
#
# ## A real stranger
#
# The GPTs that ship know 1,024 tokens of Python code, and SmolLM2-135M knows 49,152 tokens of texts
# of all kinds. They share 891. In a piece of Python source, 62% of SmolLM2's tokens are shared
# ones. docs/results/draft-models.md has a measurement in which our target, as a draft model, drafts
# for SmolLM2, four tokens a round, after such pieces:
#
# | tokens per call | T = 0 | T = 1 |
# |---|---|---|
# | shared tokens | 1.67 | 1.32 |
# | strings | 1.96 | 1.64 |
#
# A GPT, unlike a table, gains from reading the text as it knows it, and most of SmolLM2's words can
# only be drafted as strings. Our small GPT brings less, and at T = 1 strings gain nothing with it.
# Outside Python source all numbers are smaller. Shared tokens should do better between two large
# tokenizers, which agree in most of what is written; that was not measured.
#
# ## Three things to know
#
# 1. Tokens are the same if their bytes are; ids and letters in files do not matter.
# 2. A draft model may write the shared tokens alone, if q_draft is divided by their sum. Or it
#    writes a string, whose tokens are judged like copies.
# 3. What it reads, and how it is mapped, decides how much is accepted, and never what is written.
#
# ## Change this and run again
#
# 1. Add `None` for c as well: `TO_TARGET = [None, None, 0, 1]`. Which lines of the walk stay exact?
# 2. Train the other tokenizer with 300 and with 1,000 tokens in place of 700. What happens to the
#    share and to the first and last line of alpha?
# 3. Let strings be longer: 3 becomes 8 in `StringDrafter`. What do tokens per call do at T = 0?
#
# The answers are in the file of the same name in `lessons/answers/`.
