"""Exercise 23: a round without the bugs of eight public rounds, and which test would see each of these."""

from functools import lru_cache, partial

import torch

from lessons.check import engine, seeds
from lessons.check.answered import wholes
from lessons.check.catalogue import ENTRIES
from lessons.check.engine import Exercise, Functions
from lessons.check.rounds import right_texts
from lessons.check.seen import Failure, Row, Seen, look, values
from lessons.check.verdicts import verdict_distances, verdict_values
from lessons.round_by_round import off_by, reading
from nanospec.probs import probs
from nanospec.proof.walk import walk

RULES = [f"round_{letter}" for letter in "abcdefgh"]
VERDICTS = ("first", "later", "temperature")
LETTERS = seeds.letters(len(RULES), 23)
# Of each round as it ships: what was done wrong, with which throw, and who had it.
BUGS = {
    "a": ("warp-residual-again", "you apply the temperature to what is left of p - q once more; p and q have had it",
          "pick", "Lightning-AI/litgpt"),
    "b": ("greedy-draft-soft-q", "you draft the likeliest token and accept it as if it had been drawn from q; a token "
          "that was not drawn has a one-hot q", "flip", "jaymody/speculative-sampling, huggingface/transformers#33534"),
    "c": ("residual-softmaxed", "you take the softmax of what is left of p - q; divide it by its sum, for softmax "
          "gives e^0 to a token that has nothing left", "pick",
          "huggingface/transformers#28508, feifeibear/LLMSpeculativeSampling"),
    "d": ("target-unwarped", "you ask the target at temperature 1: the text comes out as at temperature 1", "flip",
          "vllm-project/vllm#9834"),
    "e": ("only-first-test-counts", "only the first coin counts: if it accepts, you accept the whole draft", "flip",
          "lucidrains/speculative-decoding"),
    "f": ("draft-warped-q-raw", "you draw from some of the tokens and report a q of all of them, in which the drawn "
          "token is less likely than it was", "flip", "huggingface/transformers#47932"),
    "g": ("bonus-unwarped", "you draw the bonus token without the temperature", "pick", "SafeAILab/EAGLE"),
    "h": ("residual-pointwise", "you take q away from the rejected token alone; the draft covers other tokens, too",
          "pick", "SafeAILab/EAGLE")}

# target, draft model, gamma, temperature
CASES = {"three tokens, gamma 2, T = 1": (seeds.table(3, 23, zeros=0), seeds.table(3, 123, zeros=0), 2, 1.0),
         "three tokens, some forbidden, gamma 2, T = 0.5": (seeds.table(3, 7), seeds.table(3, 107), 2, .5),
         "two tokens, gamma 3, T = 2": (seeds.table(2, 3, zeros=0), seeds.table(2, 4, zeros=0), 3, 2.0),
         "five tokens, gamma 1, T = 0.7": (seeds.table(5, 6), seeds.table(5, 106), 1, .7)}
IDS = [1, 0]            # two, so that a row too early is another one


@lru_cache(maxsize=None)
def names_of_the_answer() -> dict:
    names: dict = {"torch": torch}
    exec(ENTRIES[23].answer, names)
    return names


def judged(names: dict) -> dict[str, tuple[str, float]]:
    """Walked, as those names have them: which test sees it, and the distance at T = 0.5."""
    found = {}
    for name in RULES:
        first, text, cold = ((1.0, 1), (1.0, 3), (.5, 3))

        def off(setting, play=names[name]) -> float:
            return off_by(play, names["SEEDS"], *setting)
        verdict = "first" if off(first) > 1e-9 else "later" if off(text) > 1e-9 else "temperature"
        found[name] = verdict, off(cold)
    return found


@lru_cache(maxsize=None)
def shown() -> dict[str, tuple[str, float]]:
    return {name: (verdict, round(off, 3)) for name, (verdict, off) in judged(names_of_the_answer()).items()}


@lru_cache(maxsize=None)
def at_one() -> dict[str, tuple[str, float]]:
    """The verdicts of somebody who walks at T = 1 alone."""
    names = names_of_the_answer()
    return {name: (verdict, round(off_by(names[name], names["SEEDS"], 1.0, 3), 3))
            for name, (verdict, _) in shown().items()}


model_of = lru_cache(maxsize=None)(reading)             # each table reads a text once, for all mistakes


