"""Answers that are told something: an answer for every sentence that a check can say, and it is true of that one.

Sentences about known mistakes are not here: they come with functions that make them, in lessons/check.
"""

from lessons.check import EXERCISES

PICK, COUNT = "def pick(weights, u):\n", "def accepted(coins):\n"
DISTANCE, COPY = "def total_variation(one, other):\n", "def propose(text, gamma, longest):\n"
ACCEPT = "def accept_or_replace(x, p_target, q_draft, dice):\n"
NODE = "def node_rule(children, p_target, dice):\n"
DRAW = "import torch\n\n\ndef draw(last, logits, table, dice):\n"
GROW, PROPOSE = "def grow(accuracies, size):\n", "def propose(layer, tokens, hidden, gamma):\n"
KEEP = "\n\ndef keep(hidden, predicted, verified, accepted):\n    return hidden + verified[:accepted + 1]\n"
JUDGE, SLOTS = "def judge(drafted, p_target, dice):\n", "def valid_slots(length, gamma, accepted):\n"
LOOP = "    while not dice.flip(p_target[x] / q_draft[x]):\n        x = dice.pick(q_draft)\n    return x\n"
PATHS = '''
from itertools import product
from math import prod


def grown(every, size, value):
    tree = []
    while len(tree) < min(size, len(every)):
        tree.append(max((path for path in every if path not in tree and (not path or path[:-1] in tree)), key=value))
    return tree


def grow(accuracies, size):
    heads = [range(len(head)) for head in accuracies]
    every = [path for n in range(len(heads) + 1) for path in product(*heads[:n])]
    of = lambda path: [head[i] for head, i in zip(accuracies, path)]
'''


def changed(number: int, *changes: tuple[str, str]) -> str:
    """The answer with some words replaced; each must be there."""
    source = EXERCISES[number].answer
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


def block(what: str) -> str:
    """Exercise 14, with another result of verify_block."""
    return changed(14, ("    w = weights(", f"    return {what}\n    w = weights("))


def of_verdicts(number: int, what: str) -> str:
    return f"{EXERCISES[number].answer}\n\nright = verdicts\n\n\ndef verdicts():\n    return {what}\n"


def whole_round(what: str) -> str:
    return f"{EXERCISES[23].answer}\n\ndef right_round(target, draft_model, text, gamma, T, dice):\n    {what}\n"


def one_round(what: str) -> str:
    return EXERCISES[21].answer.split("    written = []")[0] + f"    {what}\n"


