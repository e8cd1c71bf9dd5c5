"""Lessons 2 to 4: what they print and draw is the law they teach. Timings need only be numbers."""

import math

import pytest
import torch
from matplotlib.colors import to_hex

from kit import BLUE, GREEN, RED, OneRow
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import tokens_of


def rows_of(out: str, heading: str) -> dict[str, list[str]]:
    """The printed table whose first column is called `heading`: first cell -> the others that are not empty."""
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(heading))
    rows = {}
    for line in lines[begin + 1:]:
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        if len(cells) < 2:
            break
        rows[cells[0]] = cells[1:]
    return rows


def number(cell: str) -> float:
    """The number a cell begins with, which must be one: positive and finite."""
    value = float(cell.split()[0])
    assert value > 0 and math.isfinite(value), cell
    return value


def drawn(axes, label: str) -> list[tuple[float, float]]:
    line, = [line for line in axes.lines if line.get_label() == label]
    return [tuple(map(float, point)) for point in line.get_xydata()]


def test_lesson_2_the_loop_has_the_law_of_generate_and_the_floor_is_bytes_over_bandwidth(lesson):
    names, out = lesson("02")
    loop, target = names["loop"], TableModel(3, seed=4)
    law, paths = walk(lambda dice: tuple(loop(target, [1], 3, OneRow(dice))))
    assert paths > 8 and distance(law, target_distribution(target, [1], 3))[0] < 1e-12

    ids, exact = names["ids"], names["exact"]
    other_seed = list(loop(exact, ids, 6, OneRow(seed=5)))
    assert other_seed == list(generate(exact, ids, 6, seed=5)) != list(generate(exact, ids, 6, seed=6))
    assert len(names["text"]) == names["new"] == len(names["without_cache"]) == len(names["with_cache"])
    assert names["tokenizer"].decode(ids + names["text"]) in out

    read = []
    list(loop(lambda tokens: read.append(tokens.shape[1]) or target(tokens), [1, 2, 0, 1, 2], 3, OneRow()))
    assert read == [5, 6, 7]                                                    # its docstring

    c, rows = names["target"].config, rows_of(out, "quantity")
    layer = c.channels * ((c.heads + 2 * c.kv_heads) * c.head_size + c.channels + 3 * c.hidden + 2)
    weights = c.layers * layer + c.vocab_size * c.channels + c.channels
    said = f"bytes of {weights / 1e6:.1f} million weights, all needed for a token"
    assert rows[said] == [f"{4 * weights / 1e6:.0f} MB"]
    rate, floor = (number(rows[name][0]) for name in ("bandwidth, reading that many bytes",
                                                      "floor of a token: bytes / bandwidth"))
    assert floor == pytest.approx(4 * weights / rate / 1e6, rel=0.01, abs=0.006)          # 1.15 ms: 53 MB / 46.0 GB/s
    for name in ("a token, with cache", f"its {4 * c.layers + 1} matrices times a vector, no more"):
        assert number(rows[name][1]) == pytest.approx(number(rows[name][0]) / names["floor"] / 1e3, rel=0.01, abs=0.1)
    assert len(rows) == 9 and all(number(row[0]) for row in rows.values())
    assert rows["operations per byte, one token a pass"] == ["0.5"]

    points = drawn(names["right"], "target, m tokens")
    assert [x for x, _ in points] == [0.5, 2, 8] and all(y > 0 for _, y in points)
    roof = drawn(names["right"], "the most: bytes of the target")
    assert all(y == pytest.approx(min(names["most"], x * names["rate"]) / 1e9) for x, y in roof)


