# %% [markdown]
# # What the text may be
#
# **How does a grammar constrain a draft that may be thrown away?**
#
# A program that calls a language model often needs a text of a certain form, such as JSON or a list
# of numbers. *Constrained decoding* makes sure of the form: before each token is drawn, those that
# would break it are masked. Which tokens these are depends on a *state*, and the state depends on
# all tokens before. A draft goes ahead of the text, and part of it is rejected. So which state is
# right, and what becomes of it after a rejection?
#
# The table over tokens is from Outlines (Willard, Louf 2023, arXiv 2307.09702). The lesson uses *A
# draft and a bonus*, *How to test a sampler*, *Several futures* and *Copying from the past*.

# %%
import re
from statistics import mean

import torch

import figures
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.cli.quantities import betas_of
from nanospec.files import load_pair
from nanospec.methods.index import method_of
from nanospec.methods.models.grammar import Constrained, Grammar, grammar_of
from nanospec.probs import residual
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk
from nanospec.speculate import speculate, tokens_of

torch.set_num_threads(1)
target, draft_model, tokenizer = load_pair()
V = target.config.vocab_size

# %% [markdown]
# ## From characters to tokens
#
# Let the text be a list of numbers, `[3, 14, 1]`. An automaton reads it character by character:
#
#     state 0  --[-->  1  --digit-->  2  --]-->  4, the end
#                      ^              |
#                      +--blank-- 3 <-,          and a digit leads from 2 to 2
#
# But the model does not write characters. A token may follow if the automaton can go through all of
# its characters, one after the other. The state in which it arrives is the state after the token.
#
# *Guess first:* how many of the 1,024 tokens may follow in each state?

# %%
DIGITS = "0123456789"
AUTOMATON = [{"[": 1}, dict.fromkeys(DIGITS, 2), {**dict.fromkeys(DIGITS, 2), ",": 3, "]": 4},
             {" ": 1}, {}]


def after_token(state, token):
    """The state after all characters of a token, or None."""
    for character in tokenizer.decode([token]):
        state = AUTOMATON[state].get(character)
        if state is None:
            return None
    return state


may, shown = [], []
for state in range(len(AUTOMATON)):
    may.append({token: after_token(state, token) for token in range(V)
                if after_token(state, token) is not None})
    some = [f"{tokenizer.decode([token])!r} to {to}" for token, to in may[state].items()]
    shown.append([state, len(some), ", ".join(some[:3] + some[-2:] if len(some) > 5 else some)])
table(["state", "may follow", "for example"], shown)

# %% [markdown]
# *Answer:* one, or a dozen: only digits, alone or in pieces of several, and the signs of the
# pattern. In the last state there is none.
#
# This table is computed once. While the text is written, masks are only looked up in it. In state 4
# no token may follow: it is a *dead end*, in which no distribution is left. There the end of text
# must be allowed, and the library rejects a grammar that has a dead end.
#
# `grammar_of` makes such a table of a pattern, as Python's `re` has them. What it cannot make an
# automaton of, such as `\b`, it refuses by name. A prompt need not match. With `opens="\n"` the
# pattern is for what comes after the last line break, and before it all tokens may follow. Without
# `opens` it is for what comes after the prompt.

# %%
NUMBERS = r"\[\d+(, \d+)*\]"
grammar = grammar_of(NUMBERS, tokenizer, V, opens="\n")
assert grammar.allowed[1:5].sum(-1).tolist() == [len(state) for state in may[:4]]

ids = tokenizer.encode("# the first squares:\n")
for name, model in (("free", target), ("constrained", Constrained(target, grammar))):
    rounds = speculate(model, ModelDrafter(draft_model, 4), ids, 24, 0.7, seed=3,
                       stop=tokenizer.ends)
    print(f"{name:12}", repr(tokenizer.decode(tokens_of(rounds))))

# %% [markdown]
# ## A mask for each node
#
# The target scores all nodes of a draft in one call, and each node needs a mask of its own: that of
# the state after the node's own path. After a rejection, the state must again be that of the text,
# as if there had been no draft. This is easy to get wrong. A change proposed for vLLM gave all
# nodes the mask of node 0, for one kind of grammar (pull request 46272). Another mistake is to
# advance the state along the draft, and not to take it back.
#
# We try both on a small grammar of four states over three tokens. `RULES[state][token]` is the next
# state, and the text begins with token 0. *Guess first:* which of the two mistakes breaks more
# texts?

# %%
RULES = [[1, -1, 2], [-1, 0, 2], [3, 1, -1], [-1, -1, 0]]           # -1: may not follow
TARGET, DRAFT_MODEL = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
START, NEW, GAMMA = (0,), 4, 2
BEGIN = RULES[0][START[0]]                                          # the state after START


def masked(model, text, state):
    """The model's distribution after the text, without the tokens that may not follow."""
    p = model(torch.tensor([text]))[0, -1].softmax(-1) * (torch.tensor(RULES[state]) >= 0)
    return p / p.sum()


