# %% [markdown]
# # How close a rule can come
#
# **What is the most that any rule can accept?**
#
# With one draft token, accept or replace is the best possible rule. With a draft of several tokens
# it is not, because *Block verification* accepts more. With several draft tokens for one place
# (*Several futures*), it depends on how they are drawn.
#
# This lesson computes a *ceiling* for each case, the most that any lossless rule can accept, and
# then asks how close each rule comes.

# %%
from collections import defaultdict
from functools import lru_cache
from itertools import combinations, product

import torch

import figures
from coupled import WalkedNoise, agreement, cells, draw, gumbel
from kit import OneRow, table
from kseq import k_seq, least_rho
from oracles import sequential_acceptance
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate
from nanospec.theory import acceptance

torch.set_num_threads(1)                # thousands of tiny sums: threads would only wait

names = ["range", "items", "zip", "def"]                    # what may follow "for x in"
p_target, q_draft = [.6, .3, .1, 0], [.2, .2, .5, .1]       # a bad draft model

# %% [markdown]
# ## One draft token
#
# Take some tokens, for example zip and def, and call this set S.
#
# **Claim 1.** No lossless rule accepts a draft token more often than 1 + p_target(S) - q_draft(S),
# where p_target(S) is the sum of p_target over the tokens in S.
#
# **Proof.** The numbers are for S = {zip, def}.
#
# 1. The draft token lies in S with probability q_draft(S) = .5 + .1 = .6.
# 2. An accepted token of S becomes part of the text.
# 3. If the rule is lossless, the text has a token of S at this place with p_target(S) = .1 + 0 =
#    .1.
# 4. So of the .6, at most .1 is accepted, and at least .6 - .1 = .5 is rejected.
# 5. At most 1 - .5 = .5 is accepted.
#
# Every S gives such a bound, and the lowest of them is the ceiling. Accept or replace accepts sum
# min(p_target, q_draft), the overlap.
#
# *Guess first:* four tokens have 16 sets S. Which set gives the lowest bound?

# %%
def all_sets(V):
    """Every set of the tokens 0 to V - 1, as a tuple: 4 tokens have 16 sets."""
    return [S for size in range(V + 1) for S in combinations(range(V), size)]


bounds = {}
for S in all_sets(4):
    bounds[S] = 1 + sum(p_target[x] for x in S) - sum(q_draft[x] for x in S)
overlap = sum(min(p, q) for p, q in zip(p_target, q_draft))
for S in sorted(bounds, key=bounds.get)[:5]:
    print(f"  S = {', '.join(names[x] for x in S):20} at most {bounds[S]:.2f} is accepted")
print(f"accept or replace accepts {overlap:.2f}")
assert abs(min(bounds.values()) - overlap) < 1e-12 and min(bounds, key=bounds.get) == (2, 3)

# %% [markdown]
# *Answer:* the lowest bound is at the tokens that the draft model proposes too often, and accept or
# replace reaches it. With one draft token, no rule is better.
#
# ## The same seed, the same text
#
# Some users want more than a distribution: one seed is to give one text, with a draft or without,
# at every temperature. Accept or replace does not promise that, since its coins and replacements
# take other random numbers than plain decoding. Another rule does, and it accepts nearly as much.
#
# Every place of the text gets *noise* of its own, a number g(x) for each token x, which is made
# from the seed and the place alone. The target draws its token as the argmax of log p_target + g.
# With g = -log(-log u), where u is uniform, this token is distributed as p_target (the *Gumbel-max
# trick*). The draft model draws with the same noise. A draft token is accepted if it is the token
# that the target draws at its place. If not, the target's token is written, and the round ends.

# %%
def seeded(big, small, text, new, noise, gamma, T=1.0):
    """-> the text with `new` more tokens, and in how many calls of the target. gamma 0: plain."""
    text, end, calls, warped = list(text), len(text) + new, 0, Sampling(T)
    while len(text) < end:
        tokens = list(text)                                     # the text and its draft
        for _ in range(gamma):
            q = warped(small(torch.tensor([tokens]))[0, -1:].double())[0]
            tokens.append(draw(q, noise(len(tokens))))
        calls += 1
        for p in warped(big(torch.tensor([tokens]))[0, -gamma - 1:].double()):
            place = len(text)
            text.append(draw(p, noise(place)))                  # the target's own token
            if text[place:] != tokens[place:place + 1]:         # another one, or the bonus token
                break
    return text[:end], calls


