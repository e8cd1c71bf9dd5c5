# %% [markdown]
# # Block verification
#
# **Does judging one by one accept as many draft tokens as possible?**
#
# So far a draft was judged token by token, and the first rejection ended the round. Sun et al.
# (2024) judge the draft as a whole, which they call *block verification*. The draft is the same,
# the target's call is the same, and the text has the same distribution. Yet on average never fewer
# draft tokens are accepted, and mostly more if there are two or more. This lesson shows why.
#
# We build on overlap and residual (*Why it is lossless*) and on the round (*A draft and a bonus*).
# All numbers of this lesson are fractions, small enough to check by hand.

# %%
from fractions import Fraction
from itertools import product

import torch

import figures
from kit import OneRow, table
from nanospec import ModelDrafter
from nanospec.files import load_pair
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of, verify

torch.set_num_threads(1)                # thousands of tiny sums: threads would only wait

names = "AB"                            # a language of two tokens: A is token 0, B is token 1
p_target = [Fraction(1, 3), Fraction(2, 3)]         # the same at every place, whatever the text is
q_draft = [Fraction(2, 3), Fraction(1, 3)]

# %% [markdown]
# ## What is lost, token by token
#
# The target gives A the probability 1/3 and B 2/3. The draft model gives A 2/3 and B 1/3. The
# *ratio* of a token is p_target / q_draft: 1/2 for A and 2 for B. Token by token, A is accepted
# with probability 1/2 and B with min(1, 2) = 1.
#
# Now look at the draft "A B". The draft model writes it with 2/3 x 1/3 = 2/9, and the target writes
# it with 1/3 x 2/3 = 2/9. They agree, and there is nothing to correct. But token by token, A is
# rejected every other time, and of B's ratio of 2 only 1 counts.
#
# *Guess first:* regard the drafts as four big tokens, AA, AB, BA and BB. As in *Why it is
# lossless*, such a big token could be accepted with min(p_target, q_draft). How often is that in
# total, and how often are both tokens accepted token by token?

# %%
drafts = list(product((0, 1), repeat=2))            # AA, AB, BA, BB


def word(tokens):
    """(0, 1) is AB."""
    return "".join(names[x] for x in tokens)


lines, drafted, by_token, as_one = [], [], [], []
for tokens in drafts:
    q, p, each = Fraction(1), Fraction(1), Fraction(1)
    for x in tokens:
        q, p = q * q_draft[x], p * p_target[x]
        each *= min(1, p_target[x] / q_draft[x])
    drafted.append(q)
    by_token.append(q * each)                       # drafted, and both coins accept
    as_one.append(min(q, p))                        # the overlap, as if AB were one token
    lines.append([word(tokens), q, p, by_token[-1], as_one[-1]])
lines.append(["all", sum(drafted), 1, sum(by_token), sum(as_one)])
table(["draft", "q_draft", "p_target", "accepted token by token", "min(p_target, q_draft)"], lines)

# %% [markdown]
# *Answer:* in total, the big tokens overlap by 2/3. Token by token, both are accepted with 4/9. The
# rule of this lesson reaches 5/9. (*How close a rule can come* tells whether a rule can reach 2/3.)
#
# ## The new weight
#
# Token by token, both draft tokens are accepted with min(1, ratio_1) x min(1, ratio_2). Every ratio
# is limited to 1, and what exceeds 1 is lost. Block verification limits the running product
# instead:
#
#     w_0 = 1,    w_1 = min(1, w_0 ratio_1),    w_2 = min(1, w_1 ratio_2),    and so on
#
# w_i will be the probability that draft tokens 1 to i are all accepted, as a mean over the draft
# tokens that may follow them.
#
# *Guess first:* the ratios of "A B" are 1/2 and 2. What is w_2? And for "B A", with 2 and 1/2?

# %%
def weights(ratios):
    """[1/2, 2] gives [1, 1/2, 1]. Token by token, the last would be 1/2."""
    w = [1]
    for ratio in ratios:
        w.append(min(1, w[-1] * ratio))                                         # NEW
    return w