def following(state, token):
    return max(RULES[state][token], 0)          # a token that may not follow leads to state 0


def is_right(tokens, state=BEGIN):
    """Whether the grammar allows these tokens after the start."""
    for token in tokens:
        if RULES[state][token] < 0:
            return False
        state = RULES[state][token]
    return True


# %%
def constrained_rounds(dice, one_mask=False, rolled_back=True):
    text, state, dice = START, BEGIN, OneRow(dice)
    while len(text) < len(START) + NEW:
        drafted, states, q = (), [state], []                            # NEW: a state for each node
        for _ in range(GAMMA):
            q.append(masked(DRAFT_MODEL, text + drafted, states[-1]))
            drafted += (dice.pick(q[-1]),)
            states.append(following(states[-1], drafted[-1]))
        masks = [state] * (GAMMA + 1) if one_mask else states
        p = [masked(TARGET, text + drafted[:i], masks[i]) for i in range(GAMMA + 1)]
        n = 0
        while n < GAMMA and dice.flip(min(1.0, float(p[n][drafted[n]] / q[n][drafted[n]]))):
            n += 1
        token = dice.pick(residual(p[n], q[n]) if n < GAMMA else p[n])
        text += (*drafted[:n], token)
        state = following(states[n] if rolled_back else states[-1], token)      # NEW
    return text[len(START):len(START) + NEW]


def one_by_one(dice):
    text, state, dice = START, BEGIN, OneRow(dice)
    while len(text) < len(START) + NEW:
        text += (dice.pick(masked(TARGET, text, state)),)
        state = following(state, text[-1])
    return text[len(START):]


# %%
right, off = walk(one_by_one)[0], {}
for name, how in {"each node its own": {}, "node 0's for all nodes": {"one_mask": True},
                  "each node its own, never rolled back": {"rolled_back": False}}.items():
    found, paths = walk(lambda dice: constrained_rounds(dice, **how))
    broken = sum(weight for tokens, weight in found.items() if not is_right(tokens))
    off[name] = distance(found, right)[1], broken
table(["the mask", "off from the masked target", "texts that break the grammar"],
      [[name, f"{tv:.1e}", f"{broken:.0%}"] for name, (tv, broken) in off.items()],
      f"{NEW} tokens, every path walked")
assert off["each node its own"][0] < 1e-12 < 0.01 < min([tv for tv, _ in off.values()][1:])

# %% [markdown]
# *Answer:* one mask for all nodes. Only the first is exact. The proof of *Why it is lossless* does
# not ask where the two distributions come from, so it holds for masked ones as well. But the
# target's distribution must have the mask of its own node. With one mask for all, even the target
# forgets the grammar after the first draft token, so this mistake breaks the most texts.
#
# ## A state for each slot
#
# How does one roll back an automaton? The engines keep its history and step back. Here it is
# simpler. The state after a token depends on this token and on the state before, as keys and values
# do. So the state is kept where they are: in the token's slot of the cache. Whatever becomes of the
# slot becomes of the state.
#
# | what happens | a slot | its state |
# |---|---|---|
# | a roll-back | lies above `length` and is overwritten | is forgotten |
# | a draft tree | attends to its ancestors | follows from its parent's |
# | a path is accepted | moves to the end of the text | moves along |
# | a request moves in a server | moves with its row of the batch | moves along |
#
# `Constrained` (nanospec/methods/models/grammar.py) wraps a model in this way, and no drafter or
# rule has to know of it. We walk a chain, a tree and copies. (How requests move was the subject of
# *Many requests*; the tests of this project serve some under a grammar.)

# %%
small = Grammar(torch.tensor(RULES))
both = Constrained(TARGET, small), Constrained(DRAFT_MODEL, small)
library_off = {}
for name in ("chain", "tree", "lookup"):
    run = method_of(*both, name, gamma=2, topology=[-1, 0, 0, 1]).run
    found, paths = walk(lambda dice: tuple(tokens_of(run(START, max_new_tokens=NEW, dice=dice))))
    library_off[name] = distance(found, right)[1]
    print(f"{name:8} {paths:5} paths walked, the text is off by {library_off[name]:.0e}")
assert max(library_off.values()) < 1e-12

# %% [markdown]
# The copier copies without asking the grammar. A copied token that may not follow has p_target = 0,
# so it is rejected, and the text is right all the same.
#
# ## Must the draft model be masked, too?
#
# Not for exactness. But a draft token that may not follow is a wasted one. Some programs leave the
# draft model as it is, since a mask for each draft step costs time (ollama, pull request 18105). We
# count with the pair that ships, with five prompts and a record as the pattern.
#
# *Guess first:* under a grammar, does alpha rise or fall if both models are masked? And if the
# target alone is?

# %%
RECORD = r'\{"name": "[A-Z][a-z]+", "age": \d\d?\}'
PROMPTS = ["# a user, as JSON:\n", "record = json.loads(line)\n", "    # for example\n",
           '"""The settings of a person.\n', "# one line of the log\n"]
