"""What a plain step and a round cost against the length of the context and the number of rows."""

from collections.abc import Sequence
from pathlib import Path

from nanospec.bench.measure import measure_costs, settled
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.model import GPT
from nanospec.show.terminal import show_table


def run(weights: Path = WEIGHTS, device: str = "cpu", dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """A row for each context and each number of rows."""
    target, draft, _ = load_pair(weights, device)
    where = settled(target, draft, dtype, threads)
    rows = growth(target, draft)
    show_table(["rows", "context", "plain step, ms", "round by its parts, ms", "round / plain"],
               [[str(row["rows"]), f"{row['context']:,}", f"{1e3 * row['plain']:.2f}", f"{1e3 * row['round']:.2f}",
                 f"{row['round'] / row['plain']:.2f}"] for row in rows], f"{where}; gamma 4")
    return rows


def growth(target: GPT, draft: GPT, gamma: int = 4, contexts: Sequence[int] = (128, 512, 1024, 2048, 4096),
           rows: Sequence[int] = (4, 16, 64)) -> list[dict]:
    """Seconds of a plain step and of a round's parts against the context, for one row; and against rows, at 256."""
    points, out = [(1, context) for context in contexts] + [(count, 256) for count in rows], []
    for count, context in points:
        costs = measure_costs(target, draft, [gamma + 1], context, rows=count)
        out.append({"rows": count, "context": context, "plain": costs.seconds, "round": costs.parts(gamma)})
    return out
