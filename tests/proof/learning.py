"""Do learned draft models learn what they will draft? Each function is a check, and counts
violations.

What is learned wrongly leaves the text right: it is verified. It costs speed alone, and no walk of
the text shows it.
Left out: whether what is drafted is what was learned. `caches` of compare.py sees that, for every
learned draft model.
"""

from typing import Any

import torch
from torch import Tensor

from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import AtOnce
from nanospec.methods.draft_models.losses import forward_kl
from nanospec.methods.draft_models.medusa import Hydra
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.draft_models.unrolled import compared, learned_loss
from tests.proof.compare import Found


class Knowing(AtOnce):
    """A draft model of whole texts that predicts after every token what the target predicts."""

    def logits(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        anchors: Any = call.asks
        return self.target(tokens)[:, anchors[:, None] + torch.arange(call.steps)]


def labels(target) -> Found:
    """What predicts what the target predicts after the same tokens has nothing to learn: a loss of
    0.
    """
    config = target.config
    knowing = Knowing(config.vocab_size, config.channels, [0]).attach(target)
    texts = torch.arange(24).view(2, 12) * 5 % config.vocab_size
    logits, hidden = target(texts, layers=[0])
    loss = learned_loss(knowing, texts, hidden, logits.log_softmax(-1), forward_kl).item()
    return texts.numel(), abs(loss), abs(loss)


def vocabulary(target) -> Found:
    """A draft model of three tokens drafts the three that are most frequent, with the probabilities
    that it learned. It begins with the target's rows for them.
    """
    config = target.config
    torch.manual_seed(0)
    model = Eagle3(config.vocab_size, config.channels, [0], 1, 1, 8, spoken=3).double()
    model.attach(target)
    often = [config.vocab_size - 1, 0, config.vocab_size - 2]
    model.prepare(torch.tensor([*often[:1] * 4, *often[1:2] * 3, *often[2:] * 2, 1]))
    copied = (model.head.weight - target.head.weight[sorted(often)]).abs().max().item()
    spoken = model.head(torch.randn(5, config.channels, dtype=torch.float64))
    logits = model.spread(spoken)
    _, learned = compared(model, logits, spoken)
    drafted = (logits > float("-inf")).nonzero()[:, 1].view(5, 3)
    wrong = int((drafted != torch.tensor(sorted(often))).sum())
    error = (logits.softmax(-1)[:, sorted(often)] - learned.exp()).abs().max().item()
    return 5, error + copied + wrong, error + copied + wrong


def heads(target) -> Found:
    """Each head has weights of its own: what one learns, the others do not."""
    config, wrong = target.config, 0
    for kind in Medusa, Hydra:
        model = kind(config.vocab_size, config.channels, [0], heads=4)
        for block in model.blocks:
            before = [other.weight.clone() for other in model.blocks]
            block.weight.data += 1
            changed = [not torch.equal(own.weight, old) for own, old in zip(model.blocks, before)]
            wrong += sum(changed) != 1
    return 8, float(wrong), float(wrong)
