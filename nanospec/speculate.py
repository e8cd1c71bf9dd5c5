"""Speculative decoding: a small draft guesses gamma tokens, the target checks them in one pass, and the text is
distributed exactly as if the target had written it alone.

Leviathan, Kalman, Matias 2022 (arXiv 2211.17192, Algorithm 1); Chen et al. 2023 (arXiv 2302.01318, Algorithm 2).
Read from `verify` upwards and downwards: it is the idea, all else is bookkeeping. One round, for B texts at once and
without a branch, is `chain_round`; `speculate` repeats it. Trees of guesses and other rules live in files of their own.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import Law, Text, check_law, check_request, check_vocabulary, prefill, until
from nanospec.model import GPT
from nanospec.probs import probs


def verify(drafted: Tensor, q_draft: Tensor, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Keep the longest prefix of the draft that survives its coins, and say which token follows it.

    drafted (B, gamma); q_draft (B, gamma, V), the laws they were drawn from; p_target (B, gamma + 1, V), the target's
    laws at the same places and one further -> kept (B,) in 0..gamma, token (B,).

    A drafted x stays with probability min(1, p_target(x) / q_draft(x)). The first that falls is replaced by a draw
    from the residual max(0, p_target - q_draft), whatever came after it is forgotten; if none falls, the bonus token
    is drawn from the target's last row. Example: p_target [.5, .5], q_draft [.8, .2], drafted 0: kept with
    probability .625; if it falls, the residual is [0, .3], so always token 1.
    """
    at = drafted[:, :, None]
    ratio = p_target[:, :-1].gather(-1, at) / q_draft.gather(-1, at)                       # (B, gamma, 1)
    survives = dice.flip(ratio[:, :, 0].clamp(max=1))                                      # (B, gamma)
    kept = survives.long().cumprod(-1).sum(-1)                                             # (B,)

    q_draft = F.pad(q_draft, (0, 0, 0, 1))      # behind the draft, a guess of nothing: the bonus is a residual too
    row = torch.arange(len(kept), device=kept.device)
    p_there, q_there = p_target[row, kept], q_draft[row, kept]                             # (B, V)
    residual = (p_there - q_there).clamp(min=0)
    nothing_left = residual.sum(-1, keepdim=True) == 0                                     # p = q up to rounding
    return kept, dice.pick(torch.where(nothing_left, p_there, residual))


class ModelDrafter:
    """Drafts with a small model. Any drafter of chains has these three methods, and `steps`, the calls of a draft model
    that its last proposal took; it may keep what it likes between rounds.
    """

    def __init__(self, draft: GPT):
        self.draft = draft

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, for a target of that vocabulary: forget the last one, read the prompts."""
        check_vocabulary(self.draft, vocab_size)
        self.cache = prefill(self.draft, text)

    def propose(self, text: Text, gamma: int, law: Law, dice: Dice, upto: int) -> tuple[Tensor, Tensor]:
        """gamma guesses for every row, and the law each was drawn from: (B, gamma), (B, gamma, V); others may guess
        less.
        """
        # The last two tokens, always: after a round in which all were kept, the draft has never read its own last
        # guess. Setting the length is also the roll-back of whatever was refused.
        feed = text.last(2)
        self.cache.length = text.length - 2
        drafted, q_draft, self.steps = [], [], gamma
        for _ in range(gamma):
            q_draft.append(law(self.draft(feed, self.cache, upto)[:, -1]))
            drafted.append(dice.pick(q_draft[-1]))
            self.cache.length = self.cache.length + feed.shape[1]
            feed = drafted[-1][:, None]
        return torch.stack(drafted, 1), torch.stack(q_draft, 1)

    def learn(self, kept: int, p_target: Tensor) -> None:
        """How a round ended, of one text: guesses kept, and the target's laws (gamma + 1, V). A model is what it is."""


