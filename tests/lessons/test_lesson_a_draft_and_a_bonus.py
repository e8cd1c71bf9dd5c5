"""The distributions its table prints, and the rounds that it shows."""

import re

from printed import table_under
from shorter import shorter

from nanospec import ModelDrafter
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import planted
from nanospec.speculate import speculate
from tests.proof.compare import walk_by_prefix
from tests.proof.zoo import ALL_BUGS

EXACT = "< 1e-12"
KINDS = {"accepted": "a", "rejected": "x", "never judged": "n", "replacement": "r", "bonus": "b"}


@shorter(("seed=49, zeros=0.4", "seed=12, zeros=0.55"), ("seed=99, zeros=0.4", "seed=159, zeros=0.55"))    # fewer paths
def test_a_draft_and_a_bonus(lesson, exchanged):
    names, out = lesson("a_draft_and_a_bonus", *exchanged)
    table = table_under(out, "version")
    right = "a round, by hand", "nanospec/speculate.py", "bonus as a residual"
    wrong = "goes on after a rejection", "bonus from the draft model", "replacement from the last place"
    assert set(table) == {*right, *wrong}
    for name in right:
        paths, per_call, first, four = table[name]
        assert first == four == EXACT, f"{name} has not the target's distribution"
        assert per_call == table[right[0]][1] and 1 < float(per_call) < 3
    assert [table[name][2] == EXACT for name in wrong] == [True, True, False], "which mistakes the first token shows"
    assert all(float(table[name][3]) > 0.05 for name in wrong), "a mistake that nobody could see"
    assert table[wrong[0]][1] == "3.00", "who never stops writes gamma + 1 tokens a call"
    paths = {name: int(line[0].replace(",", "")) for name, line in table.items()}
    assert paths[right[0]] == paths[right[2]] < paths[right[1]], "the library flips coins that we never flip"

    # the same mistake, planted in the library, is as far off as by hand
    big, small, start = names["big"], names["small"], names["start"]
    def one_round(prefix, left, dice):
        return tuple(next(speculate(big, ModelDrafter(small, 2), [*start, *prefix], left, dice=dice)).emitted)

    with planted(next(bug for bug in ALL_BUGS if bug.name == "resample-from-last-row")):
        found, _ = walk_by_prefix(one_round, 4)
    assert table[wrong[2]][3] == f"{distance(found, target_distribution(big, start, 4))[1]:.3f}"

    # the example with numbers: three tokens, and one that nobody judges
    verdicts = [line[-1] for line in table_under(out, "draft token").values()]
    assert verdicts == ["accepted", "accepted", "rejected", "never judged"]

    steps = re.findall(r"^(draft_and_score|round_by_hand) +(.+)\n(propose|one_round|verify) +(.+)$", out, re.M)
    assert len(steps) == 5 and [step[2] for step in steps] == ["propose", "one_round"] + 3 * ["verify"]
    assert "None" not in {step[1] for step in steps} | {step[3] for step in steps}
    shown = re.findall(r"^round \d: (.+)$", out, re.M)
    assert len(shown) == 4 and f"33 tokens in {len(names['shown'])} target calls" in out and len(names["shown"]) < 33
    assert sum("bonus" in line for line in shown) in (1, 2, 3), "the picture shows both ends of a round"
    for line in shown:
        kinds = "".join(KINDS[kind] for kind in re.findall(rf"({'|'.join(KINDS)}) ['\"]", line))
        assert re.fullmatch(r"aaaab|a*xn*r", kinds) and len(kinds) == 5, line

    # the second question: with seeds 5 and 55 the bonus token is never among the first four
    big, small = TableModel(3, seed=5, zeros=0.4), TableModel(3, seed=55, zeros=0.4)
    outcomes, _ = walk(lambda dice: names["write"](names["round_by_hand"], big, small, start, 2, 4,
                                                   names["OneRow"](dice)))
    ends = {sum(map(len, rounds[:i + 1])) for rounds in outcomes for i, done in enumerate(rounds) if len(done) == 3}
    assert ends == {5, 6}
