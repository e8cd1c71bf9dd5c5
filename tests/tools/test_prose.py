"""How long the sentences of the pages and lessons are, and which words stand in them. Whether they read well is for a
reader to say; a text of six-word sentences, or of thirty-word ones, is tiring in any case.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "lessons" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))
SHORT, LONG = 6, 30             # words: at most, and more than
# What is counted together: the mean, at least and at most; the shares of short and of long sentences, at most.
LIMITS = {"README.md": (12, 18, 1 / 8, 1 / 10), "lessons/README.md": (12, 18, 1 / 8, 1 / 10),
          "docs": (12, 18, 1 / 7, 1 / 10), "lessons": (11.5, 18, 1 / 5, 1 / 10)}
NO_TERMS = r"\b(behind|aloud|nobody|whoever|so many|dear|put out|said)\b"


def prose(path: Path) -> str:
    """The Markdown of a page, or of a lesson's Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        cells = re.findall(r"^# %% \[markdown\]\n((?:#.*\n)*)", text, re.M)
        text = "\n\n".join(re.sub("^# ?", "", cell, flags=re.M) for cell in cells)
    return text


def sentences(text: str) -> list[int]:
    """The number of words in each sentence of paragraphs and lists; a piece of code is one word. Headings, tables,
    blocks of code, pictures and references are left out.
    """
    text = re.sub(r"(?s:```.*?```)|^#.*$|^\|.*$|!\[[^\]]*\]\([^)]*\)|^<!--.*-->|^- .*arXiv.*$", "\n", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)).replace("*", "")
    counts = []
    for paragraph in re.split(r"\n\s*\n|\n(?=(?:-|\d+\.) )", text):
        words = re.sub(r"^\s*(?:-|\d+\.) ", "", paragraph).replace("\n", " ")
        found = re.split(r"(?<=[.!?])[)\"]*\s+(?=[A-Z(\"0-9])", words)
        counts += [len(re.findall(r"\S*\w\S*", sentence)) for sentence in found]
    return [count for count in counts if count]


def test_what_is_counted():
    text = ("# A title. Of two.\n\nOne two `three four`. Five *six* [seven eight](nine.md)! Ten v(1.5) twelve\n"
            "thirteen. `Code` too.\n\n| a | table |\n\n- An item of five words.\n- Chen, *DFlash*, arXiv 1.\n"
            "- A second one.\n\n```\nno words\n```\n![A picture](a.png)")
    assert sentences(text) == [3, 4, 4, 2, 5, 3]


@pytest.mark.parametrize("name", LIMITS)
def test_sentences_are_neither_short_nor_long(name):
    paths = {"docs": [path for path in PAGES if path.is_relative_to(ROOT / "docs")], "lessons": LESSONS}.get(
        name, [ROOT / name])
    counts = [count for path in paths for count in sentences(prose(path))]
    least, most, short, long = LIMITS[name]
    assert len(counts) > 30 and least <= sum(counts) / len(counts) <= most
    assert sum(count <= SHORT for count in counts) / len(counts) < short
    assert sum(count > LONG for count in counts) / len(counts) < long


def test_plain_words():
    """A token comes after another one, and not behind it; and so on."""
    for path in [*PAGES, *LESSONS]:
        words = re.sub(r"```.*?```|`[^`]*`", "", prose(path), flags=re.S)
        assert not re.findall(NO_TERMS, words, re.I), path