# %% [markdown]
# Every token is drawn by the target, with the noise of its place, so no draft can change the text.
# "Accept if equal" is often called a bug. It is exact, and at worst it is slow: a draft can only
# change how many calls the text takes.
#
# *Guess first:* at which of four temperatures is the text with drafts the same as without?

# %%
target, draft_model, tokenizer = load_pair(dtype=torch.float64)  # a rounding may not decide a draw
ids, NEW, V = tokenizer.encode("def area(radius):\n"), 24, target.config.vocab_size
noise = gumbel(7, len(ids) + NEW + 5, V).__getitem__            # place -> (V,)
lines, texts = [], {}
with torch.no_grad():
    for T in (0, 0.5, 1, 2):
        (texts[T], most), *drafted = (seeded(target, draft_model, ids, NEW, noise, gamma, T)
                                   for gamma in (0, 2, 4))
        assert all(text == texts[T] for text, _ in drafted)
        lines.append([T, most, *(calls for _, calls in drafted)])
    p_all, q_all = (model(torch.tensor([texts[1]]))[0].double().softmax(-1)
                    for model in (target, draft_model))
table(["T", "calls, plain", "gamma 2", "gamma 4"], lines, "the same text in each line")

# %% [markdown]
# *Answer:* at all four. The cell would have stopped at its assert.
#
# The dice of the library take one uniform for each decision. Here a place takes one for every
# token of the vocabulary, and the rule stands beside the library, not in it. Its noise must not
# depend on how a place was reached: not on the round, the row of the batch or the draft's length.
#
# Is the text distributed as the target's? We walk it. Noise is continuous, but all noise that makes
# every model draw the same tokens can count as one case. `cells` finds these cases for three
# tokens, and their probabilities.

# %%
big, small = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)


@lru_cache(maxsize=None)
def cells_at(place):
    """For the two places after a text of one token: all that may stand before them."""
    texts = [[1, *new] for new in product(range(3), repeat=place - 1)] if place < 3 else []
    return cells([model(torch.tensor([text]))[0, -1].softmax(-1)
                  for model in (big, small) for text in texts])


def plain_and_drafted(dice):
    noise = WalkedNoise(OneRow(dice), cells_at)
    return tuple(tuple(seeded(big, small, [1], 2, noise, gamma)[0][1:]) for gamma in (0, 1))


