"""Speculative decoding: a small draft model proposes gamma tokens, the target verifies them in one
call, and the text is distributed exactly as if the target had written it alone.

Leviathan, Kalman, Matias 2022 (arXiv 2211.17192, Algorithm 1, whose five steps the comments count);
Chen et al. 2023 (arXiv 2302.01318, Algorithm 2). idea.py has a round in plain lines. `ModelDrafter`
drafts, `verify` decides, `one_round` does both for B texts, without a branch, `speculate` repeats.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule
from nanospec.errors import check_drafter, check_finite, check_gamma, check_request, check_scored
from nanospec.probs import Sampling, residual
from nanospec.reader import reader_of
from nanospec.text import Text, prefill, until


def verify(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Accept the longest prefix in which every token is accepted, and draw the token that follows.

    draft: a chain of n = gamma + 1 nodes, node 0 the text's last token; p_target (B, n, V), the
    target's distribution after every node -> accepted (B,) in 0..gamma, token (B,).

    A draft token x is accepted with probability min(1, p_target(x) / q_draft(x)). The first one
    that is rejected is replaced by a draw from the residual distribution, max(0, p_target -
    q_draft) over its sum, and all that came after it is dropped. If none is rejected, the bonus
    token is drawn from the target's distribution after the last node.
    Example: p_target [.5, .5], q_draft [.8, .2], draft token 0: accepted with probability .625; if
    it is rejected, the residual is [0, 1], so always token 1.
    """
    check_scored(draft, p_target, Draft)
    x = draft.tokens[:, 1:, None]                                               # (B, gamma, 1)
    p_of_x = p_target[:, :-1].gather(-1, x)[:, :, 0]                            # (B, gamma)
    q_of_x = draft.q_draft[:, 1:].gather(-1, x)[:, :, 0]
    # 3. How many are accepted. What fills up a shorter draft has a q_draft of zeros, and never is.
    coins = dice.flip(torch.where(q_of_x > 0, p_of_x / q_of_x, 0.0))            # (B, gamma)
    accepted = coins.long().cumprod(-1).sum(-1)                                 # (B,)
    # 4. The node after the accepted ones was rejected: take its q_draft. After the last node there
    # is none: zeros, which leave p_target itself, for the bonus token.
    q_after = F.pad(draft.q_draft[:, 1:], (0, 0, 0, 1))                         # (B, n, V)
    b = torch.arange(len(accepted), device=accepted.device)
    left = residual(p_target[b, accepted], q_after[b, accepted])                # (B, V)
    return accepted, dice.pick(left)                                            # 5. one token more


class ModelDrafter(Drafter):
    """Drafts a chain of gamma tokens with a small GPT, or a model of methods/draft_models/."""

    fixed = True

    def __init__(self, draft_model: Any, gamma: int = 4):
        self.most = self.gamma = check_gamma(gamma, "gamma")
        self.draft_model, self.reader = draft_model, reader_of(draft_model, gamma)
        self.layers = self.reader.layers

    def begin(self, text: Text) -> None:
        """Make room for these texts."""
        self.reader.begin(text)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts."""
        self.reader.read(text, rows, hidden)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """gamma draft tokens for every text, and the distribution that each was drawn from."""
        tokens, q_draft = [text.last(1)[:, 0]], []
        logits = self.reader.start(text, max(lag, self.reader.lag), kv_length)      # (B, 1, V)
        for _ in range(self.gamma):
            if q_draft:
                logits = self.reader.step(tokens[-1][:, None], kv_length)
            q_draft.append(sampling(logits[:, 0]))
            tokens.append(dice.pick(q_draft[-1]))
        node_0 = torch.zeros_like(q_draft[0])
        return Draft(torch.stack(tokens, 1), torch.stack([node_0, *q_draft], 1), self.gamma)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Tell the reader, which may keep hidden states of what was accepted."""
        self.reader.commit(path, count, hidden)


def one_round(target: Callable, cache: Cache, drafter: Drafter, rule: Rule, text: Text,
              sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
              lag: int = 0) -> tuple[Draft, Tensor, Tensor, Tensor, Tensor]:
    """Draft, verify in one call of the target, commit: for B texts, and branch-free.

    cache: the target's. kv_length, lag: as in Drafter.propose. Returns the draft, p_target (B, n,
    V), path (B, n) and count (B,), the accepted nodes, and token (B,), which follows the last one.
    """
    draft = drafter.propose(text, sampling, dice, kv_length, lag)               # 1. draft tokens
    cache.length = text.length - 1          # forget what the last round rejected
    out = target(draft.tokens, cache, kv_length, layers=drafter.layers,
                 **draft.placing(cache, kv_length))                             # 2. one target call
    logits, hidden = out if drafter.layers else (out, None)
    p_target = sampling(logits)                                                 # (B, n, V)
    accepted, token = rule(draft, p_target, dice)                               # 3. to 5.: the rule
    path, count = draft.path(accepted)
    draft.keep(cache, path)
    written = torch.cat([draft.tokens.gather(1, path)[:, 1:], token[:, None]], 1)
    text.commit(written.scatter_(1, count[:, None], token[:, None]), count + 1)  # token ends it
    drafter.commit(draft, path, count, p_target, hidden, logits)
    return draft, p_target, path, count, token


