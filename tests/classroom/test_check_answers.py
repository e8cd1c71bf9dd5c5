"""Answers as people write them: what the check must say of each, and what it must never say.

Right ones that look unusual pass. Wrong ones that are right on every example of the sheet do not. A mistake has its
name where the answer does what the name says, and no name where another one does nearly the same.
"""

import os
import re

import pytest

from lessons.check import EXERCISES, pairs, seeds
from lessons.check import ex09_how_fast as ex09
from lessons.check.catalogue import ANSWERS, LONGEST
from lessons.check.engine import Functions, check
from lessons.check.naming import OWN_RANDOMNESS, own_randomness

LOSSLESS = "speed, not truth"
ZERO = ("    if temperature == 0:\n        one = torch.zeros_like(logits)\n        one[logits.argmax()] = 1\n"
        "        return one\n")
TOP_K = ("    if top_k is not None and top_k < len(x):\n"
         "        x = x.masked_fill(x < x.topk(top_k).values[-1], {mask})\n")


def pick(body: str) -> str:
    return f"import torch\n\n\ndef pick(weights, u):\n    {body}\n"


def accept(coin: str = "min(1, p_target[x] / q_draft[x])", left: str = "(p_target - q_draft).clamp(min=0)") -> str:
    return ("import torch\n\n\ndef accept_or_replace(x, p_target, q_draft, dice):\n"
            f"    if dice.flip({coin}):\n        return x\n    return dice.pick({left})\n")


def residual(total: str, made: str = "torch.where(total > 0, left / total, p_target)") -> str:
    return ("import torch\n\n\ndef residual(p_target, q_draft):\n    left = (p_target - q_draft).clamp(min=0)\n"
            f"    total = {total}\n    return {made}\n")


def counted(body: str) -> str:
    return f"import torch\n\n\ndef accepted(coins):\n    {body}\n"


def weights(p: str, q: str, bonus: str = "accepted == len(q_draft)") -> str:
    return ("import torch\n\n\ndef next_weights(accepted, p_target, q_draft):\n"
            f"    if {bonus}:\n        return p_target[accepted]\n    return (p_target[{p}] - "
            f"q_draft[{q}]).clamp(min=0)\n")


def warp(x: str = "logits / temperature", mask: str = "float('-inf')", last: str = "x.softmax(-1)",
         zero: str = ZERO) -> str:
    return ("import torch\n\n\ndef distribution(logits, temperature, top_k):\n" + zero + f"    x = {x}\n"
            + TOP_K.format(mask=mask) + f"    return {last}\n")


def copy(found: str = "text[s + n:s + n + gamma]", same: str = "text[s:s + n] == text[-n:]",
         places: str = "range(len(text) - n - 1, -1, -1)") -> str:
    return ("def propose(text, gamma, longest):\n    for n in range(min(longest, len(text) - 1), 0, -1):\n"
            f"        for s in {places}:\n            if {same}:\n                return {found}\n    return []\n")


def answer(number: int, *changes: tuple[str, str]) -> str:
    """The shipped one with some words replaced; each must be there."""
    source = EXERCISES[number].answer
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source if "\nimport torch\n" in source else source + "\nimport torch\n"


