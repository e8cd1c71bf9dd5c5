"""What a model answers in the three kinds of call that decoding makes."""

import torch
from torch import Tensor

from nanospec.model import GPT


def logits(model: GPT) -> Tensor:
    """A prompt of 7, one token and a block of 5 after it, two rows."""
    cache, tokens, out = model.new_cache(2, 20), torch.arange(26).view(2, 13), []
    with torch.inference_mode():
        for a, b in ((0, 7), (7, 8), (8, 13)):
            out.append(model(tokens[:, a:b], cache, b))
            cache.length += b - a
    return torch.cat(out, 1)
