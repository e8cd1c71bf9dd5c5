"""What they print and draw is the distribution they teach. Timings need only be numbers."""

import math
import re

import pytest
import torch
from figures.picture import BLUE, GREEN, RED
from kit import OneRow
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from shorter import shorter

from nanospec import ModelDrafter
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of


def lines_of(out: str, heading: str) -> dict[str, list[str]]:
    """The printed table whose first column is called `heading`: first cell -> the others that are not empty."""
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(heading))
    table = {}
    for line in lines[begin + 1:]:
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        if len(cells) < 2:
            break
        table[cells[0]] = cells[1:]
    return table


def number(cell: str) -> float:
    """The number a cell begins with, which must be one: positive and finite."""
    value = float(cell.split()[0])
    assert value > 0 and math.isfinite(value), cell
    return value


def drawn(axes, label: str) -> list[tuple[float, float]]:
    line, = [line for line in axes.lines if line.get_label() == label]
    return [tuple(map(float, point)) for point in line.get_xydata()]


@pytest.fixture
def pictures(monkeypatch) -> list:
    """The axes of every picture that a lesson saves."""
    panels, save = [], Figure.savefig

    def remember(figure, *args, **how):
        panels.extend(figure.axes)
        save(figure, *args, **how)

    monkeypatch.setattr(Figure, "savefig", remember)
    return panels


@shorter(("new = 48", "new = 16"))
def test_the_loop_has_the_distribution_of_generate_and_the_floor_is_bytes_over_bandwidth(lesson, pictures, exchanged):
    names, out = lesson("one_token_per_call", *exchanged)
    loop, target = names["loop"], TableModel(3, seed=4)
    found, paths = walk(lambda dice: tuple(loop(target, [1], 3, OneRow(dice))))
    assert paths > 8 and distance(found, target_distribution(target, [1], 3))[0] < 1e-12

    ids, exact = names["ids"], names["exact"]
    other_seed = list(loop(exact, ids, 6, OneRow(seed=5)))
    assert other_seed == list(generate(exact, ids, 6, seed=5)) != list(generate(exact, ids, 6, seed=6))
    assert len(names["text"]) == names["new"] == len(names["without_cache"]) == len(names["with_cache"])
    assert names["tokenizer"].decode(ids + names["text"]) in out

    read = []
    list(loop(lambda tokens: read.append(tokens.shape[1]) or target(tokens), [1, 2, 0, 1, 2], 3, OneRow()))
    assert read == [5, 6, 7]                                                    # its docstring
    first = len(ids)
    assert names["read_by_loop"] == list(range(first, first + 16))
    assert names["read_by_generate"] == [first - 1] + [1] * 16                  # the text: 4 + 1 + 1 + 1 after 5
    assert 5 < sum(names["read_by_loop"]) / sum(names["read_by_generate"]) < 20                 # 10, of 2, 10, 100
    printed = re.findall(r"^(the loop|generate) reads +(\d+) tokens: ([\d ]+)$", out, re.M)
    assert [(name, int(total), list(map(int, each.split()))) for name, total, each in printed] == [
        (name, sum(names[read]), names[read]) for name, read in [("the loop", "read_by_loop"),
                                                                 ("generate", "read_by_generate")]]
    groups = lines_of(out, "new tokens")
    assert [*groups] == [f"{at + 1} to {at + 8}" for at in range(0, names["new"], 8)]
    assert all(number(cell) for line in groups.values() for cell in line)

    c, lines = names["target"].config, lines_of(out, "quantity")
    layer = c.channels * ((c.heads + 2 * c.kv_heads) * c.head_size + c.channels + 3 * c.hidden + 2)
    weights = c.layers * layer + c.vocab_size * c.channels + c.channels
    assert lines["weights"] == [f"{weights / 1e6:.1f} million"]
    assert lines["bytes of the weights"] == [f"{4 * weights / 1e6:.0f} MB"]
    rate, floor = (number(lines[name][0]) for name in ("bandwidth, reading that many bytes",
                                                      "floor of a token: bytes / bandwidth"))
    assert floor == pytest.approx(4 * weights / rate / 1e6, rel=0.01, abs=0.006)          # 1.15 ms: 53 MB / 46.0 GB/s
    took = number(lines["a token, with a cache"][0])
    above = float(re.search(r"a token takes (\S+) times its floor", out)[1])
    assert above == pytest.approx(took / names["floor"] / 1e3, rel=0.01, abs=0.1)

    assert len(lines) == 5

    axes, = pictures
    assert [y for _, y in drawn(axes, "with a cache")] == names["cached"]
    assert [y for _, y in drawn(axes, "reading everything again")] == names["slow"]


