"""Which tokens may follow, what a wrong mask breaks, and who gains by a grammar."""

import re

import pytest
import torch

from lessons.minutes import lesson as lesson_file
from printed import table_under
from shorter import shorter
from tests.proof.zoo import ALL_BUGS


@pytest.mark.usefixtures("packed")
@shorter(("START, NEW, GAMMA = (0,), 4, 2", "START, NEW, GAMMA = (0,), 3, 2"), ("ids, 24, 0.7", "ids, 12, 0.7"),
         ("PENALTY, WRITTEN = 0.7, 3", "PENALTY, WRITTEN, GAMMA = 0.7, 2, 1"),
         ("prompt in enumerate(PROMPTS)", "prompt in enumerate(PROMPTS[:2])"))
def test_what_the_text_may_be(lesson, exchanged):
    names, out = lesson("what_the_text_may_be", *exchanged)

    # a token may follow in a state if a text that matches has it after one that leads there
    tokenizer, leads = names["tokenizer"], ["", "[", "[1", "[1,"]
    for state, before in enumerate(leads):
        for token in range(names["V"]):
            text = before + tokenizer.decode([token])
            goes = text == "[" or bool(re.fullmatch(r"\[(\d+, )*(\d+,?|\d+\])?", text))
            assert (token in names["may"][state]) == goes, (state, text)
    printed = table_under(out, "state ")
    assert [printed[str(state)][0] for state in range(5)] == [str(len(may)) for may in names["may"]]

    # a wrong mask breaks texts, and the library's text is the one by hand
    off = names["off"]
    assert off["each node its own"][0] < 1e-12 and off["each node its own"][1] == 0
    assert off["node 0's for all nodes"][1] > off["each node its own, never rolled back"][1] > 0.05
    assert max(names["library_off"].values()) < 1e-12
    assert sum(names["right"].values()) == pytest.approx(1) and all(map(names["is_right"], names["right"]))

    # penalties: the library's text is the one by hand, and the counter does more harm than the bonus token
    assert max(names["penalties_off"].values()) < 1e-12 and names["right_off"] < 1e-12
    assert names["counter_off"] > names["bonus_off"] > 0.05 and names["first_off"] < 1e-12

    # who gains
    alpha, choice = names["alpha"], names["choice"]
    for T in 0, 1:
        assert min(alpha["both masked", T], alpha["no grammar", T]) > alpha["the target alone", T]
    assert exchanged or alpha["both masked", 1] > alpha["no grammar", 1]            # two texts say little
    assert choice["both masked"] < alpha["both masked", 1]
    matched = [line[4].split(" of ") for line in names["shown"]]
    assert all(found == "0" for found, _ in matched[:2]) and all(found == every for found, every in matched[2:])
    asked = names["asked"]
    for model, before in ("GPT", "GPT, masked"), ("prefix", "prefix, not masked"):
        free = asked[f"{model}, forced tokens free"]
        assert free[0] > asked[before][0] and free[1] < asked[before][1]

    # the masked target likes a forced token's beginning too much; all of it by hand
    assert names["share"] < 0.5 and names["apart"] > 0.1
    masked, matching, follows = names["beginnings"][2, 0]
    p = names["TARGET"](torch.tensor([[0, 2, 0]]))[0].softmax(-1).tolist()
    assert masked == pytest.approx(p[0][2] / (p[0][1] + p[0][2]) * p[1][0] / (p[1][0] + p[1][1]), abs=1e-12)
    assert follows == pytest.approx(p[2][2]) and follows < 0.4 and masked > matching + 0.05
    for column in 0, 1:
        assert sum(line[column] for line in names["beginnings"].values()) == pytest.approx(1)


def test_the_boxes_name_bugs_of_the_zoo():
    sources = {bug.name: bug.source for bug in ALL_BUGS}
    text = re.sub(r"\n# ?", " ", lesson_file("41").read_text())
    for name, where in ("one-counter-for-draft-and-target", "osaurus-ai/vmlx-swift#357"), (
            "a-bonus-token-past-the-penalties", "ardanlabs/kronk#788"):
        assert sources[name] == where and f"`{name}`: {where}" in text
    assert "`a-counter-that-is-not-taken-back`" in text and "a-counter-that-is-not-taken-back" in sources
