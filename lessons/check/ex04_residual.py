"""Exercise 4: the residual, for many texts at once."""

import torch

from lessons.check import seeds
from lessons.check.answered import weights_like
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import EPSILONS, GUARDS, PAIRS, drawn, short, vector
from lessons.check.seen import Failure, Seen, look, values

ROWS = {name: pair for name, pair in PAIRS.items() if len(pair[0]) == 4}
BATCH = (torch.stack([p for p, _ in ROWS.values()] + [vector(.1, .2, .3, .4)]),
         torch.stack([q for _, q in ROWS.values()] + [vector(.1, .2, .3, .4)]))
NAMES = [*ROWS, "both the same"]


def batches() -> dict[str, tuple]:
    """More of them, by a seed: of one row and of many, of one token and of many, with equal rows at any place."""
    draw, found = seeds.chance(4), {}
    for rows, size, zeros, equal in ((1, 3, 0, ()), (1, 5, 1, (0,)), (3, 1, 0, (0, 1, 2)), (2, 2, 0, (1,)),
                                     (7, 6, 2, (0, 3)), (4, 4, 0, ()), (5, 60, 10, (4,))):
        pairs = [drawn(draw, size, zeros) for _ in range(rows)]
        pairs = [(p, p.clone() if b in equal else q) for b, (p, q) in enumerate(pairs)]
        found[f"{rows} row{'s' * (rows > 1)} of {size}"] = tuple(map(torch.stack, zip(*pairs)))
    return found


EPSILON = ("you add a little number so as not to divide by 0: no row is right then, and where nothing is left it does "
           "not become p_target; choose with where(), or divide by 1 there")


def rows_of(f, p_target, q_draft) -> torch.Tensor:
    return weights_like(f.residual(p_target, q_draft), tuple(p_target.shape), "residual")


def contract(f) -> None:
    for p_target, q_draft in zip(*BATCH):
        row, difference = rows_of(f, p_target[None], q_draft[None])[0], p_target - q_draft
        if not bool((row < 0).any()):
            continue
        said = f"a weight is negative, {short(row)}"
        # Differences add up to 0, or nearly: what they are divided by is an accident, and may be 0.
        times = (row / difference)[difference != 0]
        if len(times) and torch.allclose(times, times[:1], rtol=1e-9):
            raise Failure(f"{said}: cut the differences off at 0 before you add them up (residual-unclamped)",
                          "residual-unclamped")
        raise Failure(f"{said}: all that is left is 0 or more")


def worked(f) -> list[Seen]:
    rows = torch.stack([vector(.5, .5), vector(.5, .5)]), torch.stack([vector(.8, .2), vector(.5, .5)])
    return [values("[.5, .5] and [.8, .2]; [.5, .5] and [.5, .5]", lambda: {
        f"row {b}, token {i}": weight for b, row in enumerate(rows_of(f, *rows).tolist())
        for i, weight in enumerate(row)},
        {"row 0, token 0": 0.0, "row 0, token 1": 1.0, "row 1, token 0": .5, "row 1, token 1": .5})]


def of_a_batch(f, title: str, names: list[str], batch: tuple) -> Seen:
    expected = []
    for p, q in zip(*(side.tolist() for side in batch)):
        over = [max(0.0, a - b) for a, b in zip(p, q)]
        expected.append([weight / sum(over) for weight in over] if sum(over) else p)
    return values(title, lambda: {
        f"{name}, token {i}": weight for name, row in zip(names, rows_of(f, *batch).tolist())
        for i, weight in enumerate(row)},
        {f"{name}, token {i}": weight for name, row in zip(names, expected) for i, weight in enumerate(row)})


def row_values(f) -> list[Seen]:
    return [of_a_batch(f, f"{len(NAMES)} rows at once", NAMES, BATCH),
            *(of_a_batch(f, f"drawn by a seed, {name}", [f"row {b}" for b in range(len(batch[0]))], batch)
              for name, batch in batches().items())]


def exact(f) -> list[Seen]:
    def token_with(p_target, q_draft, dice):
        x = dice.pick(q_draft)
        if dice.flip(min(1, p_target[x] / q_draft[x])):
            return x
        return dice.pick(rows_of(f, p_target[None], q_draft[None])[0])
    return [look(f"{name}: accept or replace, with your residual",
                 lambda dice, pair=pair: token_with(*pair, dice), dict(enumerate(pair[0].tolist())))
            for name, pair in PAIRS.items()]


def normal(weights, dim=-1):
    return weights / weights.sum(dim, keepdim=True)


def over(p, q):
    return (p - q).clamp(min=0)


def guarded(p, q, weights):
    return normal(weights).where(over(p, q).sum(-1, keepdim=True) > 0, p)


def by_the_overlap(p, q):
    return over(p, q) / (1 - p.minimum(q).sum(-1, keepdim=True))


