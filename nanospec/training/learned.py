"""How learned draft models are trained: the target is frozen, and says for every place what it would write there.

Half of every batch is real text, the other half was written by the target: there the draft model will be used.
A step runs the target once, without gradients, for its features and its distributions. A draft model then drafts
`steps` tokens behind every token of the text, given the true tokens before. One loss of losses.py compares each of its
distributions with the target's.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nanospec.draft_models import LEARNED
from nanospec.draft_models.learned import Learned, before_tokens, log_probs
from nanospec.files.checkpoint import fingerprint, save_learned
from nanospec.files.tokenizer import Tokenizer
from nanospec.model import GPT, Config
from nanospec.training.batches import HeldOut, batch_at
from nanospec.training.losses import LOSSES, total_variation
from nanospec.training.mixed import mixed
from nanospec.training.pair import Size, Training

STEPS_SHOWN = 5         # draft tokens behind one another whose acceptance is looked at
RATE = 5e-3             # top learning rate


@dataclass
class Plan:
    """As Size, for one phase. sizes: of each draft model, what it is made of besides its vocabulary and channels."""

    target: Config
    sizes: dict[str, dict]
    batch: int
    steps: tuple[int, ...]
    rate: tuple[float, ...]
    held_out_every: int
    sampled: int = 0


def plan_of(names: Sequence[str], target: GPT, size: Size) -> Plan:
    """How learned draft models are trained, in batches as of that size. If one has a decoder layer, that is as the
    target's.
    """
    config = target.config
    three, last = sorted({config.layers // 4, config.layers // 2, config.layers - 1}), [config.layers - 1]
    layer = {"heads": config.heads, "kv_heads": config.kv_heads, "hidden": config.hidden}
    sizes: dict[str, dict]
    sizes = {"medusa": {"layers": last}, "hydra": {"layers": last}, "mlp": {"layers": three, "width": 512},
             "prefix": {"layers": three, "width": 512} | layer, "eagle": {"layers": last} | layer,
             "eagle3": {"layers": three} | layer | {"spoken": config.vocab_size},
             "dflash": {"layers": three} | layer, "dspark": {"layers": three} | layer,
             "early_exit": {"layers": [config.layers // 4 - 1 if config.layers > 4 else 0], "hidden": config.hidden}}
    return Plan(config, {name: sizes[name] for name in names}, size.batch, size.steps[-1:], (RATE,),
                size.held_out_every, size.sampled)


def files_of(names: Collection[str]) -> list[str]:
    """What the training of these draft models writes: each one's weights, and in the end the training's own state."""
    return [*(f"{name}.pt" for name in names), f"{'_'.join(names)}.training.pt"]


class LearnedTraining(Training):
    """Draft models for one target, side by side: each learns as if alone, and the target runs once for all."""

    size: Plan

    def __init__(self, target: GPT, plan: Plan, seed: int, ids: Tensor, tokenizer: Tokenizer, out: Path,
                 compiled: bool = False, loss: str = "forward-kl"):
        self.phases, self.frozen = (" ".join(plan.sizes),), target
        *self.weights_files, self.state_file = files_of(plan.sizes)
        super().__init__(plan, seed, ids, tokenizer, out, compiled, loss=loss)
        self.made_of["target"] = fingerprint(target)
        self.layers = sorted({layer for model in self.trained for layer in model.layers})

    def new_models(self) -> dict[str, Learned]:
        config, models = self.size.target, {}
        for name, sizes in self.size.sizes.items():
            torch.manual_seed(self.seed)                                        # as if alone
            models[name] = LEARNED[name](config.vocab_size, config.channels, **sizes).to(self.ids.device)
            models[name].prepare(self.ids)
            models[name].attach(self.frozen)
        self.losses = [model.loss for model in models.values()]
        return models

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
        x, _ = batch_at(self.ids, self.step, self.size.batch, self.size.target.context, self.seed)
        x = self.half_sampled(x)
        features, p_target = self.of_target(x)
        with mixed(x):
            losses = [loss_of(x, self.features_of(model, features), p_target, LOSSES[self.loss],
                              model.some_anchors(x, model.steps)) for model, loss_of in zip(self.trained, self.losses)]
        return torch.stack(losses).sum()

    @torch.no_grad()
    def of_target(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Texts (B, T) -> the target's features of every token, and its log-probabilities behind each (B, T, V)."""
        with mixed(x):
            logits, features = self.frozen(x, layers=self.layers)
        return features, log_probs(logits)

    def features_of(self, model: Learned, features: Tensor) -> Tensor:
        """Those of the layers that it reads."""
        return features[:, :, [self.layers.index(layer) for layer in model.layers]]

    @torch.no_grad()
    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """The held-out total variation, a mean over models and draft tokens, and how often each token is accepted,
        STEPS_SHOWN of each model; and what to say of it.
        """
        x, _ = held.windows(self.size.target.context, most)
        found = torch.zeros(len(self.models), STEPS_SHOWN, device=x.device)
        with torch.compiler.set_stance("force_eager"):
            for part in x.split(self.size.batch):
                features, p_target = self.of_target(part)
                for i, model in enumerate(self.trained):
                    with mixed(x):
                        before = before_tokens(self.features_of(model, features))
                        anchors = model.some_anchors(part, STEPS_SHOWN)
                        q_draft = log_probs(model(part, before, STEPS_SHOWN, anchors))
                    for k, q in enumerate(q_draft):
                        off = total_variation(p_target[:, anchors + k], q).mean()
                        found[i, k] += off * len(part) / len(x)
        accepted = (1 - found).tolist()
        said = ["accepted " + " ".join(f"{part:.3f}" for part in row) for row in accepted]
        return [found.mean().item(), *sum(accepted, [])], ", ".join(said)
