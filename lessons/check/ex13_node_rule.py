"""Exercise 13: several guesses for one place, tried one after the other."""

from collections.abc import Callable
from functools import partial

import torch

from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import PAIRS, vector
from lessons.check.seen import Failure, Row, Seen, fits, look, token

# How the children of a case are drawn: the tokens drawn so far -> the next one's q_draft, or None if there is no more.

def drawn_from(*q_drafts) -> Callable:
    return lambda drawn: q_drafts[len(drawn)] if len(drawn) < len(q_drafts) else None


def without_replacement(q_draft, count: int) -> Callable:
    def next_draft(drawn):
        left = without(q_draft, drawn)
        return normal(left) if len(drawn) < count and left.sum() > 0 else None
    return next_draft


def without(weights, tokens):
    return weights.index_fill(0, torch.tensor(tokens, dtype=torch.int64), 0)


def normal(weights):
    return weights / weights.sum()


FOUR, FORBIDS, SURE = (PAIRS[name] for name in ("four tokens", "the target forbids a token", "a draft too sure"))
CASES = {       # p_target, and how the children are drawn
    "no child": (FOUR[0], drawn_from()),
    "one child": (FOUR[0], drawn_from(FOUR[1])),
    "two children, drawn independently": (FOUR[0], drawn_from(*[FOUR[1]] * 2)),
    "two children, no token twice": (FOUR[0], without_replacement(FOUR[1], 2)),
    "three children, no token twice, one that the target forbids": (FORBIDS[0], without_replacement(FORBIDS[1], 3)),
    "three children, drawn independently by a draft too sure": (SURE[0], drawn_from(*[SURE[1]] * 3)),
    "two children, of two drafts": (vector(.5, .2, .3, 0), drawn_from(vector(.2, .2, .1, .5), vector(.1, .6, .1, .2))),
    "two children, with nothing that the target likes": (PAIRS["nothing in common"][0],
                                                         without_replacement(PAIRS["nothing in common"][1], 3)),
}


def answered(f, children: list[tuple], p_target, dice) -> tuple[int | None, int]:
    """The learner's answer, as a child's number or None, and a token."""
    found = f.node_rule([(x, q_draft.clone()) for x, q_draft in children], p_target.clone(), dice)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Failure(f"node_rule must return a pair: which child stands, or None; a token. It returned {found!r:.80}")
    child, x = found[0], token(found[1], len(p_target), "node_rule, as its second,")
    if child is not None:
        if isinstance(child, bool) or not isinstance(child, int) or not 0 <= child < len(children):
            raise Failure(f"node_rule, of {len(children)} children, must say which stands, from 0 on, or None; it said "
                          f"{child!r:.80}")
        if x != children[child][0]:
            raise Failure(f"if child {child} stands, the token is its own: {children[child][0]}, not {x}")
    return child, x


def play(f, case: tuple, dice) -> tuple[int | None, int]:
    p_target, next_draft = case
    children = []
    while (q_draft := next_draft([x for x, _ in children])) is not None:
        children.append((dice.pick(q_draft), q_draft))
    return answered(f, children, p_target, dice)


def stands(p_target, next_draft: Callable, drawn: tuple[int, ...] = ()) -> dict[int | None, float]:
    """How often each child stands, and none: each is kept as often as what is left of the target lets it."""
    q_draft = next_draft(list(drawn))
    if q_draft is None:
        return {None: 1.0}
    left = (p_target - q_draft).clamp(min=0)
    found = {len(drawn): float(p_target.minimum(q_draft).sum())}
    for x, refused in enumerate((q_draft - p_target).clamp(min=0).tolist()):
        if refused > 0:
            for child, odds in stands(normal(left), next_draft, (*drawn, x)).items():
                found[child] = found.get(child, 0.0) + refused * odds
    return found


def contract(f) -> None:
    for children in [], [(1, vector(.5, .5))]:             # a guess that the target likes better always stands
        answered(f, children, vector(.2, .8), Row())


def worked(f) -> list[Seen]:
    half = vector(.5, .5)
    return [look(f"p_target [.2, .8], children {x} and {y}, both from [.5, .5]: (which stands, token)",
                 lambda dice, x=x, y=y: answered(f, [(x, half), (y, half)], vector(.2, .8), dice), expected)
            for x, y, expected in ((0, 1, {(0, 0): .4, (1, 1): .6}), (0, 0, {(0, 0): .4, (None, 1): .6}),
                                   (1, 0, {(0, 1): 1.0}))]


