"""What runs a draft model: it feeds it tokens, and keeps what the model has read of a text."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from nanospec.cache import LanguageModel
from nanospec.errors import check_model, check_vocabulary
from nanospec.text import Text, prefill


class GPTReader:
    """Runs a GPT as a draft model: it reads every token once, and a cache keeps what it has read.

    The models of draft_models/ bring readers of their own, with the same methods.
    layers: the target's layers whose hidden states it reads.
    lag: the most trailing tokens of a text that may be missing in its cache after its own rounds:
    the replacement or bonus token, and the last draft token, which was drawn but not read.
    """

    layers: Sequence[int] = ()
    lag = 2

    def __init__(self, model: LanguageModel):
        self.model = model

    def begin(self, text: Text) -> None:
        """A batch begins: a new cache for it."""
        check_vocabulary(self.model, text.vocab_size)
        self.cache = self.model.new_cache(*text.tokens.shape)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts of new requests."""
        prefill(self.model, text, cache=self.cache, rows=rows)

    def start(self, text: Text, lag: int, kv_length: int) -> Tensor:
        """Read the last `lag` tokens of every text: logits (B, 1, V) of the next one."""
        self.cache.length = text.length - lag               # rolls back what was rejected, too
        return self.step(text.last(lag), kv_length, scored=1)

    def step(self, tokens: Tensor, kv_length: int, *, scored: int | None = None) -> Tensor:
        """Read draft tokens (B, T): logits (B, T, V) of the token after each, or the last ones."""
        logits = self.model(tokens, self.cache, kv_length, scored=scored)
        self.cache.length = self.cache.length + tokens.shape[1]
        return logits

    def commit(self, path: Tensor, count: Tensor, hidden: Tensor | None) -> None:
        """How the round ended, as for Drafter. Nothing to do: the next `start` rolls back."""


def reader_of(draft_model: Any, gamma: int) -> Any:
    """What runs a draft model over chains of up to gamma tokens: its own reader, or GPTReader.

    RequestError where the draft model cannot draft that many, or is none.
    """
    if not hasattr(draft_model, "reader"):
        check_model("the draft model", draft_model)
    return draft_model.reader(gamma) if hasattr(draft_model, "reader") else GPTReader(draft_model)
