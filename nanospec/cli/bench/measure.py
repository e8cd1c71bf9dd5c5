"""Numbers about a pair here: what calls cost, and what its methods gain."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from nanospec.cli.quantities import BUSY, CallCosts, best_of_each, numbers_of, per_second
from nanospec.errors import SEEDS
from nanospec.fast.autotune import Setup, weights_of
from nanospec.fast.announce import announced
from nanospec.fast.clock import draft_seconds, step_seconds, timed
from nanospec.generate import generate
from nanospec.methods.index import Method
from nanospec.model import GPT
from nanospec.speculate import Round, tokens_of


class Turn(NamedTuple):
    """Plain decoding and each method, once: plain decoding's tokens a second; of each method and
    prompt its rounds, and their seconds.
    """

    plain: float
    rounds: list[list[list[Round]]]
    took: list[list[list[float]]]


def measure_costs(target: GPT, draft_model: Any, sizes: Iterable[int], context: int = 256,
                  turns: int = 10, **settings) -> CallCosts:
    """What calls on one token and on `sizes` tokens cost. settings: as `step_seconds` takes them.

    The steps take turns, and are compared with one another within a turn: a machine that others
    use, too, is faster in one second than in the next. With a compiler there is one turn of many
    repeats, since compiling takes longer than that.
    """
    sizes, found, timing = list(sizes), [], settings | {"context": context}
    if settings.get("compiler"):
        turns = 1
    else:
        timing |= {"repeats": 1, "warm_up": 1}
    with announced("measuring what calls cost", at_once=False, steps=turns) as step:
        for _ in range(turns):
            seconds = step_seconds(target, 1, **timing)
            v = {m: step_seconds(target, m, **timing) / seconds for m in sizes}
            found.append(CallCosts(draft_seconds(draft_model, **timing) / seconds, v, seconds))
            step()
    return CallCosts(median(cost.c for cost in found),
                     {m: median(cost.v[m] for cost in found) for m in sizes},
                     median(cost.seconds for cost in found))


def measure(target: GPT, draft_model: Any, prompts: Sequence[Sequence[int]],
            methods: Sequence[Method],
            repeats: int = 3, seed: int = 0, max_new_tokens: int = 128, stop: Sequence[int] = (),
            compiler: Callable | None = None, seen: Turn | None = None,
            what: str = "measuring plain decoding and the methods, in turns",
            **sampling) -> list[tuple[dict, list[Round]]]:
    """For each method a row of numbers, and the rounds that it is made from.

    Plain decoding and the methods take turns, prompt by prompt, so that all meet the same machine.
    A repeat has the same seeds, and so the same rounds. Speeds are medians over repeats, prompts
    read included. compiler: for methods that `check_fixed` allows; one turn more, the first, is for
    the compiling. seen: the first of the repeats, if somebody has watched it already. what: what is
    said of it while it goes on.
    """
    request = sampling | {"max_new_tokens": max_new_tokens, "stop": stop, "compiler": compiler}
    # half-way, where a call costs the mean
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2

    def turn(step: Callable[[], None]) -> Turn:
        count, spent = 0, []
        rounds: list[list[list[Round]]] = [[] for _ in methods]
        took: list[list[list[float]]] = [[] for _ in methods]
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=(seed + number) % SEEDS, **request))
            count, spent = count + len(tokens), spent + seconds
            step()
            for i, method in enumerate(methods):
                done, seconds = timed(method.run(ids, seed=(seed + number) % SEEDS, **request))
                rounds[i].append(done)
                took[i].append(seconds)
                step()
        return Turn(per_second(count, spent), rounds, took)

    plain, of_repeats, costs = [], [], []
    turns = repeats + bool(compiler) - bool(seen)
    with announced(what, steps=turns * len(prompts) * (1 + len(methods))) as step:
        if compiler:
            turn(step)
        for repeat in range(repeats):
            pace, rounds, took = turn(step) if repeat or not seen else seen
            plain.append(pace)
            of_repeats.append(took)
            sizes = {len(done.tokens) for texts in rounds for text in texts for done in text}
            costs.append(measure_costs(target, draft_model, sorted(sizes), context,
                                       compiler=compiler,
                                       **sampling))
    common = {"device": str(target.device), "dtype": weights_of(target),
              "busy": max(plain) > BUSY * min(plain),
              "temperature": sampling.get("temperature", 1.0),
              "baseline_tokens_per_s": median(plain)}
    return [(common | numbers_of(method, texts, seconds, costs, median(plain)), sum(texts, []))
            for method, texts, seconds in zip(methods, rounds, zip(*of_repeats))]


def measure_setups(setups: Sequence[Setup], tokenizer: Any, prompts: Sequence[Sequence[int]],
                   methods: Callable[[Any, Any], Sequence[Method]], **request) -> list[dict]:
    """The rows of methods(target, draft_model), each from its best setup, with its `text`."""
    found = [measure(target, draft_model, prompts, methods(target, draft_model), compiler=compiler,
                     **request)
             for target, draft_model, compiler in setups]
    return [row | {"text": tokenizer.decode(tokens_of(rounds))}
            for row, rounds in best_of_each(found)]


def busy(rows: Sequence[dict]) -> str:
    """A warning, where other work on the machine has spoilt the figures."""
    return any(row["busy"] for row in rows) * (
        f"\nThis machine is busy: plain decoding's speed differed more than {BUSY:g} times between "
        "repeats. Measure again.")
