"""Numbers about a pair on this machine: what calls cost, how often the draft is right, what speculation gains."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from nanospec.files.checkpoint import Pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.topology import Topology, best_size, shape
from nanospec.drafters.tree import TreeDrafter
from nanospec.generate import generate
from nanospec.methods import GUESSES, SHAPED, Method
from nanospec.model import GPT
from nanospec.speculate import TreeRound, speculate_tree
from nanospec.fast.autotune import name_of
from nanospec.fast.clock import step_seconds
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
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

    def of(self, one: Round) -> float:
        """The same of any round, in plain tokens."""
        return one.steps * self.c + self.v[len(one.drafted) + 1]

    def speedup(self, rounds: Sequence[Round]) -> float:
        """What these rounds would gain where a round takes no longer than its parts."""
        return sum(one.kept + 1 for one in rounds) / sum(map(self.of, rounds))


def measure_costs(target: GPT, draft: GPT, sizes: Iterable[int], context: int = 256, **settings) -> Costs:
    """settings: the law's, and `rows` and `repeats` of `step_seconds`."""
    seconds = step_seconds(target, 1, context, **settings)
    v = {m: step_seconds(target, m, context, **settings) / seconds for m in sizes}
    return Costs(step_seconds(draft, 1, context, **settings) / seconds, v, seconds)


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the places that were judged: up to the first that fell.

    In a tree a place is a row that was reached, and q_draft the law of its first child.
    """
    betas = []
    for one in rounds:
        if isinstance(one, TreeRound):
            judged = [row for row in (0, *one.path) if row in one.parents]
            first = [one.parents.index(row) - 1 for row in judged]
        else:
            judged = first = list(range(min(one.kept + 1, len(one.drafted))))
        betas += acceptance(one.p_target[judged], one.q_draft[first]).tolist()
    return sum(betas) / max(1, len(betas))


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


def measure(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], methods: Iterable[Method], repeats: int = 3,
            seed: int = 0, max_new_tokens: int = 128, stop: Sequence[int] = (), capture: Callable | None = None,
            **law) -> list[tuple[dict, list[Round]]]:
    """For each method a row of numbers, and the rounds behind it.

    Plain decoding and the methods take turns, prompt by prompt, so that all meet the same machine; a repeat is the
    same seeds and so the same work; speeds are medians over repeats, prompts read included. `overhead` is what a round
    takes over its parts, measured in the same repeat.
    """
    methods, request = list(methods), law | {"max_new_tokens": max_new_tokens, "stop": stop}
    request |= {"capture": capture} if capture else {}                      # not every method can be captured
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2        # half-way, where a call costs the mean
    plain, costs, runs = [], [], [[] for _ in methods]                      # runs: of each method, of each repeat
    for _ in range(repeats):
        count, spent = 0, 0.0
        for run in runs:
            run.append([])                                                  # (rounds, seconds) of each prompt
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=seed + number, **request))
            count, spent = count + len(tokens), spent + sum(seconds)
            for method, run in zip(methods, runs):
                run[-1].append(timed(method.run(ids, seed=seed + number, **request)))
        plain.append(count / spent)
        sizes = {len(one.drafted) + 1 for run in runs for rounds, _ in run[-1] for one in rounds}
        costs.append(measure_costs(target, draft, sorted(sizes), context, repeats=12, **law))
    common = {"device": str(target.device), "dtype": name_of(target.dtype),
              "temperature": law.get("temperature", 1.0), "baseline_tokens_per_s": median(plain)}
    return [(common | _numbers(method, run, costs, median(plain)), [one for rounds, _ in run[-1] for one in rounds])
            for method, run in zip(methods, runs)]


def _numbers(method: Method, run: Sequence[list], costs: Sequence[Costs], plain: float) -> dict:
    """Of one method, from its repeats."""
    rounds = [one for some, _ in run[-1] for one in some]
    calls, kept, rows = len(rounds), sum(one.kept for one in rounds), [len(one.drafted) + 1 for one in rounds]
    c, v = median(one.c for one in costs), median(sum(one.v[m] for m in rows) / calls for one in costs)
    alpha = alpha_of(rounds)
    predicted = (speedup(alpha, method.gamma, c, v) if method.drafter == "chain" else
                 median(one.speedup(rounds) for one in costs))
    pace = median(sum(len(tokens_of(some)) for some, _ in take) / sum(sum(seconds) for _, seconds in take)
                  for take in run)
    overhead = [median([took / (at.seconds * at.of(one)) for some, seconds in take
                        for one, took in list(zip(some, seconds))[1:]] or [1.0]) for take, at in zip(run, costs)]
    return {"drafter": method.drafter, "rule": method.rule, "gamma": method.gamma, "tokens_per_s": pace,
            "speedup": pace / plain, "predicted_speedup": predicted, "alpha": alpha, "c": c, "v": v,
            "steps": sum(one.steps for one in rounds) / calls, "tokens_per_target_call": 1 + kept / calls,
            "rounds": calls, "accepted": kept, "drafted": sum(rows) - calls, "overhead": median(overhead)}


def measure_accepted(target: GPT, draft: GPT, prompts: Iterable[Sequence[int]], children: int = 4,
                     **settings) -> list[float]:
    """How often the i-th of so many children is the one that stays: what Sequoia makes its tree from."""
    drafter, kept, rounds = TreeDrafter(draft, shape(children)), Counter(), 0
    for seed, ids in enumerate(prompts):
        for one in speculate_tree(target, drafter, ids, seed=seed, **settings):
            kept.update(one.path)
            rounds += 1
    return [kept[row] / rounds for row in range(1, children + 1)]


def best_topology(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], sizes: Sequence[int] = range(2, 13),
                  **law) -> Topology:
    """Sequoia's tree for this pair on this machine: acceptances counted, seconds measured."""
    room = target.config.context - max(map(len, prompts))
    accepted = measure_accepted(target, draft, prompts, max_new_tokens=max(1, min(96, room)), **law)
    costs = measure_costs(target, draft, sizes, len(prompts[0]), **law)
    seconds = {size: costs.seconds * costs.v[size] for size in sizes}
    return best_size(accepted, seconds, costs.seconds * costs.c, range(2, 8))[0]