grammar = grammar_of(RECORD, tokenizer, V, opens="\n")
T, D = Constrained(target, grammar), Constrained(draft_model, grammar)
rounds_of, alpha, shown = {}, {}, []
for name, (writes, drafts) in {"no grammar": (target, draft_model), "both masked": (T, D),
                               "the target alone": (T, draft_model)}.items():
    for temperature in (0, 1):
        done = [list(speculate(writes, ModelDrafter(drafts, 4), tokenizer.encode(prompt), 32,
                               temperature, seed=seed, stop=tokenizer.ends))
                for seed, prompt in enumerate(PROMPTS)]
        rounds = rounds_of[name, temperature] = sum(done, [])
        texts = [tokenizer.decode(tokens_of(one)).removesuffix("<|endoftext|>") for one in done]
        matches = sum(bool(re.fullmatch(RECORD, text)) for text in texts)
        alpha[name, temperature] = mean(sum(betas_of(rounds), []))      # over all places judged
        per_call = len(tokens_of(rounds)) / len(rounds)
        shown.append([name, temperature, f"{alpha[name, temperature]:.2f}", f"{per_call:.2f}",
                      f"{matches} of {len(done)}", texts[0]])
table(["grammar", "T", "alpha", "tokens per call", "match", "the first text"],
      [[*line[:-1], repr(line[-1][:28])] for line in shown])

# %% [markdown]
# *Answer:* with both masked, alpha rises at T = 1: the mask takes tokens away about which the two
# models disagreed. At T = 0 only the favourite of each model counts, and it need not rise. With the
# target alone it falls below what it was without a grammar, because the draft model would rather
# write code than a record.
#
# Part of the rise is cheap. Where a single token may follow, both models write it, and it is
# accepted in any case. What is left if we count only the places where there is a choice?

# %%
choice, places = {}, {}
for name in ("no grammar", "both masked", "the target alone"):
    betas = []
    for done in rounds_of[name, 1]:
        for node in [0, *done.path][:len(done.tokens) - 1]:
            if (done.p_target[node] > 0).sum() > 1:
                p, q = done.p_target[node], done.q_draft[node + 1]
                betas.append(torch.minimum(p, q).sum().item())
    choice[name], places[name] = mean(betas), len(betas)
table(["grammar", "alpha where there is a choice", "places"],
      [[name, f"{choice[name]:.2f}", places[name]] for name in choice], "T = 1")

# %% [markdown]
# Compare the middle line with both masked in the table before: a large part of the rise comes from
# tokens that the grammar has decided. (The places are few, so the figures are rough.) An engine may
# also write these tokens without asking any model, which is called *jump-forward* decoding. Here
# they are drafted and accepted.
#
# ## Which distribution is it?
#
# The text is distributed as the *masked* target writes it, token by token. This is not the same as
# the target's texts, thrown away unless they match. A mask looks at the next token alone. It may
# lead into a part of the grammar that the target finds unlikely, and only then does it turn out.
# (Park et al. 2024, arXiv 2405.21047, show how far apart the two can be.) On the small tables we
# can compute both.

# %%
def unmasked(dice):
    text, dice = START, OneRow(dice)
    while len(text) < len(START) + NEW:
        text += (dice.pick(TARGET(torch.tensor([text]))[0, -1].softmax(-1)),)
    return text[len(START):]


matching = {tokens: weight for tokens, weight in walk(unmasked)[0].items() if is_right(tokens)}
share = sum(matching.values())
apart = distance({tokens: weight / share for tokens, weight in matching.items()}, right)[1]
print(f"\n{share:.0%} of the target's own texts match; among these, the distribution is "
      f"{apart:.2f} away from the masked target's")
figures.what_the_text_may_be(alpha)

# %% [markdown]
# Speculation changes neither of the two. It writes what constrained decoding would have written,
# and it shares the faults of constrained decoding.
#
# ## Three things to know
#
# 1. A grammar is a table from a state and a token to the next state. Each node of a draft has the
#    mask of the state after its own path.
# 2. The state is kept in the token's slot of the cache, so a draft that is thrown away takes its
#    states with it.
# 3. The text is exact whether or not the draft model is masked. Without a mask for the draft model,
#    acceptance falls below that of free text.
#
# ## Change this and run again
#
# 1. Let `DRAFT_MODEL = TARGET` in the small example. Which of the two mistakes is still seen?
# 2. Draft without a mask in the small example: `DRAFT_MODEL(torch.tensor([text + drafted]))[0, -1]`
#    and `.softmax(-1)` in `constrained_rounds`, with `NEW = 3`. Which of the three lines are exact?
# 3. Give the record a name that is nearly free: `"[^"\n]+"`. Does alpha come closer to that of free
#    text, at both temperatures?
#
# The answers are in the file of the same name in `lessons/answers/`.
