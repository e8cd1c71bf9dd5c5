"""Numbers about a pair on this machine: what calls cost, how often the draft is right, what speculation gains."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nanospec.errors import SEEDS, check_request
from nanospec.fast.autotune import Setup, weights_of
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.generate import generate
from nanospec.methods.index import Method
from nanospec.model import GPT
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from nanospec.theory import acceptance, speedup

BUSY = 1.5              # times: if plain decoding's speed differs by so much between repeats, others use the machine


@dataclass
class CallCosts:
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


def measure_costs(target: GPT, draft: Any, sizes: Iterable[int], context: int = 256, turns: int = 10,
                  **settings) -> CallCosts:
    """What calls on one token and on `sizes` tokens cost. settings: as `step_seconds` takes them.

    The steps take turns, and are compared with one another within a turn: a machine that others use, too, is
    faster in one second than in the next. With a compiler there is one turn of many repeats, since compiling
    takes longer than that.
    """
    sizes, found, timing = list(sizes), [], settings | {"context": context}
    if settings.get("compiler"):
        turns = 1
    else:
        timing |= {"repeats": 1, "warm_up": 1}
    for _ in range(turns):
        seconds = step_seconds(target, 1, **timing)
        v = {m: step_seconds(target, m, **timing) / seconds for m in sizes}
        found.append(CallCosts(draft_seconds(draft, **timing) / seconds, v, seconds))
    return CallCosts(median(cost.c for cost in found), {m: median(cost.v[m] for cost in found) for m in sizes},
                 median(cost.seconds for cost in found))


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the places that were judged; 0 if none was."""
    betas = sum(betas_of(rounds), [])
    return sum(betas) / max(1, len(betas))


def betas_of(rounds: Iterable[Round]) -> list[list[float]]:
    """For the first, second, ... draft token of a round: sum min(p_target, q_draft) wherever one was judged.

    They are judged after row 0 and after accepted rows, those that have a child. What is judged first there is the
    first child.
    """
    betas: list[list[float]] = []
    for done in rounds:
        places = [row for row in (0, *done.path) if row in done.parents]
        first = [done.parents.index(row) for row in places]
        for position, beta in enumerate(acceptance(done.p_target[places], done.q_draft[first]).tolist()):
            if position == len(betas):
                betas.append([])
            betas[position].append(beta)
    return betas


def measure_alpha(target: GPT, draft: Any, prompts: Iterable[Sequence[int]], **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, seed=seed, **settings)
    return alpha_of(rounds)


def check_texts(target: GPT, prompts: Sequence[Sequence[int]], max_new_tokens: int, methods: Iterable[Method]) -> None:
    """RequestError, before anything is measured, unless all methods can continue all prompts."""
    rows = 1 + max(method.gamma for method in methods)
    check_request(target, max(prompts, key=len), max_new_tokens, 1.0, None, None, 0, rows)


def measure(target: GPT, draft: Any, prompts: Sequence[Sequence[int]], methods: Sequence[Method],
            repeats: int = 3, seed: int = 0, max_new_tokens: int = 128, stop: Sequence[int] = (),
            compiler: Callable | None = None, **sampling) -> list[tuple[dict, list[Round]]]:
    """For each method a row of numbers, and the rounds that it is made from.

    Plain decoding and the methods take turns, prompt by prompt, so that all meet the same machine. A repeat has
    the same seeds, and so the same rounds. Speeds are medians over repeats, prompts read included.
    compiler: for methods that `check_fixed` allows; one turn more, the first, is for the compiling.
    """
    request = sampling | {"max_new_tokens": max_new_tokens, "stop": stop, "compiler": compiler}
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2        # half-way, where a call costs the mean

    def turn() -> tuple[float, list[list[list[Round]]], list[list[list[float]]]]:
        """Plain decoding's tokens per second; of each method, of each prompt, the rounds, and each round's seconds."""
        count, spent = 0, 0.0
        rounds: list[list[list[Round]]] = [[] for _ in methods]
        took: list[list[list[float]]] = [[] for _ in methods]
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=(seed + number) % SEEDS, **request))
            count, spent = count + len(tokens), spent + sum(seconds)
            for i, method in enumerate(methods):
                done, seconds = timed(method.run(ids, seed=(seed + number) % SEEDS, **request))
                rounds[i].append(done)
                took[i].append(seconds)
        return count / spent, rounds, took

    if compiler:
        turn()
    plain, of_repeats, costs = [], [], []
    for _ in range(repeats):
        pace, rounds, took = turn()
        plain.append(pace)
        of_repeats.append(took)
        sizes = {len(done.tokens) for texts in rounds for text in texts for done in text}
        costs.append(measure_costs(target, draft, sorted(sizes), context, compiler=compiler, **sampling))
    common = {"device": str(target.device), "dtype": weights_of(target), "busy": max(plain) > BUSY * min(plain),
              "temperature": sampling.get("temperature", 1.0), "baseline_tokens_per_s": median(plain)}
    return [(common | numbers_of(method, texts, seconds, costs, median(plain)), sum(texts, []))
            for method, texts, seconds in zip(methods, rounds, zip(*of_repeats))]


def numbers_of(method: Method, texts: Sequence[list[Round]], took: Sequence[Sequence[list[float]]],
               costs: Sequence[CallCosts], plain: float) -> dict:
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
            "alpha_by_position": [sum(betas) / len(betas) for betas in betas_of(rounds)],
            "steps": sum(done.steps for done in rounds) / calls, "tokens_per_target_call": emitted / calls,
            "rounds": calls, "drafted": sum(parent >= 0 for done in rounds for parent in done.parents),
            "accepted": sum(len(done.path) for done in rounds), "emitted": emitted, "overhead": overhead}


def best_of_each(found: Sequence[list[tuple[dict, list[Round]]]]) -> list[tuple[dict, list[Round]]]:
    """Each method's row and rounds from one `measure`. Of two, eager and compiled, those of the faster one, its
    speed-up over the faster of two baselines, with the speeds of both.
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
        best.append((row | speeds | {"baseline_tokens_per_s": plain, "speedup": row["tokens_per_s"] / plain,
                                     "busy": any(row["busy"] for row in rows)}, rounds))
    return best


def measure_setups(setups: Sequence[Setup], tokenizer: Any, prompts: Sequence[Sequence[int]],
                   methods: Callable[[Any, Any], Sequence[Method]], **request) -> list[dict]:
    """The rows of methods(target, draft), the best of each over the setups, with the `text` that it wrote."""
    found = [measure(target, draft, prompts, methods(target, draft), compiler=compiler, **request)
             for target, draft, compiler in setups]
    return [row | {"text": tokenizer.decode(tokens_of(rounds))} for row, rounds in best_of_each(found)]


def busy(rows: Sequence[dict]) -> str:
    """A warning, where other work on the machine has spoilt the figures."""
    return any(row["busy"] for row in rows) * (
        f"\nThis machine is busy: plain decoding's speed differed more than {BUSY:g} times between repeats. Measure "
        "again.")
