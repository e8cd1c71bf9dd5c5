"""Two texts that should be one, written at temperature 0: did rounding part them, or a bug?

A greedy token is the likeliest one, so all that rounding can do is to choose another where two are
close. How close is measured: the target in the named data type reads the texts, in calls on one
token and on several, and its logits are compared with those of a float call (rounding.py). What
lies within EXPLAINED times that is rounding, what lies beyond BEYOND times it is not, and of what
lies between nobody is accused: other kernels than ours round otherwise. Each text is read with the
tokens that it has, so a verdict also says which of the two is not the target's. kinds.py looks for
the bug's name, and for causes that are no bug.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nanospec.errors import RequestError
from nanospec.fast.announce import announced, printable
from nanospec.judge.ends import MISSED, ended, missed
from nanospec.judge.given import certain, cleaned, tokens_of, without_half
from nanospec.judge.kinds import Case, Kind, likeliest
from nanospec.judge.rounding import (BEYOND, DTYPES, EXPLAINED, SEVERAL, Compared, Moved, compared,
                                     exact_type, finer, in_type, moved, parting, read)

COARSER = 2.0   # times what was measured of a data type that was not named
LIKELY = 4.0    # times what was measured: so far below the best, a token may have been written
WINDOW, PLACES = 32, 1_024      # that rounding is measured on: of a text at most, of all texts
FEW = 32                        # places: on fewer than that what was measured says little
SHOWN, CASES = 8, 16            # differences; texts by which a kind is known


class Task(NamedTuple):
    """prompt: token ids. a, b: what two programs wrote after it, as token ids or as a text."""

    prompt: list[int]
    a: list[int] | str
    b: list[int] | str


@dataclass
class Judged:
    """status: 0 if rounding explains all, 1 for a bug, 2 if it cannot be judged, 3 if there is too
    little to say. print() it for what else there is.
    """

    status: int
    verdict: str
    moved: Moved
    each: list[Compared]
    dtype: str
    tokenizer: Any

    def __str__(self) -> str:
        lines = [self.line(number, one) for number, one in enumerate(self.each, 1)
                 if one.verdict != "same"]
        more = len(lines) - SHOWN
        counts = Counter(one.verdict for one in self.each)
        words = {"same": "alike", "shorter": "alike as far as both go",
                 "after": "where one goes on after the end", "twice": "where one ends twice",
                 "rounding": "parted by rounding", "close": "too close to call",
                 "bug": "where one is off", "neither": "where both are off",
                 "spelling": "where one is off, if its tokens are these"}
        return "\n".join([
            *lines[:SHOWN], *([f"... and {more} more."] if more > 0 else []),
            f"{self.dtype} moves the gap between two logits of this model by up to "
            f"{self.moved.most:.2g} ({self.moved.calls:.2g} between calls on 1 and on {SEVERAL} "
            f"tokens; {self.moved.places} places measured). Up to {EXPLAINED:g} x that is called "
            f"rounding here, from {BEYOND:g} x on it is not.",
            f"{len(self.each)} pair{'s' * (len(self.each) > 1)} of texts: "
            + ", ".join(f"{counts[verdict]} {words[verdict]}"
                        for verdict in words if counts[verdict]) + ".",
            self.verdict])

    def line(self, number: int, one: Compared) -> str:
        """Of one pair, in words."""
        if one.at is None:
            words = (f"prompt {number}: alike as far as both go (tokens: {one.lengths[0]} in A, "
                     f"{one.lengths[1]} in B)")
        else:
            a, b = (self.named(text.tokens[one.at]) for text in one.reads)
            first, second = map(self.named, one.best)
            words = (f"prompt {number}: they part at new token {one.at}, {a} in A and {b} in B. "
                     f"The target's two best there, by a call in {exact_type(self.dtype)}: {first} "
                     f"and {second}, {one.gap:.2g} apart. "
                     f"A's is {one.behind[0]:.2g} below the best, B's {one.behind[1]:.2g}")
        for name, text, place in zip("AB", one.reads, one.off):
            if place is not None:
                words += (f"; {name} is off at token {place}: {self.named(text.tokens[place])} is "
                          f"{float(text.behind[place]):.2g} below the best")
        in_words = {"bug": "more than rounding", "close": "too close to call",
                    "neither": "more than rounding, in both",
                    "spelling": "off, if these are its tokens", "shorter": "no difference",
                    **{how: f"{'AB'[one.longer]} {words}" for how, words in MISSED.items()}}
        return f"{words}: {in_words.get(one.verdict, one.verdict)}"

    def named(self, token: int) -> str:
        return f"{printable(self.tokenizer.decode([token]))!r} ({token})"


def judge_texts(target: Any, tokenizer: Any, tasks: Sequence[Task], dtype: str = "bfloat16",
                draft_model: Any = None, told: bool = False) -> Judged:
    """target: a GPT, as exact as its file has it. dtype: what the programs compute in, of DTYPES.
    draft_model: what they speculate with, by which draft tokens are known. told: whether one of
    them was told to ignore ends of text. RequestError for texts that the target cannot have
    written.
    """
    tasks = [Task(task.prompt, *(cleaned(one) for one in task[1:])) for task in tasks]
    if not tasks:
        raise RequestError("there is no pair of texts to judge")
    for number, task in enumerate(tasks, 1):
        if not task.prompt:
            raise RequestError(f"prompt {number} is empty: a text goes on from one token or more")
    given = [[tokens_of(task.prompt, one, target.config, tokenizer) for one in task[1:]]
             for task in tasks]
    if not any(a and b for a, b in given):
        raise RequestError("in each pair a text is empty: there is nothing to compare")
    names = {i: name for name, i in tokenizer.special.items()}
    hows, longer, ids = zip(*ended(given, tokenizer.ends, {*names}, told))
    exact = finer(target, dtype)
    spread = measured(target, exact, tasks, ids, dtype)
    ends, each = sorted(tokenizer.ends), list[Compared]()
    spellings = [*tokenizer.spellings, *[None] * target.config.vocab_size]      # some have no token
    with announced("reading the texts", at_once=False):
        for task, both, whole, how, more in zip(tasks, ids, given, hows, longer):
            # An empty text is read as any other, and nothing of it.
            reads = [read(exact, task.prompt, tokens or [0], () if isinstance(text, str) else ends
                          ).until(len(tokens)) for text, tokens in zip(task[1:], both)]
            sure = [certain(text, reading, spellings, LIKELY * spread.most, names)
                    if isinstance(text, str) else len(reading.tokens)
                    for text, reading in zip(task[1:], reads)]
            # Where its end is not what the target writes, it may be ordinary text.
            if how in MISSED and any(reading.off(BEYOND * spread.most) for reading in reads):
                how = "spelling"
            reads = [without_half(text, own, other, spellings) for text, own, other
                     in zip(task[1:], reads, reads[::-1])]
            one = compared((reads[0], reads[1]), spread.most, (sure[0], sure[1]))
            one.lengths, one.longer = (len(whole[0]), len(whole[1])), more
            one.verdict = how if one.verdict == "same" else one.verdict
            each.append(one)
    judged = Judged(0, "", spread, each, dtype, tokenizer)
    judged.status, judged.verdict = verdict(judged, target, exact, tasks, ids, draft_model)
    if found := missed(each):
        words = [*found, *[judged.verdict] * (judged.status == 1)]
        judged.status, judged.verdict = 1, " ".join(words)
    return judged


def measured(target: Any, exact: Any, tasks: Sequence[Task], ids: Sequence[list[list[int]]],
             dtype: str) -> Moved:
    """What rounding moves on these texts: up to where they part, and to where the second ends.
    exact: the target, to compute with more bits.
    """
    rounded, spread = in_type(target, dtype), Moved()
    window = max(1, min(WINDOW, PLACES // (2 * len(tasks))))
    with announced(f"measuring what {dtype} rounds", at_once=False, steps=len(tasks)) as step:
        for task, (a, b) in zip(tasks, ids):
            found = parting(a, b)
            end = len(a) if found is None else found + 1
            for text in filter(None, (a[:end], b[:end + window])):
                spread |= moved(exact, rounded, task.prompt, text, max(0, len(text) - window))
            step()
    return spread


def verdict(judged: Judged, target: Any, exact: Any, tasks: Sequence[Task],
            ids: Sequence[list[list[int]]], draft_model: Any) -> tuple[int, str]:
    """(status, in words), of all pairs together."""
    each, spread, dtype = judged.each, judged.moved.most, judged.dtype
    verdicts = Counter(one.verdict for one in each)
    sides = [side for side in (0, 1) if any(one.off[side] is not None for one in each)]

    def kind(side: int, times: float = BEYOND) -> Kind:
        """By the texts in which something is so many times further off than rounding."""
        cases = [Case(task.prompt, one.reads[side].until(one.sure[side]),
                      one.reads[1 - side].tokens)
                 for task, one in zip(tasks, each)
                 if one.reads[side].until(one.sure[side]).off(times * spread)][:CASES]
        return likeliest(exact, cases, times * spread, judged.tokenizer, draft_model)

    if judged.moved.places < FEW:
        return 3, "Too little to say: the texts are too short."
    if len(sides) == 2:
        return 2, ("No verdict: neither A nor B is what the target writes after these prompts "
                   f"(A: {kind(0).words}. B: {kind(1).words}). So there is nothing to compare "
                   "with. Are these the target and the prompts?")
    if sides:
        side, = sides
        name, found = "AB"[side], [i for i, one in enumerate(each) if one.off[side] is not None]
        furthest = max(float(each[i].reads[side].until(each[i].sure[side]).behind.max())
                       for i in found)
        why = kind(side)
        if why.asked:
            return 2, f"No verdict: {name} is off by more than rounding, but {why.words}."
        for coarser in DTYPES[DTYPES.index(dtype) + 1:] if not why.exact else ():
            more = measured(target, exact, [tasks[i] for i in found[:4]],
                            [ids[i] for i in found[:4]], coarser)
            if furthest <= COARSER * more.most:
                return 2, (f"No verdict: what is off in {name} is more than {dtype} rounds, and "
                           f"less than {coarser} does. Does a part of it compute so?")
        return 1, (f"A BUG in {name}: in {len(found)} of {len(each)} texts it writes what the "
                   f"target in {dtype} does not. The likeliest kind: {why.words}.")
    if verdicts["close"]:
        far = [max((0, 1), key=lambda side: one.behind[side]) for one in each
               if one.verdict == "close"]
        side = max(set(far), key=far.count)
        why = kind(side, EXPLAINED)
        if why.asked:
            return 2, (f"No verdict: where {'AB'[side]} parts, rounding hardly explains it, but "
                       f"{why.words}.")
    if verdicts["spelling"]:
        return 3, "Too little to say: a text may have had other tokens. Give token ids."
    if verdicts["close"]:
        return 3, ("Too few differences to say: where it counts the tokens are further apart than "
                   "rounding was seen to move them, and not far enough for a bug.")
    if any(one.verdict == "shorter" and 0 in one.lengths for one in each):
        return 3, "Too little to say: a text is empty, and the one beside it is not."
    if verdicts["rounding"]:
        return 0, (f"ROUNDING: it explains where {verdicts['rounding']} of {len(each)} pairs part, "
                   "and nothing else is off. (A bug that only turns close calls looks the same.)")
    return 0, "No difference: the texts are alike as far as both go, and nothing in them is off."
