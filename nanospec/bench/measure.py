"""Numbers about a pair on this machine: what calls cost, how often the draft is right, what speculation gains."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from rich.console import Console

from nanospec.draft_models import DraftModel
from nanospec.draft_models.learned import Learned
from nanospec.fast.autotune import DTYPES, name_of, settle, way_of
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.fast.compiled import compiled, why_not
from nanospec.generate import generate
from nanospec.methods import Method
from nanospec.model import GPT
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from nanospec.text import check_request
from nanospec.theory import acceptance, speedup

Setup = tuple[GPT, GPT | Learned, Callable | None]      # target, draft, and the capture that they run by
BUSY = 1.5              # times: if plain decoding's speed differs by so much between repeats, others use the machine


@dataclass
class Costs:
    """c: a draft step / a target step. v[m]: a target call on m tokens / on one. seconds: of one target step."""

    c: float
    v: dict[int, float]
    seconds: float

    def parts(self, gamma: int) -> float:
        """Seconds of a round by its parts: gamma draft steps and one verification, each measured alone."""
        return self.seconds * (gamma * self.c + self.v[gamma + 1])

    def of(self, done: Round) -> float:
        """The same of any round, in plain tokens."""
        return done.steps * self.c + self.v[len(done.tokens)]

    def speedup(self, rounds: Sequence[Round]) -> float:
        """What these rounds would gain where a round takes no longer than its parts."""
        return len(tokens_of(rounds)) / sum(map(self.of, rounds))


def measure_costs(target: GPT, draft: GPT | Learned, sizes: Iterable[int], context: int = 256, turns: int = 10,
                  **settings) -> Costs:
    """settings: the sampling's, and `rows` and `capture` of `step_seconds`.

    The steps take turns, and are compared with one another within a turn: a machine that others use, too, is faster in
    one second than in the next. What is captured has one turn of many repeats, for capturing takes longer than that.
    """
    sizes, found, timing = list(sizes), [], settings | {"context": context}
    if settings.get("capture"):
        turns = 1
    else:
        timing |= {"repeats": 1, "warm_up": 1}
    for _ in range(turns):
        seconds = step_seconds(target, 1, **timing)
        v = {m: step_seconds(target, m, **timing) / seconds for m in sizes}
        found.append(Costs(draft_seconds(draft, **timing) / seconds, v, seconds))
    return Costs(median(cost.c for cost in found), {m: median(cost.v[m] for cost in found) for m in sizes},
                 median(cost.seconds for cost in found))


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the places that were judged; 0 if none was.

    They are row 0 and the accepted rows, those that have a child. What is judged first there is the first child.
    """
    betas = []
    for done in rounds:
        places = [row for row in (0, *done.path) if row in done.parents]
        first = [done.parents.index(row) for row in places]
        betas += acceptance(done.p_target[places], done.q_draft[first]).tolist()
    return sum(betas) / max(1, len(betas))


def measure_alpha(target: GPT, draft: DraftModel, prompts: Iterable[Sequence[int]], **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, seed=seed, **settings)
    return alpha_of(rounds)


def settled(target: GPT, draft: GPT | Learned, dtype: str, threads: int | None,
            capture: Callable | None = None) -> str:
    """Convert both, in place, to what is fastest here, and say what that is. dtype: "auto" or the only one to try.

    capture: `compiled`, for a pair that will run so.
    """
    settle(target, draft, DTYPES if dtype == "auto" else [getattr(torch, dtype)], [threads] if threads else [], capture)
    threads = torch.get_num_threads()
    return (f"{target.device}, {threads} thread{'s' * (threads > 1)}; target in {way_of(target)}, "
            f"draft in {way_of(draft)}")


def compiler_for(device: torch.device) -> Callable | None:
    """`compiled`, showing that it works; None, and a line that says why, where nothing can be compiled."""
    said = why_not(device)
    if not said:
        return partial(compiled, progress=Console(stderr=True).status)
    Console(stderr=True).print(f"nothing can be compiled here, so all runs eagerly: {said}", style="yellow",
                               markup=False)
    return None


def setups_of(target: GPT, draft: GPT | Learned, dtype: str, threads: int | None,
              compile: bool) -> tuple[list[Setup], str]:
    """How the models run: converted to what is fastest here, eagerly; with compile also copies of them, to what is
    fastest compiled. And what that is, in words.
    """
    compiler = compiler_for(target.device) if compile else None
    ways: list[Setup] = [(target, draft, None)]
    if compiler:                                            # copied before anything is packed: then it has no copy
        ways.append((*deepcopy((target, draft)), compiler))    # together: a draft model may use the target's parts
    return ways, "; compiled: ".join(settled(big, small, dtype, threads, capture) for big, small, capture in ways)


def check_texts(target: GPT, prompts: Sequence[Sequence[int]], max_new_tokens: int, methods: Iterable[Method]) -> None:
    """Raise RequestError, before anything is measured, unless all methods can continue all prompts."""
    rows = 1 + max(method.gamma for method in methods)
    check_request(target, max(prompts, key=len), max_new_tokens, 1.0, None, None, rows)


