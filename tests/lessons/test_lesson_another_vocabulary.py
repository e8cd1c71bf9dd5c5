"""Which tokens are shared, two exact ways of four, what a wrong reading costs, and the rounds counted anew."""

import pytest

from nanospec.speculate import speculate, tokens_of
from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("read = train_texts[::60]", "read = train_texts[::200]"), ("texts[:4, :96]", "texts[1:2, :64]"),
         ("> 4000][:6]", "> 4000][:3]"), ("ids, 32, temperature", "ids, 16, temperature"))
def test_another_vocabulary(lesson, exchanged):
    names, out = lesson("another_vocabulary", *exchanged)

    # the same line, cut in two ways; the shared tokens by their bytes
    other, ours, tables = names["other"], names["ours"], names["tables"]
    assert f"the target's tokens: {names['cut'](ours, names['LINE'])}" in out
    both = {*other.ranks} & {*ours.ranks}
    printed = table_under(out, "tokens")       # and how many
    assert printed["of the same bytes"] == [str(len(both) + 1)] and len(both) > 300
    assert printed["and of the same id"] == [str(sum(other.ranks[token] == ours.ranks[token] for token in both))]
    assert 256 <= names["same_id"] < 300

    # the first and the last line of four
    off = names["off"]
    assert [tv < 1e-12 for tv in off.values()] == [True, False, False, True] and min(
        tv for tv in off.values() if tv > 1e-12) > 0.01

    # what is read: the worst are ids that mean something else; the target's own tokens are the best
    alpha = names["alpha"]
    *ways, wrong, own = alpha.values()
    assert wrong < min(ways) and ways[0] == max(ways) < own
    assert all(table_under(out, "a token that it lacks")[name] == [f"{value:.3f}"] for name, value in alpha.items())

    # the rounds, counted anew
    shared, new = names["OtherTokenizer"](names["bigrams"], tables), 16 if exchanged else 32
    done = [list(speculate(names["target"], names["ModelDrafter"](shared, 3), ids, new, 0, seed=seed))
            for seed, ids in enumerate(names["prompts"])]
    assert names["per_call"]["shared tokens", 0] == sum(map(len, map(tokens_of, done))) / sum(map(len, done))
    assert all(cell == f"{names['per_call'][name, T]:.2f}" for name, cells in table_under(out, "the draft").items()
               for T, cell in enumerate(cells))