RIGHT = [
    (1, pick("e = weights.cumsum(0)\n    return int(torch.searchsorted(e, u * e[-1], right=True))")),
    (1, pick("e = (weights / weights.sum()).cumsum(0)\n    return int((e <= u * e[-1]).sum())")),
    (3, accept("p_target[x] / q_draft[x]", "torch.maximum(p_target, q_draft) - q_draft")),
    (3, "def accept_or_replace(x, p_target, q_draft, dice):\n    a = min(1.0, float(p_target[x] / q_draft[x]))\n"
        "    w = (p_target - q_draft).clamp(min=0)\n    w = w * ((1 - a) / w.sum() if w.sum() > 0 else 0)\n"
        "    w[x] += a\n    return dice.pick(w)\n"),
    (2, "from pathlib import Path\n\nHERE = Path(__file__).parent\n\n\ndef total_variation(one, other):\n"
        "    print('\\udcff')\n    return (one - other).abs().sum() / 2\n\n\n"
        "if __name__ == '__main__':\n    total_variation(1, 2)\n"),
    (4, residual("(p_target - q_draft).abs().sum(-1, keepdim=True) / 2")),
    (8, warp(last="(x - x.logsumexp(-1)).exp()")), (8, warp("logits.log_softmax(-1) / temperature")),
    (8, warp(mask="torch.finfo(torch.float32).min")),
    (8, warp().replace("    x = logits", "    if top_k is not None:\n        kept = logits.topk(min(top_k, "
                       "len(logits)))\n"
                       "        out = torch.zeros_like(logits)\n"
                       "        out[kept.indices] = (kept.values / temperature).softmax(-1)\n        return out\n"
                       "    x = logits")),                                  # exactly k, where they tie
    (9, answer(9, ("sum(alpha ** i for i in range(gamma + 1))",
                   "gamma + 1 if abs(alpha - 1) < 1e-9 else (1 - alpha ** (gamma + 1)) / (1 - alpha)"))),
    (11, answer(11, ('("wrong", 0.1)', '("wrong", 0.10037)'))),
    (15, "def judge(drafted, p_target, dice):\n    x = dice.pick(p_target)\n"
         "    return (drafted.index(x), x) if x in drafted else (None, x)\n"),
    (17, "def grow(accuracies, size):\n    tree, waiting = [], {(): 1.0}\n    while len(tree) < size:\n"
         "        one = max(waiting, key=waiting.get)\n        worth = waiting.pop(one)\n        tree.append(one)\n"
         "        for i, share in enumerate(accuracies[len(one)] if len(one) < len(accuracies) else ()):\n"
         "            waiting[(*one, i)] = worth * share\n    return tree\n"),
    *((20, answer(20, ("return tokens, q_draft", f"import numpy\n    return {what}"))) for what in (
        "tokens, numpy.stack(q_draft)", "numpy.array(tokens), [q.tolist() for q in q_draft]")),
    (21, answer(21, ("q_draft < p_target.max() - a", "q_draft + a < p_target.max()")))]


@pytest.mark.parametrize("number, source", RIGHT)
def test_what_is_right_passes_however_it_is_written(told, number, source):
    found = told(number, source)
    assert found.failure is None, found.failure[1]


@pytest.mark.parametrize("gamma, off", [(1, False), (3, False), (0, True), (4, True)])
def test_of_gammas_that_are_as_good_any_is_right(gamma, off):
    """Where nothing is accepted, and neither drafts nor longer calls cost anything."""
    found = ex09.seen_best(Functions(best_gamma=lambda *_: gamma), "", ex09.flat, 3, [(0., 0.)])
    assert bool(found.differences()) == off


def test_a_gamma_that_is_worse_by_a_hair_is_wrong():
    """1.5 tokens in the time of 1.5, or 1.75 in that of a hair more than 1.75."""
    found = ex09.seen_best(Functions(best_gamma=lambda *_: 2), "", {2: 1.5, 3: 1.75 + 1e-9}.get, 2, [(.5, 0.)])
    assert found.differences()


@pytest.mark.parametrize("mark, end, coding", [("\ufeff", "\n", "utf-8"),
                                               ("\ufeff", "\r\n", "utf-8"), ("", "\r\n", "utf-8"),
                                               ("# -*- coding: latin-1 -*-\n", "\n", "latin-1")])
def test_what_python_reads_is_read(tmp_path, mark, end, coding):
    """A mark of UTF-8, the ends of lines of another system, a coding that the file names."""
    source = mark + "# h\xe4lftig\ndef total_variation(one, other):\n    return (one - other).abs().sum() / 2\n"
    path = tmp_path / EXERCISES[2].file
    path.write_bytes(source.replace("\n", end).encode(coding))
    assert check(EXERCISES[2], path).failure is None


def test_what_is_no_plain_file_of_a_page_or_two_is_not_read(tmp_path):
    """A pipe would wait for ever, and a device has no end."""
    path = tmp_path / EXERCISES[2].file
    path.write_bytes(b"#" * (LONGEST + 1))
    assert "longer than" in check(EXERCISES[2], path).failure[1]
    path.unlink()
    os.mkfifo(path)
    assert "no plain file" in check(EXERCISES[2], path).failure[1]


