"""What lessons print, as their tests read it."""

import re


def table_under(out: str, heading: str) -> dict[str, list[str]]:
    """The printed table whose first heading that is: first cell -> the other cells."""
    lines = iter(out.splitlines())
    assert any(line.startswith(heading) for line in lines), f"no table {heading!r} was printed"
    table = {}
    for line in lines:
        if not line.strip():
            break
        name, *cells = cut(line)
        table[name] = cells
    return table


def lines_of(out: str, columns: int) -> list[list[str]]:
    """The printed lines that have so many cells, two blanks or more apart."""
    return [cells for cells in map(cut, out.splitlines()) if len(cells) == columns]


def lines_from(out: str, first: str) -> list[list[str]]:
    """The printed lines that begin with `first`, in cells."""
    return [cut(line) for line in out.splitlines() if line.startswith(first)]


def cut(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())
