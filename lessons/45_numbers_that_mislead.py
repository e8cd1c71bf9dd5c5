# %% [markdown]
# # Numbers that mislead
#
# **Which numbers of a benchmark are true, and mislead all the same?**
#
# *Where it loses* asked three questions of a speed-up. This lesson is about the other numbers in
# reports and logs. None of those below is false, and each has led people to a wrong choice. All
# are computed here, from probabilities or from a text, so that nothing depends on a machine.
#
# We need alpha and gamma (*How fast*), and copies (*Copying from the past*).

# %%
from math import prod
from statistics import mean

import figures
from kit import table
from nanospec.files import load_pair
from nanospec.files.corpus import read_texts
from nanospec.theory import expected_tokens, speedup


def counted(alpha, gamma):
    """A round whose every judged draft token is accepted with alpha -> on average how many are
    accepted and how many judged, and how often the draft token at each place is accepted."""
    survive = [prod([alpha] * i) for i in range(gamma + 1)]     # the first i are accepted
    return sum(survive[1:]), sum(survive[:-1]), survive[1:]

# %% [markdown]
# ## One run, six numbers
#
# A draft token is *judged* if all those before it in its draft were accepted. Take alpha .7 and
# gamma 4. What do engines and papers print of such a run?
#
# *Guess first:* one engine reports an acceptance of 70%, another one 44%. Which has the better
# draft model?

# %%
accepted, judged, by_place = counted(0.7, 4)
numbers = {"acceptance length, with the bonus token": 1 + accepted,
           "acceptance length, without": accepted,
           "acceptance rate: accepted of all draft tokens": accepted / 4,
           "alpha: accepted of those that were judged": accepted / judged,
           "rate at the fourth place, of all drafts": by_place[3],
           "rate at the fourth place, of those judged": by_place[3] / by_place[2]}
table(["the same run", ""], [[name, f"{number:.2f}"] for name, number in numbers.items()])
assert abs(1 + accepted - expected_tokens(0.7, 4)) < 1e-12
assert abs(accepted / judged - 0.7) < 1e-12

# %% [markdown]
# *Answer:* it is the same run. vLLM's "mean acceptance length" counts the bonus token, as papers
# do with their tau, and other logs do not. vLLM's "draft acceptance rate" and its rates by place
# count all draft tokens, those after a rejection too, which nobody has judged. Our alpha counts
# judged ones. So a number needs its denominator beside it: what was it divided by?
#
# ## A longer draft
#
# Now only gamma changes. *Guess first:* the draft model stays as good as it is. Does the acceptance
# rate stay?

# %%
lengths = {}
for gamma in 1, 2, 4, 8, 16:
    accepted, judged, _ = counted(0.7, gamma)
    lengths[gamma] = 1 + accepted, accepted / gamma, accepted / judged
table(["gamma", "acceptance length", "acceptance rate", "alpha"],
      [[gamma, *(f"{number:.2f}" for number in line)] for gamma, line in lengths.items()])
rates = [rate for _, rate, _ in lengths.values()]
assert rates == sorted(rates, reverse=True) and rates[-1] < rates[0] / 4
assert all(abs(alpha - 0.7) < 1e-12 for *_, alpha in lengths.values())

# %% [markdown]
# *Answer:* no. It falls from .70 to .15, while the same draft model writes more in each call. The
# rate falls by arithmetic, because draft tokens that nobody judges are counted as not accepted.
# Whoever turns gamma down until the rate looks good optimises the wrong number. And the length
# rises with every gamma, whatever the draft costs: the best length is not the best speed either.
#
# ## One alpha for all
#
# The formula of *How fast* takes every draft token to be accepted with the same alpha,
# independently. Real text has easy stretches and hard ones. Let one half of the text have an alpha
# of .95 and the other half .45, and let a round stay in its half. Evenly over the text, that is .7.
#
# *Guess first:* does the formula with .7 promise too much or too little?

