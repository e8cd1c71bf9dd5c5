"""Exercise 14: block verification, for one text."""

from types import SimpleNamespace

import torch

from lessons.check import seeds
from lessons.check.answered import number, pair, token, whole
from lessons.check.engine import Exercise
from lessons.check.mistakes_in_a_block import WRONGS, right_weights, token_by_token
from lessons.check.pairs import BY_A_HAIR, vector
from lessons.check.rounds import distribution_of, right_texts
from lessons.check.seen import Failure, Row, Seen, look, values
from nanospec.proof.walk import walk


def nearly(target, off: float):
    """A draft model that is that little off."""
    draft_model = seeds.table(target.config.vocab_size, 999, zeros=0)
    draft_model.logits = target.logits + off * draft_model.logits
    return draft_model


def with_a_choice(target, draft_model, ids) -> bool:
    """At a cut after some first token two tokens are left, so that it matters by which weights one is drawn."""
    p_target, q_draft = distribution_of(target, ids), distribution_of(draft_model, ids)
    return any(int((min(1.0, float(p_target[x] / q_draft[x])) * distribution_of(target, (*ids, x))
                    > distribution_of(draft_model, (*ids, x))).sum()) > 1 and p_target[x] < q_draft[x]
               for x in range(len(p_target)))


def tables(size: int, pair: tuple[int, int], zeros: float, ids: tuple[int, ...], gamma: int) -> tuple:
    """The first two tables from those seeds on that have such a choice; between two tokens there is none."""
    drawn = ([seeds.table(size, number + 1_000 * again, zeros=zeros) for number in pair]
             for again in range(1_000))
    return *next(two for two in drawn if size == 2 or zeros or with_a_choice(*two, ids)), ids, gamma


TWO = seeds.table(2, 5, zeros=0)
TABLES = {"three tokens, drafts of two": tables(3, (14, 314), 0, (1, 0), 2),
          "two tokens, drafts of three": tables(2, (3, 4), 0, (1,), 3),
          "three tokens, some forbidden": tables(3, (18, 118), 0.3, (2, 0), 2),
          "five tokens, drafts of one": (seeds.table(5, 6), seeds.table(5, 7), (3,), 1),
          "two models that are nearly the same": (TWO, nearly(TWO, 1e-3), (0, 0), 2),
          f"two models, {BY_A_HAIR} but for rounding": (TWO, nearly(TWO, 1e-6), (0, 0), 2)}
TOY = vector(2, 1).div(3).repeat(2, 1), vector(1, 2).div(3).repeat(3, 1)               # q_draft, p_target
DRAW = seeds.chance(14)
RATIOS = [[.5, 2], [4, .25], [2, 3, .5, .5], [.5, .5, 8, .9, .1, 9], [0, 5], [1], [],
          *([round(10 ** DRAW.uniform(-spread, spread), 12) for _ in range(n)]
            for n, spread in ((1, 1), (4, 1), (7, 4), (12, .5), (40, .2)))]


def judged_by(f, drafted: list[int], q_draft, p_target, dice) -> tuple[int, int]:
    """The learner's answer, as two ints."""
    count, last = pair(f.verify_block(drafted, q_draft, p_target, dice),
                       "verify_block must return two ints, how many draft tokens are accepted and the next token")
    accepted = whole(count, "verify_block, as its first,")
    if not 0 <= accepted <= len(drafted):
        raise Failure(f"verify_block, as its first, must return how many of {len(drafted)} draft tokens are accepted; "
                      f"it returned {accepted}")
    return accepted, token(last, p_target.shape[1], "verify_block, as its second,")


def one_round(f, dice, target, draft_model, ids, gamma) -> tuple[int, tuple[int, ...]]:
    """How many of gamma draft tokens are accepted, and what the round has written."""
    drafted, q_draft = [], []
    for _ in range(gamma):
        q_draft.append(distribution_of(draft_model, (*ids, *drafted)))
        drafted.append(dice.pick(q_draft[-1]))
    p_target = [distribution_of(target, (*ids, *drafted[:i])) for i in range(gamma + 1)]
    accepted, last = judged_by(f, drafted, torch.stack(q_draft), torch.stack(p_target), dice)
    return accepted, (*drafted[:accepted], last)


def written(f, dice, target, draft_model, ids, gamma) -> tuple[int, ...]:
    """A round, and the target alone up to gamma + 1 tokens."""
    text = one_round(f, dice, target, draft_model, ids, gamma)[1]
    while len(text) < gamma + 1:
        text += (dice.pick(distribution_of(target, (*ids, *text))),)
    return text


