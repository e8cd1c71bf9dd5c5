"""How learned draft models are trained: the target is frozen, and shows for every place what it
would write there.

Half of every batch is real text, the other half was written by the target: there the draft model
will be used. A step runs the target once, without gradients, for its hidden states and its
distributions. A draft model then drafts `steps` tokens after many tokens of the text (unrolled.py),
given the true tokens before. One loss of losses.py compares each of its distributions with the
target's.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.files.checkpoint import fingerprint, save_learned
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.model import GPT, Config
from nanospec.training.batches import HeldOut, batch_at
from nanospec.training.losses import LOSSES, log_probs, total_variation
from nanospec.training.mixed import mixed
from nanospec.training.pair import Size, Training
from nanospec.training.unrolled import all_anchors, before_tokens, some_anchors, unrolled

STEPS_SHOWN = 5         # draft tokens, one after the other, whose acceptance is looked at
RATE = 5e-3             # top learning rate


def learned_loss(model: Learned, tokens: Tensor, hidden: Tensor, p_target: Tensor,
                 divergence: Callable[[Tensor, Tensor], Tensor],
                 anchors: Tensor | None = None, counted: Tensor | None = None,
                 total: Tensor | None = None) -> Tensor:
    """The mean over the anchors of texts (B, T), and over the draft tokens after each.

    hidden (B, T, len(layers), C), p_target (B, T, V): the target's hidden states of each token, and
    its log-probabilities after each, perhaps of the tokens alone that the model can draft.
    divergence: one of losses.py. counted (B, T) bool: the tokens whose prediction counts.
    total (steps,): how many predictions of each step count in all, where these texts are a part of
    a batch. The parts' losses add up to the batch's.
    """
    anchors = all_anchors(tokens, model.steps) if anchors is None else anchors
    counted = torch.ones_like(tokens, dtype=torch.bool) if counted is None else counted
    found = unrolled(model, tokens, before_tokens(hidden), model.steps, anchors)
    counts = predicted(counted, anchors, model.steps)
    total = counts.sum((1, 2)) if total is None else total
    losses = [mean_of(divergence(*compared(model, p_target[:, anchors + k], logits)), counts[k],
                      total[k]) for k, (_, logits) in enumerate(found)]
    weights = [model.decay ** k for k in range(model.steps)]
    weighted = torch.stack([weight * loss for weight, loss in zip(weights, losses)])
    of_tokens = weighted.sum() / sum(weights)
    if not model.hidden_loss:
        return of_tokens
    states, wanted = found[0][0], model.last_hidden(hidden[:, anchors])
    off = F.smooth_l1_loss(states.float(), wanted.float(), reduction="none").mean(-1)
    of_states = mean_of(off, counts[0], total[0])
    return model.hidden_loss * of_states + model.token_loss * of_tokens


def compared(model: Learned, p_target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probabilities that a loss compares: of the tokens alone that the model can draft.

    p_target (..., V), or of these tokens already; logits: as `read` and `step` return them.
    """
    if p_target.shape[-1] != logits.shape[-1]:
        p_target = p_target[..., model.ids]
    return p_target, log_probs(logits)


def after(counted: Tensor, places: Tensor) -> Tensor:
    """counted (B, T) -> (B, N) bool: whether the token after each of these places counts.

    The one after the text's last token does, if that one does.
    """
    return torch.cat([counted, counted[:, -1:]], 1)[:, places + 1]


def predicted(counted: Tensor, anchors: Tensor, steps: int) -> Tensor:
    """counted (B, T) -> (steps, B, N) bool: whether the token counts that a step predicts."""
    return torch.stack([after(counted, anchors + k) for k in range(steps)])


def mean_of(values: Tensor, counted: Tensor, total: Tensor) -> Tensor:
    """The sum of those that count, divided by how many do in all; 0 if none does."""
    return (values * counted).sum() / total.clamp(min=1)


class Batch(NamedTuple):
    """A batch of texts, and what the target knows of them."""

    tokens: Tensor              # (B, T)
    hidden: Tensor              # (B, T, layers, C)
    p_targets: list[Tensor]     # of each draft model (B, T, V), log-probabilities
    counted: Tensor | None = None       # (B, T) bool, the tokens whose prediction counts; None: all


def plan_of(names: Sequence[str], target: Config, size: Size) -> Size:
    """How draft models of these names are trained for such a target, in `size`'s batches."""
    sizes = {name: LEARNED[name].sizes_for(target) for name in names}
    return replace(size, target=target, draft=sizes, steps=size.steps[-1:], rate=(RATE,))


def files_of(names: Collection[str]) -> list[str]:
    """What the training of these draft models writes: weights of each, its own state last."""
    return [*(f"{name}.pt" for name in names), f"{'_'.join(names)}.training.pt"]


