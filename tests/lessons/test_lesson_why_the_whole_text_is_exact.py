"""Its histories and its ends are those of the library's own rounds."""

import re

from printed import table_under
from shorter import shorter

from nanospec import ModelDrafter
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate

EXACT = "< 1e-12"


@shorter(("seed=49, zeros=0.4", "seed=12, zeros=0.55"), ("seed=99, zeros=0.4", "seed=159, zeros=0.55"))    # fewer paths
def test_why_the_whole_text_is_exact(lesson, exchanged):
    names, out = lesson("why_the_whole_text_is_exact", *exchanged)

    # one text in different rounds, which come unequally often: the same follows, as the target has it
    histories = table_under(out, "history")
    *texts, wanted = histories
    assert len(texts) > 1 and len({"".join(re.findall(r"\d", text)) for text in texts}) == 1
    assert len({histories[text][0] for text in texts}) > 1 and wanted == "p_target after this text"
    assert {tuple(histories[text][1:]) for text in texts} == {tuple(histories[wanted])}

    # histories are as frequent as in the library
    big, small, start = names["big"], names["small"], list(names["start"])
    rounds, _ = walk(lambda dice: tuple(tuple(done.emitted) for done in speculate(
        big, ModelDrafter(small, 2), start, 4, dice=dice)))
    for length in 1, 2:                             # of one round, of two
        ours, theirs = {}, {}
        for shown, found in (ours, names["walk"](lambda dice: names["write"](names["speculative_round"], dice))[0]), (
                theirs, rounds):
            for written, share in found.items():
                if sum(map(len, written[:length])) < 4:             # the library ends a text where it should end
                    shown[written[:length]] = shown.get(written[:length], 0.0) + share
        assert ours.keys() == theirs.keys() and all(abs(ours[key] - theirs[key]) < 1e-12 for key in ours)

    # after gamma + 1 tokens the round that goes on begins anew
    off = table_under(out, "tokens before it")
    assert off["0"] == off["3"] == [EXACT] and all(float(off[number][0]) > 0.1 for number in "12")
    assert names["whole"]["goes_on"] > 0.05

    # the end, looked for in the library's rounds: the text is the target's, cut at its end
    cut, _ = walk(lambda dice: tuple(token for done in speculate(
        big, ModelDrafter(small, 2), start, 4, dice=dice, stop=[names["END"]]) for token in done.emitted))
    assert distance(cut, dict(names["alone"]))[1] < 1e-12
    assert distance(target_distribution(big, start, 4), dict(names["alone"]))[1] > 0.05
