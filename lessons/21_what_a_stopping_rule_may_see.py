# %% [markdown]
# # What a stopping rule may see
#
# **What may one look at before ending a draft?**
#
# Places differ (*Good where it matters*): at some the draft model is nearly always right, and at
# others it is lost. Where it is lost, we want to stop drafting. A *stopping rule* decides this. It
# looks at what is going on and may end the draft.
#
# That looks harmless, since a place without a draft token gets its token from the target alone. Yet
# it can spoil the text, and this lesson shows when.
#
# A reminder: a draft token x is drawn from q_draft and accepted with probability min(1, p_target(x)
# / q_draft(x)). If it is rejected, its replacement is drawn from the residual distribution. The
# token that comes out has the distribution p_target.

# %%
from functools import cache
from math import prod

import torch

import figures
from kit import OneRow, table
from nanospec.probs import probs, residual
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk

names = ["range", "items", "zip"]               # one place in a text, and three tokens
p_target = torch.tensor([.5, .4, .1], dtype=torch.float64)
q_draft = torch.tensor([.2, .4, .4], dtype=torch.float64)

# %% [markdown]
# ## One place, and a rule that dislikes a token
#
# Our rule dislikes "range". Whenever "range" is drawn, the rule *throws it away*. The place then
# has no draft token, and its token is drawn from p_target.
#
# We write down everything that can happen at this place, as in *Why it is lossless*. The
# probability of a way is the product of the probabilities along it.

# %%
def ways(p_target, q_draft, disliked=None):
    """Every way to a token: (what becomes of draft token x, x, the token y, probabilities)."""
    share, found = residual(p_target, q_draft).tolist(), []
    for x, (p, q) in enumerate(zip(p_target.tolist(), q_draft.tolist())):
        if x == disliked:                                                           # NEW
            for y, part in enumerate(p_target.tolist()):                            # NEW
                found.append(("thrown away", x, y, [q, part]))                      # NEW
            continue                                                                # NEW
        accepts = min(1, p / q)
        found.append(("accepted", x, x, [q, accepts]))
        for y, part in enumerate(share):
            if accepts < 1 and part > 0:
                found.append(("rejected", x, y, [q, 1 - accepts, part]))
    return found


def comes_out(found):
    """The probability of each token: the sum over all ways that end in it."""
    heights = [0.0] * len(names)
    for *_, y, along in found:
        heights[y] += prod(along)
    return heights


# %% [markdown]
# First all draft tokens are accepted or replaced as usual. Then "range" is thrown away.
#
# *Guess first:* "range" is drawn with probability 0.2 and thrown away. Which tokens come out too
# often then, and which one too seldom?

# %%
for disliked in None, 0:
    found = ways(p_target, q_draft, disliked)
    print("\nall are accepted or replaced" if disliked is None else "\n'range' is thrown away")
    for y, name in enumerate(names):
        for what, x, token, along in found:
            if token == y:
                way = f"{names[x]} {what}" + (f", then {name}" if what != "accepted" else "")
                product = " x ".join(f"{number:.2f}" for number in along)
                print(f"    {way:32} {product:19} = {prod(along):.2f}")
        print(f"{name:6} comes out with {comes_out(found)[y]:.2f}; "
              f"its p_target is {p_target[y]:.2f}")

assert torch.allclose(torch.tensor(comes_out(ways(p_target, q_draft))).double(), p_target)

# %% [markdown]
# *Answer:* "range" comes out too seldom, and the other two too often. "range" was drawn with 0.20
# and would always have been accepted. Now these 0.20 are distributed over all three tokens
# according to p_target, and only half of them comes back to "range". The rest goes to the tokens
# that the rule likes.
#
# In the picture, a frame is what p_target wants and a bar is what comes out. On the left nothing is
# thrown away, and every bar fills its frame. On the right "range" is thrown away: its bar is too
# short, and the other two are too high.

# %%
def heights(found):
    """{what becomes of the draft token: the part of each token's probability from this case}."""
    parts = {}
    for case in "accepted", "rejected", "thrown away":
        parts[case] = comes_out([way for way in found if way[0] == case])
    return parts


figures.thrown_away(names, p_target.tolist(), heights(ways(p_target, q_draft)),
                    heights(ways(p_target, q_draft, disliked=0)))

# %% [markdown]
# ## The reason: only the mean is right
#
# Take each draft token alone and ask: *if* this one is drawn, what comes out? That is a line of the
# table below, and the column "drawn" tells how often it is drawn. None of the lines is p_target.
# But their mean, weighted by "drawn", is exactly p_target.
#
# *Guess first:* "zip" is drawn far too often. What comes out when it is drawn?

# %%
def line_of(x, p_target, q_draft):
    """(V,): the distribution of what comes out if x is drawn: accepted, or replaced."""
    accepts = min(1, (p_target[x] / q_draft[x]).item())
    line = (1 - accepts) * residual(p_target, q_draft)
    line[x] += accepts
    return line


