"""What a server is asked for, and a prompt that is read in pieces until there is a row for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import NanospecError
from nanospec.probs import Sampling

PIECE = 64              # tokens of a prompt that are read in a step


@dataclass(eq=False)
class Request:
    """What was asked for, and what has become of it. seed: by default one that no other request of
    the server has. error: why it failed; the others go on.
    """

    ids: list[int]
    max_new_tokens: int = 128
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0
    stop: Sequence[int] = ()
    tokens: list[int] = field(default_factory=list, init=False)
    done: bool = field(default=False, init=False)
    error: NanospecError | None = field(default=None, init=False)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p)

    def end(self, error: NanospecError | None = None) -> None:
        self.done, self.error = True, error


class Prompt:
    """A request that waits for a row, and how much of it has been read: all but its last token is
    to be.

    cache: the target's, of what has been read.
    hidden: its hidden states, (1, T, len(layers), C) for each piece.
    """

    def __init__(self, request: Request):
        self.request, self.length, self.hidden = request, 0, list[Tensor]()
        self.cache: Cache | None = None

    @property
    def read(self) -> bool:
        return self.length == len(self.request.ids) - 1

    def read_piece(self, target: LanguageModel, layers: Sequence[int]) -> None:
        """Read the next PIECE tokens, if there are any."""
        if self.read:
            return
        end = len(self.request.ids) - 1
        self.cache = self.cache or target.new_cache(1, end)
        piece = torch.tensor([self.request.ids[self.length:end][:PIECE]], dtype=torch.int64,
                             device=target.device)
        self.length += piece.shape[1]
        out = target(piece, self.cache, self.length, layers=layers, scored=0)
        self.hidden += [out[1]] if layers else []
        self.cache.length += piece.shape[1]
