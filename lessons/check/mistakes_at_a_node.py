"""What people do wrong in exercise 13, several draft tokens for one place: the rule in parts, each of them changed."""

from collections.abc import Callable
from functools import partial

import torch

from lessons.check.engine import wrong
from lessons.check.pairs import GUARDS, normal, without


def by(key: Callable) -> Callable:
    return lambda children, p: sorted(enumerate(children), key=lambda numbered: -key(*numbered[1], p))


def over(left, q, x, p):
    return (left - q).clamp(min=0)


def judged(children, p, dice, tried: Callable = lambda children, p: enumerate(children),
           coin: Callable = lambda left, q, x, p: left[x] / q[x], leaves: Callable = over,
           made: Callable = normal, last: Callable = lambda seen, p: seen[-1][2]):
    """node_rule in parts. seen: of each rejected child its q_draft, and what was left before and after it."""
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


WRONGS = [
    known("rejected-sibling-forgotten", "you judge every child, and draw, as if none had been rejected: a rejection "
          "leaves max(0, p_target - q_draft), made a distribution again", leaves=lambda left, q, x, p: p),
    known("coins-forget-the-rejections", "you draw from the right distribution, but judge every child by p_target; "
          "judge it by what the rejections have left", coin=lambda left, q, x, p: p[x] / q[x]),
    known("last-rejection-alone", "you judge every child by p_target, and take the last one's distribution away from "
          "that", coin=lambda left, q, x, p: p[x] / q[x],
          leaves=lambda left, q, x, p: over(p, q, x, p)),
    known("taken-from-the-whole-target", "every rejection takes its distribution away from p_target; take it away "
          "from what the rejections before it have left", leaves=lambda left, q, x, p: over(p, q, x, p)),
    known("residual-not-normalised", "what a rejection leaves adds up to less than 1, and the next coin takes it for "
          "a distribution: divide it by its sum", made=lambda weights: weights),
    known("normalised-for-the-coin-only", "the next distribution is taken away from what is none yet: divide it "
          "by its sum first", coin=lambda left, q, x, p: left[x] / left.sum() / q[x], made=lambda weights: weights),
    *(known("guard-too-wide", "where little is left you go on with what there was before: after a rejection "
            "something is "
            "left, and that is right however little it is", leaves=lambda left, q, x, p, guard=guard: (
                over(left, q, x, p) if over(left, q, x, p).sum() > guard else left)) for guard in GUARDS[::3]),
    known("residual-pointwise", "a rejection takes away the rejected token only; take q_draft away from every token",
          leaves=lambda left, q, x, p: without(left, [x])),
    known("residual-absolute", "you leave |p_target - q_draft|: where q_draft has more, nothing is left, not more",
          leaves=lambda left, q, x, p: (left - q).abs()),
    known("residual-reversed", "you leave max(0, q_draft - p_target): the letters are the wrong way round",
          leaves=lambda left, q, x, p: (q - left).clamp(min=0)),
    known("residual-softmaxed", "you softmax the residual: it holds weights, not logits, and its zeros must stay "
          "zeros; divide by the sum", made=lambda weights: weights.softmax(-1)),
    known("residual-unclamped", "you leave p_target - q_draft, negative weights and all: cut them off at 0",
          leaves=lambda left, q, x, p: left - q, made=lambda weights: weights),
    known("residual-is-target", "if all are rejected you draw from p_target; draw from what they have left of it",
          last=lambda seen, p: p),
    known("bonus-from-first-residual", "if all are rejected you draw from what the first one left; all take their "
          "part", last=lambda seen, p: seen[0][2]),
    known("last-rejection-forgotten", "if all are rejected you draw from what was left before the last rejection",
          last=lambda seen, p: seen[-1][1]),
    known("replaced-from-draft", "if all are rejected you draw once more from q_draft; the target must decide",
          last=lambda seen, p: seen[-1][0]),
    known("residual-argmax", "if all are rejected you take the likeliest token of what is left; draw from it",
          last=lambda seen, p: seen[-1][2] == seen[-1][2].max()),
    known("siblings-sorted-by-target", "you try the target's favourites first; the order in which children were "
          "drawn belongs to their distributions", tried=by(lambda x, q, p: p[x])),
    known("siblings-sorted-by-draft", "you try the draft model's favourites first; the order in which children were "
          "drawn belongs to their distributions", tried=by(lambda x, q, p: q[x])),
    known("best-of-the-children", "you judge only the child of the greatest ratio; chosen as the best of several it "
          "no longer has its distribution", tried=lambda children, p: by(lambda x, q, p: p[x] / q[x])(children, p)[:1]),
    known("duplicates-dropped", "you try a token that comes twice only once; its distribution is to be taken away "
          "twice", tried=lambda children, p: [
              (i, child) for i, child in enumerate(children) if child[0] not in dict(children[:i])]),
    known("token-0-is-padding", "you skip children that are token 0: it is a token like any other",
          tried=lambda children, p: [(i, child) for i, child in enumerate(children) if child[0]]),
    known("only-the-first-child", "you draw at the first rejection, and the other children are never tried",
          tried=lambda children, p: [*enumerate(children)][:1]),
    known("first-distribution-for-all", "you judge every child by the distribution of the first; each has its own",
          tried=lambda children, p: [(i, (x, children[0][1])) for i, (x, _) in enumerate(children)]),
    known("distribution-changed-again", "you take the rejected tokens out of the next distribution; they are out of "
          "it already if they were when it was drawn from", tried=lambda children, p: [
              (i, (x, normal(without(q, [y for y, _ in children[:i]])))) for i, (x, q) in enumerate(children)]),
    wrong("one-coin-for-all", "you flip one coin, whether any child is accepted, and then choose which; each has "
          "its own coin", "flip", node_rule=one_coin),
    wrong("sample-and-match", "their distributions have no say: you draw from p_target and look for a child of that "
          "token, or accept each with the target's probability alone: too few are accepted", node_rule=match),
    wrong("children-ignored", "you draw from p_target and never report that a child was right",
          node_rule=lambda children, p, dice: (None, dice.pick(p))),
    known("accept-everything", "you always accept the first child: a text of the draft model's",
          coin=lambda left, q, x, p: 1),
    known("ratio-flipped", "you accept a child with q_draft / p_target; it is p_target / q_draft",
          coin=lambda left, q, x, p: q[x] / left[x] if left[x] else 1),
    known("coin-is-target", "you accept a child with p_target(x); the threshold is min(1, p_target(x) / q_draft(x))",
          coin=lambda left, q, x, p: left[x]),
    known("lenience", "your threshold is above the ratio, min(1, p / (0.8 q)): faster, and no longer lossless",
          coin=lambda left, q, x, p: left[x] / (.8 * q[x])),
    known("greedy-acceptance", "you accept a child only where it is the target's likeliest token: the rule of "
          "temperature 0", coin=lambda left, q, x, p: float(x == left.argmax()))]