lines = torch.stack([line_of(x, p_target, q_draft) for x in range(len(names))])        # (V, V)
mean = q_draft @ lines                                      # each line times q_draft, added up
cells = [[name, f"{q:.2f}", *(f"{share:.2f}" for share in line)]
         for name, q, line in zip(names, q_draft, lines)]
cells.append(["mean", "1.00", *(f"{share:.2f}" for share in mean)])
table(["draft token", "drawn", *names], cells)

# %% [markdown]
# *Answer:* "range" with .75 and "zip" with .25.
#
# To throw a draft token away is to put another line in its place, the line p_target itself. That
# line would be right alone, but together with the other two lines it is wrong, because the mean is
# no longer p_target.
#
# *Guess first:* which of the three draft tokens does most harm when it is thrown away?

# %%
cells = []
for x, name in enumerate(names):
    others = lines.clone()
    others[x] = p_target                                    # x is thrown away
    mean = q_draft @ others
    off = (mean - p_target).abs().sum() / 2                 # total variation
    cells.append([f"{name} is thrown away", *(f"{share:.2f}" for share in mean), f"{off:.2f}"])
table(["the mean, if", *names, "off by"], cells)

# %% [markdown]
# *Answer:* "items", with .24.
#
# ## What a rule may look at
#
# Now suppose that the rule decides *before* the draft token is drawn. "No draft token here" then
# replaces all lines at once by p_target. "A draft token here" keeps all lines, and their mean is
# p_target. Both are right, so any mixture of the two is right, whatever the rule looked at to
# choose.
#
# **Claim.** A rule decides whether a place gets a draft token, and it decides before that draft
# token is drawn and its coin is flipped. Then the token at this place has the distribution
# p_target.
#
# **Proof.**
#
# 1. Fix everything that the rule has looked at, and its decision is fixed, too.
# 2. If it is "yes", the draft token is drawn from q_draft, and then its coin is flipped, both of
#    them afresh.
# 3. So accept-or-replace gives a token from p_target.
# 4. If it is "no", the token is drawn from p_target.
# 5. Both decisions give p_target, so it does not matter which one it was.
# 6. Append the token, and go on to the next place with the same argument, which ends the proof.
#
# Step 2 breaks when a rule has seen x. Where it decides "yes", x is not "range", so the draft
# tokens that it leaves in place do not have the distribution q_draft.
#
# | a rule may look at | a rule may not look at |
# |---|---|
# | the text, and earlier rounds | the draft token at this place |
# | q_draft at this place, even p_target | the coin of that draft token |
# | draft tokens before this place, and their coins | |
# | dice of its own | |
#
# What should one do with a draft token that one dislikes? Keep it, and *stop after it*. It is
# accepted or replaced as usual, and the rule decides only about the *next* place. From there, this
# draft token lies in the past and may be looked at.

# %% [markdown]
# ## Two rounds to compare
#
# This is the round of *A draft and a bonus* with at most two draft tokens, for two small tables as
# models. (It asks the target place by place. A real round asks once for all, which changes no
# probability.) The first function stops after a draft token that it dislikes. The second throws it
# away.

# %%
target, draft_model = TableModel(3, seed=3), TableModel(3, seed=4)


@cache                                          # of Python: a walk asks for the same texts again
def after(model, text):
    """The model's distribution after a text, a tuple of tokens: (V,)."""
    return probs(model(torch.tensor([text]))[0, -1])


def round_stopping(text, dislikes, dice):
    """The text with what a round adds to it. It stops after a draft token that it dislikes."""
    for place in range(2):
        p_target, q_draft = after(target, text), after(draft_model, text)
        x = dice.pick(q_draft)
        accepted = dice.flip(p_target[x] / q_draft[x])
        if not accepted:
            return text + (dice.pick((p_target - q_draft).clamp(min=0)),)
        text = text + (x,)
        if dislikes(q_draft, x, accepted):                                          # NEW
            break                                                                   # NEW
    return text + (dice.pick(after(target, text)),)


# %%
def round_throwing(text, dislikes, dice):
    """The text with what a round adds to it. It throws away a draft token that it dislikes."""
    for place in range(2):
        p_target, q_draft = after(target, text), after(draft_model, text)
        x = dice.pick(q_draft)
        accepted = dice.flip(p_target[x] / q_draft[x])
        if dislikes(q_draft, x, accepted):
            break                       # WRONG: this place has lost its draft token
        if not accepted:
            return text + (dice.pick((p_target - q_draft).clamp(min=0)),)
        text = text + (x,)
    return text + (dice.pick(after(target, text)),)


def three_tokens(play_round, dislikes, dice):
    """The first three tokens after the text (0, 1), in as many rounds as they take."""
    text = (0, 1)
    while len(text) < 5:
        text = play_round(text, dislikes, dice)
    return text[2:5]


# %% [markdown]
# ## Four reasons to dislike a draft token
#
# The numbers below are walked and therefore exact. "Off by" is the total variation from what the
# target alone writes.
#
# *Guess first:* which of the eight numbers, four rules in two versions, are 0?