lines = []
for tokens in drafts:
    ratios = [p_target[x] / q_draft[x] for x in tokens]
    each = min(1, ratios[0]) * min(1, ratios[1])
    lines.append([word(tokens), *ratios, *weights(ratios)[1:], each])
table(["draft", "ratio 1", "ratio 2", "w_1", "w_2", "both, token by token"], lines)

# %% [markdown]
# *Answer:* 1 for "A B", and 1/2 for "B A". "A B" is now always accepted. The draft model proposes A
# too often and B too seldom, and a ratio of 2 after a ratio of 1/2 evens that out. "B A" gains
# nothing, because w_1 is limited to 1 before the A is seen. A later token can help an earlier one,
# but not the other way round.
#
# **Claim 1.** Block verification never accepts less: w_i is at least the product of min(1, ratio).
#
# **Proof.**
#
# 1. For i = 0 both are 1.
# 2. Let w_(i-1) be at least the product so far.
# 3. Then w_i = min(1, w_(i-1) ratio_i) is at least w_(i-1) min(1, ratio_i), because w_(i-1) is at
#    most 1.
# 4. So w_i is at least the product so far times min(1, ratio_i), which is the next product.
#
# ## What the rule must promise
#
# After any draft tokens 1 to i, the rule shall keep two promises:
#
# - (a) Tokens 1 to i are all accepted with probability w_i, by a cut there or later. This is a mean
#   over what is drafted after them. A draft that begins with A has w_1 = 1/2: its A is accepted
#   with w_2 = 1/4 if the other token is an A, and with 1 if it is a B, and 2/3 x 1/4 + 1/3 x 1 =
#   1/2.
# - (b) If they are, the next token of the text comes from p_target.
#
# It works as follows: after every draft token there is a coin, and one before the first, at the
# *front*. If the coin after token i succeeds, the draft is *cut* there: tokens 1 to i are accepted.
# The coin at the end is flipped first, so the longest cut wins.
#
# At the end this is easy, because the coin after the last draft token succeeds with probability w,
# which gives (a), and the bonus token is drawn from p_target, which gives (b). For all other places
# there is one claim.
#
# **Claim 2.** If both promises hold one token later, the threshold of the coin after token i can be
# chosen so that they hold there too.
#
# **Proof.** Two examples accompany the proof, both for i = 1. *After A*, draft token 1 was an A, so
# w_1 = 1/2. *After B*, it was a B, so w_1 = 1. A pair of numbers such as [1/6, 1/3] is for the next
# token being an A or a B.
#
# 1. *Wanted:* the tokens so far are accepted with w_i, and then the next comes from p_target. So
#    the next token y must come with w_i p_target(y). After A: [1/6, 1/3]. After B: [1/3, 2/3].
# 2. *Brought:* the next draft token is y with q_draft(y), and by (a) it is accepted with w_(i+1).
#    Together that is q_draft(y) min(1, w_i p_target(y) / q_draft(y)) = min(q_draft, w_i p_target).
#    After A: [1/6, 1/3]. After B: [1/3, 1/3].
# 3. *Missing:* wanted - brought = max(0, w_i p_target - q_draft). Call its total Z. After A: [0,
#    0], so Z = 0. After B: [0, 1/3], so Z = 1/3.
# 4. The total of wanted is w_i, so the total of brought is w_i - Z. That is how often a later cut
#    wins. After A: 1/2. After B: 2/3.
# 5. In the other 1 - w_i + Z of all cases, the coin after token i is flipped. After A: 1/2. After
#    B: 1/3.
# 6. Let its threshold be Z / (1 - w_i + Z). Then this cut is made in exactly Z of all cases. After
#    A the threshold is 0, and after B it is 1.
# 7. At this cut, draw the next token from what is missing. Then y comes with brought + missing,
#    which is what was wanted. So (a) and (b) hold after token i.
#
# Continue in this way to the front. There w_0 = 1, so by (b) the first token comes from p_target.
# If it was an accepted draft token, (b) after it says the same of the second token, and so on.
# After a cut a new round begins. So the rule is lossless.
#
# The next cell computes the same steps. *Guess first:* what is the threshold of the coin at the
# front, where w = 1?