@shorter(("for turn in range(8)", "for turn in range(3)"))
def test_one_call_gives_the_distributions_of_ten_and_none_sees_what_follows(lesson, pictures, exchanged):
    names, out = lesson("ten_for_the_price_of_one", *exchanged)
    lines = lines_of(out, "m, tokens")
    assert [int(m) for m in lines] == names["sizes"] and {1, 10} <= set(names["sizes"])
    one = number(lines["1"][0])
    for m, (ms, v, separate, each) in lines.items():
        assert number(ms) == pytest.approx(number(each) * int(m), abs=0.006 * int(m))
        assert number(separate) == pytest.approx(one * int(m), abs=0.006 * int(m))
        assert number(v) == pytest.approx(number(ms) / one, rel=0.02, abs=0.01)
    assert lines["1"][1] == "1.00"
    assert f"a call on ten tokens takes {names['v'][10]:.2f} times as long as a call on one" in out
    left, right = pictures
    assert drawn(left, "v(m), measured") == [(m, pytest.approx(v)) for m, v in names["v"].items()]
    assert names["call_on"](10)().shape == (1, 10, names["target"].config.vocab_size)           # its docstring

    distributions, ten, place, exact = (names[name] for name in ("distributions", "ten", "place", "exact"))
    together = distributions(ten)
    assert together.shape == (10, exact.config.vocab_size) and together.sum(-1).sub(1).abs().max() < 1e-12
    assert (distributions(ten[:3], ten[3:]) - together).abs().max() < 1e-12
    assert (names["ten_calls"] - together).abs().max() < 1e-12
    anew = probs(exact(torch.tensor([names["ids"]]))[0, -10:])                  # without any cache
    assert (anew - together).abs().max() < 1e-12
    assert f"against ten calls on one: {names['gap']:.1e}" in out and names["gap"] < 1e-12

    for changed in (0, 4, 8, 9):                                                # wherever the wrong token stands
        wrong = ten[:changed] + [(ten[changed] + 1) % exact.config.vocab_size] + ten[changed + 1:]
        moved = (distributions(wrong) - together).abs().sum(-1) / 2
        assert (moved < 1e-12).tolist() == [at < changed for at in range(10)]
    assert [bar.get_height() for bar in right.patches] == names["moved"]
    assert lines_of(out, "after token") == {"moved by": [f"{far:.2g}" for far in names["moved"]]}
    assert [line.split() for line in out.splitlines() if line.startswith("   o")] == [
        ["o" if j <= i else "." for j in range(7)] for i in range(3, 7)]
    assert names["answer"].item() == pytest.approx(6)


