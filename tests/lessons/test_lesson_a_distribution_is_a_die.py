"""A distribution is a die, and what lessons/README.md tells about all lessons."""

import re
from pathlib import Path

import pytest
import torch
from kit import contents

from lessons.check import EXERCISES
from lessons.check.engine import ANSWERS, check
from nanospec.dice import Dice

ROOT = Path(__file__).parents[2]
README = (ROOT / "lessons" / "README.md").read_text()


def test_a_distribution_is_a_die(lesson):
    names, out = lesson("a_distribution_is_a_die")
    p_target, shares, draws = names["p_target"], names["shares"], names["draws"]
    lines = re.findall(r"^('.*'|all others)\s+(0\.\d{3})\s+(0\.\d{3})\s*$", out, re.M)
    assert len(lines) == 7
    assert [float(line[1]) for line in lines[:6]] == sorted((float(line[1]) for line in lines[:6]))[::-1]
    for column in (1, 2):
        assert sum(float(line[column]) for line in lines) == pytest.approx(1, abs=0.004)
    for token, line in zip(names["best"], lines):
        assert float(line[1]) == pytest.approx(p_target[token].item(), abs=6e-4)
        assert abs(float(line[2]) - float(line[1])) < 5 * (p_target[token].item() / draws) ** 0.5
    distances = names["distances"]
    assert distances == sorted(distances)[::-1]                     # more draws, closer
    assert 5 < distances[0] / distances[-1] < 11        # a hundred times as many draws, ten times nearly
    assert all(f"{far:.3f}" in out for far in distances)
    assert distances[-1] == pytest.approx((shares - p_target).abs().sum().item() / 2)
    assert names["total_variation"](torch.tensor([.5, .5]), torch.tensor([.8, .2])) == pytest.approx(.3)

    # its pick is the library's
    weights = torch.rand(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    dice = Dice([3])
    for line in weights:
        dice.refill(1)
        assert names["pick"](line, dice.u[0, 0]) == int(dice.pick(line[None]))


def test_the_page_names_every_lesson_and_exercise():
    for path in sorted((ROOT / "lessons").glob("[0-9]*.py")):
        assert f"`{path.name}`" in README
    for exercise in EXERCISES.values():
        line = next(line for line in README.splitlines() if f"`{exercise.file}`" in line)
        size = (ANSWERS / exercise.file).read_text().splitlines()[2]
        difficulty, minutes, lines, lesson = re.fullmatch(
            r"difficulty (\d) of 5, about (\d+) minutes, (?:about )?(\d+ ?\w*); after the lesson \*(.+)\*",
            size).groups()
        lines = lines.removesuffix(" lines").removesuffix(" line")
        number = next(number for number, title, _ in contents() if title == lesson)
        assert f"| {difficulty} of 5, {minutes}, {lines} | {number} |" in line, line


def test_the_example_on_the_page_is_what_is_printed(tmp_path):
    shown = next(block for block in re.findall(r"```\n(.*?)```", README, re.S) if "not yet" in block)
    path = tmp_path / "ex03_accept_or_replace.py"
    answer = (ANSWERS / path.name).read_text()
    path.write_text(answer.replace("(p_target - q_draft).clamp(min=0))", "p_target)"))
    _, said = check(EXERCISES[3], path).failure
    assert re.sub(r"\s+", " ", said).strip() in re.sub(r"\s+", " ", shown)
