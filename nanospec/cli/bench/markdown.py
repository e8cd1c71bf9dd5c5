"""The last table as Markdown, with what docs/results/ asks of each: its command, its machine and
its date.
"""

import platform
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

from nanospec.cli.show.terminal import SHOWN

CPU = Path("/proc/cpuinfo")             # on Linux; elsewhere `platform` knows the processor's name


def page(argv: Sequence[str]) -> str:
    """The table that was shown last, by `nanospec bench *argv`."""
    columns, cells, caption, bold = SHOWN[-1]
    names = [name.replace("-\n", "").replace("\n", " ").strip() for name in columns]
    rows = [[f"**{cell}**" for cell in row] if best else row for row, best in zip(cells, bold or [False] * len(cells))]
    command = shlex.join(["nanospec", "bench", *argv])
    return "\n".join([f"`{command}`. {machine()}, {date.today()}.", "", table(names, rows), "", caption, ""])


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "&#124;") for cell in line) + " |" for line in lines)


def machine() -> str:
    """Example: "AMD EPYC (AVX512), torch 2.13.0"."""
    names = [line.split(":", 1)[1].strip() for line in CPU.read_text().splitlines() if line.startswith("model name")
             ] if CPU.exists() else []
    name = next(iter(names), platform.processor() or platform.machine())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}){gpu}, torch {torch.__version__.split('+')[0]}"
