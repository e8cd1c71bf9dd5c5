# %% [markdown]
# # 0. Overview
#
# **What is speculative decoding, in one picture?**
#
# A language model reads some tokens and hands out a *distribution*: a probability for every token
# that may come next. A token is a piece of text, often a piece of a word.
# To write a text, a program draws one token from the distribution, appends it, and asks again.
# So a text of 100 tokens takes 100 *calls* of the model, one after the other.
#
# There are two models in this course.
#
# - The *target* is big and slow. We want its text, exactly.
# - The *draft model* is small and fast. Its text is worse, but it often agrees with the target.
#
# Speculative decoding lets the draft model work ahead, and the target check:
#
# 1. The draft model proposes gamma tokens, the *draft tokens*. These are gamma cheap calls.
# 2. The target scores all of them in one call.
# 3. From left to right, a draft token is *accepted* or *rejected*, by a coin.
#    The coin depends on both models' probabilities.
# 4. After the last accepted token comes one more token, from the target's side.
#    So every call of the target brings at least one token, and at most gamma + 1.
#
# These four steps are one *round*. The text that comes out has exactly the target's distribution.
# The lessons show why, build every part, and measure what it gains.

# %%
import figures
from kit import table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.speculate import speculate

target, draft, tokenizer = load_pair()
for name, model in ("target", target), ("draft model", draft):
    weights = sum(weight.numel() for weight in model.parameters())
    print(f"{name}: layers {model.config.layers}, weights {weights:,}")

# %% [markdown]
# ## One real round
#
# Both models were trained on Python code. They continue a prompt, with gamma = 4.
# We look for the first round in which some draft tokens are accepted and one is rejected.
# (And in which all tokens can be seen: many tokens of Python code are spaces and ends of lines.)
#
# In the table, p_target is the target's probability of the draft token, and q_draft is the draft
# model's. A draft token is accepted with probability min(1, p_target / q_draft).
#
# *Guess first:* a draft token that the target likes more than the draft model does. How often is it
# accepted?

# %%
prompt = "import os\nfor name in"
text = prompt
for done in speculate(target, ModelDrafter(draft, 4), tokenizer.encode(prompt), 400, seed=1):
    words = [tokenizer.decode([token]) for token in [*done.tokens[1:], done.token]]
    if 0 < len(done.path) < 4 and all(word.strip() for word in words):
        break
    text += tokenizer.decode(done.emitted)

accepted = len(done.path)
*words, replacement = map(repr, words)
chances = []
for place, x in enumerate(done.tokens[1:]):     # row 0 is the text's last token: see "row", below
    p, q = done.p_target[place, x].item(), done.q_draft[place + 1, x].item()
    chances.append((p, q, min(1, p / q)))

# %%
ends = ["accepted"] * accepted + ["rejected"] + ["never judged"] * (3 - accepted)
table(["draft token", "p_target", "q_draft", "accepted with", "what happened"],
      [[word, *(f"{number:.3f}" for number in numbers), end]
       for word, numbers, end in zip(words, chances, ends)])
print(f"\nIn place of {words[accepted]} the target's side says {replacement}.")
print(f"One call of the target has brought {accepted + 1} tokens.")

figures.one_round(repr(text[-12:]), words, [chance for _, _, chance in chances], accepted,
                  replacement)

# %% [markdown]
# ## The words
#
# | word | what it means |
# |---|---|
# | distribution | a probability for every token; together they are 1 |
# | p_target, q_draft | the target's distribution; the distribution a draft token was drawn from |
# | draft token | a token that was proposed and is not verified yet |
# | draft | all draft tokens of one round |
# | accepted, rejected | the draft token becomes part of the text, or it does not |
# | residual distribution | max(0, p_target - q_draft), made to add up to 1 |
# | replacement | the token in place of a rejected one, drawn from the residual distribution |
# | bonus token | one more token, where all draft tokens were accepted |
# | round | draft, verify in one call of the target, append |
# | gamma | the number of draft tokens in a round |
# | alpha | how often a draft token is accepted, on average |
# | c | time of a draft model's call / time of a target's call |
# | v(m) | time of a target's call on m tokens / on one |
# | row | a place in a draft; row 0 is the last token of the text |
# | slot | a place in the cache, where what was computed for one token is kept |
# | dice, coin | where all random numbers come from; a decision with two outcomes |
# | walk | try every outcome of every decision, and add up the probabilities |
# | zoo | bugs of other projects, planted on purpose to test the tests |
#
# `nanospec/__init__.py` has the same list with the papers' other words.
#
# ## The code
#
# The folder nanospec/ has a small *core*: ten files that need nothing else of the project.
# They are best read in this order: `generate.py` (lesson 2), `dice.py` (lesson 1), `probs.py`
# (lesson 9), `draft.py` and `speculate.py` (lesson 8), `cache.py` and `model.py` (lessons 3 and 4).
# Then `proof/walk.py` (lesson 5) shows how we know that they are right.
# All other methods stand in folders beside the core, each with a lesson of its own.
#
# ## What each lesson answers
#
# | lesson | question |
# |---|---|
# | 1 | What does a language model hand us, and what do we do with it? |
# | 2 | One token per call: where does the time go? |
# | 3 | Why do ten tokens in one call cost little more than one? |
# | 4 | What is kept between two calls, and how is it taken back? |
# | 5, 6 | How does a draft token become a token of the target's distribution? |
# | 7 | Why is it exact? |
# | 8 | How are several draft tokens verified in one call? |
# | 9, 10 | What do temperature, top-k and greedy decoding change? |
# | 11, 12 | How fast is it? Where is a small draft model good enough? |
# | 13 | How would you know that a sampler is wrong? |
# | 14 | When is it slower than plain decoding? |
# | 15, 16 | Why draft only one future? And which tree of draft tokens is the fastest? |
# | 17, 18 | Can a better rule accept more? How good can a rule be? |
# | 19 | Where do draft tokens come from when there is no draft model? |
# | 20 | Must the draft tree be the same at every place? |
# | 21, 22 | How long should a draft be, at this place? |
# | 23, 24, 25 | What can a draft model learn from what the target's layers put out? |
# | 26 | What should a draft model be taught, and on which text? |
# | 27 | How does one target call serve many people, each at their own pace? |
# | 28 | From how many texts on is a draft token no longer free, and who gets it then? |
# | 29 | Can a cheap draft model copy a name from far back in the text? |
# | 30, 31 | Can all draft tokens come from one pass? Can the target draft for itself? |
# | 32 | Must every token be the target's? |
# | 33 | When does a third level pay? |
# | 34 | When is a copy worth more than the draft model's word? |
# | 35 | Does it hold for models that others made, and in programs that others wrote? |
#
# ## Three things to know
#
# 1. The draft model proposes, the target decides. A bad draft model costs time, never quality.
# 2. A round takes one call of the target, and brings 1 to gamma + 1 tokens.
# 3. Nothing here is claimed without being run in front of you.
#
# Next: lesson 1 draws a token.
