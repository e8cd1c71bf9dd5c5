"""This machine's limits, and how far from them a pair runs.

A token of plain decoding reads every weight once, so it cannot take less than their bytes over the bandwidth: the
floor (the memory side of the roofline, Williams et al. 2009). Left out: the processor's several caches, of which only
two sizes are measured, the model's own and one far beyond all of them.
"""

from pathlib import Path

import torch

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.quantities import milliseconds, per_second
from nanospec.cli.show.terminal import show_table
from nanospec.errors import RequestError
from nanospec.fast.autotune import autotune, tuning_of
from nanospec.fast.clock import announced, median_seconds
from nanospec.files.checkpoint import WEIGHTS, draft_of, load_pair
from nanospec.files.sources import source_of
from nanospec.model import GPT

GAMMA = 4               # draft tokens of a round


def run(weights: Path | str = WEIGHTS, device: str = "cpu", dtype: str = "auto",
        threads: int | None = None) -> list[dict]:
    """One row: the rates of this machine, and each step's seconds beside its floor."""
    source = source_of(weights)
    if (draft_of(source) or ("", ""))[1] != "gpt":
        raise RequestError(f"{source.path} has no draft GPT: these figures are those of a pair")
    with announced(f"reading {source.path.name}", at_once=False):
        target, draft, _ = load_pair(source, device)
    where = autotune(target, draft, dtype, threads)
    with announced("measuring this machine's limits"):
        found = roofline(target, draft)
    cells = [[name, f"{milliseconds(floor):.2f}", f"{milliseconds(took):.2f}", f"{took / floor:.1f}"]
             for (name, floor), took in zip(found["floor_seconds"].items(), found["seconds"].values())]
    show_table(["", "floor, ms", "takes, ms", "times the floor"], cells,
               f"{where}; gamma {found['gamma']}. The target's weights are {found['bytes'] / 1e6:.1f} MB; that many "
               f"bytes are read at {found['bandwidth'] / 1e9:.0f} GB/s, 512 MiB at "
               f"{found['bandwidth_of_512_MiB'] / 1e9:.0f}; matrices are multiplied at "
               f"{found['matrix_rate'] / 1e12:.2f} TFLOP/s")
    return [found]


def roofline(target: GPT, draft: GPT) -> dict:
    """Rates of this machine, and each step's seconds beside its floor. A round's floor is that of its parts."""
    device, size = target.device, weight_bytes(target)
    near, far = bandwidth(size, device), bandwidth(512 * 2 ** 20, device)
    floors = {"target step": size / near, "draft step": weight_bytes(draft) / near, "verification": size / near}
    floors["round"] = GAMMA * floors["draft step"] + floors["verification"]
    costs = measure_costs(target, draft, [GAMMA + 1])
    took = {"target step": costs.seconds, "draft step": costs.c * costs.seconds,
            "verification": costs.v[GAMMA + 1] * costs.seconds, "round": costs.parts(GAMMA)}
    return {"bytes": size, "bandwidth": near, "bandwidth_of_512_MiB": far,
            "matrix_rate": matrix_rate(target.dtype, device), "gamma": GAMMA, "floor_seconds": floors, "seconds": took}


def bandwidth(size: int, device: torch.device) -> float:
    """Bytes a second when `size` bytes are read again and again."""
    numbers = torch.ones(size // 4, device=device)
    return per_second(4 * numbers.numel(), [median_seconds(numbers.sum, device)])


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations a second in a product of two large matrices."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.ones(n, n, dtype=dtype, device=device)
    return per_second(2 * n ** 3, [median_seconds(lambda: a @ a, device)])


def weight_bytes(model: GPT) -> int:
    """What one token reads of the weights: all but an embedding table that is not also the head."""
    looked_up = 0 if model.config.tied else model.embedding.weight.numel()
    return (sum(weight.numel() for weight in model.parameters()) - looked_up) * tuning_of(model).dtype.itemsize
