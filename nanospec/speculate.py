"""Speculative decoding: a small draft model proposes gamma tokens, the target verifies them in one pass, and the text
is distributed exactly as if the target had written it alone.

Leviathan, Kalman, Matias 2022 (arXiv 2211.17192, Algorithm 1); Chen et al. 2023 (arXiv 2302.01318, Algorithm 2).
`verify` is the idea, `ModelDrafter` drafts, `one_round` does both once for B texts and without a branch, `speculate`
repeats it. Other drafters and rules live in files of their own, and use the same round.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule, check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.reader import check_depth
from nanospec.probs import Sampling, residual
from nanospec.rules.tree import verify_tree
from nanospec.text import Text, check_layers, check_numbers, check_request, check_seed, prefill, until


def verify(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Accept the longest prefix of the draft whose coins all stand, and say which token follows it.

    draft: n = gamma + 1 rows; p_target (B, n, V), the target's distribution behind every row
    -> accepted (B,) in 0..gamma, token (B,).

    A draft token x is accepted with probability min(1, p_target(x) / q_draft(x)). The first that is rejected is
    replaced by a draw from the residual distribution, max(0, p_target - q_draft) over its sum, and whatever came after
    it is forgotten. If none is rejected, the bonus token is drawn from the target's last row.
    Example: p_target [.5, .5], q_draft [.8, .2], draft token 0: accepted with probability .625; if it is rejected, the
    residual is [0, 1], so always token 1.
    """
    if draft.parents is not None:                           # a tree: the same rule, row by row
        return verify_tree(draft, p_target, dice)
    x = draft.tokens[:, 1:, None]
    ratio = p_target[:, :-1].gather(-1, x) / draft.q_draft[:, 1:].gather(-1, x)             # (B, gamma, 1)
    coins = dice.flip(ratio[:, :, 0])                                                       # (B, gamma)
    accepted = coins.long().cumprod(-1).sum(-1)                                             # (B,)
    # What is replaced was drawn from the next row's q_draft. Behind the last row comes row 0, whose q_draft is zeros:
    # its residual is p_target itself, and that is the bonus.
    row, behind = torch.arange(len(accepted), device=accepted.device), (accepted + 1) % draft.tokens.shape[1]
    return accepted, dice.pick(residual(p_target[row, accepted], draft.q_draft[row, behind]))


class ModelDrafter(Drafter):
    """Drafts a chain of gamma tokens with a draft model: a small GPT, or one of draft_models/."""

    def __init__(self, draft: DraftModel, gamma: int = 4):
        self.draft, self.size, self.reader = draft, check_size(gamma + 1, "gamma"), reader_of(draft)
        self.layers = self.reader.layers
        check_depth(self.reader, gamma)
        self.unread = self.size if self.reader.rereads else 2

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        return self.reader.share(target, cache)

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """Read the prompts."""
        self.text = text
        self.reader.begin(text, rows, features)

    def move(self, rows: Sequence[int], count: int) -> None:
        """The draft model's texts move with the target's."""
        self.reader.move(rows, count)

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """gamma draft tokens for every row, and the distribution that each was drawn from."""
        tokens, q_draft = [text.last(1)[:, 0]], []
        for drawn in range(self.size - 1):
            logits = (self.reader.behind(tokens[-1][:, None], upto) if drawn else
                      self.reader.root(text, self.unread, upto))                            # (B, 1, V)
            q_draft.append(sampling(logits[:, 0]))
            tokens.append(dice.pick(q_draft[-1]))
        return Draft(torch.stack(tokens, 1), torch.stack([torch.zeros_like(q_draft[0]), *q_draft], 1),
                     steps=self.size - 1)

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """Tell the draft model, which may keep features of what was accepted."""
        self.reader.commit(self.text, draft, accepted, features)


