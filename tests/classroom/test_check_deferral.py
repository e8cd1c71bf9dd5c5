"""Exercise 21: other right solutions pass, and mistakes as people write them have names."""

from functools import partial

import pytest

from tests.classroom import answers_told

MIXTURE = '''
def mixture(p_target, q_draft, a):
    p, q = p_target.tolist(), q_draft.tolist()
    lost = [weight if weight < max(p) - a else 0 for weight in q]
    return [keep - less + sum(lost) * of_target for keep, less, of_target in zip(q, lost, p)]
'''
ROUND = '''
def one_round(drafted, q_draft, p_target, a, dice):
    if len(drafted) == 0:
        return []
    x, q, pi = drafted[0], q_draft[0], torch.as_tensor(mixture(p_target[0], q_draft[0], a), dtype=torch.float64)
    if dice.flip(min(1, pi[x] / q[x])):
        return [x, *one_round(drafted[1:], q_draft[1:], p_target[1:], a, dice)]
    return [dice.pick(torch.relu(pi - q) / torch.relu(pi - q).sum())]
'''
OUTER = '''
def mixture(p_target, q_draft, a):
    keeps = q_draft >= p_target.max() - a
    moved = torch.outer(q_draft, p_target)              # row x: what becomes of the draft's weight of x
    moved[keeps] = torch.diag(q_draft)[keeps]
    return moved.sum(0)


def one_round(drafted, q_draft, p_target, a, dice):
    pi = torch.stack([mixture(p, q, a) for p, q in zip(p_target, q_draft)])
    stands = 0
    while stands < len(drafted) and dice.flip(pi[stands, drafted[stands]] / q_draft[stands, drafted[stands]]):
        stands += 1
    last = [] if stands == len(drafted) else [dice.pick((pi[stands] - q_draft[stands]).clamp(min=0))]
    return torch.tensor([*drafted[:stands], *last])
'''


@pytest.mark.parametrize("source", [MIXTURE + ROUND, OUTER], ids=["lists", "batches"])
def test_other_right_solutions_pass(told, source):
    assert told(21, "import torch\n" + source).failure is None


changed = partial(answers_told.changed, 21)


@pytest.mark.parametrize("source, name", [
    (changed(("    return written\n", "    return [*written, dice.pick(p_target[-1])]\n")), "bonus-from-target"),
    (changed(("mixture(p, q, a)", "mixture(q, p, a)")), "letters-swapped"),
    (changed(("return q_draft - deferred + p_target * deferred.sum()",
              "return torch.where(q_draft < p_target.max() - a, p_target, q_draft)")), "mixture-not-normalised"),
    (changed(("mixture(p, q, a)", "p if q[x] < p.max() - a else q")), "decided-by-the-drafted-token"),
    (changed(("if not dice.flip(pi[x] / q[x]):", "if q[x] < p.max() - a:"), ("(pi - q).clamp(min=0)", "p")),
     "redrawn-where-deferred")])
def test_mistakes_as_people_write_them(told, source, name):
    """In one of the two functions, while the other one may be right."""
    found = told(21, source)
    assert found.named == [name] and name in found.failure[1]
    assert ("speed, not truth" in found.failure[1]) == (name == "redrawn-where-deferred")


def test_every_draft_token_is_judged(told):
    """Also the third of three: to leave it out costs speed."""
    found = told(21, changed(("zip(drafted, ", "zip(drafted[:2], ")))
    assert found.failure[0] == "accepted as often as it can be" and found.slow and "gamma 3" in found.failure[1]
