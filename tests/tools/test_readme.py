"""What README.md and docs/ say is held to the files."""

import inspect
import re
import subprocess
import sys
from argparse import _SubParsersAction
from pathlib import Path

import pytest
import torch

import nanospec
from lessons.kit import contents
from nanospec.methods.index import DRAFTERS, RULES
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import verify
from tests.proof.checks import CHECKS
from tests.proof.compare import node_cases
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LESSONS = (ROOT / "lessons" / "README.md").read_text()
DOCS = {str(path.relative_to(ROOT / "docs")): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
PAGES = README + "".join(DOCS.values())
BLOCKS = re.findall(r"```(python)?\n(.*?)```", README + DOCS["METHODS.md"], re.S)


class OneText:
    """Dice for one text, as the README's round takes them."""

    def __init__(self, dice):
        self.dice = dice

    def pick(self, weights):
        return int(self.dice.pick(weights[None]))

    def flip(self, prob):
        return bool(self.dice.flip(prob.view(1, 1)))


def test_the_idea_in_plain_lines_is_exact():
    """The README's round, walked over three tokens."""
    shown, = (block for kind, block in BLOCKS if kind and "def speculative_round" in block)
    assert len(shown.splitlines()) <= 12
    exec(shown, found := {})
    models = [TableModel(3, seed=1, zeros=0.3), TableModel(3, seed=2, zeros=0.3)]
    ways = [lambda text, model=model: model(torch.tensor([text]))[0].softmax(-1) for model in models]

    def three_tokens(dice):
        text = [0]
        while len(text) < 4:
            text = found["speculative_round"](*ways, text, 2, OneText(dice))
        return tuple(text[1:4])

    assert distance(walk(three_tokens)[0], target_distribution(models[0], [0], 3))[1] < 1e-12


def test_the_lines_that_are_the_algorithm_are_those_of_the_file():
    """All of `verify` but its docstring."""
    shown = next(block for kind, block in BLOCKS if kind and "def verify" in block)
    assert shown == re.sub(r'    """.*?"""\n', "", inspect.getsource(verify), flags=re.S)


def test_the_examples_run():
    first, second = (next(block for kind, block in BLOCKS if kind and words in block)
                     for words in ("load_pair()", "SuffixDrafter("))
    done = subprocess.run([sys.executable, "-c", first + second], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of 4 accepted" in done.stdout and "\n" in done.stdout


def sections(page: str) -> set[str]:
    """The names by which links reach a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?s:```.*?```)", "", page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    for name, text in {"README.md": README, "lessons/README.md": LESSONS,
                       **{f"docs/{name}": text for name, text in DOCS.items()}}.items():
        for link in re.findall(r"\]\(((?!http)[^)]+)", text):
            path, _, section = link.partition("#")
            page = (ROOT / name).parent / path if path else ROOT / name
            assert page.exists(), (name, link)
            assert not section or section in sections(page.read_text()), (name, link)


def test_every_method_is_named():
    for name in [*DRAFTERS, *RULES]:
        assert f"| `{name}` |" in DOCS["METHODS.md"]


def test_ci_runs_the_readmes_test_command():
    line, = re.findall(r"^pip install -e .* && pytest.*$", README, re.M)
    assert line == "pip install -e '.[test]' && pytest"
    found = subprocess.run(["bash", "-c", re.search(r"\$\((grep .*)\)", (ROOT / ".ci" / "run").read_text())[1]],
                           cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == line


def test_the_line_for_torch_names_the_versions_that_pip_keeps():
    versions, = re.findall(r"write `'(torch[^']*)'` for `torch`", README)
    assert f'"{versions}"' in (ROOT / "pyproject.toml").read_text()


def test_every_picture_is_there_and_every_file_is_on_the_map():
    for folder, page in ((ROOT, README), *(((ROOT / "docs" / name).parent, page) for name, page in DOCS.items())):
        for path in re.findall(r"!\[.*?\]\((.*?)\)", page):
            assert (folder / path).stat().st_size > 5_000
    cells = "".join(re.findall(r"^\| (`nanospec/.*?) \| ", README.split("## The map")[1], re.M))
    on_map = re.findall(r"`nanospec/([\w.]+/?)`", cells)
    there = {path.relative_to(ROOT / "nanospec").parts for path in (ROOT / "nanospec").rglob("*")
             if path.is_file() and path.suffix != ".pyc"}
    assert sorted(on_map) == sorted({parts[0] + "/" * (len(parts) > 1) for parts in there} - {"__init__.py"})


def test_there_is_one_reading_order():
    """On the page, in the package's first lines, in the first lesson, and on the page of the lessons."""
    package = inspect.getdoc(nanospec).split("READING ORDER\n")[1].split("\nerrors")[0]
    orders = [re.findall(r"^ +(\w[\w/]*)  ", package, re.M)]
    for page in README, LESSONS, re.sub(r"\n# ?", " ", (ROOT / "lessons" / "00_overview.py").read_text()):
        told = re.search(r"in this order: (.*?`proof/walk\.py`)", page)[1]
        orders.append(re.findall(r"`([\w/]+)\.py`", told))
    assert len(orders[0]) == 10 and orders == orders[:1] * 4, orders


def test_every_option_named_exists():
    from nanospec.cli import demo
    from train_tiny import options
    for script, parser in ("nanospec demo", demo.parser()), ("train_tiny.py", options()):
        named = set(re.findall(rf"{script}`? (--[\w-]+)", PAGES))
        assert named and named <= set(parser._option_string_actions), script


def test_every_option_of_a_subcommand_exists():
    """Of the bench, the checker and the training, in backticks or in an example."""
    from lessons.check import command as check
    from nanospec.cli.bench.command import parser
    subcommands, = (action.choices for action in parser()._actions if isinstance(action, _SubParsersAction))
    pages, found = PAGES + LESSONS, 0
    for name, words in re.findall(r"nanospec bench ?(\w*)([^`\n]*)", pages):
        options = set(re.findall(r"--[\w-]+", words))
        assert options <= set(subcommands[name or "speed"]._option_string_actions), (name, words)
        found += len(options)
    assert found
    source = inspect.getsource(check)
    assert all(f'"{option}"' in source for words in re.findall(r"python -m lessons\.check([^`#\n]*)", pages)
               for option in re.findall(r"--[\w-]+", words))
    train = (ROOT / "training" / "jobs.py").read_text() + (ROOT / "train_tiny.py").read_text()
    for words in re.findall(r"train_tiny\.py([^`\n]*)", pages):
        assert all(f'"{option}"' in train for option in re.findall(r"--[\w-]+", words)), words


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"@@|@[A-Z]+@", PAGES)


def test_the_zoo_is_as_large_as_said():
    shipped = sum(not bug.source.startswith(("generic", "ours")) for bug in ALL_BUGS)
    assert f"{len(ALL_BUGS)} bugs, {shipped} of them from public implementations" in DOCS["PROOF.md"]
    assert f"{len(ALL_CONTROLS)} controls" in DOCS["PROOF.md"] and f"plant {len(ALL_BUGS)} bugs" in README
    assert f"{shipped} of them are from such implementations" in README


def test_as_many_pairs_are_walked_as_said():
    pairs = f"{len(list(node_cases()))} pairs of distributions"
    assert pairs in DOCS["PROOF.md"] and pairs in CHECKS["T0"].setting


def test_the_licence_names_all_that_the_weights_were_trained_on():
    command = re.search(r"A training of this kind: `(.*?)`", DOCS["results/training.md"])[1]
    licence = README.splitlines()[-1]
    assert "standard library" in licence and ("--packages" in licence) == ("--packages" in command)


def test_the_minutes_of_a_path_are_those_of_its_lessons_and_exercises():
    lessons, parts = {}, []
    for heading, rows in re.findall(r"^### .*: (\d+) minutes\n\n((?:\|.*\n)+)", LESSONS, re.M):
        part = {int(number): int(minutes) for number, minutes in
                re.findall(r"^\| (\d+) \| `\d\d_\w+.py` \| .* \| (\d+) \|[^|]*\|$", rows, re.M)}
        assert int(heading) == sum(part.values()) and max(part.values()) <= 30
        lessons |= part
        parts.append(int(heading))
    assert [int(number) for number, _, _ in contents()] == [*lessons]
    assert all(f" | {question} | {lessons[int(number)]} | " in LESSONS for number, _, question in contents())
    exercises = {int(number): int(minutes) for number, minutes in
                 re.findall(r"^\| (\d+) \| `ex\d\d_\w+.py` \| \d of 5, (\d+), ", LESSONS, re.M)}
    for page in README, LESSONS:
        assert f"({sum(lessons[i] for i in (6, 7, 8))})" in page
        assert f"({parts[0]} minutes)" in page
        assert f"exercises 1 to 12 ({sum(exercises[i] for i in range(1, 13))})" in page


def test_every_table_of_results_can_be_made_again():
    """A section with a table of numbers names a command and a date."""
    for name, page in DOCS.items():
        for section in re.split(r"^## ", page, flags=re.M) if name.startswith(("results/", "RESULTS")) else []:
            if len(re.findall(r"^\|.*\d\.\d.*\|$", section, re.M)) > 1:
                head = page.split("\n## ")[0] + section
                assert re.search(r"\b20\d\d-\d\d-\d\d\b", head), (name, section[:40])
                assert re.search(r"python -m|`python |nanospec bench|above", head), (name, section[:40])


def test_every_file_named_on_a_page_is_there():
    """In backticks, by its path from the root, from nanospec/ or from lessons/."""
    for name, page in {"README.md": README, **DOCS}.items():
        for path in re.findall(r"`((?:\w+/)+[\w.]+\.(?:py|md|png|html)|\w+\.py)`", page):
            folders = ("", "nanospec", "nanospec/methods", "nanospec/methods/draft_models", "nanospec/files", "lessons")
            assert any((ROOT / folder / path).exists() for folder in folders), (name, path)


@pytest.mark.slow
def test_the_judges_example_runs_as_it_stands_and_prints_what_is_shown(capsys):
    """With the page's round it finds nothing, and with the mistake that the page names it prints the page's lines."""
    a_round, asked = (next(block for kind, block in BLOCKS if kind and words in block)
                      for words in ("def speculative_round", "def my_sampler"))
    printed = next(block for kind, block in BLOCKS if not kind and block.startswith("WRONG"))
    mistake, right = re.search(r"`(\w)` in the place of `(.*?)`", README).groups()
    assert a_round.count(right) == 1
    exec(a_round + asked, {})
    assert capsys.readouterr().out.startswith("Right")
    exec(a_round.replace(right, mistake) + asked, {})
    assert capsys.readouterr().out == printed