def most_accepted(target, draft_model, ids, gamma, w=1.0) -> float:
    """Draft tokens 1 to i are all accepted with the mean of w_i; added up."""
    if gamma == 0:
        return 0.0
    both = zip(distribution_of(target, ids).tolist(), distribution_of(draft_model, ids).tolist())
    after = {x: (q, min(1.0, w * p / q)) for x, (p, q) in enumerate(both) if q > 0}
    return sum(q * (w_x + most_accepted(target, draft_model, (*ids, x), gamma - 1, w_x))
               for x, (q, w_x) in after.items())


def numbers(f, ratios) -> list[float]:
    """The learner's weights, as floats."""
    found = f.weights(ratios)
    try:
        listed = [number(w, "weights, each of them,") for w in found]
    except TypeError:
        listed = []
    if len(listed) != len(ratios) + 1:
        raise Failure(f"weights of {len(ratios)} ratios must return a list of {len(ratios) + 1} numbers; it returned "
                      f"{found!r:.80}")
    return listed


def contract(f) -> None:
    numbers(f, [.5, 2])
    for seed in range(3):
        judged_by(f, [1, 1], *TOY, Row(seed=seed))


def weights_of(f, ratios) -> Seen:
    return values(f"weights of {ratios}", lambda: {f"w_{i}": w for i, w in enumerate(numbers(f, ratios))},
                  {f"w_{i}": w for i, w in enumerate(right_weights(ratios))})


def worked(f) -> list[Seen]:
    right = {(0, 1): {(2, 0): 1 / 3, (2, 1): 2 / 3}, (0, 0): {(2, 0): 1 / 12, (2, 1): 1 / 6, (0, 1): 3 / 4}}
    return [weights_of(f, [.5, 2]), *(
        look(f"p_target [1/3, 2/3], q_draft [2/3, 1/3] everywhere, drafted {list(drafted)}: (accepted, the token)",
             lambda dice, drafted=drafted: judged_by(f, list(drafted), *TOY, dice), expected)
        for drafted, expected in right.items())]


def exact(f) -> list[Seen]:
    return [look(f"{name}: the distribution of {case[3] + 1} tokens", lambda dice, case=case: written(f, dice, *case),
                 right_texts(case[0], case[2], case[3] + 1)) for name, case in TABLES.items()]


def accepted_on_average(f, case) -> float:
    found, _ = walk(lambda dice: one_round(f, Row(dice), *case)[0])
    return sum(n * weight for n, weight in found.items())


def pace(f) -> list[Seen]:
    return [values(f"{name}, on average", lambda case=case: {"accepted": accepted_on_average(f, case)},
                   {"accepted": most_accepted(*case)}) for name, case in TABLES.items()]


def number_to_reach(f) -> str:
    """Tokens per target call, walked."""
    case = TABLES["three tokens, some forbidden"]
    one_by_one = SimpleNamespace(verify_block=token_by_token)
    return (f"{1 + accepted_on_average(f, case):.3f} tokens per target call, with drafts of two; judged token by "
            f"token the same drafts give {1 + accepted_on_average(one_by_one, case):.3f}")


def equal(f) -> None:
    both = torch.tensor([[.25, .75, 0], [0, .5, .5], [.5, 0, .5]], dtype=torch.float64)
    seen = look("both models have the same distributions, drafted [1, 2]: how many accepted, the token",
                lambda dice: judged_by(f, [1, 2], both[:2], both, dice), {(2, 0): .5, (2, 2): .5})
    if seen.differences():
        raise Failure(f"{seen}\nwhere w is 1 and both distributions are the same nothing is missing, and the "
                      "threshold is 0 / 0: if you flip that coin, let it accept")


EXERCISE = Exercise(
    "ex14_block_verification.py", ("weights", "verify_block"), contract,
    {"worked number": worked, "weights": lambda f: [weights_of(f, ratios) for ratios in RATIOS],
     "exact distribution": exact, "accepted as often as it can be": pace},
    WRONGS,
    ("A ratio of 1/2 and then one of 2: does the target like the two draft tokens together less than the draft model "
     "does? Which running product says so, and may it ever exceed 1?",
     "Go from the longest cut to the shortest and make the first whose coin says accept: no other coin is needed then. "
     "Behind the last draft token there is no q_draft.",
     "w = weights(...); if dice.flip(w[gamma]) all are accepted; then for i from gamma - 1 down to 0 missing = (w[i] * "
     "p_target[i] - q_draft[i]).clamp(min=0), and the threshold is missing.sum() / (missing.sum() + 1 - w[i]), at 0 "
     "none"),
    [("nanospec.methods.rules.block", "verify_block", "ws = [", "w = torch.stack"),
     ("nanospec.methods.rules.block", "verify_block", "q_after =", "accepted =")],
    {"equal distributions": equal, "number to reach": number_to_reach}, speed="accepted as often as it can be")
