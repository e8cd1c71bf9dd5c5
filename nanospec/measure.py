"""Numbers about a pair on this machine: what calls cost, how often the draft is right, what speculation gains."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from nanospec.checkpoint import Pair
from nanospec.data import read_texts, to_ids
from nanospec.generate import generate
from nanospec.model import GPT
from nanospec.settle import name_of, step_seconds
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of, verify
from nanospec.theory import acceptance, speedup


@dataclass
class Costs:
    """c: a draft step / a target step. v[m]: a target call on m tokens / on one. seconds: of one target step."""

    c: float
    v: dict[int, float]
    seconds: float

    def parts(self, gamma: int) -> float:
        """Seconds of a round by its parts: gamma draft steps and one verification, each measured alone."""
        return self.seconds * (gamma * self.c + self.v[gamma + 1])


def measure_costs(target: GPT, draft: GPT, sizes: Iterable[int], context: int = 256, **settings) -> Costs:
    """settings: the law's, and `rows` and `repeats` of `step_seconds`."""
    seconds = step_seconds(target, 1, context, **settings)
    v = {m: step_seconds(target, m, context, **settings) / seconds for m in sizes}
    return Costs(step_seconds(draft, 1, context, **settings) / seconds, v, seconds)


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the drafted places that were judged: up to the first that fell."""
    betas = []
    for one in rounds:
        judged = min(one.kept + 1, len(one.drafted))
        betas += acceptance(one.p_target[:judged], one.q_draft[:judged]).tolist()
    return sum(betas) / len(betas)


def measure_alpha(target: GPT, draft: GPT, prompts: Iterable[Sequence[int]], gamma: int = 4, **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, gamma, seed=seed, **settings)
    return alpha_of(rounds)


def timed(steps: Iterable) -> tuple[list, list[float]]:
    """What an iterator yields, and the seconds it took for each; the first one's include reading the prompt."""
    out, seconds, began = [], [], perf_counter()
    for one in steps:
        seconds.append(perf_counter() - began)
        out.append(one)
        began = perf_counter()
    return out, seconds


def measure(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], gamma: int, repeats: int = 3, seed: int = 0,
            max_new_tokens: int = 128, stop: Sequence[int] = (), capture: Callable | None = None,
            rule: Callable = verify, **law) -> tuple[dict, list[Round]]:
    """One row of numbers for one gamma, and the rounds behind it.

    Plain and speculative runs alternate, prompt by prompt, so that both meet the same machine; a repeat is the same
    seeds and so the same work; speeds are medians over repeats, prompts read included. `overhead` is what a round
    takes over its parts, measured in the same repeat.
    """
    request = law | {"max_new_tokens": max_new_tokens, "stop": stop, "capture": capture}
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2        # half-way, where a call costs the mean
    plain, fast, overhead, c, v = [], [], [], [], []
    for _ in range(repeats):
        count, spent, rounds, round_seconds = [0, 0], [0.0, 0.0], [], []
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=seed + number, **request))
            count[0], spent[0] = count[0] + len(tokens), spent[0] + sum(seconds)
            ours, seconds = timed(speculate(target, ModelDrafter(draft), ids, gamma, seed=seed + number, rule=rule,
                                            **request))
            count[1], spent[1] = count[1] + len(tokens_of(ours)), spent[1] + sum(seconds)
            rounds += ours
            round_seconds += seconds[1:]
        plain.append(count[0] / spent[0])
        fast.append(count[1] / spent[1])
        costs = measure_costs(target, draft, [gamma + 1], context, repeats=12, **law)
        c.append(costs.c)
        v.append(costs.v[gamma + 1])
        parts = costs.parts(gamma)
        overhead.append(median(round_seconds or [parts]) / parts)
    alpha = alpha_of(rounds)
    row = {"device": str(target.device), "dtype": name_of(target.dtype), "gamma": gamma,
           "temperature": law.get("temperature", 1.0), "baseline_tokens_per_s": median(plain),
           "tokens_per_s": median(fast), "speedup": median(fast) / median(plain),
           "predicted_speedup": speedup(alpha, gamma, median(c), median(v)), "alpha": alpha,
           "c": median(c), "v": median(v),
           "tokens_per_target_call": sum(one.kept + 1 for one in rounds) / len(rounds), "rounds": len(rounds),
           "accepted": sum(one.kept for one in rounds), "drafted": gamma * len(rounds),
           "overhead": median(overhead)}
    return row, rounds


def held_out_prompts(pair: Pair, count: int, tokens: int = 64) -> list[list[int]]:
    """Beginnings cut from `count` places of the standard library's held-out files on this machine."""
    ids = to_ids(read_texts()[1], pair.tokenizer).tolist()
    return [ids[i:i + tokens] for i in range(0, len(ids) - tokens, len(ids) // count)][:count]
