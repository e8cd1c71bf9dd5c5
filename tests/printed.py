"""What lessons print, as their tests read it."""

import re


def rows(out: str, heading: str) -> dict[str, list[str]]:
    """The printed table whose first heading that is: first cell -> the other cells."""
    lines = iter(out.splitlines())
    assert any(line.startswith(heading) for line in lines), f"no table {heading!r} was printed"
    table = {}
    for line in lines:
        if not line.strip():
            break
        name, *cells = re.split(r" {2,}", line.strip())
        table[name] = cells
    return table