# %%
def two_halves(easy, hard, gamma):
    """-> tokens of a round; alpha of all judged draft tokens; of those at each place."""
    rounds = [0.5 / expected_tokens(alpha, gamma) for alpha in (easy, hard)]    # for each token
    halves = [counted(alpha, gamma) for alpha in (easy, hard)]
    accepted, judged = (sum(n * half[i] for n, half in zip(rounds, halves)) for i in (0, 1))
    reach = [sum(rounds), *(sum(n * half[2][i] for n, half in zip(rounds, halves))
                            for i in range(gamma))]
    return 1 / sum(rounds), accepted / judged, [b / a for a, b in zip(reach, reach[1:])]


mixed, lines = {}, []
for gamma in 1, 2, 4, 8:
    real, alpha, _ = two_halves(0.95, 0.45, gamma)
    mixed[gamma] = real, expected_tokens(0.7, gamma), expected_tokens(alpha, gamma)
    lines.append([gamma, *(f"{number:.2f}" for number in mixed[gamma]), f"{alpha:.2f}"])
table(["gamma", "really", "by the .7", "by judged tokens", "alpha of judged tokens"], lines,
      "tokens of a round")
tenths = [i / 10 for i in range(1, 11)]
for gamma in range(1, 9):                           # not these two halves alone
    for easy, hard in ((a, b) for a in tenths for b in tenths):
        real, alpha, _ = two_halves(easy, hard, gamma)
        assert expected_tokens((easy + hard) / 2, gamma) > real - 1e-9
        assert expected_tokens(alpha, gamma) > real - 1e-9
places = two_halves(0.95, 0.45, 4)[2]
print(f"\nof those judged, accepted at places 1 to 4: {', '.join(f'{p:.2f}' for p in places)}")
assert places == sorted(places)

# %% [markdown]
# *Answer:* too much, in whichever way alpha is counted; never too little, for any two halves and
# any gamma. The hard half needs more rounds than the easy one, and its rounds bring less. (Counted
# over judged tokens, alpha is right for the gamma that it was measured with only if gamma is 1.)
#
# The last line shows how to notice it. If acceptance were independent, all four would be equal. A
# draft that comes to the fourth place is most likely in an easy stretch. So compare measured tokens
# of a round with the formula's before you believe the formula's best gamma.
#
# ## What the text is
#
# A copier drafts what followed the longest match earlier in the text. Here the target is somebody
# who writes a given text at temperature 0: one held-out program, then a program that is handed in
# and returned with no change, and at last one line, again and again.
#
# *Guess first:* gamma is 4, so a call brings 5 tokens at most. How many does it bring in each?

# %%
def copied(text, gamma, begin):
    """The tokens of a call from place `begin` on, on average."""
    def match(i, at):
        """So many tokens before place i are those before place `at`."""
        n = 0
        while n < i and text[i - 1 - n] == text[at - 1 - n]:
            n += 1
        return n

    at, calls = begin, 0
    while at < len(text):
        n, start = max((match(i, at), i) for i in range(1, at))         # the longest, the latest
        found, right = text[start:at][:gamma] if n else [], 0
        while right < len(found) and text[at:][right:right + 1] == [found[right]]:
            right += 1
        at, calls = at + right + 1, calls + 1
    return (min(at, len(text)) - begin) / calls


tokenizer = load_pair().tokenizer
program = tokenizer.encode(read_texts()[1][0][:4000])[:300]
line = tokenizer.encode("        self.assertEqual(first, second)\n")
speeds = {"a program": copied(program, 4, 150),
          "a program, and the same again": copied(program + program, 4, len(program)),
          "one line, again and again": copied(line * 40, 4, 10 * len(line))}
table(["the text", "tokens of a call"], [[name, f"{n:.2f}"] for name, n in speeds.items()])
assert speeds["a program, and the same again"] > speeds["a program"] + 1
assert speeds["one line, again and again"] > 4.9 > speeds["a program"] + 1

