"""A pair's draft GPT, trained further: the last phase of pair.py alone, from the draft as it
stands.

By total variation it ends with just what counts, since alpha = 1 - TV (DistillSpec, Zhou et al.
2023, arXiv 2310.08461).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nanospec.files.checkpoint import Pair, fingerprint, save_model
from nanospec.training.batches import HeldOut
from nanospec.training.pair import Size, Training, held_out_loss

RATE = 5e-4             # top learning rate: a tenth of what a new model takes


def further(size: Size, pair: Pair) -> Size:
    """A Size of one phase, for models that are there already."""
    draft: Any = pair.draft                                     # a GPT
    return replace(size, target=pair.target.config, draft=draft.config, steps=size.steps[-1:],
                   rate=(RATE,))


class Distillation(Training):
    """draft.pt is written anew; the target and the tokenizer are as they were."""

    phases = ("distil",)
    state_file = "distil.training.pt"

    def __init__(self, pair: Pair, size: Size | Any, seed: int, ids: Tensor, tokenizer: Any,
                 out: Path, compiled: bool = False, loss: str = "forward-kl"):
        self.pair = pair
        super().__init__(size, seed, ids, tokenizer, out, compiled, loss=loss)
        self.made_of["target"] = fingerprint(pair.target)

    def new_models(self) -> dict[str, Any]:
        self.pair.draft.requires_grad_(True)
        return {"target": self.pair.target, "draft": self.pair.draft}

    def save_models(self) -> None:
        save_model(self.models["draft"], self.out / "draft.pt", self.tokenizer)

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """Held-out total variation, whatever it learns by; how often a token is accepted."""
        off = held_out_loss(self.name, self.model, self.target, held, self.size.batch, most,
                            "total-variation")
        return [off], f"accepted {1 - off:.4f}"