# %%
lines = []
for place, tokens in ("front", []), ("after A", [0]), ("after B", [1]):
    w = weights([p_target[x] / q_draft[x] for x in tokens])[-1]
    wanted = [w * p for p in p_target]
    brought = [min(q, want) for q, want in zip(q_draft, wanted)]
    missing = [want - have for want, have in zip(wanted, brought)]
    Z = sum(missing)
    flipped = 1 - w + Z                     # no later cut was made
    threshold = Z / flipped if flipped > 0 else "never flipped"
    shown = [", ".join(map(str, two)) for two in (wanted, brought, missing)]
    lines.append([place, w, *shown, Z, flipped, threshold])
table(["cut", "w", "wanted", "brought", "missing", "Z", "coin is flipped", "threshold"], lines)
steps = lines

# %% [markdown]
# *Answer:* 1. If no coin behind it has made a cut, the round ends here.
#
# ## The rule
#
# Nothing else is needed: weights, and a coin for every place, from the end to the front.

# %%
def block_verification(tokens, q_draft, p_target, dice):
    """tokens: gamma draft tokens, q_draft (gamma, V), p_target (gamma + 1, V)
    -> (how many are accepted, the token after them). With ratios 1/2 and 2: both, always."""
    gamma = len(tokens)
    w = weights(p[x] / q[x] for x, p, q in zip(tokens, p_target, q_draft))
    for i in reversed(range(gamma + 1)):                                        # NEW: from the end
        if i == gamma:
            missing = w[i] * p_target[i]                # after the last one nothing was drafted
        else:
            missing = (w[i] * p_target[i] - q_draft[i]).clamp(min=0)
        Z = missing.sum()
        if dice.flip(Z / (1 - w[i] + Z)):               # at the front w = 1: always true
            return i, dice.pick(missing)

# %% [markdown]
# ## Everything that can happen
#
# The next cell lists all ways of a round with two draft tokens: which draft, which cut, and which
# token after the cut. (The bonus token is left out. After an accepted draft it comes from
# p_target.)
#
# Token by token, the first one is accepted with 1/3 + 1/3 (the overlap), and both with 4/9 (above).
# On average 2/3 + 4/9 = 10/9 draft tokens are accepted. *Guess first:* how many are there now?

# %%
def ways(tokens):
    """All that may happen to this draft -> [(accepted, replacement or None, probability)]."""
    w = weights([p_target[x] / q_draft[x] for x in tokens])
    threshold = min(1, w[2])                                        # after the last draft token
    found, still = [(2, None, threshold)], 1 - threshold            # still: no cut was made so far
    for i in (1, 0):
        if still > 0:
            missing = [max(Fraction(0), w[i] * p - q) for p, q in zip(p_target, q_draft)]
            Z = sum(missing)
            threshold = Z / (1 - w[i] + Z)
            for y, part in enumerate(missing):
                if part > 0:
                    found.append((i, y, still * threshold * part / Z))
            still *= 1 - threshold
    return found


text_of = {}                                                        # {the text so far: probability}
lines, accepted_on_average = [], 0
for tokens, chance in zip(drafts, drafted):
    for accepted, token, probability in ways(tokens):
        text = word(tokens[:accepted]) + (names[token] if token is not None else "")
        lines.append([word(tokens), chance, accepted, probability, text, chance * probability])
        text_of[text] = text_of.get(text, 0) + chance * probability
        accepted_on_average += accepted * chance * probability

# %%
table(["draft", "drafted with", "accepted", "with", "text", "together"], lines)
print(f"accepted on average: {accepted_on_average} of 2 draft tokens")

