"""Exercise 18: which hidden states go with which token. Told by a draft layer that knows the target by heart.

With the right pairs all its draft tokens are accepted. With others fewer are, and the text is as exact.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from lessons.check import seeds
from lessons.check.answered import wholes
from lessons.check.clock import shown
from lessons.check.mistakes_one_ahead import WRONGS, OWN_HIDDEN
from lessons.check.engine import Exercise, Functions
from lessons.check.layers import TARGET, Layer, Scripted, hidden_of
from lessons.check.rounds import count, distribution_of, next_weights, right_texts, threshold
from lessons.check.seen import Failure, Row, Seen, values
from nanospec.proof.walk import walk

IDS = (1, 0)
ROUNDS = (1, 1), (2, 0)                 # gamma, and how far off the layer is in any case: in the last it can be right
NEW, DRAFTED = len(ROUNDS), ROUNDS[-1][0]     # a round writes one token at least


def proposed(f, layer, text, hidden, gamma: int) -> list[int]:
    drafted = wholes(f.propose(layer, list(text), hidden, gamma), "propose")
    if drafted != layer.drafted or len(drafted) != gamma:
        raise Failure(f"propose must call the layer {gamma} times and return its draft tokens, in order; they were "
                      f"{layer.drafted}, it returned {drafted}")
    return drafted


def kept(f, *round_) -> list[int]:
    return wholes(f.keep(*round_), "keep")


def contract(f) -> None:
    proposed(f, Scripted(), [5, 7, 2], [40, 41], 2)
    kept(f, [40, 41], [42, 43], [45, 46, 47], 1)


def worked(f) -> list[Seen]:
    right = [[(40, 7), (41, 2)], [(40, 7), (41, 2), (42, 6)]]

    def read() -> dict:
        layer = Scripted()
        proposed(f, layer, [5, 7, 2], [40, 41], 2)
        return by_place(layer.reads)
    return [values("propose, tokens [5, 7, 2], hidden [40, 41], gamma 2: what the layer reads", read,
                   by_place(right)), seen_kept(f, 2, 1)]


def by_place(reads: list[list[tuple[int, int]]]) -> dict[str, int]:
    return {f"call {call}, pair {place}, {what}": number for call, pairs in enumerate(reads, 1)
            for place, pair in enumerate(pairs, 1) for what, number in zip(("hidden states", "token"), pair)}


def seen_kept(f, gamma: int, accepted: int, length: int = 2) -> Seen:
    hidden, first = list(range(40, 40 + length)), 40 + length
    predicted, verified = list(range(first, first + gamma)), list(range(first + gamma + 1, first + 2 * gamma + 2))
    right = hidden + verified[:accepted + 1]

    def numbered(kept: list[int]) -> dict:
        return {f"place {i}": number for i, number in enumerate(kept)}
    return values(f"keep, hidden {hidden}, predicted {predicted}, verified {verified}, accepted {accepted}: right is "
                  f"{right}", lambda: numbered(kept(f, hidden, predicted, verified, accepted)), numbered(right))


def play(f, dice) -> tuple[tuple[int, ...], int]:
    """Two rounds: the first NEW tokens of their text, and how many draft tokens the last round accepted."""
    text, hidden = IDS, list(hidden_of(IDS[:-1]))
    for gamma, off in ROUNDS:
        layer = Layer(text, off, dice)
        drafted = proposed(f, layer, text, hidden, gamma)
        p_target = [distribution_of(TARGET, (*text, *drafted[:i])) for i in range(gamma + 1)]
        accepted = count([dice.flip(threshold(x, p, q)) for x, p, q in zip(drafted, p_target, layer.q_draft)])
        verified = list(hidden_of((*text, *drafted))[len(text) - 1:])
        hidden = kept(f, hidden, layer.predicted, verified, accepted)
        text = (*text, *drafted[:accepted], dice.pick(next_weights(accepted, p_target, layer.q_draft)))
    return text[len(IDS):len(IDS) + NEW], accepted


@lru_cache(maxsize=1)
def walked(propose: Callable, keep: Callable) -> tuple[dict, int]:
    """Two rounds in every way the dice can fall, for the two parts that follow."""
    return walk(lambda dice: play(Functions(propose=propose, keep=keep), Row(dice)))


def exact(f) -> list[Seen]:
    def texts() -> dict:
        found: dict = {}
        for (tokens, _), weight in walked(f.propose, f.keep)[0].items():
            found[tokens] = found.get(tokens, 0.0) + weight
        return found
    seen = values(f"two rounds: the distribution of {NEW} tokens", texts, right_texts(TARGET, IDS, NEW))
    return [seen if seen.error else replace(seen, paths=walked(f.propose, f.keep)[1])]


def accepted_by(propose: Callable, keep: Callable) -> float:
    return sum(weight * accepted for (_, accepted), weight in walked(propose, keep)[0].items())


def pace(f) -> list[Seen]:
    return [values(f"the second round: how many of the layer's {DRAFTED} draft tokens are accepted",
                   lambda: {"draft tokens accepted": accepted_by(f.propose, f.keep)},
                   {"draft tokens accepted": DRAFTED})]


def every_count(f) -> list[Seen]:
    draw = seeds.chance(18)
    sizes = [(1, 2), (3, 2), (2, 1), (5, 7), (8, draw.randint(10, 40))]
    return [seen_kept(f, gamma, accepted, length) for gamma, length in sizes for accepted in range(gamma + 1)]


def longer_texts(f) -> list[Seen]:
    """What the layer reads, of texts and drafts of many lengths."""
    draw, found = seeds.chance(118), []
    for length, gamma in ((2, 1), (2, 5), (4, 3), (9, 2), (draw.randint(12, 30), 6)):
        tokens = [draw.randrange(50) for _ in range(length)]
        hidden = [draw.randrange(100, 999) for _ in tokens[1:]]
        answers = [(draw.randrange(100, 999), draw.randrange(50)) for _ in range(gamma)]
        right = [[*zip(hidden, tokens[1:]), *answers[:call]] for call in range(gamma)]

        def read(tokens=tokens, hidden=hidden, answers=answers) -> dict:
            layer = Scripted(answers)
            proposed(f, layer, tokens, hidden, len(answers))
            return by_place(layer.reads)
        found.append(values(f"propose, tokens {shown(tokens)}, hidden {shown(hidden)}, gamma {gamma}: what the layer "
                            "reads",
                            read, by_place(right)))
    return found


def number_to_reach(f) -> str:
    yours, others = accepted_by(f.propose, f.keep), accepted_by(OWN_HIDDEN["propose"], f.keep)
    return (f"{yours:.2f} of {DRAFTED} draft tokens accepted; to reach: {DRAFTED:.2f}. With each token beside its own "
            f"hidden states: {others:.2f}, and the same distribution of the text")


EXERCISE = Exercise(
    "ex18_one_ahead.py", ("propose", "keep"), contract,
    {"worked number": worked, "exact distribution": exact, "every draft token accepted": pace,
     "what is kept": every_count, "longer texts": longer_texts},
    WRONGS,
    ("Write the tokens in a line, and under each one its own hidden state. Now move the lower line one place to the "
     "right.",
     "How many pairs has a text of three tokens? In keep: which tokens has the target read, and which are text?",
     "pairs = list(zip(hidden, tokens[1:])); after each call pairs.append((predicted, token)). And hidden + "
     "verified[:accepted + 1]"),
    [("nanospec.methods.draft_models.unrolled", "before_tokens", "", ""),
     ("nanospec.methods.draft_models.text_reader", "LearnedReader.commit", "first =", "self.kept[")],
    {"number to reach": number_to_reach}, speed="every draft token accepted")
