"""Verifying a tree of guesses in one pass of the target, and the loop that does it again and again.

The node rule: children are tried in the order in which they were drawn, each against what the earlier ones left of
the target's law. SpecInfer (Miao et al. 2023, arXiv 2305.09781, Algorithm 2) for children drawn independently,
Sequoia (Chen et al. 2024, arXiv 2402.12374, Algorithm 2) for children without replacement, and the chain of
speculate.py for a single child, are all this one rule; the difference is in the laws that the drafter reports.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.generate import Law, Text, check_law, check_request, prefill, until
from nanospec.model import GPT
from nanospec.probs import probs
from nanospec.speculate import Round

Rule = Callable[[Tree, Tensor, Dice], tuple[list[int], int]]


@dataclass
class TreeRound(Round):
    """A Round whose `drafted` are the rows of a tree from 1 on; q_draft: their laws, (n - 1, V)."""

    parents: list[int]                  # of all rows, the root's -1 first
    path: list[int]                     # the rows that were kept, from the root's child down

    @property
    def refused(self) -> list[int]:
        last = [0, *self.path][-1]
        return [self.drafted[row - 1] for row, parent in enumerate(self.parents) if parent == last]


def verify_tree(tree: Tree, p_target: Tensor, dice: Dice) -> tuple[list[int], int]:
    """p_target (n, V), the target's law behind every row -> the rows kept, from the root's child down, and a token.

    Example: two children 0 and 1 of the root, drawn independently from q_draft [.5, .5], p_target [.2, .8]: 0 is kept
    with probability .4; if it falls, p_target becomes [0, 1], and 1 is kept for sure.
    """
    row, path, laws = 0, [], tree.laws(p_target)
    while True:
        left = p_target[row]
        for child in tree.children(row):
            q_draft, x = laws[child], tree.tokens[child]
            if dice.flip((left[x] / q_draft[x]).clamp(max=1).view(1, 1)):
                row = child
                path.append(child)
                break
            left = without(left, q_draft)
        else:
            return path, int(dice.pick(left[None]))


def without(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """What a refusal leaves of the target's law: max(0, p_target - q_draft), made a law again. [.5, .5] and [.8, .2]
    give [0, 1]; equal up to rounding, p_target itself."""
    left = (p_target - q_draft).clamp(min=0)
    return left / left.sum() if left.sum() > 0 else p_target


def score(target: GPT, cache: Cache, tree: Tree, length: int, law: Law) -> Tensor:
    """(n, V): the target's law behind every row, in one pass. The tree's root is the text's last token."""
    device, n = cache.length.device, len(tree.tokens)
    cache.length = torch.tensor([length - 1], device=device)
    positions = torch.tensor([[length - 1 + depth for depth in tree.depths()]], device=device)
    sees = torch.cat([torch.ones(n, length - 1, dtype=torch.bool), tree.sees()], 1).to(device)
    return law(target(torch.tensor([tree.tokens], device=device), cache, length - 1 + n, positions, sees[None])[0])


@torch.inference_mode()
def speculate_tree(target: GPT, drafter, ids: Sequence[int], max_new_tokens: int = 128, temperature: float = 1.0,
                   top_k: int | None = None, top_p: float | None = None, seed: int = 0, stop: Sequence[int] = (),
                   dice: Dice | None = None, rule: Rule = verify_tree) -> Iterator[TreeRound]:
    """As `speculate`, with a drafter of trees, each at most `drafter.size` rows, and a rule for them."""
    check_request(target, ids, max_new_tokens, temperature, top_k, top_p)
    law = partial(probs, temperature=temperature, top_k=top_k, top_p=top_p)
    text = Text([ids], max_new_tokens + drafter.size + 1, target.device)
    dice = dice or Dice([seed], target.device)
    cache, length = prefill(target, text), len(ids)
    drafter.begin(text, target.config.vocab_size)
    left = max_new_tokens
    while left:
        dice.refill(2 * drafter.size)                               # a pick and a flip for each guess, one pick more
        began = time.perf_counter()
        tree = drafter.propose(text, law, dice)
        drafted_at = time.perf_counter()
        p_target = score(target, cache, tree, length, law)
        laws = tree.laws(p_target)[1:]
        check_law(p_target, laws)
        path, token = rule(tree, p_target, dice)
        cache.length = torch.full_like(cache.length, length)        # the root's slot is text; behind it comes the path
        if path != [*range(1, len(path) + 1)]:                      # else it stands there already
            cache.keep(torch.tensor([[length - 1 + row for row in path]], device=cache.length.device))
        drafter.commit(path, p_target)
        written = [tree.tokens[row] for row in path] + [token]
        text.commit(torch.tensor([written], device=text.tokens.device), len(written))
        length += len(written)
        ended = time.perf_counter()
        emitted, stopped = until(written, stop)
        emitted = emitted[:left]
        left = 0 if stopped else left - len(emitted)
        yield TreeRound(tree.tokens[1:], len(path), token, emitted, laws, p_target, drafted_at - began,
                        ended - drafted_at, tree.steps, tree.parents, path)