def measure(target: GPT, draft: GPT | Learned, prompts: Sequence[Sequence[int]], methods: Sequence[Method],
            repeats: int = 3, seed: int = 0, max_new_tokens: int = 128, stop: Sequence[int] = (),
            capture: Callable | None = None, **sampling) -> list[tuple[dict, list[Round]]]:
    """For each method a row of numbers, and the rounds behind it.

    Plain decoding and the methods take turns, prompt by prompt, so that all meet the same machine. A repeat is the
    same seeds, and so the same rounds. Speeds are medians over repeats, prompts read included. capture: of methods
    that `check_fixed` allows; a turn more, the first, is for the capturing.
    """
    request = sampling | {"max_new_tokens": max_new_tokens, "stop": stop, "capture": capture}
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2        # half-way, where a call costs the mean

    def turn() -> tuple[float, list[list[list[Round]]], list[list[list[float]]]]:
        """Plain decoding's tokens per second; of each method, of each prompt, the rounds, and each round's seconds."""
        count, spent = 0, 0.0
        rounds: list[list[list[Round]]] = [[] for _ in methods]
        took: list[list[list[float]]] = [[] for _ in methods]
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=seed + number, **request))
            count, spent = count + len(tokens), spent + sum(seconds)
            for i, method in enumerate(methods):
                done, seconds = timed(method.run(ids, seed=seed + number, **request))
                rounds[i].append(done)
                took[i].append(seconds)
        return count / spent, rounds, took

    if capture:
        turn()
    plain, of_repeats, costs = [], [], []
    for _ in range(repeats):
        pace, rounds, took = turn()
        plain.append(pace)
        of_repeats.append(took)
        sizes = {len(done.tokens) for texts in rounds for text in texts for done in text}
        costs.append(measure_costs(target, draft, sorted(sizes), context, capture=capture, **sampling))
    common = {"device": str(target.device), "dtype": name_of(target.dtype), "busy": max(plain) > BUSY * min(plain),
              "temperature": sampling.get("temperature", 1.0), "baseline_tokens_per_s": median(plain)}
    return [(common | numbers_of(method, texts, seconds, costs, median(plain)), sum(texts, []))
            for method, texts, seconds in zip(methods, rounds, zip(*of_repeats))]


def numbers_of(method: Method, texts: Sequence[list[Round]], took: Sequence[Sequence[list[float]]],
               costs: Sequence[Costs], plain: float) -> dict:
    """A method's numbers. texts: the rounds of each prompt. took: of each repeat, of each prompt, each round's seconds.

    drafted, accepted: draft tokens, as the rule judged them. emitted: tokens of the texts, whose last rounds are cut at
    the length asked for; tokens per second and per target call count these. overhead: what a round takes over its
    parts, measured in the same repeat; a text's first round reads the prompt and does not count.
    """
    rounds = sum(texts, [])
    calls, emitted, alpha = len(rounds), len(tokens_of(rounds)), alpha_of(rounds)
    c, v = median(cost.c for cost in costs), median(sum(cost.v[len(done.tokens)] for done in rounds) / calls
                                                    for cost in costs)
    pace = median(emitted / sum(map(sum, seconds)) for seconds in took)
    overhead = median(median([spent / (cost.seconds * cost.of(done)) for text, its in zip(texts, seconds)
                              for done, spent in zip(text[1:], its[1:])] or [1.0])
                      for seconds, cost in zip(took, costs))
    predicted = (speedup(alpha, method.gamma, c, v) if method.drafter == "chain" else
                 median(cost.speedup(rounds) for cost in costs))
    return {"drafter": method.drafter, "rule": method.rule, "gamma": method.gamma, "tokens_per_s": pace,
            "speedup": pace / plain, "predicted_speedup": predicted, "alpha": alpha, "c": c, "v": v,
            "steps": sum(done.steps for done in rounds) / calls, "tokens_per_target_call": emitted / calls,
            "rounds": calls, "drafted": sum(parent >= 0 for done in rounds for parent in done.parents),
            "accepted": sum(len(done.path) for done in rounds), "emitted": emitted, "overhead": overhead}


def best_of_each(found: Sequence[list[tuple[dict, list[Round]]]]) -> list[tuple[dict, list[Round]]]:
    """Each method's row and rounds from one `measure`; or from two, eager and compiled, those of the faster one, its
    speed-up over the faster of two baselines, with the speeds of both.
    """
    if len(found) == 1:
        return found[0]
    best = []
    for both in zip(*found):
        rows = [row for row, _ in both]
        speeds = {f"{key}_{way}": row[key] for way, row in zip(("eager", "compiled"), rows)
                  for key in ("baseline_tokens_per_s", "tokens_per_s")}
        row, rounds = max(both, key=lambda found: found[0]["tokens_per_s"])
        plain = max(row["baseline_tokens_per_s"] for row in rows)
        best.append((row | speeds | {"baseline_tokens_per_s": plain, "speedup": row["tokens_per_s"] / plain,
                                     "busy": any(row["busy"] for row in rows)}, rounds))
    return best
