"""How learned draft models are trained: the target is frozen, and shows for every place what it
would write there.

For our own pair half of every batch is real text, and the other half was written by the target:
there the draft model will be used. A step runs the target once, without gradients, for its hidden
states and its distributions. A draft model then drafts `steps` tokens after many tokens of the text
(unrolled.py), given the true tokens before. One loss of losses.py compares each of its
distributions with the target's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nanospec.cli.show.figures import BLUE, blank
from nanospec.fast.mixed import mixed
from nanospec.files.model_file import fingerprint, save_learned
from nanospec.files.corpus import HeldOut
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.losses import LOSSES, log_probs, total_variation
from nanospec.methods.draft_models.unrolled import (before_tokens, compared, learned_loss,
                                                    predicted, some_anchors, unrolled)
from nanospec.model import GPT, Config
from train_tiny import Training, batch_at

STEPS, RATE = 4500, 5e-3    # of the training, and its top learning rate
LOOKS = 20              # at the held-out text
STEPS_SHOWN = 5         # draft tokens, one after the other, whose acceptance is looked at


class Batch(NamedTuple):
    """A batch of texts, and what the target knows of them."""

    tokens: Tensor              # (B, T)
    hidden: Tensor              # (B, T, layers, C), of the layers that the draft model reads
    p_target: Tensor            # (B, T, V), log-probabilities
    counted: Tensor | None = None       # (B, T) bool, the tokens whose prediction counts; None: all


@dataclass
class Plan:
    """What a Size of train_tiny.py is to the pair. name, sizes: the draft model, and what it is
    made of; target, batch, steps, rate, written: as there.
    """

    name: str
    sizes: dict[str, Any]
    target: Config
    steps: tuple[int, ...] = (STEPS,)
    rate: tuple[float, ...] = (RATE,)
    batch: int = 8
    written: int = 4096

    @property
    def look(self) -> int:
        """Steps between looks."""
        return max(100, self.steps[0] // LOOKS)


def plan_of(name: str, target: Config, steps: int = STEPS, rate: float = RATE) -> Plan:
    """How the draft model of this name is trained for such a target."""
    return Plan(name, LEARNED[name].sizes_for(target), target, (steps,), (rate,))


def files_of(name: str) -> list[str]:
    """What a training of this draft model writes: its weights, and the training's state."""
    return [f"{name}.pt", f"{name}.training.pt"]


class LearnedTraining(Training):
    """A draft model for a target that stays as it is. One phase, called as the draft model is."""

    def __init__(self, target: GPT, plan: Plan, *args: Any, loss: str = "lk-hybrid", **more: Any):
        """loss: one of LOSSES. args, more: as for Training."""
        self.phases, self.files = (plan.name,), files_of(plan.name)
        self.found = 1 + STEPS_SHOWN
        self.frozen, self.compare = target, LOSSES[loss]
        super().__init__(plan, *args, **more)
        self.made_of |= {"target": fingerprint(target), "loss": loss}

    def new_models(self) -> dict[str, Learned]:
        plan = self.size
        model = LEARNED[plan.name](plan.target.vocab_size, plan.target.channels, **plan.sizes)
        model = model.to(self.ids.device).attach(self.frozen)
        model.prepare(self.frequent())
        self.learned_loss: Callable[..., Tensor] = partial(learned_loss, model)
        return {plan.name: model}

    def frequent(self) -> Tensor:
        """The text (N,) whose frequent tokens a pruned draft model drafts."""
        return self.ids

    def compile(self) -> None:
        for block in self.frozen.blocks:
            block.compile(dynamic=False)
        self.learned_loss = torch.compile(partial(learned_loss, self.model), dynamic=False)

    @property
    def target(self) -> GPT:
        return self.frozen

    @property
    def model(self) -> Any:
        """The Learned."""
        return self.models[self.name]

    def save_models(self) -> None:
        save_learned(self.name, self.model, self.out / self.files[0], self.frozen, self.tokenizer)

    def loss(self) -> Tensor:
        batch = self.batch()
        return self.loss_at(batch, self.anchors(batch.tokens, self.model.steps))

    def anchors(self, x: Tensor, steps: int) -> Tensor:
        """Those in texts (B, T) after which `steps` tokens are drafted."""
        return some_anchors(x, steps, self.model.anchors)

    def loss_at(self, batch: Batch, anchors: Tensor, total: Tensor | None = None) -> Tensor:
        """anchors, total: as for learned_loss."""
        x, hidden, p_target, counted = batch
        with mixed(x):
            return self.learned_loss(x, hidden, p_target, self.compare, anchors, counted, total)

    def batch(self) -> Batch:
        """This step's texts; what the target knows of them, as `of_target`."""
        x, _ = batch_at(self.ids, self.step, self.size.batch, self.size.target.context, self.seed)
        x = self.half_written(x)
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

    def draw(self) -> None:
        """How often its first, second, ... draft token was accepted, at each look."""
        figure, (axes,) = blank(f"{self.name}: accepted draft tokens, held-out text", 1)
        for k in range(STEPS_SHOWN):
            axes.plot([row[1] for row in self.history], [row[4 + k] for row in self.history],
                      color=BLUE, linewidth=2.4 - 0.4 * k, label=f"token {k + 1}")
        axes.legend(frameon=False)
        axes.set_ylim(0, 1)
        axes.set_xlabel("steps of training")
        figure.savefig(self.out / f"{self.name}.loss.png", format="png", dpi=160)