@dataclass
class Round:
    """What one round did to one text. To train on its tensors, clone() them first."""

    tokens: list[int]                   # of all n nodes; node 0 is the text's last token
    parents: list[int]                  # of all n nodes, node 0's -1 first
    path: list[int]                     # the accepted nodes, without node 0
    token: int                          # the replacement of what was rejected, or the bonus token
    emitted: list[int]                  # the accepted tokens and `token`, cut at a stop or limit
    p_target: Tensor                    # (n, V), the target's distribution after every node
    q_draft: Tensor                     # (n, V), what every node was drawn from; zeros at node 0
    steps: int                          # calls of a draft model

    @classmethod
    def read(cls, draft: Draft, p_target: Tensor, path: Tensor, count: Tensor,
             token: Tensor) -> "Round":
        """Of the first text of a batch; what was written is not yet cut to `stop` or the limit.

        The one place in a round where the CPU waits for the device: one tensor, one transfer.
        LogitsError if a probability is not a number.
        """
        finite = torch.isfinite(p_target.sum() + draft.q_draft.sum())
        *nodes, accepted, last, is_finite = torch.cat([draft.tokens[0], draft.parents[0], path[0],
                                                       count[:1], token[:1], finite[None]]).tolist()
        check_finite(0.0 if is_finite else float("nan"))
        n = draft.tokens.shape[1]
        tokens, parents, way = nodes[:n], nodes[n:2 * n], nodes[2 * n + 1:][:accepted]
        written = [tokens[node] for node in way] + [last]
        return cls(tokens, parents, way, last, written, p_target[0], draft.q_draft[0], draft.steps)

    @property
    def rejected(self) -> list[int]:
        """The tokens in whose place `token` stands: all children of the last accepted node."""
        last = [0, *self.path][-1]
        return [self.tokens[node] for node, parent in enumerate(self.parents) if parent == last]


def tokens_of(rounds: Iterable[Round]) -> list[int]:
    """The text that rounds have written."""
    return [token for done in rounds for token in done.emitted]


def repeated(run: Callable, drafter: Drafter, dice: Dice, length: int, max_new_tokens: int,
             stop: Sequence[int]) -> Iterator[Round]:
    """One round after the other, for a text of `length` tokens, until it has what was asked for.

    run: `one_round`, given all that it needs but the KV length.
    """
    left = max_new_tokens
    while left:
        dice.refill(drafter.uniforms + drafter.most + 1)    # for the rule: coins, and one pick
        done = Round.read(*run(length + drafter.most))
        length += len(done.emitted)
        emitted, stopped = until(done.emitted, stop)
        done.emitted = emitted[:left]
        left = 0 if stopped else left - len(done.emitted)
        yield done


@torch.inference_mode()
def speculate(target: LanguageModel, drafter: Drafter, ids: Sequence[int],
              max_new_tokens: int = 128, temperature: float = 1.0, *, top_k: int | None = None,
              top_p: float | None = None, min_p: float | None = None, seed: int = 0,
              stop: Sequence[int] = (), dice: Dice | None = None, rule: Rule | None = None,
              compiler: Callable | None = None, **others: Any) -> Iterator[Round]:
    """Continue `ids` by at most `max_new_tokens` tokens. The first one in `stop` is the last.

    Yields a Round after every target call; the text is the rounds' `emitted`, one after the other.
    Its distribution is exactly that of `generate` with the same settings, up to rounding.
    drafter: serves one request at a time; for many see serving/. dice: instead of the seed.
    rule: instead of the drafter's own. compiler: makes the round one function (fast/compiled.py).
    Raises RequestError where the request cannot be answered, LogitsError where a model gives NaN.
    """
    check_drafter(target, drafter, rule, dice, compiler)
    sampling = Sampling(temperature, top_k, top_p, min_p)
    max_new_tokens = check_request(target, ids, max_new_tokens, seed, drafter.most, stop, others)
    text = Text([ids], max_new_tokens + drafter.most + 1, target.config.vocab_size, target.device)
    dice = dice or Dice([seed], target.device)
    cache, hidden = prefill(target, text, drafter.layers)
    drafter.begin(text)
    drafter.read(text, [0], hidden)
    run = partial(one_round, target, cache, drafter, rule or drafter.rule or verify, text,
                  sampling, dice)
    run = compiler(run, text, dice) if compiler else run
    yield from repeated(run, drafter, dice, len(ids), max_new_tokens, stop)