# %% [markdown]
# *Answer:* the line brings all 5, and the copy nearly as many. Text that repeats itself is the
# fastest of all, and models that write on and on at temperature 0, past the end that they would
# have chosen, often begin to repeat themselves. So a benchmark needs prompts that somebody would
# send and an end where the text ends. Look at the text before you look at its speed.
#
# ## The time between tokens
#
# A client gets a round's tokens in one chunk. Plain decoding sends a token in each step. With
# alpha .7, gamma 4, c .05 and v(5) 1.2, a round takes 1.4 steps.
#
# *Guess first:* a tool measures the time between chunks. Does speculation look faster or slower?

# %%
accepted, _, by_place = counted(0.7, 4)
round_takes, chunk = 4 * 0.05 + 1.2, 1 + accepted
at_once = accepted / chunk                      # tokens that come together with the one before them
waits = {"between chunks, mean": (1.0, round_takes),
         "between tokens, median": (1.0, 0.0 if at_once > 0.5 else round_takes),
         "between tokens, 90th percentile": (1.0, 0.0 if at_once > 0.9 else round_takes),
         "from the first token to the last, for each token": (1.0, round_takes / chunk)}
table(["in plain steps", "plain", "speculation"],
      [[name, *(f"{number:.2f}" for number in line)] for name, line in waits.items()],
      f"{at_once:.0%} of the tokens come together with the one before them")
assert abs(1 / waits["from the first token to the last, for each token"][1]
           - speedup(0.7, 4, 0.05, 1.2)) < 1e-12

# %% [markdown]
# *Answer:* slower, by 1.4. The median says that a token takes no time at all, and the 90th
# percentile says 1.4 again. All three are true, and none is the speed. That is the last line: the
# time from the first token to the last, divided by the tokens after the first.
#
# ## A baseline that is slow
#
# A speed-up is a fraction, and a slow baseline makes it large. Take a round that gains 2.10 over
# the fastest plain decoding, and one that gains .76, which means that it loses (both from *Where it
# loses*). The text has a prompt of 100 tokens and 60 new ones, and a call takes 1 on up to 50
# tokens, and from there on a time in proportion.
#
# *Guess first:* over which of these baselines does the losing round look like a gain?

# %%
no_cache = mean(max(1, (100 + i) / 50) for i in range(60))      # every token is read in every call
baselines = {"the fastest plain decoding": 1.0, "weights of 32 bits instead of 16": 2.0,
             "no cache": no_cache, "both": 2 * no_cache}
good, losing = speedup(0.8, 4, 0.1, 1.2), speedup(0.8, 4, 0.1, 4)
table(["baseline", "takes", "the good round", "the losing round"],
      [[name, f"{takes:.2f}", f"{good * takes:.2f}", f"{losing * takes:.2f}"]
       for name, takes in baselines.items()])
assert losing < 1 < losing * min(takes for takes in baselines.values() if takes > 1)
figures.numbers_that_mislead(lengths, mixed)

# %% [markdown]
# *Answer:* over every one but the first. (Weights of twice the bytes take twice as long where
# reading them is all that a step does.)
#
# ## Three things to know
#
# 1. Acceptance length and acceptance rate have several definitions. Say whether the bonus token is
#    counted, and what was divided by what.
# 2. Acceptance is not independent, and one alpha promises too much. Measure the tokens of a round
#    for the gamma that you will use.
# 3. Speed is time from the first token to the last for each token, over the fastest plain decoding,
#    on texts that somebody wants.
#
# ## Change this and run again
#
# 1. In the first table take gamma 8. Which of the six numbers change?
# 2. Let both halves have an alpha of .7. What do the columns of the third table say, and the line
#    below it?
# 3. Take alpha .4 in the cell of the chunks. What is the median now, and why?
#
# The answers are in the file of the same name in `lessons/answers/`.
