# %% [markdown]
# # What a user waits for
#
# **Which of the seconds that a user counts does speculation save?**
#
# "Twice as fast" may mean three things, and a server has to care for each of them:
#
# - *Time to the first token*: from handing in a request until something appears. It contains the
#   waiting for a place and the reading of the prompt.
# - *Time per token*: how fast the text then grows. This is the *latency* that a reader feels, and
#   beside its mean there is the longest pause.
# - *Throughput*: tokens in a unit of time over all requests. It is what the owner of the machine
#   pays for.
#
# The lessons so far measured the second for one text, or the third for a full batch. Here a small
# simulated server shows all three together. It has no models and no clock. A draft token is
# accepted with probability alpha, and a call costs what *A full batch* found: reading the weights,
# or multiplying, whichever takes longer. With 50 tokens in a call (a round number) the two take
# equally long.

# %%
from dataclasses import dataclass
from random import Random
from statistics import mean

import torch

import figures
from kit import OneRow, table
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.theory import expected_tokens

ALPHA, C, PROMPT, NEW, PLACES = 0.7, 0.05, 100, 60, 32


def call(tokens):
    """The time of a target call on so many tokens. One on a single token takes 1."""
    return max(1, tokens / 50)                          # the weights are read, or the batch is full


@dataclass
class Request:
    came: float
    first: float = 0.0                                      # when its first token was there
    last: float = 0.0                                       # when its last token so far was there
    pause: float = 0.0                                      # the longest wait between two rounds
    tokens: int = 0                                         # written so far

# %% [markdown]
# ## A small server
#
# Each request has a prompt of 100 tokens and wants 60. The server has 32 places. In every step it
# reads one prompt, if one is waiting and a place is free. Then all that have a place write one
# round: gamma draft steps, and one call on gamma + 1 tokens of each. The draft model has to read
# the prompts, too.

# %%
def served(gap, gamma, count=300):
    """`count` requests, one every `gap` on average -> the requests, and when all are done."""
    chance, now, last, coming, running, done = Random(1), 0.0, 0.0, [], [], []
    for _ in range(count):
        last += chance.expovariate(1 / gap)
        coming.append(Request(last))
    while len(done) < count:
        if not running:
            now = max(now, coming[0].came)                  # nothing to do before
        if coming and coming[0].came <= now and len(running) < PLACES:
            now += call(PROMPT) * (1 + C * (gamma > 0))     # both models read it
            running.append(coming.pop(0))
        now += call(len(running) * (gamma + 1)) + gamma * C
        for request in running:
            wrote = 1
            while wrote <= gamma and chance.random() < ALPHA:
                wrote += 1
            request.first = request.first or now
            request.pause = max(request.pause, now - (request.last or now))     # none at first
            request.last, request.tokens = now, min(NEW, request.tokens + wrote)
        done += [request for request in running if request.tokens == NEW]
        running = [request for request in running if request.tokens < NEW]
    return done, now

# %% [markdown]
# We let requests come seldom (one in 150 plain steps), often (one in 8), and all at once.
#
# *Guess first:* which of the three does speculation improve when all requests come at once?

# %%
loads, lines, found = {"seldom": 150, "often": 8, "all at once": 1e-6}, [], {}
for load, gap in loads.items():
    for gamma in (0, 1, 4):
        done, end = served(gap, gamma)
        found[load, gamma] = (mean(request.first - request.came for request in done),
                              mean((request.last - request.first) / (request.tokens - 1)
                                   for request in done),
                              mean(request.pause for request in done),
                              sum(request.tokens for request in done) / end)
        lines.append([load, gamma, *(f"{number:.2f}" for number in found[load, gamma])])
table(["requests come", "gamma", "first token", "per token", "longest pause", "throughput"],
      lines, "times in plain steps for one text; the throughput in tokens for such a time")
assert found["seldom", 4][1] < 0.5 * found["seldom", 0][1]
assert found["all at once", 4][3] < found["all at once", 0][3] < found["all at once", 1][3]
assert found["often", 4][0] > found["often", 0][0] and found["often", 4][2] > found["often", 0][2]

