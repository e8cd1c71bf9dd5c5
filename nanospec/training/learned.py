"""How a learned draft model is trained: the target is frozen, and says for every place what it would write there.

Half of every batch is real text, the other half was written by the target: there the draft model will be used.
A step runs the target once, without gradients, for its features and its distributions. The draft model then drafts
`steps` tokens behind every token of the text, given the true tokens before. One loss of losses.py compares each of its
distributions with the target's.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nanospec.draft_models import LEARNED
from nanospec.draft_models.learned import Learned, before_tokens, log_probs
from nanospec.files.checkpoint import fingerprint, save_learned
from nanospec.files.tokenizer import Tokenizer
from nanospec.model import GPT, Config
from nanospec.training.losses import LOSSES, total_variation
from nanospec.training.pair import HeldOut, Training, batch_at


STEPS_SHOWN = 5         # draft tokens behind one another whose acceptance is looked at


@dataclass
class Plan:
    """As Size, for one phase. sizes: what the draft model is made of, besides its vocabulary and its channels."""

    target: Config
    sizes: dict
    batch: int
    steps: tuple[int]
    rate: tuple[float]
    held_out_every: int
    sampled: int = 0


class LearnedTraining(Training):
    """name: one of LEARNED."""

    def __init__(self, name: str, target: GPT, plan: Plan, seed: int, ids: Tensor, tokenizer: Tokenizer, out: Path,
                 compiled: bool = False, loss: str = "forward-kl"):
        self.phases, self.state_file, self.frozen = (name,), f"{name}.training.pt", target
        super().__init__(plan, seed, ids, tokenizer, out, compiled, loss=loss)
        self.made_of["target"] = fingerprint(target)

    def new_models(self) -> dict[str, Learned]:
        config = self.size.target
        model = LEARNED[self.phases[0]](config.vocab_size, config.channels, **self.size.sizes)
        model.prepare(self.ids)
        return {self.phases[0]: model.to(self.ids.device).attach(self.frozen)}

    def compile(self) -> None:
        for block in self.frozen.blocks:
            block.compile(dynamic=False)

    @property
    def target(self) -> GPT:
        return self.frozen

    @property
    def model(self) -> Learned:
        return self.models[self.name]

    def save_models(self) -> None:
        save_learned(self.name, self.model, self.out / f"{self.name}.pt", self.frozen)

    def loss_now(self) -> Tensor:
        """Of this step's batch."""
        x, _ = batch_at(self.ids, self.step, self.size.batch, self.size.target.context, self.seed)
        x = self.half_sampled(x)
        features, p_target = self.of_target(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.model.loss(x, features, p_target, LOSSES[self.loss])

    @torch.no_grad()
    def of_target(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Texts (B, T) -> the target's features of every token, and its log-probabilities behind each (B, T, V)."""
        with torch.autocast(x.device.type, torch.bfloat16):
            logits, features = self.frozen(x, layers=self.model.layers)
        return features, log_probs(logits)

    @torch.no_grad()
    def look(self, held: HeldOut, most: int) -> tuple[float, str]:
        """The held-out total variation, a mean over the draft tokens; and how often each is accepted."""
        x, _ = held.windows(self.size.target.context, most)
        found = torch.zeros(STEPS_SHOWN, device=x.device)
        for part in x.split(self.size.batch):
            with torch.compiler.set_stance("force_eager"), torch.autocast(x.device.type, torch.bfloat16):
                features, p_target = self.of_target(part)
                q_draft = log_probs(self.model(part, before_tokens(features), STEPS_SHOWN))
            places = q_draft.shape[2]
            found += torch.stack([total_variation(p_target[:, k:k + places], q_draft[k]).mean()
                                  for k in range(STEPS_SHOWN)]) * len(part) / len(x)
        return found.mean().item(), "accepted " + " ".join(f"{1 - each:.3f}" for each in found.tolist())
