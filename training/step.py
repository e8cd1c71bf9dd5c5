"""One step of a training: the learning rate, the optimizer, what a loss is used for."""

from typing import Any

import torch
from torch import Tensor, nn

WARM_UP = 100           # steps of rising learning rate
COOL_DOWN = 0.4         # the part of the steps over which it falls to 0


def learning_rate(step: int, steps: int, top: float) -> float:
    """Up in a straight line, level, down in a straight line."""
    return top * min(1.0, (step + 1) / WARM_UP, (steps - step) / (COOL_DOWN * steps))


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; only matrices decay. (Muon for them was worse at equal minutes, at three rates.)"""
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def train_step(training: Any) -> Tensor:
    """A batch, its loss, the gradients, AdamW. The loss stays on its device."""
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate(training.step, training.steps, training.rate)
    # Cross-entropy with the next token, or how far the draft is from the target.
    loss = training.loss_now()
    training.optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
    training.optimizer.step()
    training.step += 1
    return loss.detach()
