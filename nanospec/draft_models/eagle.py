"""EAGLE: one decoder layer that goes on with the target's features, and says by the target's own output head what they
mean.

Li et al. 2024 (arXiv 2401.15077).

    features  f_0  f_1  f_2  ?          f_i: what the target's output head is given for token i
    tokens    x_1  x_2  x_3             one ahead: f_2 alone does not say which x_3 was drawn, and the next feature
                                        depends on it
    layer([f_(i-1), x_i])  =  f_i as predicted;  its output head  =  logits of token i + 1

For the committed text the features are the target's. Behind it the layer reads what it has predicted. When draft tokens
are accepted, the target's features of them are there, and the layer reads these tokens again: nothing that was
predicted stays in the cache.

`Eagle` has all that EAGLE-1 and EAGLE-3 (eagle3.py) share. Left out: noise on the features while it is trained.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.cache import Cache, cached_call, grouped_attention
from nanospec.draft_models.gpt import Branches
from nanospec.draft_models.learned import FeatureReader, Learned, all_anchors, before_tokens, log_probs
from nanospec.model import MLP, Attention, Config, Linear, rope_table
from nanospec.text import Text


class Eagle(Learned):
    """heads, kv_heads, hidden: of its layer, as in Config."""

    feature_loss, token_loss = 1.0, 0.1         # the weights of both parts, as in the paper
    anchors = 128                               # each attends anew at every step

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int, kv_heads: int, hidden: int):
        super().__init__(vocab_size, channels, layers, heads=heads, kv_heads=kv_heads, hidden=hidden)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.steps = 1                          # it is trained on the target's features alone
        self.fuse, self.attention_norm = Linear(2 * channels, channels), nn.RMSNorm(channels, 1e-5)
        self.attention = Attention(self.config)
        self.mlp_norm, self.mlp = nn.RMSNorm(channels, 1e-5), MLP(self.config)

    def begin(self, before: Tensor) -> Tensor:
        """The target's features (..., len(layers), C) -> a state (..., C) to go on from."""
        return self.last_hidden(before)

    def entrance(self, state: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """A state and the token that stands one ahead -> what attention reads, and what its result is added to."""
        x = self.fuse(torch.cat([self.target.embedding(tokens).to(self.dtype), state], -1))
        return self.attention_norm(x), x

    def exit(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer puts out, and the tokens that it has read -> the next state, and logits (..., V)."""
        return x, self.said_by(x)

    def step(self, state: Tensor, tokens: Tensor, attend) -> tuple[Tensor, Tensor]:
        """attend: what attention reads -> what it answers, each (B, T, ...). -> the next state, and logits."""
        return self.through(*self.entrance(state, tokens), tokens, attend)

    def through(self, read: Tensor, x: Tensor, tokens: Tensor, attend) -> tuple[Tensor, Tensor]:
        """The layer behind its entrance."""
        x = x + attend(read)
        return self.exit(x + self.mlp(self.mlp_norm(x)), tokens)

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        anchors = all_anchors(tokens, steps) if anchors is None else anchors
        return torch.stack([logits for _, logits in self.unroll(tokens, before, steps, anchors)])

    def unroll(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of every step the states (B, N, C) and logits; each anchor reads what it has predicted, step by step."""
        read, x = self.entrance(self.begin(before), tokens)                     # with the target's features, all
        attend, found = Unrolled(self, read, anchors), []
        state, logits = self.through(read[:, anchors], x[:, anchors], tokens[:, anchors], attend)
        found.append((state, logits))
        for k in range(1, steps):
            state, logits = self.step(state, tokens[:, anchors + k], attend)
            found.append((state, logits))
        return found

    def loss(self, tokens: Tensor, features: Tensor, p_target: Tensor, divergence,
             anchors: Tensor | None = None) -> Tensor:
        """How far the predicted features are from the target's, and a little of how far the distributions are."""
        anchors = all_anchors(tokens, 1) if anchors is None else anchors
        (predicted, logits), = self.unroll(tokens, before_tokens(features), 1, anchors)
        of_tokens = divergence(p_target[:, anchors], log_probs(logits)).mean()
        of_features = F.smooth_l1_loss(predicted.float(), self.last_hidden(features[:, anchors]).float())
        return self.feature_loss * of_features + self.token_loss * of_tokens

    def rope(self, positions: int) -> Tensor:
        """The layer's rotations, as rope_table."""
        return rope_table(positions, self.config.head_size, self.config.rope_theta, self.dtype, self.device)

    def reader(self) -> "EagleReader":
        return EagleReader(self)


class Unrolled:
    """Attention for whole texts, several steps ahead. EAGLE-3 calls it training-time test.

    At step k, anchor a stands at position a + k. It sees all places up to a as they were at step 0, where they read the
    target's features, and itself at steps 1 to k, where it read what it had predicted. It sees nothing that another
    anchor has predicted.
    """

    def __init__(self, model: Eagle, read: Tensor, anchors: Tensor):
        """read (B, T, inputs): what all places read at step 0. anchors (N,)."""
        self.attention, self.anchors, self.rope, self.k = model.attention, anchors, model.rope(2 * read.shape[1]), 0
        _, self.keys, self.values = self.attention.turned(read, self.rope[:, :read.shape[1]])       # (B, H_kv, T, D)
        self.unseen = torch.arange(read.shape[1], device=anchors.device) > anchors[:, None]         # (N, T)
        self.own: list[tuple[Tensor, Tensor]] = []          # keys and values of steps 1 to k

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, N, inputs), what the anchors read at the next step."""
        q, key, value = self.attention.turned(x, self.rope[:, self.anchors + self.k])
        if self.k:
            self.own.append((key, value))
        self.k += 1
        return self.attention.out(self.answer(q))

    def answer(self, q: Tensor) -> Tensor:
        """What queries (B, H, N, D) of the anchors find in all that they see: (B, N, H * D)."""
        B, _, N, _ = q.shape
        scores = [(q @ self.keys.transpose(2, 3)).masked_fill(self.unseen, float("-inf"))]          # (B, H, N, T)
        scores += [(q * own).sum(-1, keepdim=True) for own, _ in self.own]                          # (B, H, N, 1) each
        wide = torch.promote_types(q.dtype, torch.float32)
        weights = (torch.cat(scores, -1).to(wide) * self.attention.head_size ** -0.5).softmax(-1).to(q)
        T = self.keys.shape[2]
        out = weights[..., :T] @ self.values
        for j, (_, own) in enumerate(self.own):
            out = out + weights[..., T + j, None] * own
        return out.transpose(1, 2).reshape(B, N, -1)


class EagleReader(FeatureReader):
    """state: (B, m, C), behind every token of the last call. cache: what the layer has read, a slot for each token."""

    model: Eagle
    text: Text
    cache: Cache
    rereads = True

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        if text is not self.text:
            self.cache = self._new_cache(*text.tokens.shape)
        super().meet(text, rows, features)

    def read_prompts(self, rows: Sequence[int]) -> None:
        rows = list(rows)
        width = int(self.text.length[rows].max()) - 1
        if width:
            fresh = self._new_cache(len(rows), width)
            self._keep(fresh, self.text.tokens[rows, :width], self.kept[rows, :width], fresh.next_slots(width))
            self.cache.put(rows, fresh)

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        """Read the last `unread` tokens of every text, with the target's features. Only the last one has to answer."""
        model, self.cache.length = self.model, text.length - unread
        slots, tokens = self.cache.next_slots(unread), text.last(unread)
        read, x, q = self._keep(self.cache, tokens, self.kept[self.row[:, None], slots], slots)
        self.cache.length = self.cache.length + unread      # not text.length itself, which moves on
        self.branches = Branches(self.cache)
        self.sees = self.cache.as_mask(self.cache.sees((text.length - 1)[:, None], upto))[:, None]
        # Not views: behind one, torch would multiply each text with a copy of the weights of its own.
        self.state, logits = model.through(read[:, -1:].contiguous(), x[:, -1:].contiguous(), tokens[:, -1:],
                                           lambda _: model.attention.out(self.look(q[:, :, -1:])))
        return logits

    def look(self, q: Tensor) -> Tensor:
        """What queries (B, H, m, D) find in the committed text: (B, m, H * D). sees: that text, as a mask."""
        upto = self.sees.shape[-1]
        keys, values = (kept[0][:, :upto].transpose(1, 2) for kept in (self.cache.k, self.cache.v))
        return grouped_attention(q, keys, values, self.sees).transpose(1, 2).flatten(2)

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        """Read draft tokens, with the features that were predicted behind their parents."""
        model = self.model
        tree: tuple[Tensor, ...] = ()
        if parents is not None:
            tree = self.branches.grow(parents, upto)
            self.state = self.state[self.row[:, None], parents.expand_as(tokens)]
        call = cached_call(model.config, tokens.shape[1], self.cache, upto, *tree)
        self.state, logits = model.step(self.state, tokens, lambda x: model.attention(x, call, 0))
        self.cache.length = self.cache.length + tokens.shape[1]
        return logits

    def _keep(self, cache: Cache, tokens: Tensor, before: Tensor, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the keys and values of committed tokens (B, T). What stands at the entrance, and queries."""
        read, x = self.model.entrance(self.model.begin(before), tokens)
        q, keys, values = self.model.attention.turned(read, cache.rope[:, slots][:, :, None])
        cache.write(0, slots, keys, values, 0)
        return read, x, q

    def _new_cache(self, rows: int, slots: int) -> Cache:
        return Cache(rows, 1, self.model.config.kv_heads, self.model.rope(slots))
