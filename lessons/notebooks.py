"""The lessons as Jupyter notebooks: `python -m lessons.notebooks` writes one .ipynb for each into lessons/notebooks/.

    python -m lessons.notebooks FOLDER          # into another folder

The scripts stay the source. A `# %%` line begins a cell, `# %% [markdown]` a cell of text (jupytext's percent form). A
notebook also shows its picture, and has the answers to its questions at the end, folded. Its first cell of code looks
for the lessons, and where there are none, as on a hosted machine, it clones and installs them. An existing notebook is
not overwritten.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from nanospec.cli.launch import command, quiet

LESSONS = Path(__file__).parent
SETUP = '''import importlib.util
import subprocess
import sys
from pathlib import Path

REPOSITORY = {address!r}

# A clone around this notebook, or one that is installed; else, as on a hosted machine, one is made.
installed = importlib.util.find_spec("nanospec")
folders = [Path.cwd() / "nanospec-clone", Path.cwd(), *Path.cwd().parents]
folders += [Path(installed.origin).parents[1]] if installed and installed.origin else []
clone = next((folder for folder in folders if (folder / "lessons" / "kit.py").exists()), None)
if clone is None:
    if not REPOSITORY:
        raise SystemExit("There is no clone of nanospec here. Write its address into REPOSITORY.")
    clone = Path.cwd() / "nanospec-clone"
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", str(clone)], check=True)
sys.path[:0] = [str(clone / "lessons"), str(clone)]'''


def address() -> str:
    """Where this clone comes from, or "": a path of this machine is no address for others."""
    words = ["git", "-C", str(LESSONS), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:                                         # no git here
        return ""
    return found if "://" in found and not found.startswith("file:") else ""


def cells_of(script: str) -> list[tuple[str, str]]:
    """("markdown" or "code", text) of every cell; a script begins with one."""
    cells = []
    for part in ("\n" + script).split("\n# %%")[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            lines = (line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
            cells.append(("markdown", "\n".join(lines)))
        else:
            cells.append(("code", body.strip()))
    return cells


def notebook(lesson: Path, address: str) -> dict:
    """A lesson in Jupyter's format 4.5, which clones the repository at this address where there is none."""
    cells = cells_of(lesson.read_text(encoding="utf-8"))
    cells.insert(1, ("code", SETUP.format(address=address)))
    drawn = max(number for number, (kind, text) in enumerate(cells) if kind == "code" and "figures." in text)
    cells.insert(drawn + 1, ("code", f'from IPython.display import Image\n\nImage("out/{lesson.stem[3:]}.png")'))
    answers = LESSONS / "answers" / f"{lesson.stem}.md"
    if answers.exists():
        text = answers.read_text(encoding="utf-8").partition("\n")[2].strip()
        cells.append(("markdown", f"<details><summary>Answers</summary>\n\n{text}\n\n</details>"))
    code = {"execution_count": None, "outputs": []}
    return {"cells": [{"cell_type": kind, "id": f"cell-{number}", "metadata": {},
                       "source": text.splitlines(keepends=True)} | (code if kind == "code" else {})
                      for number, (kind, text) in enumerate(cells)],
            "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}


@command("lessons.notebooks")
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lessons.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=LESSONS / "notebooks")
    folder = parser.parse_args(argv).folder
    written, there, origin = 0, 0, address()
    folder.mkdir(parents=True, exist_ok=True)
    for lesson in sorted(LESSONS.glob("[0-9]*.py")):
        path = folder / f"{lesson.stem}.ipynb"
        if path.exists():                               # someone may have worked in it
            there += 1
            continue
        text = json.dumps(notebook(lesson, origin), indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
        written += 1
    print(f"{written} notebooks written to {folder}" + f", {there} that existed left as they are" * bool(there))


if __name__ == "__main__":
    quiet()
    sys.exit(main())
