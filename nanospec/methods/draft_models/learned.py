"""What all learned draft models share. They read the hidden states of some of the target's layers.

Token i of a text is always paired with the hidden states of token i - 1. So a draft model knows two
things at place i: what the target thought before it wrote token i, and which token it wrote. Before
token 0 there are zeros.

    tokens      x_0   x_1   x_2   x_3       x_3 is the last token of the text. The target has not
    before       0    h_0   h_1   h_2       read it: its hidden states are not there, x_2's are.

A model is two functions: `read` takes committed tokens, `step` a draft token. Two things call them:
a reader, token by token while it drafts (text_reader.py), and the training, for all places of whole
texts at once (unrolled.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.errors import RequestError, check_model
from nanospec.methods.draft_models.layer import Reading
from nanospec.model import GPT, Config, rope_table


class Learned(nn.Module):
    """A draft model on the hidden states of a target.

    sizes: what it was made of, to be saved with its weights: vocab_size and channels, which are the
        target's, layers, whose hidden states it reads, and more of its own.
    deepest: the most tokens that it can draft one after the other; None: any number.
    config: of its attention, if it has any.
    reader_class: the class of its reader (text_reader.py).
    ids: the tokens that it can draft, if these are not all: then V is their number in what `read`
        and `step` return (pruned.py).

    For its training (unrolled.py):
    steps: how many draft tokens it learns to draft.  decay: what each counts of the one before it.
    anchors: after how many tokens of every text it drafts in a step of the training.
    hidden_loss, token_loss: what the losses on its states and on its distributions count.
    """

    deepest: int | None = None
    config: Config | None = None
    ids: Tensor | None = None
    reader_class: Callable[..., Any]
    steps, decay, anchors = 5, 1.0, 512
    hidden_loss, token_loss = 0.0, 1.0
    target: GPT
    sizes: dict[str, Any]

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], **sizes: int):
        super().__init__()
        numbers = {"vocab_size": vocab_size, "channels": channels} | sizes
        for name, size in numbers.items():
            if type(size) is not int or size < 1:                               # no bool
                raise ValueError(f"{name} must be a whole number of 1 or more, got {size!r}")
        if not isinstance(layers, Sequence) or not layers or any(
                type(layer) is not int or layer < 0 for layer in layers):
            raise ValueError(f"layers must be the numbers of some of the target's, got {layers!r}")
        self.sizes, self.layers = numbers | {"layers": list(layers)}, tuple(layers)
        self.vocab_size, self.channels = vocab_size, channels

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        """What it is made of for a target of these sizes, besides its vocabulary and channels."""
        raise NotImplementedError

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        """Read committed tokens (B, T). before: the hidden states before each, (B, T, layers, C).

        Returns, of the tokens that ask, states (B, N, ...) and logits (B, N, V) of the next token.
        """
        raise NotImplementedError

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        """Read draft tokens (B, N), each after its state (B, N, ...).

        Returns the next states, and logits (B, N, V) of the next token.
        """
        raise NotImplementedError

    def reader(self, depth: int) -> Any:
        """What runs it over drafts of at most `depth` tokens, one after the other. RequestError if
        it has no target.
        """
        if not hasattr(self, "target"):
            raise RequestError("the draft model has no target yet: call attach(target)")
        return self.reader_class(self, depth)

    def spread(self, logits: Tensor) -> Tensor:
        """Logits of the tokens that it can draft -> of all tokens of the target."""
        return logits

    def prepare(self, ids: Tensor) -> None:
        """What is to be known of the training text before training begins."""

    def normed(self, before: Tensor) -> Tensor:
        """Hidden states (..., layers, C), each layer's normed on its own -> (..., layers * C)."""
        return F.rms_norm(before, before.shape[-1:], eps=1e-5).flatten(-2)

    def last_hidden(self, before: Tensor) -> Tensor:
        """Hidden states (..., layers, C), the last layer's among them -> what the head reads."""
        return self.target.norm(before[..., -1, :].to(self.target.dtype)).to(self.dtype)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Tokens (...) -> the target's embeddings (..., C)."""
        return self.target.embedding(tokens).to(self.dtype)

    def target_logits(self, x: Tensor) -> Tensor:
        """Logits (..., V): what the target's own output head, frozen, makes of x (..., C)."""
        return self.target.head(x.to(self.target.dtype))

    def rope(self, positions: int) -> Tensor:
        """The rotations of its attention, as rope_table."""
        config: Any = self.config
        return rope_table(positions, config.head_size, config.rope_theta, self.dtype, self.device)

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
        check_model("the target", target)
        config = target.config
        sizes = config.vocab_size, config.channels
        if sizes != (self.vocab_size, self.channels) or max(self.layers) >= config.layers:
            raise RequestError(f"the draft model was made for a target with {self.vocab_size} "
                               f"tokens, {self.channels} channels and more than {max(self.layers)} "
                               f"layers, this one has {sizes[0]}, {sizes[1]} and {config.layers}")
        # Not as a module: it is not trained, saved or counted.
        object.__setattr__(self, "target", target)
        return self


class AtOnce(Learned):
    """A learned draft model that predicts all draft tokens in one pass.

    Its state (B, N, k, V) are the logits of the k tokens that are left.
    """

    def logits(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        """The logits of call.steps tokens, (B, N, steps, V). tokens, before: as for `read`."""
        raise NotImplementedError

    def after_token(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Logits (B, N, V) of the next token, given the token before it (B, N)."""
        return logits

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        return self.step(self.logits(tokens, before, call), call.asking(tokens), call)

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        return state[..., 1:, :], self.after_token(state[..., 0, :], tokens)


def three_layers(target: Config) -> list[int]:
    """A low, a middle and the last layer."""
    return sorted({target.layers // 4, target.layers // 2, target.layers - 1})
