"""Lesson 15, the laws behind what it prints; exercise 15, what it lets pass."""

import re

import pytest

from lessons.check.ex15_certain_guesses import EXERCISE
from lessons.check.engine import ANSWERS, check, stub
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text


def rows_of(out: str, columns: int) -> dict[str, list[str]]:
    """The printed table: its first column -> the others, of lines that end in `columns` words after two spaces."""
    cells = (re.split(r"\s{2,}", line.strip()) for line in out.splitlines())
    return {row[0]: row[1:] for row in cells if len(row) == columns + 1}


def test_lesson_15_a_guess_nobody_drew_is_kept_with_what_the_target_gives_it(lesson):
    names, out = lesson("15")
    p_target, OneRow, rules = names["p_target"], names["OneRow"], names["RULES"]
    truth = dict(enumerate(p_target.tolist()))

    # one guess: the two right rules are one, and the two wrong ones are off by what is printed
    laws = {name: walk(lambda dice: rule(OneRow(dice)))[0] for name, rule in rules.items()}
    assert distance(laws["certain"], laws["draw and compare"])[1] < 1e-12
    assert laws["certain"][True, 0] == pytest.approx(p_target[0].item(), abs=1e-12)
    off = {}
    for name, law in laws.items():
        written = {y: law.get((True, y), 0) + law.get((False, y), 0) for y in truth}
        off[name] = distance(written, truth)[1]
        assert f"{name:16} keeps token 0 with {law[True, 0]:.3f}" in out and f"off by {off[name]:.3f}" in out
    assert off["certain"] < 1e-12 and off["draw and compare"] < 1e-12
    assert off["draw again"] == pytest.approx(0.25) and off["judge by counts"] == pytest.approx(0.3)

    # counts: the shares by hand, the promise of the tree above that of the path, the library's guesses the same
    shares = {kind: {" ".join(path): share for share, path in list(names["best_first"](names["words"], kind))[1:5]}
              for kind in (False, True)}
    assert shares[False] == pytest.approx({"cat": .6, "cat ate": .2, "cat ate .": .2, "cat ate . the": .2})
    assert shares[True] == pytest.approx({"cat": .6, "dog": .4, "dog ran": .4, "dog ran .": .4})
    assert "-> 1.20 promised" in out and "-> 1.80 promised" in out
    ids = [names["names"].index(word) for word in names["words"]]
    drafter = SuffixDrafter(6, tree=True, longest=1)
    drafter.begin(text := Text([ids], 1, 99), [0], None)
    tokens, parents, _ = drafter.propose(text, None, None, 0).of_text(0)
    paths = [[]]
    for token, parent in zip(tokens[1:], parents[1:]):
        paths.append(paths[parent] + [token])
    assert paths[1:] == [path for _, path in list(names["best_first"](ids, True))[1:7]]

    # the table: more where there is more to copy, everything where the very text is in the past, exact everywhere
    table = rows_of(out, 6)
    assert [*table][1:] == [*names["copiers"], "draft"]
    rates = {name: [float(cell) for cell in row[:4]] for name, row in [*table.items()][1:]}
    assert rates == {name: [float(f"{rate:.2f}") for rate in found] for name, found in names["rates"].items()}
    for name in names["copiers"]:
        assert min(rates[name]) >= 1 and max(rates[name]) <= 9 and float(table[name][5]) < 1e-12
        assert rates[name][1] > rates[name][3] and rates[name][0] > rates["draft"][0]
        assert float(table[name][4]) > 0
    assert rates["lookup"][2] < rates["draft"][2] and rates["lookup"][3] < rates["draft"][3]
    assert rates["tree, past"][2] > 6 > 2 * rates["suffix, tree"][2]

    # a replay of the text that the loop wrote: its guesses, its kept ones, its tokens; at any temperature
    for temperature in (0, 0.7):
        for copier in names["copiers"].values():
            drafter, target = copier([[0, 1, 2, 0, 0, 1]]), TableModel(3, 5, zeros=0)
            rounds = list(speculate(target, drafter, [0, 1, 2, 0], 20, temperature, seed=3))
            calls = list(names["replay"](drafter, [0, 1, 2, 0], tokens_of(rounds)))
            assert [(done.tokens[1:], len(done.path), [done.token]) for done in rounds[:-1]] == calls[:-1]
            assert rounds[-1].tokens[1:] == calls[-1][0] and len(rounds) == len(calls) > 3

    # "change this": a past drawn with the seed of the request knows how the dice fall, and the law is another
    target, ids = TableModel(3, 5, zeros=0), [0, 1, 2]
    law, seen = target_distribution(target, ids, 1), {}
    for seed in range(300):
        past = [ids + list(names["generate"](target, ids, 1, seed=seed))]
        token = tuple(tokens_of(speculate(target, names["copiers"]["tree, past"](past), ids, 1, seed=seed)))
        seen[token] = seen.get(token, 0) + 1 / 300
    assert distance(seen, law)[1] > 0.2


# exercise 15; that its stub fails, its answer passes and every mistake is named alone is in test_check.py

RIGHT = (ANSWERS / EXERCISE.file).read_text()
HEAD = "def judge(guesses, p_target, dice):\n"
OTHERS = {
    "draw and compare": HEAD + "    y = dice.pick(p_target)\n"
                               "    return (guesses.index(y), y) if y in guesses else (None, y)\n",
    "in any order": RIGHT.replace("enumerate(guesses)",
                                  "sorted(enumerate(guesses), key=lambda pair: p_target[pair[1]])"),
    "weights of any total": RIGHT.replace("        left = left / left.sum()\n", "").replace(
        "dice.flip(left[x])", "dice.flip(left[x] / left.sum())")}


@pytest.mark.parametrize("name", OTHERS)
def test_another_right_way_passes(tmp_path, name):
    path = tmp_path / EXERCISE.file
    path.write_text(OTHERS[name])
    assert check(EXERCISE, path).failure is None


@pytest.mark.parametrize("text, words", [
    (RIGHT.replace("dice.pick(left)", "dice.pick(p_target)"), ["redraw-after-mismatch", "0.16", "line 25"]),
    (HEAD + "    return None, dice.pick(p_target)\n", ["guesses-ignored", "not truth"]),
    (HEAD + "    return dice.pick(p_target)\n", ["must return a pair"]),
    (HEAD + "    return 0, 2 if guesses else dice.pick(p_target)\n", ["what is kept is what is written"]),
    (HEAD + "    return len(guesses), dice.pick(p_target)\n", ["the number of a guess, or None"]),
    (stub(RIGHT), ["NotImplementedError"])])
def test_what_is_wrong_is_told(tmp_path, text, words):
    path = tmp_path / EXERCISE.file
    path.write_text(text)
    said = check(EXERCISE, path).failure[1]
    assert all(word in said for word in words), said


def test_every_mistake_changes_a_law_or_what_is_kept():
    """Two of them lose nothing but speed."""
    slow = [mistake.name for mistake in EXERCISE.wrongs
            if not any(seen.differences() for seen in EXERCISE.seen_of(mistake, "exact distribution"))]
    assert slow == ["first-guess-only", "guesses-ignored"]