def setting_of(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], drafters: Iterable[str],
               branches: Sequence[int] = (), most: int = GUESSES, **law) -> dict:
    """What drafters of these names are made of besides a gamma, for `method_of`; each measured only if one wants it.

    branches: the shape of a tree, by default the best. most: guesses a round, up to which calls are timed.
    """
    setting, wanted = {}, set(drafters)
    if wanted & set(SHAPED):
        setting["topology"] = shape(*branches) if branches else best_topology(target, draft, prompts, **law)
    if "goodput" in wanted:
        costs = measure_costs(target, draft, range(1, most + 2), max(map(len, prompts)), **law)
        setting["costs"] = costs.c, costs.v
    return setting


def held_out_prompts(pair: Pair, count: int, tokens: int = 64) -> list[list[int]]:
    """Beginnings cut from `count` places of the standard library's held-out files on this machine."""
    ids = to_ids(read_texts()[1], pair.tokenizer).tolist()
    return [ids[i:i + tokens] for i in range(0, len(ids) - tokens, len(ids) // count)][:count]


# What repeats itself, and a model goes on with: for drafts that copy.
REPETITIVE = {
    "assertions": "".join(f"        self.assertEqual(convert({value!r}), {value!r})\n" for value in range(10, 24)),
    "dispatch": "HANDLERS = {\n" + "".join(f"    '{name}': self.handle_{name},\n" for name in (
        "open", "close", "read", "write", "seek", "tell", "flush", "reset", "start", "stop", "send", "next")),
}


def repetitive_prompts(pair: Pair) -> list[list[int]]:
    return [[pair.tokenizer.end_of_text] + pair.tokenizer.encode(text) for text in REPETITIVE.values()]
