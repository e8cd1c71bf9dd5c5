"""Is what the parts of a round hand to each other what draft.py promises? Each function is a check, and counts
violations.

A drafter hands a draft to a rule. The target's hidden states go to a drafter. The dice hand out uniforms. A Round
goes to its reader. A wrong thing may be handed over and never used. It may be a q_draft at a node that the text lacks,
the hidden states of another node, or a uniform that comes twice. A walk cannot see that, and these checks do.
Left out: what follows when the wrong thing is used. The other checks see that.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.generate import generate
from nanospec.methods.index import DRAFTERS, Options
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify
from nanospec.text import Text
from tests.proof.compare import EVERY_RULE, Batch, Found

PROMPTS, LATE = [[1, 0, 1, 2, 1], [0, 2, 0, 2, 0], [2]], [1, 1, 0, 1]


def played(target, drafter: Drafter, rounds: int = 10) -> Iterator[tuple[Text, Tensor, Draft]]:
    """Three texts in one batch, round after round. Before the fifth round, row 1 begins anew.

    Yields the text, its last tokens (B,) before the round, and the draft.
    """
    batch, dice = Batch(target, drafter, PROMPTS, rounds * (drafter.most + 1) + 5), Dice(range(len(PROMPTS)))
    for number in range(rounds):
        if number == 4:
            batch.begin_anew(1, LATE)
        before = batch.text.last(1)[:, 0]
        draft, *_ = batch.round(dice, Sampling(0.8))
        yield batch.text, before, draft


def drafts(target, draft_model) -> Found:
    """The drafts of every drafter that has a name, node by node.

    Node 0 is the last committed token. A parent stands before its child, and the text has it. A node of a text has a
    distribution, in which its token is possible. A node that a text lacks has no distribution.
    """
    wrong = count = 0
    for entry in DRAFTERS.values():
        drafter = entry.make(draft_model, Options(gamma=3, topology=[-1, 0, 0, 1, 1, 2]))
        for _, last, done in played(target, drafter):
            n = done.tokens.shape[1]
            parents, total = done.parents, done.q_draft.sum(-1)
            exist = parents >= 0
            wrong += int((done.tokens[:, 0] != last).sum()) + int(exist[:, 0].sum()) + (n > drafter.most + 1)
            wrong += int((parents >= torch.arange(n)).sum())
            wrong += int((exist & (parents > 0) & ~exist.gather(1, parents.clamp(min=0))).sum())
            wrong += int(((total - exist.to(total)).abs() > 1e-9).sum())
            wrong += int((exist & (done.q_draft.gather(2, done.tokens[:, :, None])[:, :, 0] <= 0)).sum())
            count += exist.numel()
    return count, float(wrong), float(wrong)


class Holder(Drafter):
    """Another drafter, which holds on to the hidden states of every committed token that the target has read."""

    layers = (0,)

    def __init__(self, drafter: Drafter):
        self.drafter, self.most, self.rule, self.held = drafter, drafter.most, drafter.rule, {}

    def begin(self, text: Text) -> None:
        self.drafter.begin(text)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | Any) -> None:
        self.drafter.read(text, rows, None)
        for b, its in zip(rows, hidden):
            self.held[b] = its[:int(text.length[b]) - 1, 0]

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        return self.drafter.propose(text, sampling, dice, kv_length, lag)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor, hidden: Tensor | Any,
               logits: Tensor) -> None:
        for b, its in self.held.items():
            self.held[b] = torch.cat([its, hidden[b, path[b, :count[b] + 1], 0]])


def hidden_states(target, draft_model) -> Found:
    """A drafter is handed the target's own hidden states of every committed token but the last.

    This holds for a chain and for a tree, in a batch, and when a row begins anew.
    """
    wrong = count = 0
    for holder in Holder(ModelDrafter(draft_model, 2)), Holder(TreeDrafter(draft_model, [-1, 0, 0, 1, 1, 2])):
        for text, *_ in played(target, holder):
            for b, ids in enumerate(text.ids()):
                real = target(torch.tensor([ids[:-1]]), layers=(0,))[1][0, :, 0] if ids[:-1] else torch.empty(0, 1)
                same = holder.held[b].shape == real.shape and bool((holder.held[b] == real).all())
                wrong, count = wrong + (not same), count + 1
    return count, float(wrong), float(wrong)


def chain_of(n: int, seed: int) -> tuple[Draft, Tensor]:
    """A chain of n nodes of 3 tokens, drawn, and p_target after them."""
    p_target, q_draft = (TableModel(3, seed + of, zeros=0).logits[None, :n].softmax(-1) for of in (0, 1))
    dice = Dice([seed])
    dice.refill(n)
    return Draft(dice.pick(q_draft), q_draft.masked_fill((torch.arange(n) == 0)[:, None], 0.0)), p_target


def support() -> Found:
    """At the smallest uniform there is, 0.0, no token comes out that the target forbids."""
    p_target = torch.tensor([[[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]])
    q_draft = torch.tensor([[[0.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    wrong = 0
    for rule in EVERY_RULE:
        for x in (0, 1):
            dice = Dice([0])
            dice.u = torch.zeros(1, 2, dtype=torch.float64)
            accepted, token = rule(Draft(torch.tensor([[2, x]]), q_draft), p_target, dice)
            wrong += int(p_target[0, 0, x if accepted else int(token)] == 0)
    return 2 * len(EVERY_RULE), float(wrong), float(wrong)


class Ledger(Dice):
    """Dice that write down every uniform they hand out, row by row."""

    def __init__(self, seeds):
        super().__init__(seeds)
        self.handed: list[float] = []

    def _take(self, n):
        taken = super()._take(n)
        self.handed += taken.flatten().tolist()
        return taken


def ledger(target, draft_model, **settings) -> Found:
    """Every decision takes one uniform, and none is handed out twice, within a round or across rounds."""
    dice, gamma = Ledger([5]), 3
    count = sum(1 for _ in speculate(target, ModelDrafter(draft_model, gamma), [1, 0], 40, dice=dice, **settings))
    wrong = abs(len(dice.handed) - count * (2 * gamma + 1)) + len(dice.handed) - len(set(dice.handed))
    return len(dice.handed), float(wrong), float(wrong)


def one_after_the_other() -> Found:
    """After a rule the dice go on. A rule that runs twice between two refills is handed no uniform twice."""
    wrong = count = 0
    for rule in EVERY_RULE:
        for seed in range(20):
            dice = Ledger([seed])
            dice.refill(8)
            for turn in range(2):
                rule(*chain_of(4, 2 * seed + turn), dice)
            wrong += len(dice.handed) - len(set(dice.handed))
            count += len(dice.handed)
    return count, float(wrong), float(wrong)


def rules_agree() -> Found:
    """On a chain the node rule accepts what `verify` accepts, and traversal what block verification accepts.

    Compared is the distribution of (last node, token), draft by draft. A rule that gives up early would pass the other
    checks: it is exact, and only slower.
    """
    count, error, tv = 0, 0.0, 0.0
    for seed in range(5):
        draft, p_target = chain_of(6, seed)
        for pair in ((verify, verify_tree), (verify_block, verify_traversal)):
            one, other = (walk(lambda dice: tuple(map(int, rule(draft, p_target, dice)))) for rule in pair)
            off = distance(one[0], other[0])
            count, error, tv = count + one[1] + other[1], max(error, off[0]), max(tv, off[1])
    return count, error, tv


def reports(target, draft_model) -> Found:
    """The lengths asked for, every round's identities, the same text from the same seed, another from another."""
    wrong = seen = 0
    for seed in range(12):
        new = 5 + seed
        written = list(speculate(target, ModelDrafter(draft_model, 3), [1, 2], new, seed=seed))
        again = tokens_of(speculate(target, ModelDrafter(draft_model, 3), [1, 2], new, seed=seed))
        wrong += (len(tokens_of(written)) != new) + (tokens_of(written) != again)
        for done in written:
            whole = [done.tokens[node] for node in done.path] + [done.token]
            wrong += done.emitted != whole[:len(done.emitted)] or done.path != list(range(1, len(done.path) + 1))
            wrong += done is not written[-1] and len(done.emitted) != len(done.path) + 1
            seen += 1
    wrong += len({tuple(generate(target, [1], 30, seed=seed)) for seed in range(5)}) != 5
    return seen, float(wrong), float(wrong)