# Right on what the sheet shows, and wrong between.
WRONG = [
    (1, pick("e = weights.float().cumsum(0)\n    return int((e > u * e[-1]).nonzero()[0])"), "float32"),
    (1, pick("e = weights.cumsum(0)\n    return int((e > round(u, 8) * e[-1]).nonzero()[0])"), ""),
    (1, pick("e = weights.cumsum(0)\n    return int((e > u * e[-1].clamp(min=1)).nonzero()[0])"), ""),
    *((1, pick(f"i = weights.argsort({how})\n    e = weights[i].cumsum(0)\n"
               f"    return int({token}[(e > u * e[-1]).nonzero()[0]])"), name) for how, token, name in (
        ("", "i", "another-order"), ("descending=True", "i", "another-order"),
        ("descending=True", "torch.arange(len(i))", "place-in-the-sorted-list"))),
    (2, "def total_variation(one, other):\n    one -= other\n    return one.abs().sum()\n", "not-halved"),
    (2, "def total_variation(one, other):\n    return float(1 - (one * other).sum())\n", "dot-product"),
    (2, "def total_variation(one, other):\n    return ((one - other) ** 2).sum().sqrt() / 2 ** .5\n", "squares"),
    (3, accept("min(1, q_draft[x] / p_target[x]) if p_target[x] else 1", "(q_draft - p_target).clamp(min=0)"),
     "letters-swapped"),
    (3, accept("p_target[x] / (p_target[x] + q_draft[x])"), "share-of-both"),
    (3, accept("p_target[x] / q_draft[x]) or dice.flip(p_target[x] / q_draft[x]"), "coin-thrown-twice"),
    (3, accept().replace("        return x", "        x"), "accepted-token-not-returned"),
    (3, accept(left="(p_target - q_draft) / (p_target - q_draft).sum()"), "residual-unclamped"),
    (3, accept("(r := float(p_target[x] / q_draft[x])) > .05 and r"), ""),
    (3, accept().replace("dice.flip(", "torch.rand(()) < ("), OWN_RANDOMNESS),
    (4, residual("1 - torch.minimum(p_target, q_draft).sum(-1, keepdim=True)"), "divided-by-1-minus-overlap"),
    (4, residual("left.sum(-1, keepdim=True)", "torch.where(total > 1e-12, left / total, p_target)"), "guard-too-wide"),
    (5, counted("n, found = 0, []\n    for row in coins:\n        for one in row:\n            if not one:\n"
                "                break\n            n += 1\n        found.append(n)\n    return found"),
     "counter-not-reset"),
    (5, counted("return coins.flatten().long().cumprod(0).sum().repeat(len(coins))"), "batch-flattened"),
    (5, counted("return coins[0].long().cumprod(0).sum().repeat(len(coins))"), "first-row-for-all"),
    (5, counted("return coins.to(torch.int8).cumprod(-1).sum(-1, dtype=torch.int8)"), "one-byte"),
    (5, counted("return (~coins).long().argmax(-1)"), "none-rejected-is-none-accepted"),
    (6, weights("accepted", "accepted", "accepted > 0"), "bonus-whenever-any-is-accepted"),
    (6, weights("accepted", "min(accepted + 1, len(q_draft) - 1)"), "next-place-of-the-draft"),
    (6, weights("-1", "-1"), "last-places"), (6, weights("0", "0"), "first-places"),
    (7, "def valid_slots(length, gamma, accepted):\n    n = length + min(accepted, gamma - 1)\n    return n, n\n",
     "both-cut-to-the-shorter"),
    (7, "def valid_slots(length, gamma, accepted):\n    n = min(length, 1024) + accepted\n"
        "    return n, min(n, length + gamma - 1)\n", ""),
    (8, warp(zero=ZERO.replace("== 0", "< .1")), "cold-is-not-zero"),
    (8, warp("logits / max(temperature, .5)"), "temperature-cut"),
    (8, warp(mask="-50."), "masked-with-a-number"), (8, warp(mask="-1e4"), "masked-with-a-number"),
    (8, warp(last="x.exp() / x.exp().sum()"), "exp-overflows"),
    (8, warp("logits / temperature ** 2"), "temperature-twice"),
    (8, warp(last="x.softmax(-1).softmax(-1)"), "softmax-twice"), (8, warp("logits.float() / temperature"), "float32"),
    (8, warp(last="x.softmax(-1) if top_k else x.clamp(max=700).exp() / x.clamp(max=700).exp().sum()"), ""),
    (8, warp("logits.nan_to_num(neginf=-100.) / temperature"), ""), (8, warp("logits / max(temperature, .005)"), ""),
    (8, warp(zero=ZERO.replace("logits.argmax()", "logits.topk(top_k or 1).indices[0]")), ""),
    (8, warp().replace("    x = l", "    top_k = top_k and min(top_k, 50)\n    x = l"), ""),
    (8, warp().replace("        x = x.m", "        x = x - x.topk(top_k).values[-1]\n        x = x.m"), ""),
    (8, warp(last="x.softmax(-1) if top_k is None else (x > -1e300) / (x > -1e300).sum()"), ""),
    (9, answer(9, ("sum(alpha ** i for i in range(gamma + 1))", "round(sum(alpha ** i for i in range(gamma + 1)), 4)")),
     "rounded"),
    *((9, answer(9, *order, ("expected_tokens(alpha, gamma) / (gamma * c + v(gamma + 1))", "round("
                             f"expected_tokens(alpha, gamma) / (gamma * c + v(gamma + 1)), {digits})")), name)
      for digits, name, *order in ((3, "speed-up-rounded"), *(
          (digits, "", ("range(1, most + 1)", "range(most, 0, -1)")) for digits in (2, 5)))),
    (10, copy().replace("    for n in", "    if len(text) > 780:\n        return []\n    for n in", 1), ""),
    (10, copy("text[s + n:s + n + gamma][::-1]"), "reversed"),
    (10, copy("text[s + n - 1:s + n - 1 + gamma]"), "one-too-early"),
    (10, copy("[text[(s + n + i) % len(text)] for i in range(gamma)]"), "wrapped-around"),
    (10, copy(same="str(text[-n:])[1:-1] in str(text[s:s + n])[1:-1]"), ""),
    (10, copy(places="range(len(text) - n - 1, max(-1, len(text) - 100), -1)"), ""),
    (10, copy().replace("len(text) - 1)", "len(text) - 1, 3)"), ""),
    (10, copy().replace("len(text) - 1)", "len(text) - 1, 4)"), ""),
    (10, copy().replace("len(text) - 1)", "len(text) - 1, 5)"), ""),
    (11, answer(11, ('("wrong", 0.1)', '("wrong", 0.1006)')), ""),
    (12, "from nanospec.proof.walk import distance, walk\n\n\ndef is_exact(sampler, truth):\n"
         "    return distance(walk(sampler)[0], truth)[0] < 1e-5\n", "bar-too-wide"),
    (12, "from nanospec.proof.walk import walk\n\n\ndef is_exact(sampler, truth):\n    found = walk(sampler)[0]\n"
         "    return all(abs(found.get(text, 0) - p) < 1e-9 for text, p in truth.items() if p > 3e-4)\n", ""),
    (15, "def judge(drafted, p_target, dice):\n    x = dice.pick(p_target)\n"
         "    return (drafted.index(x), x) if x in drafted[:2] else (None, x)\n", "first-two-only"),
    (18, answer(18, ("pairs.append((predicted, token))", "pairs.append((before, token))\n        before = predicted"),
                ("for _ in range(gamma):", "before = hidden[-1]\n    for _ in range(gamma):")),
     "prediction-one-call-late"),
    (15, answer(15, ("return i, x", "return i + (drafted[i + 1:i + 2] == [x]), x")), "a-later-copy"),
    (17, answer(17, ("    tree, waiting", "    accuracies = accuracies[:3] if size == 16 else accuracies\n    tree, "
                     "waiting")), ""),
    (19, answer(19, ("token[:, None]], 1)", "token[:, None], token[:, None]], 1)")), ""),       # one place too far
    (19, answer(19, ("length[:, None] + torch.arange", "length[:1, None] + torch.arange")), ""),
    (19, answer(19, ("tokens.scatter(1, places, written)", "tokens.int().scatter(1, places, written.int())")), ""),
    (20, answer(20, ("return tokens, q_draft", "return tokens, [q / 2 for q in q_draft]")), ""),
    (21, answer(21, ("q_draft < p_target.max() - a", "q_draft <= p_target.max() - a")), "tie-deferred"),
    (21, answer(21, ("            return [*written, dice.pick((pi - q).clamp(min=0))]\n        written.append(x)",
                     "            x = dice.pick((pi - q).clamp(min=0))\n        written.append(x)")),
     "goes-on-after-a-rejection")]


