"""EAGLE-3: the layer may pass on what it likes, and learns to draft behind its own states.

Li et al. 2025 (arXiv 2503.01840). What differs from EAGLE-1 (eagle.py):

    state       fused from three layers of the target, not its last one alone
    entrance    attention reads [norm(embedding of x_i), norm(state)], twice as wide; its result is added to the state
    exit        an output head of its own, perhaps for a part of the vocabulary only
    training    no loss on features: a state need not look like the target's. Instead the layer is unrolled several
                steps, reads its own states, and every step has a loss on its distribution; the next one counts .8 of it

A token that the draft's vocabulary lacks is never drafted. That costs speed and never exactness: q_draft is 0 there.
As in EAGLE-3.1 (arXiv 2605.09992) the target's features are normed, and the next step reads the normed state.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nanospec.draft_models.eagle import Eagle
from nanospec.draft_models.learned import Learned, log_probs
from nanospec.model import MLP, Attention, Config, Linear


class Eagle3(Eagle):
    """spoken: how many tokens it can draft."""

    offsets: Tensor

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int, kv_heads: int, hidden: int,
                 spoken: int):
        Learned.__init__(self, vocab_size, channels, layers, heads=heads, kv_heads=kv_heads, hidden=hidden,
                         spoken=spoken)
        if spoken > vocab_size:
            raise ValueError(f"it cannot draft {spoken} of {vocab_size} tokens")
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.steps, self.decay = 5, 0.8
        self.fuse = Linear(len(layers) * channels, channels)
        self.token_norm, self.state_norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.attention = Attention(self.config, 2 * channels)
        self.mlp_norm, self.mlp = nn.RMSNorm(channels, 1e-5), MLP(self.config)
        self.norm, self.head = nn.RMSNorm(channels, 1e-5), Linear(channels, spoken)
        self.register_buffer("offsets", torch.zeros(spoken, dtype=torch.int64))     # token id - its number in the head

    def prepare(self, ids: Tensor) -> None:
        """Draft the tokens that are most frequent in the training text."""
        often = ids.bincount(minlength=self.vocab_size).argsort(descending=True, stable=True)[:len(self.offsets)]
        self.offsets.copy_(often.sort().values - torch.arange(len(often), device=often.device))

    @property
    def ids(self) -> Tensor:
        """(spoken,): which tokens it can draft."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    def begin(self, before: Tensor) -> Tensor:
        return self.fuse(self.normed(before))

    def entrance(self, state: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.target.embedding(tokens).to(self.dtype)
        return torch.cat([self.token_norm(embedded), self.state_norm(state)], -1), state

    def exit(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        state = self.norm(x)
        logits = self.head(state)
        if len(self.offsets) < self.vocab_size:
            never = logits.new_full((*logits.shape[:-1], self.vocab_size), float("-inf"))
            logits = never.index_copy(-1, self.ids, logits)
        return state, logits

    def compared(self, p_target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """On the tokens that it can draft alone, made distributions again."""
        return p_target[..., self.ids].log_softmax(-1), log_probs(logits[..., self.ids])

    loss = Learned.loss