EXERCISE = Exercise(
    "ex04_residual.py", ("residual",), contract,
    {"worked number": worked, "values": row_values, "exact distribution": exact},
    [*(wrong("zero-residual-nan", "where both distributions are the same nothing is left, and you divide 0 by 0",
             residual=residual) for residual in (
           lambda p, q: normal(over(p, q)), lambda p, q: p if torch.equal(p, q) else normal(over(p, q)))),
     wrong("zero-row", "where both distributions are the same nothing is left, and your row is all zeros: it must be "
           "p_target", residual=lambda p, q: normal(over(p, q)).nan_to_num(0)),
     *(wrong("epsilon-in-the-residual", EPSILON, residual=lambda p, q, epsilon=epsilon: over(p, q) / (
         over(p, q).sum(-1, keepdim=True) + epsilon)) for epsilon in EPSILONS),
     *(wrong("epsilon-in-the-residual", EPSILON, residual=lambda p, q, epsilon=epsilon: normal(over(p, q) + epsilon))
       for epsilon in EPSILONS),
     *(wrong("epsilon-in-the-residual", EPSILON, residual=lambda p, q, epsilon=epsilon: over(p, q) / over(p, q).sum(
         -1, keepdim=True).clamp(min=epsilon)) for epsilon in EPSILONS),
     wrong("residual-not-normalised", "your rows do not add up to 1: divide each by its sum, and where that is 0 take "
           "p_target", residual=over),
     *(wrong("divided-by-1-minus-overlap", "1 - sum min(p_target, q_draft) is the same total in mathematics. Computed "
             "so it is the difference of two numbers near 1, and where little is left its digits are lost, and with "
             "them "
             "the 0 of equal rows: add up what is left instead", residual=residual) for residual in (
           by_the_overlap, lambda p, q: by_the_overlap(p, q).nan_to_num(0),
           lambda p, q: by_the_overlap(p, q).where(1 - p.minimum(q).sum(-1, keepdim=True) > 0, p),
           lambda p, q: by_the_overlap(p, q).where(over(p, q).sum(-1, keepdim=True) > 0, p))),
     *(wrong("epsilon-in-the-residual", EPSILON, residual=lambda p, q, epsilon=epsilon: (over(p, q) / (
         over(p, q).sum(-1, keepdim=True) + epsilon)).where(over(p, q).sum(-1, keepdim=True) > 0, p))
       for epsilon in EPSILONS),
     wrong("residual-softmaxed", "you softmax p_target - q_draft: these are weights, not logits; cut them off at 0 "
           "instead", residual=lambda p, q: (p - q).softmax(-1)),
     *(wrong("one-sum-for-all", "you divide by the sum over the whole batch: every row has its own", residual=residual)
       for residual in (lambda p, q: over(p, q) / over(p, q).sum(),
                        lambda p, q: (over(p, q) / over(p, q).sum()).where(over(p, q).sum() > 0, p))),
     wrong("residual-absolute", "you took |p_target - q_draft|: where q_draft has more, nothing is left, not more",
           residual=lambda p, q: normal((p - q).abs())),
     wrong("residual-softmaxed", "you softmaxed the residual: it holds weights, not logits, and its zeros must stay "
           "zeros",
           residual=lambda p, q: over(p, q).softmax(-1)),
     wrong("residual-not-normalised", "your rows do not add up to 1: divide each by its sum",
           residual=lambda p, q: over(p, q).where(over(p, q).sum(-1, keepdim=True) > 0, p)),
     wrong("residual-absolute", "you took |p_target - q_draft|: where q_draft has more, nothing is left, not more",
           residual=lambda p, q: guarded(p, q, (p - q).abs())),
     wrong("residual-reversed", "you took max(0, q_draft - p_target): the letters are the wrong way round",
           residual=lambda p, q: guarded(p, q, over(q, p))),
     wrong("residual-softmaxed", "you softmaxed the residual: it holds weights, not logits, and its zeros must stay "
           "zeros",
           residual=lambda p, q: over(p, q).softmax(-1).where(over(p, q).sum(-1, keepdim=True) > 0, p)),
     wrong("residual-is-target", "you return the target's own distribution: what q_draft covered already is drawn "
           "again", residual=lambda p, q: p),
     *(wrong("wrong-dimension", "you divide by sums over the rows of the batch: texts must not mix; sum over the "
             "tokens, the last dimension", residual=residual) for residual in (
           lambda p, q: normal(over(p, q), 0).nan_to_num(0).where(over(p, q).sum(-1, keepdim=True) > 0, p),
           lambda p, q: normal(over(p, q), 0),
           lambda p, q: normal(over(p, q), 0).where(over(p, q).sum(0) > 0, p))),
     *(wrong("keepdim-forgotten", "the sums have the shape (B,), and are divided by along the tokens: keep their "
             "dimension, sum(-1, keepdim=True), so that each belongs to its row", residual=residual) for residual in (
           lambda p, q: over(p, q) / over(p, q).sum(-1),
           lambda p, q: (over(p, q) / over(p, q).sum(-1)).where(over(p, q).sum(-1) > 0, p),
           lambda p, q: (over(p, q) / over(p, q).sum(-1)).where(over(p, q).sum(-1, keepdim=True) > 0, p))),
     *(wrong("guard-too-wide", "where little is left you return p_target: do that only where nothing at all is left",
             residual=lambda p, q, guard=guard: normal(over(p, q)).where(over(p, q).sum(-1, keepdim=True) > guard, p))
       for guard in GUARDS),
     wrong("target-for-the-whole-batch", "where nothing is left of one row you return p_target for all rows: choose "
           "row by row, with where()",
           residual=lambda p, q: p if (over(p, q).sum(-1) == 0).any() else normal(over(p, q))),
     wrong("uniform-row", "where both distributions are the same your row is uniform: it must be p_target",
           residual=lambda p, q: normal(over(p, q)).nan_to_num(1 / p.shape[-1])),
     wrong("one-sum-for-all", "you divide by the sum over the whole batch: every row has its own",
           residual=lambda p, q: (over(p, q) / over(p, q).sum()).where(over(p, q).sum(-1, keepdim=True) > 0, p))],
    ("After a rejection, which tokens has the draft model proposed too rarely, and by how much?",
     "`clamp(min=0)` cuts off what is negative; `sum(-1, keepdim=True)` gives each row's own sum. What if that is 0?",
     "left = (p_target - q_draft).clamp(min=0); total = left.sum(-1, keepdim=True); left / total where total > 0, else "
     "p_target: tensor.where(condition, other) chooses, but the division must not see the zeros"),
    [("nanospec.probs", "residual", "left =", "return")])