class LearnedTraining(Training):
    """Draft models for one target, side by side: each learns as if alone, the target runs once."""

    def __init__(self, target: GPT, size: Size, *of: Any, **more: Any):
        """size: as `plan_of` has it. of, more: as for Training."""
        self.phases, self.frozen = (" ".join(size.draft),), target
        *self.weights_files, self.state_file = files_of(size.draft)
        super().__init__(size, *of, **more)
        self.made_of["target"] = fingerprint(target)
        self.layers = sorted({layer for model in self.trained for layer in model.layers})

    def new_models(self) -> dict[str, Learned]:
        config, models = self.size.target, {}
        for name, sizes in self.size.draft.items():
            torch.manual_seed(self.seed)                                        # as if alone
            model = LEARNED[name](config.vocab_size, config.channels, **sizes).to(self.ids.device)
            models[name] = model.attach(self.frozen)
            model.prepare(self.frequent())
        self.losses: list[Callable[..., Tensor]]
        self.losses = [partial(learned_loss, model) for model in models.values()]
        return models

    def frequent(self) -> Tensor:
        """The text (N,) whose frequent tokens a pruned draft model drafts."""
        return self.ids

    def compile(self) -> None:
        for block in self.frozen.blocks:
            block.compile(dynamic=False)
        self.losses = [torch.compile(loss, dynamic=False) for loss in self.losses]

    @property
    def target(self) -> GPT:
        return self.frozen

    @property
    def trained(self) -> list[Learned]:
        return list(self.models.values())

    @property
    def model(self) -> nn.ModuleList:
        return nn.ModuleList(self.trained)

    def save_models(self) -> None:
        for (name, model), file in zip(self.models.items(), self.weights_files):
            save_learned(name, model, self.out / file, self.frozen)

    def loss_now(self) -> Tensor:
        """Of this step's batch: the sum over the draft models."""
        batch = self.batch()
        return self.loss_at(batch, self.anchors(batch.tokens), [None] * len(self.trained))

    def anchors(self, x: Tensor) -> list[Tensor]:
        """Those of each draft model in texts (B, T)."""
        return [some_anchors(x, model.steps, model.anchors) for model in self.trained]

    def loss_at(self, batch: Batch, anchors: Iterable[Tensor],
                totals: Iterable[Tensor | None]) -> Tensor:
        """The sum over the draft models. anchors, totals: of each, as for learned_loss."""
        x, hidden, p_targets, counted = batch
        with mixed(x):
            losses = [loss_of(x, self.hidden_of(model, hidden), p_target, LOSSES[self.loss], at,
                              counted, total)
                      for model, loss_of, p_target, at, total
                      in zip(self.trained, self.losses, p_targets, anchors, totals)]
        return torch.stack(losses).sum()

    def batch(self) -> Batch:
        """This step's texts; what the target knows of them, as `of_target`."""
        x, _ = batch_at(self.ids, self.step, self.size.batch, self.size.target.context, self.seed)
        x = self.half_sampled(x)
        return Batch(x, *self.of_target(x))

    @torch.no_grad()
    def of_target(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Texts (B, T) -> the target's hidden states, and for each draft model the target's
        log-probabilities (B, T, V).
        """
        with mixed(x):
            logits, hidden = self.frozen(x, layers=self.layers)
        return hidden, [log_probs(logits)] * len(self.trained)

    def hidden_of(self, model: Learned, hidden: Tensor) -> Tensor:
        """Those of the layers that it reads."""
        # Not by a list, which would have to be sent to the device in every step.
        return torch.stack([hidden[:, :, self.layers.index(layer)] for layer in model.layers], 2)

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """The held-out total variation, a mean over models and draft tokens; how often each token
        is accepted, STEPS_SHOWN of each model; and the same in words.
        """
        x, _ = held.windows(self.size.target.context, most)
        return self.looked(Batch(part, *self.of_target(part)) for part in x.split(self.size.batch))

    @torch.no_grad()
    def looked(self, parts: Iterable[Batch]) -> tuple[list[float], str]:
        """As `look`, at parts as `batch` returns them."""
        found, places = torch.zeros(2, len(self.models), STEPS_SHOWN, device=self.ids.device)
        with torch.compiler.set_stance("force_eager"):
            for x, hidden, p_targets, counted in parts:
                counted = torch.ones_like(x, dtype=torch.bool) if counted is None else counted
                for i, (model, p_target) in enumerate(zip(self.trained, p_targets)):
                    with mixed(x):
                        before = before_tokens(self.hidden_of(model, hidden))
                        anchors = some_anchors(x, STEPS_SHOWN, model.anchors)
                        steps = unrolled(model, x, before, STEPS_SHOWN, anchors)
                    for k, (_, logits) in enumerate(steps):
                        off = total_variation(*compared(model, p_target[:, anchors + k], logits))
                        counts = after(counted, anchors + k)
                        found[i, k] += (off * counts).sum()
                        places[i, k] += counts.sum()
        rejected = found / places.clamp(min=1)
        accepted = (1 - rejected).tolist()
        words = ["accepted " + " ".join(f"{part:.3f}" for part in row) for row in accepted]
        return [rejected.mean().item(), *sum(accepted, [])], ", ".join(words)
