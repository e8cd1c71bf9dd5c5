"""Multi-token prediction: one more layer that a model brings along, trained with it from its first
step.

Gloeckle et al. 2024 (arXiv 2404.19737) train several heads beside a model's own. DeepSeek-V3 (arXiv
2412.19437, section 2.2) makes the second one a layer that reads the next token too, which is what a
draft model needs:

    layer(M [norm(embedding of x_i); norm(h_(i-1))])  =  h'_i
    the model's own output head of h'_i  =  logits of x_(i+1)

So it is EAGLE's layer (eagle.py) with norms at its entrance and its exit. What differs is the
training: no target is there yet to learn from. Target and layer share the embedding and the output
head and learn together, both from the text (training/with_mtp.py). To draft further the layer reads
its own h', as EAGLE does.

Left out: more than one such layer. It can be trained for a target that is there already, too, as
any draft model.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nanospec.methods.draft_models.eagle import Eagle
from nanospec.methods.draft_models.layer import Reading


class MTP(Eagle):
    """heads, kv_heads, hidden: of its layer, as in Config."""

    hidden_loss, token_loss = 0.0, 1.0

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int):
        super().__init__(vocab_size, channels, layers, heads, kv_heads, hidden)
        self.token_norm, self.state_norm, self.norm = (nn.RMSNorm(channels, 1e-5) for _ in range(3))

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        x = self.fuse(torch.cat([self.token_norm(self.embedded(tokens)),
                                 self.state_norm(state)], -1))
        x = call.asking(x) + self.attention(self.attention_norm(x), call, 0)
        x = self.norm(x + self.mlp(self.mlp_norm(x)))
        return x, self.target_logits(x)
