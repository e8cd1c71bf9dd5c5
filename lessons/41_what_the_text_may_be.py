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
from nanospec.methods.wrappers.grammar import Constrained, Grammar, grammar_of
from nanospec.methods.wrappers.grammar_drafter import GrammarDrafter
from nanospec.methods.wrappers.penalties import Penalised
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
#     0  --"["-->  1  --digit-->  2  --"]"-->  4, the end
#     2  --digit-->  2        2  --","-->  3        3  --blank-->  1
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
# no token may follow: it is a *dead end*, in which no distribution is left. So in the last state
# the end of text must be allowed, and the library refuses a grammar that still has a dead end.
#
# `grammar_of` makes such a table from a pattern in the syntax of Python's `re`. What it cannot make
# an automaton of, such as `\b`, it refuses by name. A prompt need not match. With `opens="\n"` the
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
# *Answer:* one mask for all nodes. Only the first line, a mask for each node, is exact. The proof
# of *Why it is lossless* does not ask where the two distributions come from, so it holds for masked
# ones as well. But the target's distribution must have the mask of its own node. With one mask for
# all, even the target forgets the grammar after the first draft token, so this mistake breaks the
# most texts.
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
# `Constrained` (nanospec/methods/wrappers/grammar.py) wraps a model in this way, and no drafter or
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
# ## A penalty depends on the text, too
#
# A *penalty* makes a token that the text already has less likely. The *frequency penalty* takes
# something from a token's logit for each time that the text has it, the *presence penalty* once,
# and the *repetition penalty* divides a logit above 0 and multiplies one below. So p_target depends
# on how often each token came before. As with a grammar, "before" is something else at each node of
# a draft (a node is a place in it): the text, and the draft tokens up to this one.
#
# We write the frequency penalty by hand. For every node the tokens are counted anew, along its own
# path. That is slow, but no counter is kept that would have to be rolled back.

# %%
PENALTY, WRITTEN = 0.7, 3
PAIR = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)


def penalised(model, text, counts):
    """The model's distribution after the text, if each token was counted so often."""
    logits = PAIR[model](torch.tensor([text]))[0, -1]
    return (logits - PENALTY * torch.tensor(counts, dtype=torch.float64)).softmax(-1)


def counted(text):
    return [text.count(token) for token in range(3)]


def right_round(text, seen, dice):
    """The text with what a round adds; it has no use for `seen`, a counter that is kept."""
    drafted, q = [], []
    for _ in range(GAMMA):
        q.append(penalised(1, text + drafted, counted(text + drafted)))
        drafted.append(dice.pick(q[-1]))
    for i, x in enumerate(drafted):
        p = penalised(0, text + drafted[:i], counted(text + drafted[:i]))
        if not dice.flip(p[x] / q[i][x]):
            return text + drafted[:i] + [dice.pick(residual(p, q[i]))]
    return text + drafted + [dice.pick(penalised(0, text + drafted, counted(text + drafted)))]


# %%
def plain_step(text, seen, dice):
    return text + [dice.pick(penalised(0, text, counted(text)))]


def written(a_round):
    """The distribution of the tokens that are written after 1, 0, 1."""
    def write(dice):
        text, seen = [1, 0, 1], counted([1, 0, 1])
        while len(text) < 3 + WRITTEN:
            text = a_round(text, seen, OneRow(dice))
        return tuple(text[3:3 + WRITTEN])
    return walk(write)[0]


wanted = written(plain_step)
right_off = distance(written(right_round), wanted)[1]
print(f"with a frequency penalty, the text is off by {right_off:.0e}")
assert right_off < 1e-12

# %% [markdown]
# ## Which public bugs are these?
#
# A program does not count a long text anew for each node. It keeps a counter, which it has to take
# back. Here is a round as a public program had it, in our own words. `seen` is its counter, a list,
# and the comment is what its authors believed.
#
# *Guess first:* the counter is copied before the draft. What goes wrong?

# %%
def one_counter_round(text, seen, dice):
    drafted, q, of_draft = [], [], seen                         # a copy, to be thrown away later
    for _ in range(GAMMA):
        q.append(penalised(1, text + drafted, of_draft))
        drafted.append(dice.pick(q[-1]))
        of_draft[drafted[-1]] += 1
    for i, x in enumerate([*drafted, None]):
        p = penalised(0, text + drafted[:i], seen)
        if i == GAMMA or not dice.flip(p[x] / q[i][x]):
            token = dice.pick(residual(p, q[i]) if i < GAMMA else p)
            seen[token] += 1
            return text + drafted[:i] + [token]
        seen[x] += 1