def exact(f) -> list[Seen]:
    return [look(f"{name}: the token", lambda dice, case=case: play(f, case, dice)[1],
                 dict(enumerate(case[0].tolist()))) for name, case in CASES.items()]


def pace(f) -> list[Seen]:
    return [look(f"{name}: which one stands", lambda dice, case=case: play(f, case, dice)[0], stands(*case))
            for name, case in CASES.items()]


# Known mistakes: other children, another coin, another idea of what a refusal leaves, a token from elsewhere.

def by(key: Callable) -> Callable:
    return lambda children, p: sorted(enumerate(children), key=lambda numbered: -key(*numbered[1], p))


def over(left, q, x, p):
    return (left - q).clamp(min=0)


def judged(children, p, dice, tried: Callable = lambda children, p: enumerate(children),
           coin: Callable = lambda left, q, x, p: left[x] / q[x], leaves: Callable = over,
           made: Callable = normal, last: Callable = lambda seen, p: seen[-1][2]):
    """node_rule in parts. seen: of each refused child its q_draft, and what was left before and after it."""
    left, seen = p, []
    for i, (x, q) in tried(children, p):
        if dice.flip(min(1, coin(left, q, x, p))):
            return i, x
        seen.append((q, left, left := made(leaves(left, q, x, p))))
    return None, dice.pick(last(seen, p) if seen else p)


def one_coin(children, p, dice):
    odds = torch.tensor([min(1.0, float(p[x] / q[x])) for x, q in children])
    if children and dice.flip(1 - (1 - odds).prod()):
        child = dice.pick(odds)
        return child, children[child][0]
    for _, q in children:
        p = normal(over(p, q, None, p))
    return None, dice.pick(p)


def match(children, p, dice):
    y = dice.pick(p)
    return next((i for i, (x, _) in enumerate(children) if x == y), None), y


def known(name: str, said: str, **parts: Callable):
    return wrong(name, said, "flip" if {"tried", "coin"} & set(parts) else "pick", node_rule=partial(judged, **parts))


