"""What README.md and docs/ say is held to the files."""

import inspect
import re
import subprocess
from argparse import _SubParsersAction
from pathlib import Path


import nanospec
from nanospec.idea import speculative_round
from nanospec.methods.index import DRAFTERS, RULES
from tests.proof.checks import CHECKS
from tests.proof.compare import node_cases
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LESSONS = (ROOT / "lessons" / "README.md").read_text()
DOCS = {str(path.relative_to(ROOT / "docs")): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
PAGES = README + "".join(DOCS.values())
BLOCKS = re.findall(r"```(python)?\n(.*?)```", README + DOCS["METHODS.md"], re.S)


def test_the_idea_is_quoted_as_it_runs():
    """All of it but its page of words; tests/core/test_idea.py walks it."""
    shown, = (block for kind, block in BLOCKS if kind and "def speculative_round" in block)
    assert shown == inspect.getsource(speculative_round) and len(shown.splitlines()) == 11


def test_the_core_is_as_long_as_said():
    core = [path for path in (ROOT / "nanospec").glob("*.py") if path.stem not in ("__init__", "__main__", "theory")]
    assert f"{sum(len(path.read_text().splitlines()) for path in core):,} lines" in README.split("![")[0]


def test_the_examples_run(capsys):
    first, second = (next(block for kind, block in BLOCKS if kind and words in block)
                     for words in ("load_pair()", "SuffixDrafter("))
    exec(first + second, {})
    out = capsys.readouterr().out
    assert "of 4 accepted" in out and "\n" in out


def sections(page: str) -> set[str]:
    """The names by which links reach a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?s:```.*?```)", "", page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    pages = {f"lessons/{path.name}": path.read_text() for path in (ROOT / "lessons").glob("*.md")}
    pages |= {"README.md": README, **{f"docs/{name}": text for name, text in DOCS.items()}}
    for name, text in pages.items():
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


def test_every_picture_is_there_and_every_file_is_on_the_map():
    for folder, page in ((ROOT, README), *(((ROOT / "docs" / name).parent, page) for name, page in DOCS.items())):
        for path in re.findall(r"!\[.*?\]\((.*?)\)", page):
            assert (folder / path).stat().st_size > 5_000
    core, rooms = README.split("## The map")[1].split("| file or folder")
    on_map = [name for name in re.findall(r"`(\w+\.py)`", core)]
    on_map += re.findall(r"`nanospec/([\w.]+/?)`", "".join(re.findall(r"^\| (`nanospec/.*?) \| ", rooms, re.M)))
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
    assert len(orders[0]) == 12 and orders == orders[:1] * 4, orders


def test_every_option_named_exists():
    import train_tiny
    from nanospec.cli import demo
    from training import __main__ as training
    pages = "".join(DOCS.values()) + README + LESSONS
    for script, parser, least in (("nanospec demo", demo.parser(), 3), ("train_tiny.py", train_tiny.options(), 2),
                                  ("-m training", training.options(), 3)):
        named = {option for words in re.findall(rf"{script}([^`\n#]*)", pages)
                 for option in re.findall(r"--[\w-]+", words)}
        assert len(named) >= least and named <= set(parser._option_string_actions), (script, named)


def test_every_option_of_a_subcommand_exists():
    """Of the bench and the checker, in backticks or in an example."""
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


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"@@|@[A-Z]+@", PAGES)


def test_the_zoo_is_as_large_as_said():
    shipped = sum(not bug.source.startswith(("generic", "ours")) for bug in ALL_BUGS)
    assert f"{len(ALL_BUGS)} bugs, {shipped} of them from public implementations" in DOCS["PROOF.md"]
    assert f"{len(ALL_CONTROLS)} controls" in DOCS["PROOF.md"] and f"plant {len(ALL_BUGS)} bugs" in README
    assert f"{shipped} are from public implementations" in README


def test_as_many_pairs_are_walked_as_said():
    pairs = f"{len(list(node_cases()))} pairs of distributions"
    assert pairs in DOCS["PROOF.md"] and pairs in CHECKS["T0"].setting


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
