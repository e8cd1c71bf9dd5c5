"""Exercise 13: several draft tokens for one place, tried one after the other."""

from collections.abc import Callable
from functools import lru_cache

from lessons.check import seeds
from lessons.check.answered import pair, token, whole
from lessons.check.engine import Exercise, Functions
from lessons.check.mistakes_at_a_node import WRONGS
from lessons.check.pairs import BY_A_HAIR, PAIRS, distribution, drawn, normal, vector, without
from lessons.check.seen import Failure, Row, Seen, fits, look, not_drawn_again, part_of
from lessons.oracles import best_acceptance
from nanospec.proof.walk import walk

# How the children of a case are drawn: the tokens drawn so far -> the next one's q_draft, or None if there is no more.

def drawn_from(*q_drafts) -> Callable:
    return lambda drawn: q_drafts[len(drawn)] if len(drawn) < len(q_drafts) else None


def without_replacement(q_draft, count: int) -> Callable:
    @lru_cache(maxsize=None)
    def next_draft(drawn: tuple[int, ...]):
        left = without(q_draft, drawn)
        return normal(left) if len(drawn) < count and left.sum() > 0 else None
    return lambda drawn: next_draft(tuple(drawn))


FOUR, FORBIDS, SURE, APART, LESS = (PAIRS[name] for name in (
    "four tokens", "the target forbids a token", "a draft model too sure", BY_A_HAIR, f"{BY_A_HAIR}, and less"))
CASES = {       # p_target, and how the children are drawn
    "no child": (FOUR[0], drawn_from()),
    "one child": (FOUR[0], drawn_from(FOUR[1])),
    "two children, drawn independently": (FOUR[0], drawn_from(*[FOUR[1]] * 2)),
    "two children, no token twice": (FOUR[0], without_replacement(FOUR[1], 2)),
    "three children, no token twice, one that the target forbids": (FORBIDS[0], without_replacement(FORBIDS[1], 3)),
    "three children, drawn independently by a draft model too sure": (SURE[0], drawn_from(*[SURE[1]] * 3)),
    "two children, of two draft models": (
        vector(.5, .2, .3, 0), drawn_from(vector(.2, .2, .1, .5), vector(.1, .6, .1, .2))),
    f"two children, {BY_A_HAIR}": (APART[0], drawn_from(*[APART[1]] * 2)),
    "two children, with nothing that the target likes": (PAIRS["nothing in common"][0],
                                                         without_replacement(PAIRS["nothing in common"][1], 3)),
    f"two children, {BY_A_HAIR}, and less": (LESS[0], drawn_from(*[LESS[1]] * 2)),
    "a vocabulary of one token": (vector(1), drawn_from(vector(1))),
}


def by_seed() -> dict[str, tuple]:
    """Up to five children, drawn in either way or each from a draft model of its own."""
    draw, found = seeds.chance(13), {}
    for count, size, zeros in ((5, 2, 0), (3, 3, 0), (2, 5, 1), (1, 6, 2)):
        p_target, q_draft = drawn(draw, size, zeros)
        found[f"{count} drawn independently of {size} tokens"] = p_target, drawn_from(*[q_draft] * count)
    for count, size, zeros in ((4, 4, 0), (2, 5, 1)):
        p_target, q_draft = drawn(draw, size, zeros)
        found[f"{count} drawn without replacement of {size} tokens"] = p_target, without_replacement(q_draft, count)
    p_target, *q_drafts = [distribution(draw, 3) for _ in range(4)]
    found["3 of three draft models, 3 tokens"] = p_target, drawn_from(*q_drafts)
    return found


CASES |= by_seed()


def answered(f, children: list[tuple], p_target, dice) -> tuple[int | None, int]:
    """The learner's answer, as a child's number or None, and a token."""
    found = pair(f.node_rule(children, p_target, dice),
                 "node_rule must return a pair: which child is accepted, or None; and a token")
    child, x = found[0], token(found[1], len(p_target), "node_rule, as its second,")
    if child is not None:
        child = whole(child, "node_rule, as its first,", "a child's number, or None")
        if not 0 <= child < len(children):
            raise Failure(f"node_rule, of {len(children)} children, must return which one is accepted, from 0 on, or "
                          f"None; it returned {child}")
        if x != children[child][0]:
            raise Failure(f"if child {child} is accepted, the token is its own: {children[child][0]}, not {x}")
    return child, x


