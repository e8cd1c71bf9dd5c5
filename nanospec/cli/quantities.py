"""The numbers that are shown of a run, computed in one place from its rounds and its seconds. No
clock stands here, and nothing is printed: the terminal, tables, JSON, pictures and the page take
their numbers from here.

Over several texts or turns a rate is total over total, never the mean of rates: a slow text takes
more of the time than of the texts. A first step or round reads the prompt. Where the pace of
writing is asked for, it does not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean, median

import torch

from nanospec.methods.index import Method
from nanospec.speculate import Round, tokens_of
from nanospec.theory import acceptance, speedup

BUSY = 1.5      # times: if plain decoding differs so much between repeats, others use the machine
RUN = 8         # tokens: where so many have stood in a text before, it repeats itself


def per_second(count: float, seconds: Iterable[float]) -> float:
    """How many a second: all of them over all of the time."""
    return count / sum(seconds)


def tokens_of_call(row: Mapping) -> float:
    """Tokens of a target call, on average: the draft tokens, and the text's last one."""
    return row["drafted"] / row["rounds"] + 1


def cost_of_round(row: Mapping) -> float:
    """What a round takes, in plain steps: what the target alone would write meanwhile."""
    return row["acceptance_length"] / row["speedup"]


def quantile(values: Sequence[float], part: float) -> float:
    """Between two values on a line. Example: of 1, 2 and 4 the .75 is 3."""
    return torch.tensor(values, dtype=torch.float64, device="cpu").quantile(part).item()


# Of rounds