@dataclass
class Round:
    """What one round did, for whoever prints, plots, times or tests it."""

    drafted: list[int]                  # the gamma guesses
    kept: int                           # how many of them stood
    token: int                          # the replacement of the first that fell; the bonus token if none did
    emitted: list[int]                  # drafted[:kept] + [token], cut at a stop token and at the length asked for
    q_draft: Tensor                     # (gamma, V), what each guess was drawn from
    p_target: Tensor                    # (gamma + 1, V)
    draft_seconds: float                # on CUDA, where calls return before they are done, only the sum of the two
    verify_seconds: float               # means anything
    steps: int                          # calls of a draft model

    @property
    def refused(self) -> list[int]:
        """The guesses in whose place `token` stands."""
        return self.drafted[self.kept:self.kept + 1]


def tokens_of(rounds: Iterable[Round]) -> list[int]:
    """The text that rounds have written."""
    return [token for one in rounds for token in one.emitted]


def chain_round(target: GPT, cache: Cache, drafter, text: Text, gamma: int, law: Law, dice: Dice, upto: int,
                rule: Callable = verify) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
    """Draft, score all guesses in one target pass, keep or replace, commit. No branch, no shape that varies.

    cache: the target's. rule: `verify`, or another of its kind. upto: slots to read, at least the longest text + gamma.
    Returns drafted, q_draft, p_target, kept, token (shapes as in `verify`) and the time at which drafting ended.
    """
    drafted, q_draft = drafter.propose(text, gamma, law, dice, upto)
    drafted_at = time.perf_counter()
    cache.length = text.length - 1                                  # roll back: what was refused is forgotten
    block = torch.cat([text.last(1), drafted], 1)                   # (B, gamma + 1): the last token is not cached yet
    p_target = law(target(block, cache, upto))                      # (B, gamma + 1, V)
    kept, token = rule(drafted, q_draft, p_target, dice)
    block = torch.cat([drafted, token[:, None]], 1).scatter_(1, kept[:, None], token[:, None])
    text.commit(block, kept + 1)
    return drafted, q_draft, p_target, kept, token, drafted_at


@torch.inference_mode()
def speculate(target: GPT, drafter, ids: Sequence[int], gamma: int = 4, max_new_tokens: int = 128,
              temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, seed: int = 0,
              stop: Sequence[int] = (), dice: Dice | None = None, capture: Callable | None = None,
              rule: Callable = verify) -> Iterator[Round]:
    """Continue `ids` by at most `max_new_tokens` tokens or up to the first token in `stop` (which is emitted).

    Yields a Round after every target pass; the text is the rounds' `emitted`, one after the other. It follows the
    law of `generate` with the same settings, exactly, up to the arithmetic of the device.
    dice: to decide instead of the seed. capture: makes the round one launch on CUDA, see graphs.py. rule: who decides
    instead of `verify`, see rules/.
    Raises RequestError when the request is not one that can be answered, LogitsError when a model answers with NaN.
    """
    check_request(target, ids, max_new_tokens, temperature, top_k, top_p)
    if gamma < 1:
        raise RequestError(f"gamma must be at least 1, got {gamma}")
    law = partial(probs, temperature=temperature, top_k=top_k, top_p=top_p)
    text = Text([ids], max_new_tokens + gamma + 1, target.device)
    dice = dice or Dice([seed], target.device)
    cache, length = prefill(target, text), len(ids)
    drafter.begin(text, target.config.vocab_size)
    run = partial(chain_round, target, cache, drafter, text, gamma, law, dice, rule=rule)
    run = capture(run, text, dice) if capture else run
    left = max_new_tokens
    while left:
        dice.refill(2 * gamma + 1)                                  # a pick and a flip for each guess, one pick more
        began = time.perf_counter()
        drafted, q_draft, p_target, kept, token, drafted_at = run(length + gamma)
        *guesses, n, last = torch.cat([drafted[0], kept, token]).tolist()                  # the one read-back
        ended = time.perf_counter()
        drafted_at = max(began, drafted_at)                         # captured, a round has no middle to be timed
        check_law(q_draft, p_target)
        drafter.learn(n, p_target[0])
        length += n + 1
        emitted, stopped = until(guesses[:n] + [last], stop)
        emitted = emitted[:left]
        left = 0 if stopped else left - len(emitted)
        yield Round(guesses, n, last, emitted, q_draft[0], p_target[0], drafted_at - began, ended - drafted_at,
                    drafter.steps)