def test_lesson_3_one_pass_gives_the_laws_of_ten_and_no_row_sees_what_follows(lesson):
    names, out = lesson("03")
    rows = rows_of(out, "m, tokens")
    assert [int(m) for m in rows] == names["sizes"] and {1, 10} <= set(names["sizes"])
    one = number(rows["1"][0])
    for m, (ms, v, separate, each) in rows.items():
        assert number(ms) == pytest.approx(number(each) * int(m), abs=0.006 * int(m))
        assert number(separate) == pytest.approx(one * int(m), abs=0.006 * int(m))
        assert number(v) == pytest.approx(number(ms) / one, rel=0.02, abs=0.01)
    assert rows["1"][1] == "1.00"
    assert drawn(names["left"], "v(m), measured") == [(m, pytest.approx(v)) for m, v in names["v"].items()]

    laws, block, place, exact = (names[name] for name in ("laws", "block", "place", "exact"))
    together = laws(block)
    assert together.shape == (10, exact.config.vocab_size) and together.sum(-1).sub(1).abs().max() < 1e-12
    for parts in ([block[:3], block[3:]], [[token] for token in block]):
        assert (laws(*parts) - together).abs().max() < 1e-12
    anew = probs(exact(torch.tensor([names["ids"]]))[0, -10:])                  # without any cache
    assert (anew - together).abs().max() < 1e-12
    assert f"against ten passes over one: {names['gap']:.1e}" in out and names["gap"] < 1e-12

    for changed in range(10):                                                   # wherever the wrong token stands
        wrong = block[:changed] + [(block[changed] + 1) % 1024] + block[changed + 1:]
        moved = (laws(wrong) - together).abs().sum(-1) / 2
        assert (moved < 1e-12).tolist() == [row < changed for row in range(10)]
    assert [bar.get_height() for bar in names["right"].patches] == names["moved"]
    assert " ".join(f"{far:.2g}" for far in names["moved"]) in out
    assert [line.split() for line in out.splitlines() if line.startswith("   o")] == [
        ["o" if j <= i else "." for j in range(7)] for i in range(3, 7)]
    assert out.count("attention alone, 10 tokens, 4096 keys") == 3


def test_lesson_4_taken_back_the_laws_are_those_recomputed_and_the_picture_is_the_real_run(lesson):
    names, out = lesson("04")
    target, prompt, guesses, others = (names[name] for name in ("target", "prompt", "guesses", "others"))
    rows = {name: list(map(float, row)) for name, row in rows_of(out, "situation").items()}
    right = ["guesses read behind the prompt", "all taken back, others read",
             "draft, all guesses stand, fed the last 2"]
    assert all(rows[name][0] < 1e-12 and rows[name][1] == 0 for name in right)
    assert len(rows) == 6 and all(row[0] > 1e-3 < row[1] for name, row in rows.items() if name not in right)

    def law(ids):
        return probs(target(torch.tensor([ids]))[0, -1])

    for name, text in [("none taken back", guesses), ("all but one taken back", guesses[:1])]:
        answered_for, asked_for = law(prompt + text + others), law(prompt + others)       # the law of another text
        most, moved = names["gaps"][f"{name}, others read"]
        assert (answered_for - asked_for).abs().max().item() == pytest.approx(most, abs=1e-12)
        assert (answered_for - asked_for).abs().sum().item() / 2 == pytest.approx(moved, abs=1e-12)
    draft, read, text = names["draft"], names["read"], names["text"]
    cache = draft.new_cache(1, 40)
    read(draft, cache, prompt + guesses[:-1])
    cache.length += 1                                                           # the slot of the last guess, unwritten
    hole = (read(draft, cache, text[-1:]) - probs(draft(torch.tensor([text]))[0, -1])).abs().max().item()
    assert names["gaps"]["draft, all guesses stand, fed the last 1"][0] == pytest.approx(hole, abs=1e-12)
    assert len(names["keys"]) == 12 and f"{12 * 13 // 2} keys computed if always anew, 12 if kept" in out
    c = target.config
    assert f"{4 * 2 * c.layers * c.kv_heads * c.head_size / 1e3:.1f} kB in float32" in out

    passes, rounds = names["passes"], names["rounds"]
    text = prompt + tokens_of(rounds)
    assert passes[0] == (0, prompt[:-1]) and len(passes) == len(rounds) + 1
    bars = names["axes"].patches
    for at, ((length, fed), done) in enumerate(zip(passes[1:4], rounds)):
        accepted = len(done.path)
        assert fed[:1 + accepted] == text[length:length + 1 + accepted]         # what was accepted is the text
        row = [bar for bar in bars if round(bar.get_y() + bar.get_height() / 2) == at]
        assert [to_hex(bar.get_facecolor()) for bar in row] == (
            [BLUE] * (length - len(prompt) + 5) + [GREEN] * (1 + accepted) + [RED] * (4 - accepted))
    assert {len(done.path) for done in rounds[:3]} > {4}                        # a round with a bonus, and others