# %% [markdown]
# *Answer:* 11/9, which is 1/9 of a token more.
#
# To see whether the text comes from p_target, we add up all lines that begin with AA, AB, BA or BB.
# A line may end after one token, and then the next round writes the second token from p_target.
#
# *Guess first:* which two columns must agree?

# %%
lines = []
for tokens in drafts:
    wanted = p_target[tokens[0]] * p_target[tokens[1]]
    at_once = text_of.get(word(tokens), 0)
    later = text_of.get(names[tokens[0]], 0) * p_target[tokens[1]]
    lines.append([word(tokens), at_once, later, at_once + later, wanted])
table(["text", "in this round", "second token later", "together", "p_target"], lines)
for text, _, _, together, wanted in lines:
    assert together == wanted, text

# %% [markdown]
# *Answer:* the last two. A text comes together with exactly its p_target.
#
# ## The same, walked, in the library's loop
#
# Now we walk `speculate` with three rules, on models with the probabilities 1/3 and 2/3 everywhere.
# The third rule is the library's, in nanospec/methods/rules/block.py.

# %%
def by_hand(draft, p_target, dice):
    """Our rule, as `speculate` calls a rule: tensors for one text."""
    found = block_verification(draft.tokens[0, 1:], draft.q_draft[0, 1:], p_target[0], OneRow(dice))
    return torch.tensor(found)[:, None]                 # how many, (1,), and the token, (1,)


def one_text(rule, dice):
    """Three tokens -> (how many of the first two draft tokens were accepted, the text)."""
    rounds = list(speculate(big, ModelDrafter(small, 2), [0], 3, dice=dice, rule=rule))
    return len(rounds[0].path), tuple(tokens_of(rounds))


big, small = TableModel(2, seed=1), TableModel(2, seed=2)           # models that are tables
for model, distribution in (big, p_target), (small, q_draft):       # the same at every place
    model.logits[:] = torch.tensor([float(x) for x in distribution], dtype=torch.float64).log()
truth = target_distribution(big, [0], 3)

# %%
rules = {"token by token": verify, "as a whole": by_hand, "methods/rules/block.py": verify_block}
walked = {}
for name, rule in rules.items():
    walked[name] = walk(lambda dice: one_text(rule, dice))[0]
    mean = sum(accepted * weight for (accepted, _), weight in walked[name].items())
    texts = {}
    for (_, text), weight in walked[name].items():
        texts[text] = texts.get(text, 0) + weight
    off = distance(texts, truth)[1]
    print(f"{name:15} accepts {9 * mean:.4g}/9 of two draft tokens, distribution off by {off:.0e}")
assert distance(walked["as a whole"], walked["methods/rules/block.py"])[1] < 1e-12

# %% [markdown]
# ## A tree, from its leaves
#
# A draft tree (*Several futures*) can be judged in the same way, from its leaves to its root. This
# is *traversal verification* (Weng et al. 2025; nanospec/methods/rules/traversal.py).
#
# The node rule judges a token as soon as it reaches it and never looks further. The new rule
# descends to the first leaf and keeps two things for every node: the probability that the node will
# be accepted, and what is left for the token after it. At a leaf it flips a coin. If the coin
# succeeds, the whole path is accepted. If not, the rule returns to the parent and tries the next
# child, and a node without further children flips a coin of its own. In this way a likely token at
# the end of a branch can save an unlikely one before it. On a chain, this is block verification, as
# the last line of the next cell checks.
#
# We walk both rules on the same two models. The tree has two children, and one more token after the
# first of them. *Guess first:* how many ninths of a draft token does the new rule gain?

# %%
def one_tree(rule, dice, parents=(-1, 0, 0, 1)):
    """As `one_text`, with a tree."""
    drafter = TreeDrafter(small, list(parents))
    rounds = list(speculate(big, drafter, [0], 3, dice=dice, rule=rule))
    return len(rounds[0].path), tuple(tokens_of(rounds))