def by_hand() -> Found:
    """Every field of a Round, known by hand, for 6 tokens with gamma 3 at temperature 0.

    A draft model that is the target is always right. One with the opposite logits is never right. The rounds of the
    first write 8 tokens: the last 2 are cut off, and still reported.
    """
    target, opposite = (TableModel(3, 1, zeros=0) for _ in range(2))
    opposite.logits = -opposite.logits
    ids = [1, 0, *generate(target, [1, 0], 8, 0)]
    right, wrong = [], []
    for at in (2, 6):
        right.append(([ids[at - 1], *ids[at:at + 3]], [1, 2, 3], ids[at + 3], ids[at:min(at + 4, 8)], [], 3))
    for at in range(2, 8):
        drafted = list(generate(opposite, ids[:at], 3, 0))
        wrong.append(([ids[at - 1], *drafted], [], ids[at], [ids[at]], drafted[:1], 3))
    off = 0
    for draft_model, known in ((target, right), (opposite, wrong)):
        done = list(speculate(target, ModelDrafter(draft_model, 3), [1, 0], 6, 0))
        off += [(r.tokens, r.path, r.token, r.emitted, r.rejected, r.steps) for r in done] != known
    return len(right) + len(wrong), float(off), float(off)


class _Watch(TorchFunctionMode):
    """Raises where a random function of torch is called outside the dice."""

    inside = False

    CHANCE = {"rand", "rand_like", "randn", "randn_like", "randint", "randperm", "multinomial", "bernoulli", "normal",
              "poisson", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in self.CHANCE and not self.inside:
            raise AssertionError(f"torch.{function.__name__} was called outside the dice")
        return function(*args, **kwargs or {})


@contextmanager
def only_these_are_random(dice: Dice) -> Iterator[None]:
    """Within it, an AssertionError where anything else draws: a function of torch, or other dice."""
    watch, refill = _Watch(), Dice.refill

    def refill_inside(self, columns):
        if self is not dice:
            raise AssertionError("dice other than the request's were thrown")
        watch.inside = True
        refill(self, columns)
        watch.inside = False

    with patch.object(Dice, "refill", refill_inside), watch:
        yield
