"""What all learned draft models share. They read what the target's layers put out, its features.

Token i of a text is always paired with the features of token i - 1. So a draft model knows two things at place i: what
the target thought before it wrote token i, and which token it wrote. Before token 0 the features are zeros.

    tokens      x_0   x_1   x_2   x_3       x_3 is the last token of the text. The target has not read it, so its
    before       0    f_0   f_1   f_2       features are not there; those of x_2 are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.cache import Cache, moved
from nanospec.draft import Draft
from nanospec.draft_models.reader import Reader
from nanospec.errors import RequestError
from nanospec.model import GPT, Linear
from nanospec.text import Text


class Learned(nn.Module):
    """A draft model on the features of a target. A subclass says how it answers, and has a reader of its own.

    sizes: what it was made of, to be saved with its weights: vocab_size and channels, which are the target's, layers,
        whose features it reads, and more of its own.
    steps: so many draft tokens behind one another it is trained to draft; it may draft more.
    decay: in training, each counts so much less than the one before it.
    deepest: as Reader has it.
    anchors: behind so many tokens of every text it drafts in a training step.
    """

    steps, decay, anchors = 5, 1.0, 512
    deepest: int | None = None
    target: GPT
    sizes: dict[str, Any]

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], **sizes: int):
        super().__init__()
        whole = {"vocab_size": vocab_size, "channels": channels} | sizes
        for name, size in whole.items():
            if type(size) is not int or size < 1:                               # no bool
                raise ValueError(f"{name} must be a whole number of 1 or more, got {size!r}")
        if not layers or any(type(layer) is not int or layer < 0 for layer in layers):
            raise ValueError(f"layers must be the numbers of some of the target's, got {layers!r}")
        self.sizes, self.vocab_size, self.channels = whole | {"layers": list(layers)}, vocab_size, channels
        self.layers = tuple(layers)

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        """Whole texts at once, for training: tokens (B, T), before (B, T, len(layers), C) -> logits (steps, B, N, V).

        anchors (N,): the tokens behind which it drafts, at most T - steps; by default all of these. Logits [k, b, i]
        are for token a + k + 1, a = anchors[i]. They know the features before token a, and tokens up to a + k.
        """
        raise NotImplementedError

    def reader(self) -> Reader:
        raise NotImplementedError

    def prepare(self, ids: Tensor) -> None:
        """What is to be known of the training text before training begins."""

    def loss(self, tokens: Tensor, features: Tensor, p_target: Tensor, divergence: Callable,
             anchors: Tensor | None = None) -> Tensor:
        """Of texts (B, T), given the target's features of each token and its log-probabilities behind each (B, T, V):
        the mean over the anchors, and over the draft tokens behind each. divergence: one of training/losses.py.
        """
        anchors = all_anchors(tokens, self.steps) if anchors is None else anchors
        q_draft = self(tokens, before_tokens(features), self.steps, anchors)
        losses = [divergence(*self.compared(p_target[:, anchors + k], q_draft[k])).mean() for k in range(self.steps)]
        weights = [self.decay ** k for k in range(self.steps)]
        return sum(weight * loss for weight, loss in zip(weights, losses)) / sum(weights)

    def some_anchors(self, tokens: Tensor, steps: int) -> Tensor:
        """About self.anchors tokens, always as many, spread evenly; where they begin follows from the texts (B, T)."""
        count = tokens.shape[1] - steps + 1
        stride = max(1, count // self.anchors)
        return int(tokens.sum()) % stride + stride * torch.arange(count // stride, device=tokens.device)

    def compared(self, p_target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What the loss compares: log-probabilities."""
        return p_target, log_probs(logits)

    def normed(self, before: Tensor) -> Tensor:
        """Features (..., len(layers), C), each layer's normed on its own -> (..., len(layers) * C)."""
        return F.rms_norm(before, before.shape[-1:], eps=1e-5).flatten(-2)

    def last_hidden(self, before: Tensor) -> Tensor:
        """Features (..., len(layers), C), the last layer's among them -> what the target's output head was given."""
        return self.target.norm(before[..., -1, :].to(self.target.dtype)).to(self.dtype)

    def said_by(self, hidden: Tensor) -> Tensor:
        """Logits (..., V): the target's own output head, frozen, on `hidden` (..., C)."""
        return self.target.head(hidden.to(self.target.dtype))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def attach(self, target: GPT) -> "Learned":
        """Use the parts of the target that it shares, frozen: they are no weights of its own.

        RequestError if it was made for a target of other sizes.
        """
        config = target.config
        theirs = config.vocab_size, config.channels
        if theirs != (self.vocab_size, self.channels) or max(self.layers) >= config.layers:
            raise RequestError(f"the draft model was made for a target with {self.vocab_size} tokens, {self.channels} "
                               f"channels and more than {max(self.layers)} layers, this one has {theirs[0]}, "
                               f"{theirs[1]} and {config.layers}")
        object.__setattr__(self, "target", target)          # not as a module: it is not trained, saved or counted
        return self

    def pack(self, fewest: int = 1) -> "Learned":
        """As GPT.pack."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack(fewest)
        return self


def log_probs(logits: Tensor) -> Tensor:
    """Of logits (..., V), in float32 or wider."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def all_anchors(tokens: Tensor, steps: int) -> Tensor:
    """Every token of texts (B, T) behind which there are `steps` - 1 more."""
    return torch.arange(tokens.shape[1] - steps + 1, device=tokens.device)


