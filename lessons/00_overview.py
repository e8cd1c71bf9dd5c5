# %% [markdown]
# # Overview
#
# **What is speculative decoding, in one picture?**
#
# A language model reads some tokens and returns a *distribution*: a probability for every token
# that may come next. A token is a piece of text, often a piece of a word. To write a text, a
# program draws one token from the distribution, appends it and asks the model again. A text of 100
# tokens therefore takes 100 *calls* of the model, one after the other.
#
# This course uses two models.
#
# - The *target* is big and slow. We want text from exactly its distribution.
# - The *draft model* is small and fast. Each of its tokens that the target accepts saves a call.
#
# In speculative decoding the draft model works ahead and the target checks its work:
#
# 1. The draft model proposes gamma tokens, the *draft tokens*. This takes gamma cheap calls.
# 2. The target *scores* them all in one call: it gives its distribution at each of their places.
# 3. From left to right, each draft token is *accepted* or *rejected* by a random decision that
#    depends on the probabilities of both models.
# 4. One more token follows. After a rejection it is drawn from what the target's distribution has
#    and the draft model's does not (*Accept or replace*), otherwise from the target's distribution
#    after the last draft token, which the same call gives. So every call of the target yields at
#    least one token and at most gamma + 1.
#
# These four steps make one *round*. The text that comes out has exactly the target's distribution.
# The lessons show why this is so, build every part, and measure how much time it saves.

# %%
import figures
from kit import contents, page, table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.speculate import speculate

target, draft_model, tokenizer = load_pair()
for name, model in ("target", target), ("draft model", draft_model):
    weights = sum(weight.numel() for weight in model.parameters())
    print(f"{name}: layers {model.config.layers}, weights {weights:,}")

# %% [markdown]
# ## One real round
#
# Both models were trained on Python code. They continue a prompt, with gamma = 4. A token of spaces
# or of a line end would show nothing, so we search for the first round in which every token is
# visible, some draft tokens are accepted, and one is rejected.
#
# In the table, p_target is the probability that the target gives to the draft token, and q_draft is
# the probability that the draft model gave it. A draft token is accepted with probability min(1,
# p_target / q_draft).
#
# *Guess first:* suppose that the target likes a draft token more than the draft model does. How
# often is it accepted?

# %%
prompt = "class Queue:\n    def __init__(self, items):\n        self."
text = prompt
for done in speculate(target, ModelDrafter(draft_model, 4), tokenizer.encode(prompt), 400, seed=1):
    words = [tokenizer.decode([token]) for token in [*done.tokens[1:], done.token]]
    if 0 < len(done.path) < 4 and all(word.strip() for word in words):
        break
    text += tokenizer.decode(done.emitted)

accepted = len(done.path)
*words, replacement = map(repr, words)
chances = []
for place, x in enumerate(done.tokens[1:]):     # tokens[0] is the last token of the text
    # p_target at a node is for the token after it, q_draft for the token at the node itself.
    p, q = done.p_target[place, x].item(), done.q_draft[place + 1, x].item()
    chances.append((p, q, min(1, p / q)))

# %%
ends = ["accepted"] * accepted + ["rejected"] + ["never judged"] * (3 - accepted)
table(["draft token", "p_target", "q_draft", "accepted with", "what happened"],
      [[word, *(f"{number:.3f}" for number in numbers), end]
       for word, numbers, end in zip(words, chances, ends)])
print(f"\nIn place of {words[accepted]} came {replacement}.")
print(f"One call of the target has brought {accepted + 1} tokens.")

figures.one_round(repr(text[-12:]), words, [chance for _, _, chance in chances], accepted,
                  replacement)
print("a whole run to play back, in a browser:", page("replay"))

# %% [markdown]
# *Answer:* always. Where p_target is at least q_draft, min(1, p_target / q_draft) is 1.
#
# ## Words and letters
#
# Each lesson explains a term where it is first needed. `nanospec/__init__.py` lists the most
# important ones, with the other names that papers use. Four letters stand in many tables: *gamma*
# is the number of draft tokens in a round, *alpha* the average probability that a draft token is
# accepted once it is judged, *c* the time of a draft step divided by the time of a target step
# (each is a call on one token), and *v(m)* the time of a target call on m tokens divided by the
# time of a call on one.
#
# ## The code
#
# Twelve files at the top of nanospec/ form a small *core* that needs nothing else of the project:
# `errors.py`, which checks arguments, and eleven to read in this order: `idea.py`,
# `generate.py`, `dice.py`, `probs.py`, `text.py`, `cache.py`, `draft.py`, `reader.py`,
# `speculate.py`, `attention.py`, `model.py`. After that, `proof/walk.py` shows how we know that
# they are right. The other methods are in nanospec/methods/, and most have a lesson.
#
# ## What each lesson answers
#
# Lessons refer to one another by title. Their order and their questions are these:

# %%
print()
for number, title, question in contents()[1:]:
    print(f"{number:>2}. {title}: {question}")

# %% [markdown]
# ## Three things to know
#
# 1. The draft model proposes and the target decides. A bad draft model costs time, never quality
#    (*Why it is lossless* proves it).
# 2. A round takes one call of the target and yields between 1 and gamma + 1 tokens.
# 3. A claim is run in front of you, proved in the text, or has its paper beside it.
#
# *Next:* in *A distribution is a die* we draw a single token.