tree_rules = {"the node rule": verify_tree, "traversal": verify_traversal}
walked_trees, tree_accepts = {}, {}
for name, rule in tree_rules.items():
    walked_trees[name], texts = walk(lambda dice: one_tree(rule, dice))[0], {}
    for (_, text), weight in walked_trees[name].items():
        texts[text] = texts.get(text, 0) + weight
    off = distance(texts, truth)[1]
    tree_accepts[name] = sum(count * weight for (count, _), weight in walked_trees[name].items())
    print(f"{name:17} accepts {9 * tree_accepts[name]:.4g}/9, distribution off by {off:.0e}")
    assert off < 1e-12
a_chain = walk(lambda dice: one_tree(verify_traversal, dice, parents=(-1, 0, 1)))[0]
assert distance(a_chain, walked["methods/rules/block.py"])[1] < 1e-12

# %% [markdown]
# *Answer:* one: 14/9 in place of 13/9.
#
# ## On the pair that ships
#
# Finally we use drafts of eight tokens on real text. To count we need no coin, because w gives the
# probabilities: the sum of w_1 to w_gamma is the mean number of accepted draft tokens. w_i is
# computed from tokens 1 to i alone, so drafts of eight tokens also tell about shorter drafts. Both
# rules judge the very same drafts, those of the rounds that `speculate` plays.
#
# *Guess first:* which rule is ahead with one draft token, and which with eight?

# %%
target, draft_model, tokenizer = load_pair()
sums = {"token by token": [0.0] * 8, "as a whole": [0.0] * 8}
prompts = ["def area(radius):\n", "import os\nfor name in", "class Stack:\n    def "]
count = 0
for seed, prompt in enumerate(prompts):
    for done in speculate(target, ModelDrafter(draft_model, 8), tokenizer.encode(prompt), 48,
                          seed=seed):
        places = zip(done.tokens[1:], done.p_target, done.q_draft[1:])
        ratios = [(p[x] / q[x]).item() for x, p, q in places]
        w, each = weights(ratios), 1.0
        for i, ratio in enumerate(ratios):
            each *= min(1, ratio)
            sums["token by token"][i] += each
            sums["as a whole"][i] += w[i + 1]
        count += 1

accepted_of = {name: [] for name in sums}                           # for gamma = 1 to 8
for name, found in sums.items():
    for gamma in range(1, 9):
        accepted_of[name].append(sum(found[:gamma]) / count)

# %%
lines = [[name, *(f"{mean:.3f}" for mean in means)] for name, means in accepted_of.items()]
table(["draft tokens", *"12345678"], lines, f"accepted on average, in {count} rounds")
as_a_whole = [q * ways(tokens)[0][2] for tokens, q in zip(drafts, drafted)]
parts = {"drafted": drafted, "both accepted, as a whole": as_a_whole,
         "both accepted, token by token": by_token}
figures.block_verification([word(tokens) for tokens in drafts], parts, accepted_of)

# %% [markdown]
# *Answer:* with one draft token they are equal, since there is no later ratio that could help. With
# more, block verification is ahead.
#
# ## Three things to know
#
# 1. Token by token, the part of a ratio above 1 is lost. In block verification it helps the tokens
#    before it.
# 2. The rule goes from the end to the front, and each coin adds what is still missing at its place.
#    In a tree it goes from the leaves to the root.
# 3. The text has the same distribution, and on average never fewer draft tokens are accepted.
#
# ## Change this and run again
#
# 1. In `weights`, write `w[-1] * ratio` without `min(1, ...)`. How many draft tokens are accepted
#    on average now? Which assert complains, and why?
# 2. Take a better draft model: `q_draft = [Fraction(1, 2), Fraction(1, 2)]`. Which rule gains, and
#    how much?
# 3. Make the draft model perfect: `q_draft = p_target`. Which coins are flipped, and with which
#    probabilities?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Copying from the past* drafts without a draft model. *How close a rule can come* asks for
# the limit of all rules. Exercises: 14 (block verification).