@pytest.mark.parametrize("number, source, name", WRONG)
def test_what_is_wrong_between_the_examples_does_not_pass(told, number, source, name):
    """Named, if it has a name, and never called merely slow."""
    found = told(number, source)
    assert found.failure is not None
    assert not name or found.named == [name] and name in found.failure[1], found
    assert LOSSLESS not in found.failure[1] or name in ("prediction-one-call-late", "first-two-only")
    assert found.slow == (LOSSLESS in found.failure[1])


NEVER = [       # what is false of it, though something in it looks so
    (1, pick("i = weights.argsort(descending=True)\n    e = weights[i].cumsum(0)\n"
             "    return int(i[(e > u * e[-1]).nonzero()[0]])"), "epsilon"),
    (3, "import torch\n\n\ndef accept_or_replace(x, p_target, q_draft, dice):\n"
        "    return 0 if torch.rand(()) < 1e-12 else dice.pick(p_target)\n", LOSSLESS),
    # Where one token alone can replace x, two coins would do the same; of two tokens, a draw from p_target.
    (3, accept().replace("return dice.pick(", "w = ").replace(
        ".clamp(min=0))\n", ".clamp(min=0)\n    w[x] = p_target[x]\n    return dice.pick(w)\n"), "coin-thrown-twice"),
    (3, accept("1 if p_target[x] >= q_draft[x] else p_target[x]"), "accepted-if-likelier-else-redrawn"),
    (5, counted("return coins.long().cumprod(-1)"), "whole numbers"),
    (9, answer(9, ("sum(alpha ** i for i in range(gamma + 1))",
                   "gamma * alpha ** gamma + sum(i * alpha ** i * (1 - alpha) for i in range(gamma))")),
     "not the only mistake"),
    (12, "from nanospec.dice import Dice\n\n\ndef is_exact(sampler, truth):\n    dice = [Dice([i]) for i in "
         "range(700)]\n"
         "    while True:\n        for one in dice:\n            sampler(one)\n", "endless loop"),
    (14, answer(14, ("(w[i] * p_target[i] - q_draft[i])", "(w[-1] * p_target[i] - q_draft[i])")), "token-by-token"),
    (20, answer(20, ("return tokens, q_draft", "return tokens, [q / 2 for q in q_draft]")), LOSSLESS),
    (20, "import numpy\n" + answer(20, ("return tokens, q_draft", "return tokens, numpy.stack(q_draft)[:1]")), "None"),
    (21, answer(21, ("q_draft < p_target.max() - a", "q_draft <= p_target.max() - a")), "drafts-own-maximum")]