def play(f, case: tuple, dice) -> tuple[int | None, int]:
    p_target, next_draft = case
    children = []
    while (q_draft := next_draft([x for x, _ in children])) is not None:
        children.append((dice.pick(q_draft), q_draft))
    return answered(f, children, p_target, dice)


def stands(p_target, next_draft: Callable, drawn: tuple[int, ...] = ()) -> dict[int | None, float]:
    """How often each child is accepted, and none: each as often as what is left of the target lets it."""
    q_draft = next_draft(list(drawn))
    if q_draft is None:
        return {None: 1.0}
    left = (p_target - q_draft).clamp(min=0)
    found = {len(drawn): float(p_target.minimum(q_draft).sum())}
    for x, rejected in enumerate((q_draft - p_target).clamp(min=0).tolist()):
        if rejected > 0:
            for child, odds in stands(normal(left), next_draft, (*drawn, x)).items():
                found[child] = found.get(child, 0.0) + rejected * odds
    return found


def contract(f) -> None:
    for children in [], [(1, vector(.5, .5))]:             # a token that the target likes better is always accepted
        answered(f, children, vector(.2, .8), row := Row())
        not_drawn_again(row, vector(.5, .5))


def worked(f) -> list[Seen]:
    half = vector(.5, .5)
    return [look(f"p_target [.2, .8], children {x} and {y}, both from [.5, .5]: (which one, token)",
                 lambda dice, x=x, y=y: answered(f, [(x, half), (y, half)], vector(.2, .8), dice), expected)
            for x, y, expected in ((0, 1, {(0, 0): .4, (1, 1): .6}), (0, 0, {(0, 0): .4, (None, 1): .6}),
                                   (1, 0, {(0, 1): 1.0}))]


@lru_cache(maxsize=len(CASES))
def walked(node_rule: Callable, name: str) -> Seen:
    """Which child is accepted, and the token, for the two parts that follow."""
    return look(name, lambda dice: play(Functions(node_rule=node_rule), CASES[name], dice), {})


@lru_cache(maxsize=None)
def accepted_at_best(name: str) -> dict[int | None, float]:
    return stands(*CASES[name])


def exact(f) -> list[Seen]:
    return [part_of(walked(f.node_rule, name), f"{name}: the token", lambda found: found[1],
                    dict(enumerate(case[0].tolist()))) for name, case in CASES.items()]


def pace(f) -> list[Seen]:
    return [part_of(walked(f.node_rule, name), f"{name}: which one is accepted", lambda found: found[0],
                    accepted_at_best(name)) for name in CASES]


def number_to_reach(f) -> str:
    """Tokens per target call with two children, drawn independently. The most that any rule can have is known."""
    case = CASES["two children, drawn independently"]
    found, _ = walk(lambda dice: play(f, case, Row(dice))[0])
    alone = 1 + float(FOUR[0].minimum(FOUR[1]).sum())
    return (f"{2 - found.get(None, 0.0):.2f} tokens per target call with two children, drawn independently; with one "
            f"{alone:.2f}; no rule at all has more than {1 + best_acceptance(*FOUR, 2):.2f} (see *How close a rule can "
            "come*)")


EXERCISE = Exercise(
    "ex13_node_rule.py", ("node_rule",), contract,
    {"worked number": worked, "exact distribution": exact, "accepted as often as it can be": pace},
    WRONGS,
    ("With one child this is exercise 3. From which distribution must the token come after its rejection? Could the "
     "next child be a draft token for that one?",
     "Take the children in their order. p_target changes at every rejection, and is made a distribution before the "
     "next coin is flipped.",
     "if dice.flip(min(1, p_target[x] / q_draft[x])): return i, x; or else let p_target be max(0, p_target - q_draft) "
     "divided by its sum, for the next child, or for dice.pick where there is no more"),
    [("nanospec.methods.trees.node_rule", "verify_tree", "for i in", "return accepted"),
     ("nanospec.probs", "residual", "left =", "return")],
    {"real dice": lambda f: fits(lambda dice: play(f, CASES["two children, no token twice"], dice)[1],
                                 dict(enumerate(FOUR[0].tolist()))), "number to reach": number_to_reach},
    speed="accepted as often as it can be")