EXERCISE = Exercise(
    "ex13_node_rule.py", ("node_rule",), contract,
    {"worked number": worked, "exact distribution": exact, "kept as often as it can be": pace},
    [known("refused-sibling-forgotten", "you judge every child, and draw, as if none had been refused: a refusal "
           "leaves max(0, p_target - q_draft), made a law again", leaves=lambda left, q, x, p: p),
     known("coins-forget-the-refusals", "you draw from the right law, but judge every child by p_target; judge it by "
           "what the refusals have left", coin=lambda left, q, x, p: p[x] / q[x]),
     known("last-refusal-alone", "you judge every child by p_target, and take the last one's law away from that",
           coin=lambda left, q, x, p: p[x] / q[x], leaves=lambda left, q, x, p: over(p, q, x, p)),
     known("taken-from-the-whole-target", "every refusal takes its law away from p_target; take it away from what the "
           "refusals before it have left", leaves=lambda left, q, x, p: over(p, q, x, p)),
     known("residual-not-normalised", "what a refusal leaves adds up to less than 1, and the next coin takes it for a "
           "law: divide it by its sum", made=lambda weights: weights),
     known("normalised-for-the-coin-only", "the next law is taken away from what is no law yet: divide it by its sum "
           "first", coin=lambda left, q, x, p: left[x] / left.sum() / q[x], made=lambda weights: weights),
     known("residual-pointwise", "a refusal takes away the refused token only; take q_draft away from every token",
           leaves=lambda left, q, x, p: without(left, [x])),
     known("residual-absolute", "you leave |p_target - q_draft|: where the draft has more, nothing is left, not more",
           leaves=lambda left, q, x, p: (left - q).abs()),
     known("residual-reversed", "you leave max(0, q_draft - p_target): the letters are the wrong way round",
           leaves=lambda left, q, x, p: (q - left).clamp(min=0)),
     known("residual-unclamped", "you leave p_target - q_draft, negative weights and all: cut them off at 0",
           leaves=lambda left, q, x, p: left - q, made=lambda weights: weights),
     known("residual-is-target", "if all fall you draw from p_target; draw from what they have left of it",
           last=lambda seen, p: p),
     known("bonus-from-first-residual", "if all fall you draw from what the first one left; all take their part",
           last=lambda seen, p: seen[0][2]),
     known("last-refusal-forgotten", "if all fall you draw from what was left before the last one fell",
           last=lambda seen, p: seen[-1][1]),
     known("replaced-from-draft", "if all fall you draw once more from the draft; the target must decide",
           last=lambda seen, p: seen[-1][0]),
     known("residual-argmax", "if all fall you take the likeliest token of what is left; draw from it",
           last=lambda seen, p: seen[-1][2] == seen[-1][2].max()),
     known("siblings-sorted-by-target", "you try the target's favourites first; the order in which children were drawn "
           "belongs to their laws", tried=by(lambda x, q, p: p[x])),
     known("siblings-sorted-by-draft", "you try the draft's favourites first; the order in which children were drawn "
           "belongs to their laws", tried=by(lambda x, q, p: q[x])),
     known("best-of-the-children", "you judge only the child of the greatest ratio; chosen as the best of several it "
           "has its law no longer", tried=lambda children, p: by(lambda x, q, p: p[x] / q[x])(children, p)[:1]),
     known("duplicates-dropped", "you try a token that comes twice only once; its law is to be taken away twice",
           tried=lambda children, p: [(i, child) for i, child in enumerate(children)
                                      if child[0] not in dict(children[:i])]),
     known("token-0-is-padding", "you skip children that are token 0: it is a token like any other",
           tried=lambda children, p: [(i, child) for i, child in enumerate(children) if child[0]]),
     known("only-the-first-child", "you draw at the first refusal, and the other children are never tried",
           tried=lambda children, p: [*enumerate(children)][:1]),
     known("first-law-for-all", "you judge every child by the law of the first; each has one of its own",
           tried=lambda children, p: [(i, (x, children[0][1])) for i, (x, _) in enumerate(children)]),
     known("law-changed-again", "you take the refused tokens out of the next law; they are out of it already if they "
           "were when it was drawn from", tried=lambda children, p: [
               (i, (x, normal(without(q, [y for y, _ in children[:i]])))) for i, (x, q) in enumerate(children)]),
     wrong("one-coin-for-all", "you throw one coin, whether any child stands, and then choose which; each has its own "
           "coin", "flip", node_rule=one_coin),
     wrong("sample-and-match", "their laws have no say: you draw from p_target and look for a child of that token, or "
           "keep each with the target's probability alone, and they stand too rarely", node_rule=match),
     known("accept-everything", "you always keep the first child: a text of the draft's", coin=lambda left, q, x, p: 1),
     known("ratio-flipped", "you keep a child with q_draft / p_target; it is p_target / q_draft",
           coin=lambda left, q, x, p: q[x] / left[x] if left[x] else 1),
     known("coin-is-target", "you keep a child with p_target(x); the coin is min(1, p_target(x) / q_draft(x))",
           coin=lambda left, q, x, p: left[x]),
     known("lenience", "your coin is kinder than the ratio, min(1, p / (0.8 q)): faster, and no longer lossless",
           coin=lambda left, q, x, p: left[x] / (.8 * q[x])),
     known("greedy-acceptance", "you keep a child only where it is the target's likeliest token: the rule of "
           "temperature 0", coin=lambda left, q, x, p: float(x == left.argmax()))],
    ("With one child this is exercise 3. From which law must the token come after its refusal? Could the next child be "
     "a guess for that one?",
     "Take the children as they stand. p_target changes at every refusal, and is made a law before the next coin.",
     "if dice.flip(min(1, p_target[x] / q_draft[x])): return i, x; or else let p_target be max(0, p_target - q_draft) "
     "divided by its sum, for the next child, or for dice.pick where there is no more"),
    [("nanospec.rules.tree", "verify_tree", "for i in", "return accepted"),
     ("nanospec.probs", "residual", "left =", "return")],
    {"real dice": lambda f: fits(lambda dice: play(f, CASES["two children, no token twice"], dice)[1],
                                 dict(enumerate(FOUR[0].tolist())))}, slow_is_right=True)