def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the places that were judged; 0 if none was."""
    betas = sum(betas_of(rounds), [])
    return sum(betas) / max(1, len(betas))


def betas_of(rounds: Iterable[Round]) -> list[list[float]]:
    """For the first, second, ... draft token of a round: sum min(p_target, q_draft) wherever one
    was judged.

    They are judged after node 0 and after accepted nodes, those that have a child. What is judged
    first there is the first child.
    """
    found = []
    for done in rounds:
        nodes = [node for node in (0, *done.path) if node in done.parents]
        first = [done.parents.index(node) for node in nodes]
        found.append(acceptance(done.p_target[nodes], done.q_draft[first]).tolist())
    return [[beta for beta in betas if beta is not None] for betas in zip_longest(*found)]


def accepted_lengths(rounds: Sequence[float]) -> str:
    """How many draft tokens a round accepts, in a line. rounds: how many accept 0, 1, 2, ..., or in
    which proportion. Example: [1, 0, 3] is "0: 25%  1: 0%  2: 75%".
    """
    return "  ".join(f"{count}: {times / sum(rounds):.0%}" for count, times in enumerate(rounds))


@dataclass
class CallCosts:
    """c: a draft step / a target step. v[m]: a call on m tokens / on one. seconds: of one step."""

    c: float
    v: dict[int, float]
    seconds: float

    def round(self, steps: float, tokens: int) -> float:
        """So many draft steps and a call on so many tokens, each measured alone; in plain steps."""
        return steps * self.c + self.v[tokens]

    def of(self, done: Round) -> float:
        return self.round(done.steps, len(done.tokens))


# Of a method in the bench

def numbers_of(method: Method, texts: Sequence[list[Round]], took: Sequence[Sequence[list[float]]],
               costs: Sequence[CallCosts], plain: float) -> dict:
    """A method's numbers. texts: the rounds of each prompt. took: of each repeat, of each prompt,
    each round's seconds. plain: tokens a second of plain decoding.

    alpha_by_position: of the first, second, ... draft token of a round. drafted: draft tokens,
    judged or not; a node that a text lacks is none. accepted: by the rule, also where the text was
    cut before them; accepted_lengths: in how many rounds 0, 1, 2, ... were. acceptance_rate: as
    engines have it, accepted of drafted. emitted: tokens of the texts, whose last rounds are cut at
    the length asked for; tokens per second and the acceptance length, which is tokens per target
    call, count these. overhead: what a round takes over its parts, measured in the same repeat; a
    text's first round reads the prompt and does not count. predicted_speedup: where a round takes
    no longer than its parts; of a chain, by the formula.
    """
    rounds = sum(texts, [])
    calls, emitted, alpha = len(rounds), len(tokens_of(rounds)), alpha_of(rounds)
    drafted = sum(parent >= 0 for done in rounds for parent in done.parents)
    tally = Counter(len(done.path) for done in rounds)
    accepted = sum(tally.elements())
    c = median(cost.c for cost in costs)
    v = median(fmean(cost.v[len(done.tokens)] for done in rounds) for cost in costs)
    pace = median(per_second(emitted, map(sum, seconds)) for seconds in took)
    overhead = median(median([spent / (cost.seconds * cost.of(done))
                              for text, spent_each in zip(texts, seconds)
                              for done, spent in zip(text[1:], spent_each[1:])] or [1.0])
                      for seconds, cost in zip(took, costs))
    predicted = (speedup(alpha, method.gamma, c, v) if method.drafter == "chain" else
                 median(emitted / sum(map(cost.of, rounds)) for cost in costs))
    return {"drafter": method.drafter, "rule": method.rule, "gamma": method.gamma,
            "tokens_per_s": pace, "speedup": pace / plain,
            "predicted_speedup": predicted, "alpha": alpha,
            "alpha_by_position": [fmean(betas) for betas in betas_of(rounds)],
            "c": c, "v": v, "steps": fmean(done.steps for done in rounds), "overhead": overhead,
            "acceptance_length": emitted / calls, "rounds": calls,
            "drafted": drafted, "accepted": accepted, "emitted": emitted,
            "acceptance_rate": accepted / max(1, drafted),
            "accepted_lengths": [tally[count] for count in range(max(tally) + 1)]}


def best_of_each(found: Sequence[list[tuple[dict, list[Round]]]]) -> list[tuple[dict, list[Round]]]:
    """Each method's row and rounds from one `measure`. Of two, eager and compiled, those of the
    faster one, its speed-up over the faster of two baselines, with the speeds of both.
    """
    if len(found) == 1:
        return found[0]
    best = []
    for both in zip(*found):
        rows = [row for row, _ in both]
        speeds = {f"{key}_{how}": row[key] for how, row in zip(("eager", "compiled"), rows)
                  for key in ("baseline_tokens_per_s", "tokens_per_s")}
        row, rounds = max(both, key=lambda pair: pair[0]["tokens_per_s"])
        plain = max(row["baseline_tokens_per_s"] for row in rows)
        best.append((row | speeds | {"busy": any(row["busy"] for row in rows),
                                     "baseline_tokens_per_s": plain,
                                     "speedup": row["tokens_per_s"] / plain}, rounds))
    return best


# Of an answer in a conversation, and of requests that were served

def answer_of(rounds: Sequence[Round], took: Sequence[float],
              plain: Sequence[float]) -> dict[str, float]:
    """took, plain: seconds of rounds, and of plain steps after them. First ones, which read the
    prompt or warm up, do not count where there are more. The speed-up is over the median step;
    least and most: over the quickest and the slowest.
    """
    tokens, steps = tokens_of(rounds), plain[1:] or plain
    pace = per_second(len(tokens_of(rounds[1:] or rounds)), took[1:] or took)
    return {"acceptance_length": len(tokens) / len(rounds), "tokens_per_s": pace,
            "baseline_tokens_per_s": 1 / median(steps), "speedup": pace * median(steps),
            "least": pace * min(steps), "most": pace * max(steps), "repeated": repeated(tokens)}


def repeated(tokens: Sequence[int]) -> float:
    """The share of a text's runs of RUN tokens that have stood in it before. Such text is easily
    drafted. Example: of 16 tokens that are all the same 8 of 9.
    """
    runs = [tuple(tokens[i:i + RUN]) for i in range(len(tokens) - RUN + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def waits_of(arrivals: Sequence[float], first: Sequence[float], last: Sequence[float],
             counts: Sequence[int]) -> dict[str, float | None]:
    """Seconds until a request's first token, and for each token after it; None where no request has
    any. first, last: when a request's first and last token were written. counts: how many tokens it
    wrote.
    """
    to_first = [then - come for come, then in zip(arrivals, first, strict=True)]
    each = [(end - then) / (count - 1)
            for then, end, count in zip(first, last, counts, strict=True) if count > 1]
    return {f"{name}_p{part}": quantile(waits, part / 100) if waits else None
            for name, waits in (("first", to_first), ("each", each)) for part in (50, 99)}


def gain_of(found: Iterable[Mapping], rows: int, method: str) -> float:
    """Tokens a second over those of plain decoding in as many rows."""
    pace = {row["method"]: row["tokens_per_s"] for row in found if row["rows"] == rows}
    return pace[method] / pace["plain"]
