"""A table as Markdown, with its command, its machine and its date."""

import platform
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

from nanospec.cli.show.terminal import ShownTable

CPU = Path("/proc/cpuinfo")             # on Linux; elsewhere `platform` knows the processor's name


def page(argv: Sequence[str], shown: ShownTable) -> str:
    """What `nanospec bench *argv` has shown."""
    columns, cells, caption, bold = shown
    names = [name.replace("-\n", "").replace("\n", " ").strip() for name in columns]
    rows = [[f"**{cell}**" for cell in row] if best else row
            for row, best in zip(cells, bold or [False] * len(cells))]
    command = shlex.join(["nanospec", "bench", *argv])
    head = f"`{command}`. {machine()}, {date.today()}."
    return f"{head}\n\n{table(names, rows)}\n\n{caption}\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[cell.replace("|", "&#124;") for cell in line]
             for line in (columns, ["---"] * len(columns), *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """Example: "AMD EPYC (AVX512), torch 2.13.0"."""
    lines = CPU.read_text().splitlines() if CPU.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = next(iter(names), platform.processor() or platform.machine())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    version = torch.__version__.split("+")[0]
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}){gpu}, torch {version}"