def round_of(f, dice, target, draft_model, text: list[int], gamma: int, T: float) -> list[int]:
    """What the learner's round adds to that text."""
    found = wholes(f.right_round(model_of(target), model_of(draft_model), list(text), gamma, T, dice), "right_round")
    new = found[len(text):]
    if found[:len(text)] != text or not 1 <= len(new) <= gamma + 1:
        raise Failure(f"right_round must return the text {text} and 1 to {gamma + 1} tokens more; it returned {found}")
    if any(x not in range(target.config.vocab_size) for x in new):
        raise Failure(f"right_round wrote a token that there is not; it returned {found}")
    return new


def contract(f) -> None:
    target, draft_model, gamma, T = CASES["five tokens, gamma 1, T = 0.7"]
    round_of(f, Row(seed=1), target, draft_model, IDS, gamma, T)


def exact(f) -> list[Seen]:
    def written(dice, target, draft_model, gamma, T) -> tuple[int, ...]:
        """A round, and the target alone up to gamma + 1 tokens."""
        text = IDS + round_of(f, dice, target, draft_model, IDS, gamma, T)
        while len(text) < len(IDS) + gamma + 1:
            text.append(dice.pick(probs(model_of(target)(text)[-1], T)))
        return tuple(text[len(IDS):])
    return [look(f"{name}: {case[2] + 1} tokens", lambda dice, case=case: written(dice, *case),
                 right_texts(case[0], tuple(IDS), case[2] + 1, temperature=case[3])) for name, case in CASES.items()]


def on_average(f, name: str) -> float:
    target, draft_model, gamma, T = CASES[name]
    found, _ = walk(lambda dice: len(round_of(f, Row(dice), target, draft_model, IDS, gamma, T)))
    return sum(count * share for count, share in found.items())


@lru_cache(maxsize=None)
def right_on_average(name: str) -> float:
    return on_average(Functions(**EXERCISE.right()), name)


def pace(f) -> list[Seen]:
    return [values(f"{name}, on average", lambda name=name: {"tokens of a round": on_average(f, name)},
                   {"tokens of a round": right_on_average(name)}, tolerance=1e-9) for name in CASES]


def where_they_were(f) -> str:
    return "; ".join(f"round_{LETTERS[letter]} {name}, {source}"
                     for letter, (name, _, _, source) in sorted(BUGS.items(), key=lambda bug: LETTERS[bug[0]]))


def round_with(letter: str):
    """That public round, by the name that it has here."""
    return lambda *given: names_of_the_answer()[f"round_{LETTERS[letter]}"](*given)


def relabelled(change) -> dict:
    return {"verdicts": lambda: {name: change(*found) for name, found in shown().items()}}


EXERCISE = Exercise(
    "ex23_eight_public_bugs.py", ("right_round", "verdicts"), contract,
    {"exact distribution": exact, "as many tokens as can be": pace,
     "verdicts": partial(verdict_values, shown=shown, verdicts=VERDICTS),
     "distances": partial(verdict_distances, shown=shown, verdicts=VERDICTS, of=RULES)},
    [*(engine.wrong(name, f"{said}, as in round_{LETTERS[letter]}", throw, right_round=round_with(letter))
       for letter, (name, said, throw, _) in BUGS.items()),
     engine.wrong("first-token-alone", "you call a round right at T = 1 whose first token is right: walk three tokens",
                  **relabelled(lambda verdict, off: ("temperature" if verdict == "later" else verdict, off))),
     engine.wrong("judged-at-one", "your distances are those at T = 1; asked for are those at T = 0.5",
                  verdicts=lambda: dict(at_one())),
     engine.wrong("not-halved",
                  "your distances are twice too large: total variation is half the sum of the differences",
                  **relabelled(lambda verdict, off: (verdict, 2 * off)))],
    ("Lay two of the rounds side by side: they share nearly all lines. A third one says which of the two is wrong.",
     "The parts of a round: draw the draft tokens from q, and report that q; p at the same temperature; a coin for "
     "each draft token until one rejects; what is left of p - q; the bonus token from p.",
     "off_by(right_round, SEEDS, 0.5, 3) is 0 up to rounding. The verdict of a round: off_by at T = 1 with new = 1, "
     "then with new = 3. Its distance: off_by at T = 0.5 with new = 3."),
    [("nanospec.idea", "speculative_round", "", "")], {"where they were": where_they_were},
    speed="as many tokens as can be")
