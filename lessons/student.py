"""A small draft model that is trained in seconds: the student of *What to train on* and of *Which loss*."""

import torch
from torch import nn

from nanospec.methods.draft_models.losses import LOSSES


class Student(nn.Module):
    """The last two tokens -> logits of the next one. A table for each of the two, and a head."""

    def __init__(self, V: int):
        super().__init__()
        self.last, self.before = nn.Embedding(V, 96), nn.Embedding(V, 96)
        self.head = nn.Linear(96, V)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(tokens[:, :-1], (1, 0))
        return self.head(torch.tanh(self.last(tokens) + self.before(before)))


def trained_student(tokens: torch.Tensor, log_p: torch.Tensor, loss: str, steps: int, rate: float) -> Student:
    """Trained with AdamW on windows (B, T), four a step, and the target's log-probabilities (B, T, V) there."""
    torch.manual_seed(0)
    student = Student(log_p.shape[-1])
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, 2 * (steps - step) / steps)
        some = torch.arange(4 * step, 4 * step + 4) % len(tokens)
        optimizer.zero_grad()
        LOSSES[loss](log_p[some], student(tokens[some]).log_softmax(-1)).mean().backward()
        optimizer.step()
    return student
