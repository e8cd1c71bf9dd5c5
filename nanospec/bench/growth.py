"""What a plain step and a round cost against the length of the context and the number of rows."""

from pathlib import Path

from nanospec.bench.measure import measure_costs, settled
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.show.terminal import show_table

GAMMA = 4
POINTS = [(1, context) for context in (128, 512, 1024, 2048, 4096)] + [(rows, 256) for rows in (4, 16, 64)]


def run(weights: Path = WEIGHTS, device: str = "cpu", dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """Seconds of a plain step and of a round's parts, for every number of rows and length of the context in POINTS."""
    target, draft, _ = load_pair(weights, device)
    where, rows = settled(target, draft, dtype, threads), []
    for count, context in POINTS:
        costs = measure_costs(target, draft, [GAMMA + 1], context, rows=count)
        rows.append({"rows": count, "context": context, "plain": costs.seconds, "round": costs.parts(GAMMA)})
    show_table(["rows", "context", "plain step, ms", "round by its parts, ms", "round / plain"],
               [[str(row["rows"]), f"{row['context']:,}", f"{1e3 * row['plain']:.2f}", f"{1e3 * row['round']:.2f}",
                 f"{row['round'] / row['plain']:.2f}"] for row in rows], f"{where}; gamma {GAMMA}")
    return rows