counter_off = distance(written(one_counter_round), wanted)[1]
print(f"\nthe text is off by {counter_off:.3f}")
assert counter_off > 0.001

# %% [markdown]
# *Answer:* a second name for a list is no copy. The draft model counts its tokens in the target's
# counter: accepted tokens are counted twice, and rejected ones stay in it. (The program
# copied a structure, but the counter in it was a reference, which both copies shared.
# `one-counter-for-draft-and-target`: osaurus-ai/vmlx-swift#357. A program that has a true copy, and
# counts all that the target reads, keeps the rejected ones: `a-counter-that-is-not-taken-back`.)
#
# A second public program counts well, and has another mistake. This is its round, in our own words.
#
# *Guess first:* does a bonus token without the penalty matter less than a draft token without it?

# %%
def bare_bonus_round(text, seen, dice):
    drafted, q = [], []
    for _ in range(GAMMA):
        q.append(penalised(1, text + drafted, counted(text + drafted)))
        drafted.append(dice.pick(q[-1]))
    for i, x in enumerate(drafted):
        p = penalised(0, text + drafted[:i], counted(text + drafted[:i]))
        if not dice.flip(p[x] / q[i][x]):
            return text + drafted[:i] + [dice.pick(residual(p, q[i]))]
    return text + drafted + [dice.pick(penalised(0, text + drafted, [0, 0, 0]))]


bonus_off = distance(written(bare_bonus_round), wanted)[1]
first_off = distance(*({token: sum(weight for tokens, weight in found.items() if tokens[0] == token)
                        for token in range(3)} for found in (written(bare_bonus_round), wanted)))[1]
print(f"\nthe text is off by {bonus_off:.3f}, its first token by {first_off:.0e}")
assert bonus_off > 0.001 and first_off < 1e-12

# %% [markdown]
# *Answer:* the last line draws the bonus token without a penalty. For that token it is as wrong as
# at any other place. But a bonus token comes only where all of a draft was accepted. So the better
# the draft model, the more of the penalty is lost, and a test of a first token sees nothing.
# (`a-bonus-token-past-the-penalties`: ardanlabs/kronk#788.)
#
# `Penalised` (nanospec/methods/wrappers/penalties.py) has all three penalties. It keeps the tokens
# themselves in their slots of the cache, as `Constrained` keeps states, and a node counts the slots
# that it attends to. There is no counter to be taken back, or to be shared.

# %%
of_penalties = [Penalised(model, frequency=PENALTY) for model in PAIR]
penalties_off = {}
for name in ("chain", "tree", "lookup"):
    run = method_of(*of_penalties, name, gamma=2, topology=[-1, 0, 0, 1]).run
    found, paths = walk(lambda dice: tuple(
        tokens_of(run([1, 0, 1], max_new_tokens=WRITTEN, dice=dice))))
    penalties_off[name] = distance(found, wanted)[1]
    print(f"{name:8} {paths:5} paths walked, the text is off by {penalties_off[name]:.0e}")
assert max(penalties_off.values()) < 1e-12

# %% [markdown]
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


def texts_by(writes, drafter, temperature):
    """The rounds of a text after each prompt."""
    return [list(speculate(writes, drafter, tokenizer.encode(prompt), 32, temperature, seed=seed,
                           stop=tokenizer.ends)) for seed, prompt in enumerate(PROMPTS)]


# %%
rounds_of, alpha, shown = {}, {}, []
for name, (writes, drafts) in {"no grammar": (target, draft_model), "both masked": (T, D),
                               "the target alone": (T, draft_model)}.items():
    for temperature in (0, 1):
        done = texts_by(writes, ModelDrafter(drafts, 4), temperature)
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
# Compare the middle line with *both masked* in the table before: a large part of the rise comes
# from tokens that the grammar has decided. (The places are few, so the figures are rough.)
#
# ## Tokens that no model is asked for
#
# Where the grammar leaves one token, it is *forced*. Its masked p_target is 1, whatever the logits
# are. So it can be drafted without a model, with a one-hot q_draft, and is accepted. The engines
# call this *jump-forward* decoding. The target has to read the token, as it has to read any other,
# and does so in the call that it makes anyway.
#
# `GrammarDrafter` (nanospec/methods/wrappers/grammar_drafter.py) drafts all tokens that are forced,
# and asks the draft model at the other places. It masks whatever a draft model hands over. So it
# also takes one that reads the target's hidden states, which no `Constrained` can wrap.
#
# *Guess first:* a record is mostly forced. How many of the draft model's calls are left?