def one_round(target: Callable, cache: Cache, drafter: Drafter, rule: Rule, text: Text, sampling: Sampling, dice: Dice,
              upto: int) -> tuple[Draft, Tensor, Tensor, Tensor]:
    """Draft, verify in one pass of the target, commit: for B texts, and without a branch on what they say.

    cache: the target's. upto: slots to read, a plain int, at least length + size - 1 of every row.
    Returns the draft, p_target (B, n, V), accepted (B,), the last row accepted, and token (B,), which follows it.
    """
    draft = drafter.propose(text, sampling, dice, upto)
    cache.length = text.length - 1                          # roll back: whatever was rejected is forgotten
    sees, tree = draft.ancestors(), {}                      # a chain needs no mask of its own
    if sees is not None:                                    # a row's position is its depth, and it sees its ancestors
        tree = {"positions": cache.length[:, None] + sees.sum(-1) - 1,
                "sees": cache.sees_tree(cache.length, sees, upto), "there": draft.there}
    out = target(draft.tokens, cache, upto, layers=drafter.layers, **tree)
    logits, features = out if drafter.layers else (out, None)
    p_target = sampling(logits)
    accepted, token = rule(draft, p_target, dice)
    path, count = draft.path(accepted, sees)
    if tree:                                                # a chain's path stands in place already
        cache.commit(cache.length, path)
    written = torch.cat([draft.tokens.gather(1, path)[:, 1:], token[:, None]], 1)
    text.commit(written.scatter_(1, count[:, None], token[:, None]), count + 1)
    drafter.commit(draft, accepted, p_target, features)
    return draft, p_target, accepted, token


@dataclass
class Round:
    """What one round did to one text, for whoever prints, plots, times or tests it. Row 0 is the text's last token."""

    tokens: list[int]                   # of all n rows
    parents: list[int]                  # of all n rows, row 0's -1 first
    path: list[int]                     # the rows that were accepted, from the root's child down
    token: int                          # the replacement of what was rejected; the bonus token if nothing was
    emitted: list[int]                  # the accepted tokens and `token`, cut at a stop token and at the limit
    p_target: Tensor                    # (n, V), the target's distribution behind every row
    q_draft: Tensor                     # (n, V), what every row was drawn from; zeros in row 0
    steps: int                          # calls of a draft model

    @property
    def rejected(self) -> list[int]:
        """The tokens in whose place `token` stands: all draft tokens behind the last accepted row."""
        last = [0, *self.path][-1]
        return [self.tokens[row] for row, parent in enumerate(self.parents) if parent == last]


def tokens_of(rounds: Iterable[Round]) -> list[int]:
    """The text that rounds have written."""
    return [token for done in rounds for token in done.emitted]


@torch.inference_mode()
def speculate(target: LanguageModel, drafter: Drafter, ids: Sequence[int], max_new_tokens: int = 128,
              temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, seed: int = 0,
              stop: Sequence[int] = (), dice: Dice | None = None, rule: Rule = verify,
              capture: Callable | None = None) -> Iterator[Round]:
    """Continue `ids` by at most `max_new_tokens` tokens, or up to the first token in `stop`, which is emitted.

    Yields a Round after every target pass; the text is the rounds' `emitted`, one after the other. It is distributed
    as `generate` with the same settings would write it, exactly, up to the arithmetic of the device.
    drafter: for one request at a time; serve.py has many.
    dice: to decide instead of the seed. rule: see rules/. capture: makes the round one launch, see fast/capture.py.
    Raises RequestError for a request that cannot be answered, LogitsError when a model answers with NaN.
    """
    check_request(target, ids, max_new_tokens, temperature, top_k, top_p, drafter.size)
    check_layers(target, drafter.layers)
    check_seed(seed)
    text = Text([ids], max_new_tokens + drafter.size, target.config.vocab_size, target.device)
    dice = dice or Dice([seed], target.device)
    cache, features = prefill(target, text, layers=drafter.layers)
    verifies = drafter.share(target, cache)
    drafter.begin(text, [0], features)
    run = partial(one_round, verifies, cache, drafter, rule, text, Sampling(temperature, top_k, top_p), dice)
    run = capture(run, text, dice) if capture else run
    length, left = len(ids), max_new_tokens
    while left:
        dice.refill(drafter.columns + drafter.size)         # the rule flips a coin for every draft token, and picks
        draft, p_target, accepted, token = run(length + drafter.size - 1)
        parts = [accepted, token, draft.tokens[0], *([] if draft.parents is None else [draft.parents[0]])]
        numbers = torch.stack([draft.q_draft.sum(), p_target.sum()])
        *read, q_total, p_total = torch.cat([torch.cat(parts).to(numbers), numbers]).tolist()      # the one read-back
        check_numbers(q_total + p_total)
        last, token, *rest = map(int, read)
        n = draft.tokens.shape[1]
        tokens, parents, path = rest[:n], rest[n:] or list(range(-1, n - 1)), []
        while last > 0:
            path, last = [last, *path], parents[last]
        written = [tokens[row] for row in path] + [token]
        length += len(written)
        emitted, stopped = until(written, stop)
        emitted = emitted[:left]
        left = 0 if stopped else left - len(emitted)
        yield Round(tokens, parents, path, token, emitted, p_target[0], draft.q_draft[0], draft.steps)