def test_taken_back_the_distributions_are_those_computed_again(lesson, pictures):
    names, out = lesson("the_cache")
    target, prompt, drafted, others = (names[name] for name in ("target", "prompt", "drafted", "others"))
    lines = {name: list(map(float, line)) for heading in ("situation", "all accepted")
            for name, line in lines_of(out, heading).items()}
    right = ["draft tokens read after the prompt", "all taken back, others read", "it reads the last 2"]
    assert all(lines[name][0] < 1e-12 and lines[name][1] == 0 for name in right)
    assert len(lines) == 6 and all(line[0] > 1e-3 < line[1] for name, line in lines.items() if name not in right)

    def after(ids):
        return probs(target(torch.tensor([ids]))[0, -1])

    for name, text in [("none taken back", drafted), ("all but one taken back", drafted[:1])]:
        answered_for, asked_for = after(prompt + text + others), after(prompt + others)       # of another text
        most, moved = names["differences"][f"{name}, others read"]
        assert (answered_for - asked_for).abs().max().item() == pytest.approx(most, abs=1e-12)
        assert (answered_for - asked_for).abs().sum().item() / 2 == pytest.approx(moved, abs=1e-12)
    draft_model, read, text = names["draft_model"], names["read"], names["text"]
    cache = draft_model.new_cache(1, 40)
    read(draft_model, cache, prompt + drafted[:-1])
    cache.length += 1                                                           # the last draft token's, unwritten
    right = probs(draft_model(torch.tensor([text]))[0, -1])
    hole = (read(draft_model, cache, text[-1:])[-1] - right).abs().max().item()
    assert names["differences"]["it reads the last 1"][0] == pytest.approx(hole, abs=1e-12)
    assert len(names["keys"]) == 12 and f"{12 * 13 // 2} keys computed without a cache, 12 with one" in out
    c = target.config
    assert c.heads > c.kv_heads and f"{4 * 2 * c.layers * c.kv_heads * c.head_size / 1e3:.1f} kB in float32" in out

    # three rounds by hand: the slots below `length` hold the text but for its last token, and the picture shows them
    rounds, written, cache = names["rounds"], names["written"], names["cache"]
    table = [tuple(map(int, line)) for line in lines_of(out, "round").values()]
    assert table == [(before, len(slots), after, tokens) for before, after, slots, tokens in rounds]
    seven = target.new_cache(1, 11)                                             # the worked number
    read(target, seven, [1] * 6)
    assert len(names["round_by_hand"](seven, [1] * 7, [2, 3, 4, 5], 2, 6)) == 10 and int(seven.length) == 9
    assert int(cache.length) == len(written) - 1 == rounds[-1][1]
    assert (read(target, cache, written[-1:])[0] - after(written)).abs().max() < 1e-12
    axes, = pictures
    for at, (before, after, slots, tokens) in enumerate(rounds):
        assert slots[:after] == written[:after] and tokens == after + 1         # what was accepted is the text
        assert before == (rounds[at - 1][1] if at else len(prompt) - 1)
        bars = [bar for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == at]
        assert [to_hex(bar.get_facecolor()) for bar in bars] == (
            [BLUE] * (before - len(prompt) + 4) + [GREEN] * (after - before) + [RED] * (len(slots) - after))
    accepted = [after - before - 1 for before, after, _, _ in rounds]
    assert accepted == [2, 4, 0] and all(len(slots) == before + 5 for before, _, slots, _ in rounds)
    assert names["round_by_hand"](target.new_cache(1, 9), [5], [6, 7], 1, 8) == [5, 6, 8]

    # the library's rounds do the same
    calls = []
    hook = target.register_forward_pre_hook(lambda _, given: calls.append((int(given[1].length), given[0][0].tolist())))
    done = list(speculate(target, ModelDrafter(draft_model, 2), prompt, max_new_tokens=24, seed=12))
    hook.remove()
    text = prompt + tokens_of(done)
    assert calls[0] == (0, prompt[:-1]) and len(calls) == len(done) + 1
    for (length, fed), this, (after, _) in zip(calls[1:], done, calls[2:]):
        accepted = len(this.path)
        assert fed == this.tokens and after == length + 1 + accepted            # a number moves, and that is all
        assert fed[:1 + accepted] == text[length:length + 1 + accepted]         # what was accepted is the text
    assert {len(this.path) for this in done} > {2}                              # a round with a bonus, and others