# %%
prefix = load_pair(draft_model="prefix").draft_model
asked = {}
for name, drafter in {"GPT, masked": ModelDrafter(D, 4),
                      "GPT, forced tokens free": GrammarDrafter(draft_model, grammar, 4),
                      "prefix, not masked": ModelDrafter(prefix, 4),
                      "prefix, forced tokens free": GrammarDrafter(prefix, grammar, 4)}.items():
    rounds = sum(texts_by(T, drafter, 1), [])
    tokens, steps = len(tokens_of(rounds)), sum(done.steps for done in rounds)
    asked[name] = tokens / len(rounds), steps / tokens
table(["draft model", "tokens per target call", "draft model's calls per token"],
      [[name, *(f"{number:.2f}" for number in both)] for name, both in asked.items()], "T = 1")

# %% [markdown]
# *Answer:* more of the GPT's calls are left than one might hope. Before it can draft what follows a
# forced piece it has to read the piece, which takes one call, however long the piece is (see the
# last column). A round without a forced token still takes four calls. The target is called less
# often, too, because a draft goes on for as long as its tokens are forced. `prefix`, which reads
# the target's hidden states, gains most, since now it knows the grammar.
#
# ## Which distribution is it?
#
# The text is distributed as the *masked* target writes it, token by token. This is not the
# distribution of the target's own texts after all that do not match are thrown away. A mask looks
# at the next token alone. It may lead into a part of the grammar that the target finds unlikely,
# and this shows only later. (Park et al. 2024, arXiv 2405.21047, show how far apart the two can
# be.) On the small tables we can compute both.
#
# *Guess first:* does the masked target like a beginning more or less than it should, if a forced
# token follows?

# %%
def unmasked(dice):
    text, dice = START, OneRow(dice)
    while len(text) < len(START) + NEW:
        text += (dice.pick(TARGET(torch.tensor([text]))[0, -1].softmax(-1)),)
    return text[len(START):]


matching = {tokens: weight for tokens, weight in walk(unmasked)[0].items() if is_right(tokens)}
share = sum(matching.values())
matching = {tokens: weight / share for tokens, weight in matching.items()}
apart, beginnings = distance(matching, right)[1], {}
for first in sorted({tokens[:2] for tokens in right}):
    after = TARGET(torch.tensor([START + first]))[0, -1].softmax(-1)
    may_follow = torch.tensor(RULES[following(following(BEGIN, first[0]), first[1])]) >= 0
    beginnings[first] = [sum(weight for tokens, weight in found.items() if tokens[:2] == first)
                         for found in (right, matching)] + [float(after[may_follow].sum())]
table(["the text begins with", "masked", "thrown away unless it matches", "what may follow has"],
      [[f"{first[0]} {first[1]}", *(f"{number:.3f}" for number in line)]
       for first, line in beginnings.items()], "exact")
print(f"\n{share:.0%} of the target's own texts match; among these, the distribution is "
      f"{apart:.2f} away from the masked target's")
figures.what_the_text_may_be(alpha)

# %% [markdown]
# *Answer:* more. After 2 0 only token 2 may follow, and the target itself would write it a third of
# the time (the last column). Throwing texts away has a price: of the texts that begin so, two
# thirds are gone at the next token. Masked, the forced token costs nothing, so all of them stay.
#
# Speculation changes neither of the two. It writes what constrained decoding would have written,
# and it shares the faults of constrained decoding.
#
# ## Three things to know
#
# 1. A grammar is a table from a state and a token to the next state. Each node of a draft has the
#    mask of the state after its own path.
# 2. The state is kept in the token's slot of the cache, so a draft that is thrown away takes its
#    states with it. The counter of a penalty is such a state, too.
# 3. The text is exact whether or not the draft model is masked. Without a mask for the draft model,
#    acceptance falls below that of free text. A token that the grammar forces needs no draft model.
#
# ## Change this and run again
#
# 1. Let `DRAFT_MODEL = TARGET` in the small example. Which of the two mistakes is still seen?
# 2. Draft without a mask in the small example: `DRAFT_MODEL(torch.tensor([text + drafted]))[0, -1]`
#    and `.softmax(-1)` in `constrained_rounds`, with `NEW = 3`. Which of the three lines are exact?
# 3. Give the record a name that is nearly free: `"[^"\n]+"`. At T = 1, does alpha come closer to
#    that of free text?
#
# The answers are in the file of the same name in `lessons/answers/`.
