"""The distributions that its tables come from; exercise 15, what it lets pass."""


import pytest
from shorter import shorter

from lessons.check.catalogue import ANSWERS, stub
from lessons.check.engine import check
from lessons.check.ex15_certain_drafts import EXERCISE
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text
from tests.printed import lines_of


@pytest.mark.usefixtures("packed")
@shorter(("for i in range(32))", "for i in range(16))"),
         ("ids[kind], 40, T, seed=1)) for", "ids[kind], 18, T, seed=1)) for"),
         ("ModelDrafter(draft_model, 4), ids[kind], 40", "ModelDrafter(draft_model, 4), ids[kind], 18"),
         ("append(40 /", "append(18 /"), ("Lookahead(), ids[kind], 40", "Lookahead(), ids[kind], 18"),
         ("= 40 / len(rounds), read", "= 18 / len(rounds), read"),
         ('drafter, ids["table"], 40', 'drafter, ids["table"], 9'))
def test_a_token_nobody_drew_is_accepted_with_what_the_target_gives_it(lesson, exchanged):
    names, out = lesson("copying_from_the_past", *exchanged)
    p_target, OneRow, rules = names["p_target"], names["OneRow"], names["RULES"]
    truth = dict(enumerate(p_target.tolist()))

    # one draft token: the two right rules are one, and the two wrong ones are off by what is printed
    found = {name: walk(lambda dice: rule(OneRow(dice)))[0] for name, rule in rules.items()}
    assert distance(found["certain"], found["draw and compare"])[1] < 1e-12
    assert found["certain"][True, 0] == pytest.approx(p_target[0].item(), abs=1e-12)
    off = {}
    for name, outcomes in found.items():
        written = {y: outcomes.get((True, y), 0) + outcomes.get((False, y), 0) for y in truth}
        off[name] = distance(written, truth)[1]
        numbers = outcomes[True, 0], *written.values(), off[name]
        assert [name, *(f"{number:.3f}" for number in numbers)] in lines_of(out, 6)
    assert off["certain"] < 1e-12 and off["draw and compare"] < 1e-12
    assert off["draw again"] == pytest.approx(0.25) and off["judge by counts"] == pytest.approx(0.3)
    assert found["draw again"][True, 0] + found["draw again"][False, 0] > 0.5       # both write token 0 too often
    assert found["judge by counts"][True, 0] > 0.5

    # one place: the latest; counts: the shares by hand, the forecast of the tree above that of the path
    assert "copied: cat ate . the\n" in out and names["words"][:-1].count("the") == 5
    shares = {kind: {" ".join(path): share for share, path in list(names["best_first"](names["words"], kind))[1:5]}
              for kind in (False, True)}
    assert shares[False] == pytest.approx({"cat": .6, "cat ate": .2, "cat ate .": .2, "cat ate . the": .2})
    assert shares[True] == pytest.approx({"cat": .6, "dog": .4, "dog ran": .4, "dog ran .": .4})
    assert names["forecast"] == pytest.approx({"path": 1.2, "tree": 1.8})
    assert [line[-1] for line in lines_of(out, 6) if line[0] in ("path", "tree")] == ["1.2", "1.8"]
    ids = [names["names"].index(word) for word in names["words"]]
    drafter = SuffixDrafter(6, tree=True, longest=1)
    text = Text([ids], 1, 99)
    drafter.begin(text)
    drafter.read(text, [0], None)
    tokens, parents, _ = of_text(drafter.propose(text, None, None, 0), 0)
    paths = [[]]
    for token, parent in zip(tokens[1:], parents[1:]):
        paths.append(paths[parent] + [token])
    assert paths[1:] == [path for _, path in list(names["best_first"](ids, True))[1:7]]

    # the table: more where there is more to copy, everything where the very text is in the past
    printed = {line[0]: line[1:] for line in lines_of(out, 5) if line[0] in names["rates"]}
    rates = {name: [float(cell) for cell in line] for name, line in printed.items()}
    assert rates == {name: [float(f"{rate:.2f}") for rate in line] for name, line in names["rates"].items()}
    assert [*rates] == [*names["copiers"], "draft model"]
    ours = rates["draft model"]
    for name in names["copiers"]:
        assert min(rates[name]) >= 1 and max(rates[name]) <= 9
        assert rates[name][1] > rates[name][3] and rates[name][0] > ours[0]
    assert rates["lookup"][3] < ours[3]
    assert rates["tree, past"][2] > 5 > 2 * rates["suffix, tree"][2]

    # lookahead: more than nothing where the text repeats itself, and in every column less than the best
    tokens, in_a_call = zip(*names["ahead"].values())
    lookahead = [line for line in lines_of(out, 5) if line[0] in ("tokens per target call", "tokens in a call")]
    assert lookahead == [["tokens per target call", *(f"{rate:.2f}" for rate in tokens)],
                         ["tokens in a call", *(f"{count:.1f}" for count in in_a_call)]]
    assert all(1 <= rate < max(column) for rate, column in zip(tokens, zip(*names["rates"].values())))
    assert tokens[0] > 2 and all(5 < count <= 16 for count in in_a_call)

    # the other table: exact everywhere
    costs = {line[0]: line[1:] for line in lines_of(out, 3)}
    for name in names["copiers"]:
        assert costs[name] == [f"{names['cost'][name]:.2f}", f"{names['off'][name]:.0e}"]
        assert names["cost"][name] > 0 and names["off"][name] < 1e-12

    # a replay of the text that the loop wrote: its draft tokens, its accepted ones, its tokens; at any temperature
    for temperature in (0, 0.7):
        for copier in names["copiers"].values():
            drafter, target = copier([[0, 1, 2, 0, 0, 1]]), TableModel(3, 5, zeros=0)
            rounds = list(speculate(target, drafter, [0, 1, 2, 0], 20, temperature, seed=3))
            calls = list(names["replay"](drafter, [0, 1, 2, 0], tokens_of(rounds)))
            assert [(done.tokens[1:], len(done.path), [done.token]) for done in rounds[:-1]] == calls[:-1]
            assert rounds[-1].tokens[1:] == calls[-1][0] and len(rounds) == len(calls) > 3

    # "change this": a past drawn with the seed of the request knows how the dice come out, and the text is another
    target, ids = TableModel(3, 5, zeros=0), [0, 1, 2]
    right, seen = target_distribution(target, ids, 1), {}
    for seed in range(300):
        past = [ids + list(names["generate"](target, ids, 1, seed=seed))]
        token = tuple(tokens_of(speculate(target, names["copiers"]["tree, past"](past), ids, 1, seed=seed)))
        seen[token] = seen.get(token, 0) + 1 / 300
    assert distance(seen, right)[1] > 0.2