def before_tokens(features: Tensor) -> Tensor:
    """Features (B, T, ...) of each token -> of the token before each, zeros before the first."""
    return F.pad(features[:, :-1], [0, 0] * (features.dim() - 2) + [1, 0])


class FeatureReader(Reader):
    """Keeps the target's features for every place of the text: a text may shrink, and what was rejected must go.

    kept: (B, N, len(layers), C); kept[:, i] are the features before token i.
    cache: of those that have attention.
    """

    text: Text | None = None
    cache: Cache | None = None

    def __init__(self, model: Learned):
        self.model, self.layers, self.deepest = model, model.layers, model.deepest

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | Any) -> None:
        if text.vocab_size != self.model.vocab_size or features.shape[3] != self.model.channels:
            raise RequestError(f"the draft model has a vocabulary of {self.model.vocab_size} tokens and reads features "
                               f"of {self.model.channels} channels, the target has {text.vocab_size} and "
                               f"{features.shape[3]}")
        if text is not self.text:
            self.text, self.row = text, torch.arange(len(text.tokens), device=features.device)
            self.kept = features.new_zeros(*text.tokens.shape, *features.shape[2:], dtype=self.model.dtype)
        self.kept[list(rows), 1:features.shape[1] + 1] = features.to(self.kept)

    def move(self, rows: Sequence[int], count: int) -> None:
        self.kept, self.row = moved(self.kept, rows, count), torch.arange(count, device=self.kept.device)
        if self.cache:
            self.cache.move(rows, count)

    def before_last(self, text: Text) -> Tensor:
        """(B, len(layers), C): the features before the last token of every text."""
        return self.kept[self.row, text.length - 1]

    def commit(self, text: Text, draft: Draft, accepted: Tensor, features: Tensor | Any) -> None:
        """Keep the features of the accepted path. Row 0 of the draft stood one place before its first token."""
        path, count = draft.path(accepted, draft.ancestors())
        first = text.length - count - 1                     # the place of the path's first token
        places = first[:, None] + torch.arange(path.shape[1], device=path.device)
        self.kept[self.row[:, None], places] = features[self.row[:, None], path].to(self.kept)


class Recurrent(Learned):
    """A learned draft model that has a state, which every token changes."""

    def begin(self, before: Tensor) -> Tensor:
        """The features before a token (..., len(layers), C) -> the state before it is read (..., width)."""
        raise NotImplementedError

    def step(self, state: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """A state and the token to read (...) -> the next state, and logits (..., V) of the token behind."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        anchors, logits = all_anchors(tokens, steps) if anchors is None else anchors, []
        state = self.begin(before[:, anchors])
        for k in range(steps):
            state, behind = self.step(state, tokens[:, anchors + k])
            logits.append(behind)
        return torch.stack(logits)

    def reader(self) -> "RecurrentReader":
        return RecurrentReader(self)


class RecurrentReader(FeatureReader):
    """state: (B, m, width), behind every token of the last call."""

    model: Recurrent

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        self.state, logits = self.model.step(self.model.begin(self.before_last(text))[:, None], text.last(1))
        return logits

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        if parents is not None:
            self.state = self.state[self.row[:, None], parents.expand_as(tokens)]
        self.state, logits = self.model.step(self.state, tokens)
        return logits
