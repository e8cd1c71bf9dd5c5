"""The lessons as Jupyter notebooks: `python -m lessons.notebooks` writes one .ipynb for each into lessons/notebooks/.

    python -m lessons.notebooks FOLDER          # into another folder

The scripts stay the source. A `# %%` line begins a cell, `# %% [markdown]` a cell of text (jupytext's percent form). A
notebook also shows its picture, and has the answers to its questions at the end, folded. An existing notebook is not
overwritten.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import argparse
import json
import os
import sys
from pathlib import Path

from nanospec.cli.show.terminal import refuse

LESSONS = Path(__file__).parent


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


def notebook(lesson: Path, folder: Path) -> dict:
    """A lesson in Jupyter's format 4.5, to be written into `folder`."""
    cells = cells_of(lesson.read_text(encoding="utf-8"))
    beside = os.path.relpath(LESSONS, folder)
    cells.insert(1, ("code", f"import sys\n\nsys.path.insert(0, {beside!r})      # where kit.py and figures.py are"))
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lessons.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=LESSONS / "notebooks")
    folder = parser.parse_args(argv).folder
    written, there = 0, 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for lesson in sorted(LESSONS.glob("[0-9]*.py")):
            path = folder / f"{lesson.stem}.ipynb"
            if path.exists():                               # someone may have worked in it
                there += 1
                continue
            text = json.dumps(notebook(lesson, folder), indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
            written += 1
    except OSError as error:
        return refuse("lessons.notebooks", error)
    print(f"{written} notebooks written to {folder}" + f", {there} that existed left as they are" * bool(there))
    return 0


if __name__ == "__main__":
    sys.exit(main())