walked, paths = walk(plain_and_drafted)
assert all(without == text for without, text in walked)
one_text = {text: share for (_, text), share in walked.items()}
off = distance(one_text, target_distribution(big, [1], 2))[1]
print(f"\n{paths} paths walked: always the same text, and it is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# **Claim 2.** With the same noise a draft token is accepted with at least (1 - TV) / (1 + TV) and
# at most 1 - TV, where TV is the total variation of p_target and q_draft.
#
# **Proof.**
#
# 1. No lossless rule accepts more than the overlap, 1 - TV (claim 1).
# 2. Write g = -log E, so E = -log u. Then E > t has probability exp(-t), and the token with the
#    least E / p is drawn. Both models draw x if E(y) is at least E(x) m(y) for all other y, where
#    m(y) = max(p(y) / p(x), q(y) / q(x)).
# 3. If E(x) = t, that has probability exp(-t (sum of m(y) over the other y)). E(x) has the density
#    exp(-t), and m(x) = 1, so the integral over t is 1 / (sum of all m(y)).
# 4. Each maximum is at most max(p(y), q(y)) / min(p(x), q(x)), and sum max(p, q) is 1 + TV. So x is
#    drawn by both with at least min(p(x), q(x)) / (1 + TV).
# 5. Added up over x: (1 - TV) / (1 + TV).
#
# Step 3 is a formula, `agreement`. There are two others for comparison. In one, both models turn
# the same single uniform into a token, as `pick` does. In the other, the draft model draws for
# itself, so that they agree with sum p q.
#
# *Guess first:* where the overlap is .84, how much is accepted with the same noise, and how much if
# the draft model draws for itself?

# %%
def same_uniform(p, q):
    """The intervals of [0, 1) in which a uniform draws the same token from both."""
    ends, others = p.cumsum(-1), q.cumsum(-1)
    return (ends.minimum(others) - (ends - p).maximum(others - q)).clamp(min=0).sum(-1)


of_places = {
    "two tokens": ([.5, .5], [.8, .2]),
    "a fair draft model": ([.6, .2, .1, .1], [.44, .3, .16, .1]),
    "the bad draft model from above": (p_target, q_draft)}
accepted = {}
for name, both in of_places.items():
    p, q = (torch.tensor(side, dtype=torch.float64) for side in both)
    accepted[name] = [(p * q).sum(), same_uniform(p, q), agreement(p, q), acceptance(p, q)]
# One place after the other: `agreement` compares every token with every other one.
pairwise = torch.stack([agreement(p, q) for p, q in zip(p_all, q_all)])
accepted["the pair that ships, T = 1"] = [of.mean() for of in (
    (p_all * q_all).sum(-1), same_uniform(p_all, q_all), pairwise, acceptance(p_all, q_all))]
table(["one draft token", "for itself", "same uniform", "same noise", "overlap, 1 - TV"],
      [[name, *(f"{share:.3f}" for share in line)] for name, line in accepted.items()])
bad = accepted["the bad draft model from above"]
assert bad[1] < bad[0] < bad[2] < bad[3]
tv = 1 - acceptance(p_all, q_all)
assert bool(((1 - tv) / (1 + tv) < pairwise + 1e-9).all() and (pairwise < 1 - tv + 1e-9).all())

# %% [markdown]
# *Answer:* .825, and .35. One seed for one text costs little, if both models draw with the same
# noise. A single uniform is not enough: which token it draws depends on the probabilities of all
# tokens before that one in the vocabulary, so one difference there moves all the others (.200 for
# the bad draft model, less than the .230 of one that draws for itself).
#
# ## A draft of several tokens
#
# Regard draft tokens 1 to i as one big token, as in *Block verification*. Then claim 1 holds for
# it: no lossless rule accepts all i of them more often than sum min(p_target, q_draft) of big
# tokens. For one draft, that is min(1, ratio_1 x ... x ratio_i), averaged over the drafts.
#
# There are therefore three ways to judge the same ratios (p_target / q_draft of each draft token):
#
# | | tokens 1 to i are accepted with |
# |---|---|
# | token by token | min(1, ratio_1) x ... x min(1, ratio_i) |
# | as a whole (block verification) | w_i = min(1, w_(i-1) ratio_i) |
# | the ceiling | min(1, ratio_1 x ... x ratio_i) |
#
# Take the draft "B A" with ratios 2 and 1/2 by hand: 1/2, then 1/2, then 1. The ceiling would
# always accept it. Why does block verification not do so? It must decide with the distributions on
# the drafted path. To do better, a rule would need the distributions after tokens that were not
# drafted, which takes more calls of the target. Of all rules that know only the path, none beats
# block verification (proved by Sun et al. 2024).

# %%
def three_ways(ratios):
    """Ratios of a draft -> for i = 1 to gamma, the three probabilities of the table above."""
    token_by_token, w, product, found = 1.0, 1.0, 1.0, []
    for ratio in ratios:
        token_by_token *= min(1, ratio)
        w = min(1, w * ratio)
        product *= ratio
        found.append([token_by_token, w, min(1, product)])
    return found


assert three_ways([2, .5]) == [[1, 1, 1], [.5, .5, 1]]          # B A
assert three_ways([.5, 2]) == [[.5, .5, .5], [.5, 1, 1]]        # A B

# %% [markdown]
# Now the same on the pair that ships, with drafts of eight tokens on real text. No coin is flipped,
# since the three probabilities are known. Their sum over i = 1 to gamma is the mean number of
# accepted draft tokens.

# %%
rounds = []
prompts = ["def area(radius):\n", "import os\nfor name in", "class Stack:\n    def "]
for seed, prompt in enumerate(prompts):
    rounds += speculate(target, ModelDrafter(draft_model, 8), tokenizer.encode(prompt), 48,
                        seed=seed)

found = []
for done in rounds:
    places = zip(done.tokens[1:], done.p_target, done.q_draft[1:])
    found.append(three_ways([(p[x] / q[x]).item() for x, p, q in places]))
means = torch.tensor(found, dtype=torch.float64).mean(0).cumsum(0)              # (gamma, 3)
chain = dict(zip(("token by token", "as a whole", "ceiling"), means.T.tolist()))

# %% [markdown]
# ## Several draft tokens for one place
#
# There are k draft tokens for one place, and one of them may be accepted.
#
# **Claim 3.** No lossless rule accepts one of them more often than 1 + p_target(S) - (the
# probability that *all k* lie in S).
#
# **Proof.** The numbers are for p_target [.5, .5], q_draft [.8, .2], k = 2 and S = {token 0}.
#
# 1. If all k lie in S, then an accepted one lies in S. If one lies outside, nothing is required.
# 2. Drawn independently, all k lie in S with q_draft(S)^k = .8 x .8 = .64.
# 3. A token of S may come out with p_target(S) = .5 at most, so .64 - .5 = .14 must be rejected.
# 4. At most .86 is accepted.
# 5. Drawn without replacement, the two are never both token 0. Step 2 gives 0, and there is no
#    restriction. The ceiling is 1, because one of the two is always the right one.
#
# The lowest bound is reached, by the theorem "max-flow = min-cut". (The test of this lesson finds
# the same ceilings as flows.)

# %%
def all_k_in(S, q_draft, k):
    """Drawn independently: all k lie in S."""
    return sum(q_draft[x] for x in S) ** k


def drawn_sets(q_draft, k):
    """Drawn without replacement -> {k tokens, in any order: probability}. [.5, .3, .2] and k = 2:
    {0, 1} comes as 0, 1 or as 1, 0, with .5 x .3/.5 + .3 x .5/.7 = .514.
    """
    chance = {frozenset(): 1.0}
    for _ in range(k):                          # one token more
        longer = defaultdict(float)
        for drawn, probability in chance.items():
            rest = 1 - sum(q_draft[x] for x in drawn)
            for x in set(range(len(q_draft))) - drawn:
                longer[drawn | {x}] += probability * q_draft[x] / rest
        chance = longer
    return chance


assert abs(drawn_sets([.5, .3, .2], 2)[frozenset({0, 1})] - (.3 + .15 / .7)) < 1e-12

# %%
def ceiling(p_target, q_draft, k, independent=True):
    """The most that any lossless rule accepts of k draft tokens for one place."""
    sets = {} if independent else drawn_sets(q_draft, k)
    lowest = 1.0
    for S in all_sets(len(p_target)):
        if independent:
            inside = all_k_in(S, q_draft, k)
        else:
            inside = sum(chance for drawn, chance in sets.items() if drawn <= set(S))
        lowest = min(lowest, 1 + sum(p_target[x] for x in S) - inside)
    return lowest


assert abs(ceiling([.5, .5], [.8, .2], 2) - .86) < 1e-12
assert abs(ceiling([.5, .5], [.8, .2], 2, independent=False) - 1) < 1e-12

# %% [markdown]
# ## Two rules for them
#
# - The *node rule* (*Several futures*): try one after the other, each against the residual
#   distribution.
# - *k-SEQ* (Sun et al. 2023): one formula for all thresholds, min(1, p_target / (rho q_draft)). The
#   number rho holds all of them back, so that no token comes out too often, and is the smallest
#   number that does so. The rule needs independent draws (lessons/kseq.py).
#
# *Guess first:* one draft token is accepted with .7, and of two independent ones, one is accepted
# with at most .86. Which of the two rules comes nearer to .86?

# %%
def by_k_seq(p, q, k):
    """One try accepts with b = sum min(q_draft, p_target / rho). k tries fail with (1 - b)^k."""
    b = acceptance(p / least_rho(p, q, k), q).item()
    return 1 - (1 - b) ** k


accepted_by = {                         # each: (p_target, q_draft, k) -> probability
    "independent, node rule": lambda p, q, k: sequential_acceptance(p, q, k, True),
    "independent, k-SEQ": by_k_seq,
    "independent, ceiling": lambda p, q, k: ceiling(p.tolist(), q.tolist(), k),
    "without replacement, node rule": lambda p, q, k: sequential_acceptance(p, q, k, False),
    "without replacement, ceiling": lambda p, q, k: ceiling(p.tolist(), q.tolist(), k, False)}

p_two, q_two = torch.tensor([[.5, .5], [.8, .2]], dtype=torch.float64)
example = {name: rule(p_two, q_two, 2) for name, rule in accepted_by.items()}
table(["two draft tokens, p_target [.5, .5], q_draft [.8, .2]", "one is accepted"],
      [[name, f"{chance:.3f}"] for name, chance in example.items()])

# %% [markdown]
# *Answer:* k-SEQ in this case, with .79 against .76.
#
# A walk tells whether the formula of `by_k_seq` is what the rule does.

# %%
def two_drawn(dice):
    """k-SEQ, with its two draft tokens."""
    return k_seq([int(dice.pick(q_two[None])) for _ in range(2)], p_two, q_two, dice)


walked, _ = walk(two_drawn)
one_accepted = sum(weight for (child, _), weight in walked.items() if child is not None)
assert abs(one_accepted - example["independent, k-SEQ"]) < 1e-12

# %% [markdown]
# ## How close, on the pair that ships?
#
# A ceiling tries all sets S, and a thousand tokens have far too many sets. So we take real places,
# keep only the eight likeliest tokens at each, and rescale their probabilities to add up to 1.
# Eight tokens have 256 sets.
#
# *Guess first:* take the node rule with five draft tokens for one place. How much is gained by
# drawing without replacement?

# %%
pairs = []                                              # (p_target, q_draft) of eight tokens each
for done in rounds[::4]:                                # where rounds begin
    both = torch.stack([done.p_target[0], done.q_draft[1]]).double()
    both = both[:, both.sum(0).topk(8).indices]
    pairs.append(both / both.sum(1, keepdim=True))

place = {}
for name, rule in accepted_by.items():
    place[name] = [sum(rule(p, q, k) for p, q in pairs) / len(pairs) for k in range(1, 6)]

# %%
def show(title, means):
    """A line for each rule. The last column: its share of its ceiling, with five draft tokens."""
    lines = []
    for name, found in means.items():
        kind, _, what = name.rpartition(", ")
        most = means[f"{kind}, ceiling" if kind else "ceiling"]
        lines.append([name, *(f"{mean:.3f}" for mean in found[:5]), f"{found[4] / most[4]:.1%}"])
    print(f"\n{title}")
    table(["draft tokens", *"12345", "of the ceiling"], lines)


show(f"a draft of several: accepted on average, in {len(rounds)} rounds", chain)
show(f"several for one place: one is accepted, at {len(pairs)} places", place)
figures.ceilings(chain, place)

# %% [markdown]
# *Answer:* more than a tenth: .74 became .87 with the weights that ship, in the first and the
# fourth line of the second table.
#
# ## Three things to know
#
# 1. With one draft token, accept or replace reaches the ceiling, and no rule is better. Drawing
#    with the same noise accepts a little less, and one seed then gives one text.
# 2. With a draft of several, block verification is better than token by token. The ceiling is
#    higher still, but no rule that knows only the drafted path can reach it.
# 3. With several draft tokens for one place, drawing without replacement raises both the ceiling
#    and what the node rule accepts.
#
# ## Change this and run again
#
# 1. Write `temperature=2` after `seed=seed`, then `temperature=0.3`. Which rule gains, and which
#    has nothing left to gain?
# 2. Do not draw, but choose the draft model's k likeliest tokens. One of them is accepted with
#    `p[q.topk(k).indices].sum().item()`. Add this to `accepted_by` as "chosen, ceiling". Is more
#    accepted, or less?
# 3. In `seeded`, let the draft model draw with the noise of another place: `noise(len(tokens) + 1)`
#    where `tokens` gets a draft token. Is an assert violated? What happens to the calls?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Mistakes that no text shows* looks for bugs that only cost speed. Exercises: 22 (one
# seed, one text).