# %%
reasons = {"the draft model gave it less than 0.35": lambda q_draft, x, accepted: q_draft[x] < 0.35,
           "it is token 0": lambda q_draft, x, accepted: x == 0,
           "its coin rejected it": lambda q_draft, x, accepted: not accepted,
           "no token there had 0.5": lambda q_draft, x, accepted: q_draft.max() < 0.5}


def off_by(play_round, dislikes):
    """Total variation between three tokens written by these rounds and by the target alone."""
    found, _ = walk(lambda dice: three_tokens(play_round, dislikes, OneRow(dice)))
    return distance(found, target_distribution(target, [0, 1], 3))[1]


walked, cells = {}, []
for reason, dislikes in reasons.items():
    walked[reason] = off_by(round_stopping, dislikes), off_by(round_throwing, dislikes)
    cells.append([reason, *("nothing" if far < 1e-12 else f"{far:.3f}" for far in walked[reason])])
table(["a draft token is disliked, because", "stop after it: off by", "throw it away: off by"],
      cells)
assert all(stopping < 1e-12 for stopping, _ in walked.values())

# %% [markdown]
# *Answer:* five of them. If the rule stops after the token, the text is exact for every reason. If
# it throws the token away because of the token itself or of its coin, the text is wrong.
#
# Two lines deserve a second look.
#
# - *Its coin rejected it.* The replacement of a rejected draft token must come from the residual
#   distribution. Thrown away, it comes from all of p_target, which is the wrong rule of *Accept or
#   replace*.
# - *No token there had 0.5.* This reason looks at q_draft and never at x, so it was known before x
#   was drawn. Throwing x away does no harm because x was never needed.
#
# ## A rule that takes a token back
#
# A rule may throw a draft token away without meaning to. DSpark (arXiv 2607.05147) chooses how many
# draft tokens are verified by what they bring in a second: the expected tokens of a call, times
# the calls that fit into a second. Its Appendix A has an example of two tokens, A and B. One draft
# token more makes a call slower. The draft model assumes that the first is accepted with
# probability 0.8. It assumes 0.9 for the second if the first one is A, and 0.1 if it is B.

# %%
p_ab, q_ab = torch.tensor([[.7, .3], [.5, .5]], dtype=torch.float64)
calls = [1, .5, .45]                            # in a second, with 0, 1 and 2 draft tokens


def brings(length, first):
    """Expected tokens a second, if `length` draft tokens are verified and the first is `first`."""
    at_least = [1, .8, .8 * (.9 if first == 0 else .1)]     # that 0, 1 and 2 are accepted, or more
    return calls[length] * sum(at_least[:length + 1])


table(["the first draft token", "none verified", "one", "two"],
      [["AB"[first], *(f"{brings(length, first):.2f}" for length in range(3))]
       for first in range(2)])

# %% [markdown]
# One rule drafts both tokens, looks at all three numbers, and takes the best: two draft tokens
# after an A, none after a B. The other goes from place to place, stops where the next number is
# smaller, and never looks back: it stops at 1.00, because 0.90 is less.
#
# *Guess first:* with which probability does A come out under each rule? Its p_target is 0.7.

# %%
def best_of_all(first):
    return max(range(3), key=lambda length: brings(length, first))


def stop_at_the_first_fall(first):
    length = 0
    while length < 2 and brings(length + 1, first) > brings(length, first):
        length += 1
    return length


def first_token(choose, dice):
    x = dice.pick(q_ab)
    if choose(x) == 0:                          # the place has no draft token
        return dice.pick(p_ab)
    return x if dice.flip(p_ab[x] / q_ab[x]) else dice.pick((p_ab - q_ab).clamp(min=0))


# %%
looked = {choose.__name__: walk(lambda dice: first_token(choose, OneRow(dice)))[0]
          for choose in (best_of_all, stop_at_the_first_fall)}
table(["", "A", "B"], [[name.replace("_", " "), *(f"{found[x]:.2f}" for x in range(2))]
                       for name, found in looked.items()])

# %% [markdown]
# *Answer:* 0.85 and 0.70. Whenever B is drawn, the first rule takes it back, and the place gets its
# token from p_target: .5 + .5 x .7 = .85. The second rule looks at the same numbers, but step by
# step: it looks at those of a place only when it has decided to keep all draft tokens before it.
# Here it gives up two draft tokens that would have paid after an A. That is the price of being
# exact.
#
# ## Three things to know
#
# 1. Only all draft tokens of a place together come out as p_target. None may be dropped because of
#    what it is, or because of its coin.
# 2. Whether a place has a draft token may depend on everything that is known before it is drawn.
# 3. So accept or replace a draft token that you dislike, and stop after it.
#
# ## Change this and run again
#
# 1. Take a perfect draft model: `q_draft = p_target.clone()`. Does throwing "range" away do less
#    harm now?
# 2. Add a reason: `x != q_draft.argmax()`. Only the draft model's best tokens remain, but is the
#    text exact?
# 3. Add a reason: `q_draft.max() < 0.5 and x == 0`. Its first half is harmless, but is the whole?
# 4. Add a reason: `accepted`. Which draft tokens are thrown away now, and how far off is the text?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *When to stop* asks which stopping rule pays. Exercises: 16 (which stopping rules are
# lossless).