# exercise 15; that its stub fails, its answer passes and every mistake is named alone is in test_check.py

RIGHT = (ANSWERS / EXERCISE.file).read_text()
DRAWN_IN = 1 + RIGHT[:RIGHT.index("dice.pick(left)")].count("\n")
HEAD = "def judge(drafted, p_target, dice):\n"
OTHERS = {
    "draw and compare": HEAD + "    y = dice.pick(p_target)\n"
                               "    return (drafted.index(y), y) if y in drafted else (None, y)\n",
    "in any order": RIGHT.replace("enumerate(drafted)",
                                  "sorted(enumerate(drafted), key=lambda pair: p_target[pair[1]])"),
    "weights of any total": RIGHT.replace("        left = left / left.sum()\n", "").replace(
        "dice.flip(left[x])", "dice.flip(left[x] / left.sum())")}


@pytest.mark.parametrize("name", OTHERS)
def test_another_right_way_passes(tmp_path, name):
    path = tmp_path / EXERCISE.file
    path.write_text(OTHERS[name])
    assert check(EXERCISE, path).failure is None


@pytest.mark.parametrize("text, words", [
    (RIGHT.replace("dice.pick(left)", "dice.pick(p_target)"), ["redraw-after-mismatch", "0.16", f"line {DRAWN_IN}"]),
    (HEAD + "    return None, dice.pick(p_target)\n", ["draft-ignored", "not truth"]),
    (HEAD + "    return dice.pick(p_target)\n", ["must return a pair"]),
    (HEAD + "    return 0, 2 if drafted else dice.pick(p_target)\n", ["what is accepted is what is written"]),
    (HEAD + "    return len(drafted), dice.pick(p_target)\n", ["the number of a draft token, or None"]),
    (stub(RIGHT), ["NotImplementedError"])])
def test_what_is_wrong_is_told(tmp_path, text, words):
    path = tmp_path / EXERCISE.file
    path.write_text(text)
    said = check(EXERCISE, path).failure[1]
    assert all(word in said for word in words), said


def test_every_mistake_changes_a_distribution_or_what_is_accepted():
    """Three of them lose nothing but speed."""
    slow = [mistake.name for mistake in EXERCISE.wrongs
            if not any(seen.differences() for seen in EXERCISE.seen_of(mistake, "exact distribution"))]
    assert slow == ["first-draft-token-only", "first-two-only", "draft-ignored"]
