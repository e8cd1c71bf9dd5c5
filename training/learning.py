"""How learned draft models are trained: the target is frozen, and shows for every place what it
would write there.

Half of every batch is real text, the other half was written by the target: there the draft model
will be used. A step runs the target once, without gradients, for its hidden states and its
distributions. A draft model then drafts `steps` tokens after many tokens of the text (unrolled.py),
given the true tokens before. One loss of losses.py compares each of its distributions with the
target's.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nanospec.files.checkpoint import fingerprint, save_learned
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.losses import LOSSES, log_probs, total_variation
from nanospec.methods.draft_models.unrolled import (before_tokens, compared, learned_loss,
                                                    predicted, some_anchors, unrolled)
from nanospec.model import GPT, Config
from training.batches import HeldOut, batch_at
from training.mixed import mixed
from training.pair import Size, Training

STEPS_SHOWN = 5         # draft tokens, one after the other, whose acceptance is looked at
RATE = 5e-3             # top learning rate


class Batch(NamedTuple):
    """A batch of texts, and what the target knows of them."""

    tokens: Tensor              # (B, T)
    hidden: Tensor              # (B, T, layers, C), of the layers that the draft model reads
    p_target: Tensor            # (B, T, V), log-probabilities
    counted: Tensor | None = None       # (B, T) bool, the tokens whose prediction counts; None: all


def plan_of(name: str, target: Config, size: Size) -> Size:
    """How the draft model of this name is trained for such a target, in `size`'s batches."""
    return replace(size, target=target, draft=(name, LEARNED[name].sizes_for(target)),
                   steps=size.steps[-1:], rate=(RATE,))


def files_of(name: str) -> list[str]:
    """What a training of this draft model writes: its weights, and the training's state."""
    return [f"{name}.pt", f"{name}.training.pt"]


class LearnedTraining(Training):
    """A draft model for a target that stays as it is."""

    def __init__(self, target: GPT, size: Size, *of: Any, **more: Any):
        """size: as `plan_of` has it. of, more: as for Training."""
        name, self.sizes = size.draft
        self.phases, self.frozen = (name,), target
        self.weights_file, self.state_file = files_of(name)
        super().__init__(size, *of, **more)
        self.made_of["target"] = fingerprint(target)

    def new_models(self) -> dict[str, Learned]:
        config, (name,) = self.size.target, self.phases
        model = LEARNED[name](config.vocab_size, config.channels, **self.sizes)
        model = model.to(self.ids.device).attach(self.frozen)
        model.prepare(self.frequent())
        self.loss_of: Callable[..., Tensor] = partial(learned_loss, model)
        return {name: model}

    def frequent(self) -> Tensor:
        """The text (N,) whose frequent tokens a pruned draft model drafts."""
        return self.ids

    def compile(self) -> None:
        for block in self.frozen.blocks:
            block.compile(dynamic=False)
        self.loss_of = torch.compile(self.loss_of, dynamic=False)

    @property
    def target(self) -> GPT:
        return self.frozen

    @property
    def model(self) -> Any:
        """The Learned."""
        return self.models[self.name]

    def save_models(self) -> None:
        save_learned(self.name, self.model, self.out / self.weights_file, self.frozen,
                     self.tokenizer)

    def loss_now(self) -> Tensor:
        batch = self.batch()
        return self.loss_at(batch, self.anchors(batch.tokens, self.model.steps))

    def anchors(self, x: Tensor, steps: int) -> Tensor:
        """Those in texts (B, T) after which `steps` tokens are drafted."""
        return some_anchors(x, steps, self.model.anchors)

    def loss_at(self, batch: Batch, anchors: Tensor, total: Tensor | None = None) -> Tensor:
        """anchors, total: as for learned_loss."""
        x, hidden, p_target, counted = batch
        with mixed(x):
            return self.loss_of(x, hidden, p_target, LOSSES[self.loss], anchors, counted, total)

    def batch(self) -> Batch:
        """This step's texts; what the target knows of them, as `of_target`."""
        x, _ = batch_at(self.ids, self.step, self.size.batch, self.size.target.context, self.seed)
        x = self.half_sampled(x)
        return Batch(x, *self.of_target(x))

    @torch.no_grad()
    def of_target(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Texts (B, T) -> the target's hidden states and log-probabilities."""
        with mixed(x):
            logits, hidden = self.frozen(x, layers=self.model.layers)
        return hidden, log_probs(logits)

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """The held-out total variation, a mean over draft tokens; how often each of STEPS_SHOWN is
        accepted; and the same in words.
        """
        x, _ = held.windows(self.size.target.context, most)
        return self.looked(Batch(part, *self.of_target(part)) for part in x.split(self.size.batch))

    @torch.no_grad()
    def looked(self, parts: Iterable[Batch]) -> tuple[list[float], str]:
        """As `look`, at parts as `batch` returns them."""
        found, places = torch.zeros(2, STEPS_SHOWN, device=self.ids.device)
        with torch.compiler.set_stance("force_eager"):
            for x, hidden, p_target, counted in parts:
                counted = torch.ones_like(x, dtype=torch.bool) if counted is None else counted
                anchors = self.anchors(x, STEPS_SHOWN)
                counts = predicted(counted, anchors, STEPS_SHOWN)
                places += counts.sum((1, 2))
                with mixed(x):
                    steps = unrolled(self.model, x, before_tokens(hidden), STEPS_SHOWN, anchors)
                for k, (_, logits) in enumerate(steps):
                    off = total_variation(*compared(self.model, p_target[:, anchors + k], logits))
                    found[k] += (off * counts[k]).sum()
        rejected = found / places.clamp(min=1)
        accepted = (1 - rejected).tolist()
        words = "accepted " + " ".join(f"{part:.3f}" for part in accepted)
        return [rejected.mean().item(), *accepted], words