# %% [markdown]
# *Answer:* with gamma 1 all three, a little. With gamma 4 the time per token alone: the server is
# full, a draft token costs what any other token costs, and the other two get worse.
#
# Read the columns from the left.
#
# - *First token.* Where the server keeps up, speculation does not help, and even costs a little:
#   the prompt has to be read before anything is written, the draft model reads it as well, and a
#   new request waits for the end of a longer round. Where all come at once, nearly all of this time
#   is waiting for a place, so it follows the throughput.
# - *Per token.* When requests come seldom, this is the speed-up of *How fast*. It shrinks as the
#   server fills.
# - *Longest pause.* Tokens come in bursts. A round takes longer than a plain step, so in a busy
#   server the pauses grow, although the text is done earlier.
# - *Throughput.* As long as the server keeps up, it writes what is asked for, with drafts or
#   without. Only when it is full does this column tell what the machine can do.
#
# So a speed-up belongs to a load, and to one of these columns. That is why a server may choose
# gamma by the number of texts (*A full batch*).
#
# ## Drafting while the target verifies
#
# A round has two parts, one after the other: the draft model works while the target waits, and the
# other way round. If each has a machine of its own, the draft model can go on while the target
# verifies. It takes for granted that all of its draft tokens are accepted, guesses the bonus token
# as well, and drafts the next round after these (PEARL, Liu et al. 2024). If the guess comes true,
# the next draft is there at once. If not, it is thrown away, and nothing is lost but work.
#
# When does the guess come true? The draft must be accepted as a whole, which has probability
# alpha^gamma, and the bonus token must be the guessed one. At T = 0 that is as likely as one more
# acceptance, so we take alpha^(gamma + 1); at T = 1 it is less likely. If the
# guess comes true, the next round takes only the call, or the gamma + 1 draft steps beside it if
# these take longer.
#
# *Guess first:* for which draft model does this pay most, a cheap one or an expensive one?

# %%
lines, gains = [], {}
for c in (0.02, 0.1, 0.3):
    for gamma in (1, 2, 4):
        hit, tokens = ALPHA ** (gamma + 1), expected_tokens(ALPHA, gamma)
        in_turn = gamma * c + 1
        at_once = hit * max(1, (gamma + 1) * c) + (1 - hit) * in_turn
        gains[c, gamma] = tokens / in_turn, tokens / at_once
        lines.append([c, gamma, f"{hit:.2f}", *(f"{gain:.2f}" for gain in gains[c, gamma])])
table(["c", "gamma", "guess comes true", "speed-up, in turn", "at the same time"], lines, "v = 1")
figures.what_a_user_waits_for(found, gains)

# %% [markdown]
# *Answer:* an expensive one, whose time is worth hiding. But the guess must hold for a whole round,
# and with a large gamma it seldom does.
#
# The picture's left panel has the column *per token*, and the right panel this last table. The
# middle one shows the last three lines of the first table, divided by plain decoding. Above 1 is
# good for the throughput, and bad for the other bars. Gamma 4 has three on the wrong side, and
# gamma 1 has one, the pause.
#
# Is it exact? The draft tokens of the next round were drawn from q_draft after a text that had not
# been written yet. They are used only if that very text is written. The coins of the round do not
# look at them, so given the text they are draws from q_draft as always. We walk it.

# %%
big, small = TableModel(2, seed=5, zeros=0), TableModel(2, seed=6, zeros=0)


def after(model, text):
    return model(torch.tensor([text]))[0, -1].softmax(-1)


def overlapped(dice, new=3):
    """Rounds of one draft token; the next one is drafted before this one is judged."""
    text, dice, x = [1], OneRow(dice), None
    while len(text) < 1 + new:
        x = dice.pick(after(small, text)) if x is None else x           # or it is there already
        guess = [*text, x, dice.pick(after(small, [*text, x]))]
        ahead = dice.pick(after(small, guess))                          # while the target verifies
        p, q = after(big, text), after(small, text)
        if dice.flip(p[x] / q[x]):
            text = [*text, x, dice.pick(after(big, [*text, x]))]
        else:
            text = [*text, dice.pick((p - q).clamp(min=0))]
        x = ahead if text == guess else None
    return tuple(text[1:1 + new])


walked, paths = walk(overlapped)
off = distance(walked, target_distribution(big, [1], 3))[1]
print(f"\n{paths:,} paths walked: the text is off by {off:.0e}")
assert off < 1e-12

# %% [markdown]
# ## Three things to know
#
# 1. A speed-up of the time per token is no speed-up of the first token, and a full server may lose
#    throughput by it.
# 2. Speculation writes in bursts: the mean falls, and the longest pause may grow.
# 3. Drafting while the target verifies hides the draft model's time whenever a guess of the whole
#    round comes true, and it is exact.
#
# ## Change this and run again
#
# 1. Write 0.9 for the 0.7 of `ALPHA`, and take out the asserts of the first table. Does gamma 4 pay
#    now when all requests come at once?
# 2. In `overlapped`, keep the draft in any case: `x = ahead`. The `q` below is then not the one
#    that it was drawn from. How far is the text off?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *A budget for all* gives some texts more draft tokens than others.
