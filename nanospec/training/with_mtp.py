"""A pair whose target is trained together with one more layer, which will be its draft model
(methods/draft_models/eagle.py).

    loss  =  cross-entropy of the next token, by the target  +  WEIGHT * the same, by the layer

The layer has read one token less of the target's: it predicts token i + 1 from the target's hidden
states of token i - 1, and token i. Its loss goes through the target too, which so learns to know
more of what is coming. The draft GPT is trained afterwards, as it always is.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.files.checkpoint import save_learned
from nanospec.methods.draft_models.eagle import MTP
from nanospec.training.mixed import mixed
from nanospec.training.pair import Training
from nanospec.training.unrolled import before_tokens, some_anchors, unrolled

WEIGHT = 0.3            # as DeepSeek-V3 begins with


def loss_with(target: Any, mtp: MTP, x: Tensor, y: Tensor) -> Tensor:
    """Of texts x (B, T) and their next tokens y (B, T), nats per token."""
    with mixed(x):
        logits, hidden = target(x, layers=mtp.layers)
        anchors = some_anchors(x, 1, mtp.anchors)
        (_, ahead), = unrolled(mtp, x, before_tokens(hidden), 1, anchors)
    own, more = (F.cross_entropy(found.float().flatten(0, 1), wanted.flatten())
                 for found, wanted in ((logits, y), (ahead, y[:, anchors])))
    return own + WEIGHT * more


class WithMTP(Training):
    """As Training, and mtp.pt."""

    def new_models(self) -> dict[str, Any]:
        models, config = super().new_models(), self.size.target
        mtp = MTP(config.vocab_size, config.channels, **MTP.sizes_for(config)).to(self.ids.device)
        return models | {"mtp": mtp.attach(models["target"])}

    @property
    def trained(self) -> Sequence[nn.Module]:
        return [self.target, self.models["mtp"]] if self.name == "target" else [self.model]

    def save_models(self) -> None:
        super().save_models()
        save_learned("mtp", self.models["mtp"], self.out / "mtp.pt", self.target)

    def loss_of_texts(self, x: Tensor, y: Tensor) -> Tensor:
        if self.name != "target":
            return super().loss_of_texts(x, y)
        return loss_with(self.target, self.models["mtp"], x, y)