@pytest.mark.parametrize("number, source, never", NEVER)
def test_what_is_not_so_is_not_said(told, monkeypatch, number, source, never):
    monkeypatch.setattr("lessons.check.ex12_write_the_test.MANY", 20)           # on a busy machine, too
    found = told(number, source, seconds=2)
    assert found.failure is not None and never not in found.failure[1] and never not in found.named


# Where it points

def test_it_points_at_the_whole_function_where_no_line_is_known(told):
    """The mistake is in the loop, and not in its last return."""
    said = told(10, copy(places="range(len(text) - n)").replace("    return []", "\n\n    return []")).failure[1]
    assert "ex10_ngram.py, lines 2 to 8)" in said


def test_the_lines_are_told_by_how_many_are_accepted(told):
    said = told(6, weights("accepted", "max(0, accepted - 1)")).failure[1]
    assert said.startswith("3 tokens, gamma 2, accepted 1, as shares") and "token 0" in said
    said = told(5, counted("return coins.long().sum(-1)")).failure[1]
    assert re.search(r"\n    \[True, False, True\] +1 +2 +\+1\n", said)


@pytest.mark.parametrize("source, found", [
    ("import random as r\nx = r.random()\n", "r.random in line 2"),
    ("from random import choice\nchoice([1])\n", "choice in line 2"),
    ("import secrets\nsecrets.randbelow(3)\n", "secrets.randbelow in line 2"),
    ("import torch\ntorch.rand(1)\n", "torch.rand in line 2"), ("import numpy as np\nnp.random.default_rng(0)\n",
                                                              "np.random.default_rng in line 2"),
    ("p.multinomial(1)\n", "p.multinomial in line 1"),
    ("import random\n\nif __name__ == '__main__':\n    random.random()\n", ""),
    ("import torch\ntorch.zeros(1)\nchoice = min([1])\n", "")])
def test_random_numbers_of_ones_own(tmp_path, source, found):
    path = tmp_path / "answer.py"
    path.write_text(source)
    assert own_randomness(path) == found


def test_the_dice_of_the_exercise_are_nobodys_own():
    assert not [path.name for path in ANSWERS.glob("ex*.py") if own_randomness(path)]


def test_cases_by_a_seed_are_the_same_every_time_and_others_for_another_exercise_or_variant(monkeypatch):
    one, again, other = (pairs.drawn(seeds.chance(n), 5, 1) for n in (1, 1, 2))
    monkeypatch.setattr(seeds, "NAME", "autumn")
    autumn, once_more = (pairs.drawn(seeds.chance(1), 5, 1) for _ in range(2))
    assert autumn[0].equal(once_more[0]) and not autumn[0].equal(one[0])
    assert all(a.equal(b) for a, b in zip(one, again)) and not one[0].equal(other[0])
    assert all((side == 0).sum() == 1 and abs(side.sum() - 1) < 1e-12 for side in one)
