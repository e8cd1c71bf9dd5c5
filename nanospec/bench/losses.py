"""What a draft model is best trained on: every loss, on three kinds of text, for as many steps from the same start.

The start is the draft of the pair; the target is frozen. What counts is alpha = sum min(p_target, q_draft), a mean over
text that the target has written behind held-out prompts: the same text for all, so that small differences mean
something. (DistillSpec, Zhou et al. 2023, arXiv 2310.08461, compares losses and texts so.)

    data        Python's standard library
    target      written by the target behind beginnings from there
    draft       written by the draft itself, anew every RENEW steps: what it will have to go on from
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.model import GPT
from nanospec.show.terminal import show_table
from nanospec.theory import acceptance
from nanospec.training.batches import PROMPT, batch_at, sample
from nanospec.training.losses import LOSSES
from nanospec.training.pair import learning_rate, loss_of, new_optimizer

TEXTS = ("data", "target", "draft")
RATE, RENEW, HELD_OUT = 5e-4, 20, 64        # top learning rate; steps; texts that alpha is measured on


def run(losses: Sequence[str] = tuple(LOSSES), texts: Sequence[str] = TEXTS, steps: int = 200, batch: int = 8,
        seed: int = 0, weights: Path = WEIGHTS, device: str = "cpu") -> list[dict]:
    """One row for each kind of text and loss; the first is the draft as it is."""
    target, draft, tokenizer = load_pair(weights, device)
    ids, held = (to_ids(part, tokenizer).to(device) for part in read_texts())
    batch_at(ids, 0, batch, target.config.context, seed)                        # raises where there is not one
    judged = sample(target, held, HELD_OUT, seed)
    rows: list[dict] = [{"texts": "", "loss": "as it is", "alpha": alpha_on(judged, target, draft)}]
    for kind, loss in product(texts, losses):
        student: Any = deepcopy(draft).requires_grad_(True)                     # the pair's own draft is a GPT
        train(student, target, batches_of(kind, ids, student, target, batch, seed), loss, steps)
        rows.append({"texts": kind, "loss": loss, "alpha": alpha_on(judged, target, student)})
    gains = [[row["texts"], row["loss"], f"{row['alpha']:.4f}", f"{row['alpha'] - rows[0]['alpha']:+.4f}"]
             for row in rows]
    best = max(row["alpha"] for row in rows)
    show_table(["", "method", "alpha", "gain"], gains, f"{device}; {steps} steps of {batch} texts of "
               f"{target.config.context} tokens, from the pair's draft", [row["alpha"] == best for row in rows])
    return rows


def batches_of(kind: str, ids: Tensor, student: GPT, target: GPT, batch: int, seed: int) -> Iterator[Tensor]:
    """Texts (batch, context) of that kind, without end."""
    context, step = target.config.context, 0
    while True:
        if kind == "data":
            yield batch_at(ids, step, batch, context, seed)[0]
            step += 1
        else:
            writer = target if kind == "target" else student
            yield from sample(writer, ids, RENEW * batch, seed + step).split(batch)
            step += RENEW


def train(student: GPT, target: GPT, batches: Iterator[Tensor], loss: str, steps: int) -> None:
    optimizer = new_optimizer(student)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, RATE)
        x = next(batches)
        student.zero_grad()
        loss_of("distil", student, target, x, x, loss).backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def alpha_on(texts: Tensor, target: GPT, draft: Callable) -> float:
    """The mean over all places that the target has written, at temperature 1, in float32."""
    prompt = min(PROMPT, texts.shape[1] // 2)
    betas = [acceptance(target(part)[:, prompt - 1:].softmax(-1), draft(part)[:, prompt - 1:].softmax(-1))
             for part in texts.split(8)]
    return torch.cat(betas).mean().item()