TOLD = [        # exercise, answer, what is said of it; and the mistake's name, if it has one
    # What is no solution at all
    (1, PICK + "    raise NotImplementedError\n", "nothing there yet: pick raises"),
    (9, changed(9, ("    return max(", "    raise NotImplementedError\n    return max(")), "yet: best_gamma raises"),
    (5, "import torch\n\n\n" + COUNT + "    return coins.long().softmax(-1)\n", "not implemented for 'Long'"),
    (3, "def another():\n    return 1\n", "no function accept_or_replace"),
    (3, "import sys\nsys.exit()\n", "it ended the program"),
    (3, ACCEPT.replace(":", "") + "    return x\n", "ex03_accept_or_replace.py, line 1: "),
    (3, "\udcff", "can't decode"),
    (3, ACCEPT + "    return 1 / 0\n", "ZeroDivisionError: division by zero\n    in accept_or_replace(0, [0.4,"),
    (3, "def accept_or_replace(x):\n    return x\n", "TypeError"),
    (3, "def odds(p):\n    return p / 0\n\n\n" + ACCEPT + "    return odds(1)\n", "ex03_accept_or_replace.py, line 2"),
    (2, DISTANCE + "    return [0] * 10 ** 15\n", "asks for more memory than there is"),
    (2, DISTANCE + "    one -= other\n    return one.abs().sum() / 2\n",
     "changes in place what it is given: one of total_variation.", "changed-in-place"),
    (2, DISTANCE + "    while True:\n        pass\n", "ex02_total_variation.py, line "),
    (3, ACCEPT + LOOP, "until something is accepted has no longest path, so no walk of it ends."),

    # What is no token, number, pair or list
    (1, PICK + "    return len(weights)\n",
     "pick, for weights [1.0, 1.0] and u = 0.25, must return a token, an int in 0..1; it returned 2"),
    (1, "import torch\n\n\n" + PICK + "    return torch.multinomial(weights, 1)\n", "now one token, now another",
     "u-ignored"),
    (2, DISTANCE + "    return 'far'\n", "total_variation must return a number; it returned 'far'"),
    (3, ACCEPT + "    return 1.5\n", "accept_or_replace must return a token, an int in 0..3; it returned 1.5"),
    (3, ACCEPT + "    dice.pick(p_target)\n", "it returned None: is a return missing?", "return-forgotten"),
    (3, ACCEPT + "    return p_target\n", "it returned 4 weights: draw a token from them", "weights-returned"),
    (3, ACCEPT + "    return dice.pick([[p_target]])\n", "dice.pick takes a tensor of weights, got [[tensor(["),
    (3, ACCEPT + "    return dice.pick(p_target - q_draft)\n", "none negative, not all 0; got tensor([ 0.3",
     "negative-weights"),
    (3, ACCEPT + "    dice.flip(q_draft[x] - p_target[x])\n", "dice.flip takes a probability, got tensor(-0.3",
     "negative-probability"),
    (3, ACCEPT + "    if dice.flip(p_target[x] / q_draft[x]):\n        return x\n    dice.flip(p_target[x] - 1)\n",
     "\nlook at ex03_accept_or_replace.py, line 4", "negative-probability"),
    *((number, changed(number, ("if dice.flip(", "if dice.pick(q_draft) >= 0 and dice.flip(")),
       "you draw a draft token of your own", "x-drawn-again") for number in (3, 13)),
    (4, "def residual(p_target, q_draft):\n    return p_target - q_draft\n",
     "a weight is negative, [0.3, 0.1, -0.1, -0.3]: cut the differences off", "residual-unclamped"),
    (4, "def residual(p_target, q_draft):\n    return p_target.log()\n", ": all that is left is 0 or more"),
    (4, "def residual(p_target, q_draft):\n    return 0.5\n", "residual must return a tensor (1, 4); it returned 0.5"),
    (5, COUNT + "    return coins.long().cumprod(-1)\n", "returned a row of 3 for each: add up every row",
     "not-added-up"),
    (5, COUNT + "    return [1]\n", "a number for each of 8 rows; it returned 1 of them"),
    (5, COUNT + "    return coins.double().mean(-1)\n", "accepted must return whole numbers; among them is 0.3"),
    (6, "def next_weights(accepted, p_target, q_draft):\n    return p_target\n",
     "next_weights must return a tensor (2,); it returned a tensor (2, 2)"),
    (7, SLOTS + "    return length\n", "valid_slots must return two ints, 0 or more; it returned 10"),
    (7, SLOTS + "    return length, length / 2\n", "valid_slots, as its second, must return an int; it returned 5.0"),
    (7, SLOTS + "    return length, -1\n", "valid_slots must return two ints, 0 or more; it returned (10, -1)"),
    (8, "def distribution(logits, temperature, top_k):\n    return logits.argmax()\n",
     "distribution must return a tensor (4,); it returned tensor(3)"),
    (9, changed(9, ("return sum(", "return print(")), "expected_tokens must return a number; it returned None"),
    (9, changed(9, ("return max(", "return 1.0 * max(")), "best_gamma must return an int; it returned 2.0"),
    (10, COPY + "    return text[-1]\n",
     "propose, for text [1, 2, 1], must return a list of ints; it returned 1"),
    (10, COPY + "    return [1.5]\n", "must return a list of ints; in it is 1.5"),
    (11, of_verdicts(11, "{}"), "verdicts must return a dict with the keys rule_a, "),
    (11, of_verdicts(11, "right() | {'rule_a': 'exact'}"), "rule_a: a verdict is a pair such as ('exact', 0.123)"),
    (11, of_verdicts(11, "right() | {'rule_b': ('good', 0)}"), "or 'wrong' and a number; it returned ('good', 0)"),
    (11, of_verdicts(11, "right() | {'rule_b': ('exact', 'far')}"),
     "rule_b: verdicts, second, must return a number; it returned 'far'"),
    (12, "def is_exact(sampler, truth):\n    return 1\n", "is_exact must return True or False; it returned 1"),
    (13, NODE + "    return dice.pick(p_target)\n", "node_rule must return a pair: which child is accepted,"),
    (13, NODE + "    return None, 2\n", "node_rule, as its second, must return a token, an int in 0..1; it returned 2"),
    (13, NODE + "    return 'a', 0\n", "node_rule, as its first, must return a child's number, or None; it returned"),
    (13, NODE + "    return 0, 0\n", "node_rule, of 0 children, must return which one is accepted, from 0 on,"),
    (13, NODE + "    return (0, 0) if children else (None, 0)\n", "child 0 is accepted, the token is its own: 1, not"),
    (14, block("0"), "verify_block must return two ints, how many draft tokens are accepted and the next token"),
    (14, block("'a', 0"), "verify_block, as its first, must return an int; it returned 'a'"),
    (14, block("3, 0"), "verify_block, as its first, must return how many of 2 draft tokens are accepted; it"),
    (14, block("2, 2"), "verify_block, as its second, must return a token, an int in 0..1; it returned 2"),
    (14, changed(14, ("    found = [1.0]\n", "    return [1.0]\n    found = [1.0]\n")),
     "weights of 2 ratios must return a list of 3 numbers; it returned [1.0]"),
    (14, changed(14, ("    found = [1.0]\n", "    return 'abc'\n    found = [1.0]\n")),
     "weights, each of them, must return a number; it returned 'a'"),
    (14, changed(14, ("    if dice.flip(w[gamma])", "    total = [(one * p - q).clamp(min=0).sum() for one, p, q in "
                      "zip(w, p_target, q_draft)]\n    coins = [dice.flip(z / (z + 1 - one)) for z, one in zip("
                      "total, w)]\n    if dice.flip(w[gamma])"),
                 ("dice.flip(missing.sum() / (missing.sum() + 1 - w[i]))", "coins[i]")),
     "nothing is missing, and the threshold is 0 / 0: if you flip that coin, let it accept"),
    (15, JUDGE + "    return 0\n", "judge must return a pair, (i, drafted[i]) or (None, token); it returned 0"),
    (15, JUDGE + "    return None, 3\n", "judge, second, must return a token, an int in 0..2; it returned 3"),
    (15, JUDGE + "    return 'a', 0\n", "judge, first, must return the number of a draft token, or None; it returned"),
    (15, JUDGE + "    return 2, 0\n", "number of a draft token, or None, first; for [0, 1] it returned 2"),
    (15, JUDGE + "    return 0, 1\n", "judge accepts draft token 0 of [0, 1] and writes 1: what is accepted is"),
    (15, changed(15, ("return i, x\n", "return len(drafted) - 1 - drafted[::-1].index(x), x\n")),
     "you return that draft token 2 is accepted. Token 3 stands at 0 already", "a-later-copy"),
    (17, GROW + "    return 4\n", "grow must return a list of paths; it returned 4"),
    (17, GROW + "    return [(), (0), (1)]\n", "grow, for each node, must return a list of ints; it returned 0"),
    (17, GROW + "    return [(0,), (1,), (0, 0), (0, 1)]\n", "grow must return the root as well, the path ()"),
    (17, GROW + "    return [(), (0,), (0,), (1,)]\n", "grow returned a node twice: (0,)"),
    (17, GROW + "    return [(), (0,), (1,), (2,)]\n", "path (2,); heads have tokens from 0 on: [2, 2]"),
    (17, GROW + "    return [(), (0,), (0, 0), (0, 0, 0)]\n", "the path (0, 0, 0), and there are only 2 heads"),
    (18, PROPOSE + "    return [6, 9]\n" + KEEP,
     "call the layer 2 times and return its draft tokens, in order; they were [], it returned [6, 9]"),
    (18, changed(18, ("range(gamma)", "range(gamma - 1)")),
     "call the layer 2 times and return its draft tokens, in order; they were [6], it returned [6]"),
    (18, PROPOSE + "    return 6\n" + KEEP, "propose must return a list of ints; it returned 6"),
    (18, PROPOSE + "    return [layer(hidden)[1]]\n" + KEEP, "layer takes a list of pairs (hidden state, token), got"),
    (18, changed(18, ("return hidden + ", "return hidden.extend("), ("+ 1]\n", "+ 1])\n")),
     "keep must return a list of ints; it returned None"),
    *((19, changed(19, change), said) for *change, said in (
        ("return tokens.scatter(1, places, written), length + accepted + 1", "return None",
         "commit must return a pair, the new tokens and the new length; it returned None"),
        ("return tokens.scatter(1, places, written), ", "return tokens[0], ",
         "commit, the tokens, must return a tensor (2, 16); it returned tensor([5, 6,"),
        ("return tokens.scatter(1, places, written), ", "return tokens[:, :5], ",
         "commit, the tokens, must return a tensor (2, 16); it returned rows of 5, 5"),
        ("return tokens.scatter(1, places, written), ", "return tokens / 2, ",
         "commit, the tokens, must return a list of ints; in it is 2.5"),
        ("length + accepted + 1", "5", "commit, the length, must return a list of ints; it returned 5"),
        ("length + accepted + 1", "0 * length", "a length for each of 2 texts, 1 to 16; it returned [0, 0]"),
        ("length + accepted + 1", "length + 100", "a length for each of 2 texts, 1 to 16; it returned [102, 103]"),
        ("return length[:, None] - 1 +", "return length.max() - 1 +", "slots must return a tensor (2, 3)"),
        ("return length[:, None] - 1 +", "return length[:, None] - 9 +", "slots must return slots in 0..15; length "
         "[5, 4], n 3: it returned [[-4,"),
        ("scatter(1, accepted[:, None]", "scatter(1, accepted[:, None] + 9", "RuntimeError: index"))),
    *((20, DRAW + f"    return {what}\n", said) for what, said in (
        ("[0]", "draw must return two things, tokens and q_draft; it returned [0]"),
        ("0, 1", "draw must return 2 tokens, one for each place; it returned 0"),
        ("[0, 0], [logits[0]]", "draw must return 2 distributions, one for each place; it returned [tensor("),
        ("[2, 0], logits", "draw, for each place, must return a token, an int in 0..1; it returned 2"),
        ("[0, 0], logits[:, :1]", "for each place, second, must return a tensor (2,); it returned a tensor (1,)"))),
    (23, whole_round("return text"),
     "right_round must return the text [1, 0] and 1 to 2 tokens more; it returned [1, 0]"),
    (23, whole_round("return [0, 1, 2]"),
     "right_round must return the text [1, 0] and 1 to 2 tokens more; it returned [0, 1, 2]"),
    (23, whole_round("return text + [-1]"), "right_round wrote a token that there is not; it returned [1, 0, -1]"),
    (23, whole_round("return text + [9]"), "right_round wrote a token that there is not; it returned [1, 0, 9]"),
    (23, whole_round("return 1"), "right_round must return a list of ints; it returned 1"),
    (22, changed(22, ("    written = []", "    return None\n    written = []")),
     "it returned None: is a return missing?", "return-forgotten"),
    *((22, changed(22, tuple(change)), said) for *change, said in (
        ("    return drafted", "    return 1", "propose must return a list of ints; it returned 1"),
        ("    return drafted", "    return drafted[:1]",
         "propose, with gamma 2, must return 2 tokens; it returned [0]"),
        ("    return drafted", "    return [9 for _ in drafted]",
         "propose, for each place, must return a token, an int in 0..1; it returned 9"),
        ("    written = []", "    return 1\n    written = []", "judge must return a list of ints; it returned 1"),
        ("    written = []", "    return []\n    written = []",
         "judge of 2 draft tokens must return 1 to 3 tokens; it returned []"),
        ("    written = []", "    return [9]\n    written = []",
         "judge, for each place, must return a token, an int in 0..1; it returned 9"))),
    (21, changed(21, ("return q_draft - deferred", "return 1.0 #")), "mixture must return a tensor (3,); it returned"),
    *((21, one_round(f"return {what}"), said) for what, said in (
        ("drafted[0]", "one_round must return a list of ints; it returned 1"),
        ("[]", "one_round of 2 draft tokens must return 1 to 3 tokens; it returned []"),
        ("[9]", "one_round, for each place, must return a token, an int in 0..2; it returned 9"))),

    # What is right nearly everywhere
    (15, changed(15, ("    left = p", "    calls.append(0)\n    if len(calls) > 2_000:\n        return None, 0\n"
                      "    left = p"), ("def judge", "calls = []\n\n\ndef judge")),
     "3,000 samples with real dice do not fit (p = "),
    (5, COUNT + "    n = coins.long().cumprod(-1).sum(-1)\n    return n + (n == 2) * (n == coins.shape[1])\n",
     "accepted, for one row of 2 coins, must return a number in 0..2, not 3"),
    (10, changed(10, ("    for n in", "    if len(text) > 450:\n        return []\n    for n in")),
     "tokens per target call on a table of assertions, byte by byte; 3.86 can be had"),
    (17, changed(17, ("    tree, waiting", "    size -= size == 16\n    tree, waiting")),
     "five heads, 16 nodes: 15 nodes with 2.550 tokens per target call; 2.569 can be had"),

    # What is said of a part that failed
    (2, DISTANCE + "    return (one - other).abs().sum() / 2 + 3e-9\n",
     "Nearly right: nothing is off by more than a millionth.", "nearly-right"),
    (2, DISTANCE + "    return (one - other).pow(3).abs().sum()\n",
     "not a mistake known here; look at ex02_total_variation.py, line 2"),
    (15, changed(15, ("return None, dice.pick(left)", "return None, dice.pick(p_target) if len(p_target) < 9 else 0")),
     "; it is not the only mistake)", "redraw-after-mismatch"),
    (15, "import random\n\n\n" + JUDGE + "    return None, random.randrange(len(p_target))\n",
     "random numbers of your own, random.randrange in line 5: ", "own-random-numbers"),
    (15, JUDGE + "    return None, 0\n", "it never throws the dice it is given"),
    (15, JUDGE + "    return None, dice.pick(p_target)\n", "\nAveraged over all draft tokens, the distribution of the "
                                                           "text is right all the same", "draft-ignored")]
