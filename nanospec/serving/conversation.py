"""A conversation: one text that two sides continue in turn, and that the target reads once.

    talk = Conversation(target, ModelDrafter(draft_model, 4))
    for done in talk.reply(ids, max_new_tokens=200, stop=ends): ...     # rounds, as `speculate`
    for done in talk.reply(more, ...): ...      # the target reads `more`, and nothing a second time

The target's cache and hidden states of all earlier turns are kept. A drafter gets the whole text as
its prompt at every turn, so that every drafter works here as it is. An answer may be abandoned
after any round; what it had written stays. All turns draw from one stream of random numbers: with a
seed for each, and the same one, what the turns say would not be independent.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule
from nanospec.errors import (LogitsError, RequestError, check_drafter, check_ids, check_numbers,
                             check_request)
from nanospec.generate import plain_step
from nanospec.probs import Sampling
from nanospec.speculate import Round, one_round, repeated, verify
from nanospec.text import Text

CONTEXT = 8192          # tokens of a conversation, where the user asks for no other number


class Conversation:
    """ids: all tokens so far, of both sides. read: how many the target read in the last `reply`,
    before it wrote.

    target: wrapped already where the drafter needs that. drafter: for this conversation alone.
    context: the most tokens of both sides together; by default as many as the target can read, and
    CONTEXT at most.
    seed: of all turns that have none of their own. dice: decides instead of it.
    """

    def __init__(self, target: LanguageModel, drafter: Drafter, context: int | None = None,
                 seed: int = 0, dice: Dice | None = None):
        check_drafter(target, drafter, dice=dice)
        if context is not None:
            check_numbers(Integral, context=context)
            if context < 1:
                raise RequestError(f"a conversation has a context of 1 or more, got {context}")
        self.target, self.drafter = target, RecordingDrafter(drafter)
        config = target.config
        self.context = min(int(context or CONTEXT), config.context)
        self.text = Text([[0]], self.context + drafter.most + 1, config.vocab_size,
                         target.device)
        self.cache = target.new_cache(*self.text.tokens.shape)
        self.dice = dice or Dice([seed], target.device)
        drafter.begin(self.text)
        self.ids: list[int] = []
        self.read = self.turn = 0       # turn: how often the text was taken up, by whatever
        self.intact = True              # whether what was kept of the text may be read

    def __copy__(self):
        """RequestError: the two would write into one cache."""
        raise RequestError("a conversation is copied by copy.deepcopy, its cache too")

    @property
    def left(self) -> int:
        """How many more tokens there is room for."""
        return self.context - len(self.ids)

    def go_back(self, tokens: int) -> None:
        """To the first `tokens` tokens. What followed them is forgotten."""
        check_numbers(Integral, tokens=tokens)
        if not 0 <= tokens <= len(self.ids):
            raise RequestError(f"a conversation of {len(self.ids)} tokens does not go back to "
                               f"{tokens}")
        self.ids, self.turn = self.ids[:tokens], self.turn + 1

    @torch.inference_mode()
    def reply(self, ids: Sequence[int], max_new_tokens: int = 128, temperature: float = 1.0,
              *, top_k: int | None = None, top_p: float | None = None, min_p: float | None = None,
              seed: int | None = None, stop: Sequence[int] = (), rule: Rule | None = None,
              **others: Any) -> Iterator[Round]:
        """Append `ids`, and continue, as `speculate`. Yields rounds; their `emitted` are appended
        as they come. seed: of this turn alone.

        RequestError as `speculate`, and where the whole text and the answer exceed the context;
        then nothing was appended. And for a reply that is taken up again after another one, or
        after `go_back`.
        """
        check_ids("what is appended", ids)
        prompt, drafter = [*self.ids, *ids], self.drafter
        check_drafter(self.target, drafter, rule)
        sampling = Sampling(temperature, top_k, top_p, min_p)
        max_new_tokens = check_request(self.target, prompt, max_new_tokens,
                                       0 if seed is None else seed, drafter.most, stop, others)
        if len(prompt) + max_new_tokens > self.context:
            raise RequestError(f"{len(prompt)} tokens and an answer of up to {max_new_tokens} "
                               f"exceed the context of {self.context}: Conversation(..., "
                               "context=...) makes it longer")
        self.turn = mine = self.turn + 1
        read = self._read(prompt)
        drafter.read(self.text, [0], drafter.recorded())
        self.ids, self.read = prompt, read
        dice = self.dice if seed is None else Dice([seed], self.target.device)
        run = partial(one_round, self.target, self.cache, drafter, rule or drafter.rule or verify,
                      self.text, sampling, dice)
        try:
            for done in repeated(run, drafter, dice, len(prompt), max_new_tokens, stop):
                self.ids += done.emitted
                yield done
                if self.turn != mine:
                    raise RequestError("this reply was left, and the conversation has gone on "
                                       "without it")
        except LogitsError:             # what is NaN is in the caches, and a shorter draft reads it
            self.intact = False
            raise

    @torch.inference_mode()
    def plain_steps(self, steps: int, temperature: float = 1.0, top_k: int | None = None,
                    top_p: float | None = None, min_p: float | None = None) -> Iterator[int]:
        """What plain decoding would write now, a token a step, for a clock. Nothing is kept."""
        sampling = Sampling(temperature, top_k, top_p, min_p)
        dice = Dice([0], self.target.device)
        self.turn += 1
        self.text.length[0] = len(self.ids)
        for length in range(len(self.ids), len(self.ids) + min(steps, self.drafter.most + 1)):
            dice.refill(1)
            token, p_target = plain_step(self.target, self.cache, self.text, sampling, dice, length)
            written, total = torch.stack([token[0].to(p_target), p_target.sum()]).tolist()
            self.intact = self.intact and math.isfinite(total)      # NaN stays in the cache
            yield int(written)

    def _read(self, prompt: list[int]) -> int:
        """Let the target read the prompt but its last token, as far as its cache lacks it; how many
        tokens that are.
        """
        known = max(len(self.ids) - 1, 0)           # the last token of a text has never been read
        if not self.intact:
            self.cache, known = self.target.new_cache(*self.text.tokens.shape), 0
            self.drafter.begin(self.text)
            self.intact = True
        new, layers = prompt[known:-1], self.drafter.layers
        self.text.tokens[0, :len(prompt)] = torch.tensor(prompt, dtype=torch.int64,
                                                         device=self.text.tokens.device)
        self.text.length[0], self.cache.length[0] = len(prompt), known
        self.drafter.forget_after(known)
        if new:
            tokens = torch.tensor([new], dtype=torch.int64, device=self.target.device)
            out = self.target(tokens, self.cache, known + len(new), layers=layers, scored=0)
            self.drafter.record(out[1] if layers else None)
        elif layers and not known:
            channels = self.target.config.channels
            self.drafter.record(torch.empty(1, 0, len(layers), channels, dtype=self.target.dtype,
                                            device=self.target.device))
        return len(new)


class RecordingDrafter:
    """Another drafter. It also keeps the target's hidden states of all committed tokens but the
    last.

    parts: each (1, T, len(layers), C), and the path and the count of a round whose accepted nodes
    are meant; or None.
    """

    def __init__(self, drafter: Drafter):
        self.drafter = drafter
        self.parts: list[tuple[Tensor, Tensor | None, Tensor | None]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "drafter":                   # a copy that has none yet
            raise AttributeError(name)
        return getattr(self.drafter, name)      # all that is not recorded is the drafter's own

    def record(self, hidden: Tensor | None, path: Tensor | None = None,
               count: Tensor | None = None) -> None:
        """More of them, after those that are here."""
        if hidden is not None:
            self.parts.append((hidden, path, count))

    def recorded(self) -> Tensor | None:
        """All of them, (1, T, len(layers), C); None for a drafter that reads none."""
        if not self.parts:
            return None
        parts = [hidden if path is None or count is None else hidden[:, path[0, :int(count) + 1]]
                 for hidden, path, count in self.parts]
        self.parts = [(torch.cat(parts, 1), None, None)]
        return self.parts[0][0]

    def forget_after(self, tokens: int) -> None:
        """Those of the first `tokens` tokens remain."""
        recorded = self.recorded()
        self.parts = [] if recorded is None else [(recorded[:, :tokens], None, None)]

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        # Joined when the next turn needs them: to look at the count now would wait for the device.
        self.record(hidden, path, count)
        self.drafter.commit(draft, path, count, p_target, hidden, logits)
