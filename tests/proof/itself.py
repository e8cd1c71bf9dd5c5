"""How often the judge errs: it accuses the correct sampler, and it misses bugs of the zoo.

    python -m tests.proof.itself               # samplers
    python -m tests.proof.itself --servers     # servers, by each of the three witnesses
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from nanospec.cli.launch import Parser, command
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.judge.sampler import walked
from nanospec.judge.endpoint import BY_ID, Endpoint
from nanospec.judge.sequential import LOOKS
from nanospec.judge.verdict import FALSE_ALARM, Verdict, judge
from nanospec.judge.witnesses import TOP, against_logprobs, against_plain
from nanospec.proof.tables import DRAFT_MODEL, TABLE, TableModel
from nanospec.proof.walk import Distribution, distance, target_distribution
from nanospec.proof.zoo.plant import FALLS, Bug
from nanospec.judge.known_bugs import AS_IT_SHIPS, OF_A_CHAIN, beginnings, sampler_with

OF_SERVERS = ("accept-everything", "ratio-flipped", "residual-is-target", "bonus-from-draft")


@command("itself")
def main(argv: Sequence[str] | None = None) -> int:
    """How often the judge accuses the correct sampler, and what it misses of the zoo."""
    parser = Parser(prog="python -m tests.proof.itself", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, metavar="N",
                        help="runs of the correct sampler, each with its own seeds; default: 1000")
    parser.add_argument("--quick", action="store_true", help="20 runs, and nothing on the pair that ships")
    parser.add_argument("--servers", action="store_true", help="judge servers instead: 2,000 samples, N runs of each")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    runs = 20 if options.quick else options.runs
    if runs < 1:
        raise RequestError(f"--runs must be 1 or more, got {runs}")
    if options.servers:
        for line in servers(runs):
            print(line, flush=True)
        return 0
    small: dict = {"target": TABLE, "draft_model": DRAFT_MODEL, "ids": [1], "new": 3, "gamma": 2, "temperature": 0.7}
    pair = None if options.quick else load_pair()

    p_values = [judge(sampler_with(AS_IT_SHIPS, **small), samples=500, seed=500 * run, **small).p_value
                for run in range(runs)]
    below = ", ".join(f"{sum(p < bar for p in p_values)} times below {bar:g}" for bar in (.05, .01, FALSE_ALARM))
    print(f"{runs:,} runs of the correct sampler, 500 samples each: p {below}; below that it is called wrong")

    print(f"\n{'':30} {'walked: TV, named':>24} {'2,000 samples of 3 tokens':>26}"
          + f" {'3,000 tokens, real pair':>24}" * (not options.quick))
    for bug in [AS_IT_SHIPS, *OF_A_CHAIN]:
        said = list(_tried(bug, lambda: judge(sampler_with(bug, **small), **small)))
        said += [] if pair is None else _tried(bug, lambda: long_run(pair, bug, temperature=0.7))[1:]
        print(f"{bug.name:30} {said[0]:>24} {said[1]:>26} " + "".join(f"{last:>24}" for last in said[2:]), flush=True)
    return 0


def long_run(pair: Pair, bug: Bug = AS_IT_SHIPS, temperature: float = 0.8, samples: int = 60) -> Verdict:
    """T8. Real dice on a trained pair: `samples` texts of 50 tokens, every token judged under the target's own
    distribution.
    """
    task: dict = {"target": pair.target, "draft_model": pair.draft_model,
                  "ids": pair.tokenizer.encode("class Queue:\n    def"),
                  "new": 50, "gamma": 4, "temperature": temperature}
    return judge(sampler_with(bug, **task), samples=samples, **task)


def _tried(bug: Bug, verdict_on: Callable[[], Verdict]) -> tuple[str, str]:
    """What the walk and what the samples say of a bug, in a few words each."""
    try:
        verdict = verdict_on()
    except FALLS:               # it writes past the cache, or makes NaN
        return "falls over", "falls over"
    named = "" if not verdict.bugs else "named" if verdict.bugs == [bug.name] else "two names"
    missed = " missed" * (verdict.p_value >= FALSE_ALARM and bug is not AS_IT_SHIPS)
    return ("not walked" if verdict.distance is None else f"{verdict.distance:.2g} {named}",
            f"p = {verdict.p_value:.2g}{missed}")


@dataclass
class StandIn(Endpoint):
    """A server without a socket. It draws its texts from `drawn_from`, and reports what `logprobs` has after a text."""

    drawn_from: Distribution = field(default_factory=dict)
    logprobs: dict[tuple, dict[str, float]] = field(default_factory=dict)

    def complete(self, seed: int, **more) -> dict:
        dice = Dice([seed])
        dice.refill(1)
        text = [*self.drawn_from][int(dice.pick(torch.tensor([[*self.drawn_from.values()]])))]
        names, tops = [f"{BY_ID}{token}" for token in text], []
        for n, name in enumerate(names):
            after = self.logprobs[text[:n]]
            tops.append({one: after[one] for one in [name, *list(after)[:TOP]]})
        return {"text": f"{text}", "logprobs": {"tokens": names, "top_logprobs": tops}}


def servers(runs: int, samples: int = 2_000) -> Iterator[str]:
    """A line for every server: how far off it is, and by each witness how often it is called wrong, and on average how
    many samples that takes.
    """
    task: dict = {"target": TableModel(8, 1, zeros=0), "draft_model": TableModel(8, 2, zeros=0), "ids": [0], "new": 2}
    truth = target_distribution(task["target"], task["ids"], task["new"])
    logprobs: dict[tuple, dict[str, float]] = defaultdict(dict)
    for text, part in sorted(truth.items(), key=lambda item: -item[1]):
        logprobs[text[:1]][f"{BY_ID}{text[1]}"] = math.log(part / beginnings(truth, 1)[text[:1]])
    for text, part in sorted(beginnings(truth, 1).items(), key=lambda item: -item[1]):
        logprobs[()][f"{BY_ID}{text[0]}"] = math.log(part)

    def server(known: Distribution) -> StandIn:
        return StandIn("http://stand.in", [0], task["new"], {}, at_once=1, drawn_from=known, logprobs=logprobs)

    witnesses: dict[str, Callable[[StandIn, int], Verdict]] = {
        "--plain": lambda one, seed: against_plain(one, server(truth), samples, seed),
        "--truth": lambda one, seed: judge(one.ids, truth, samples=samples, seed=seed, looks=LOOKS),
        "its logprobs": lambda one, seed: against_logprobs(one, samples, seed)}
    yield f"{'':22} {'off':>7} " + " ".join(f"{name + ': wrong, samples':>30}" for name in witnesses)
    for bug in [AS_IT_SHIPS, *(bug for bug in OF_A_CHAIN if bug.name in OF_SERVERS)]:
        known = walked(sampler_with(bug, gamma=1, **task), seconds=600) or {}
        cells = []
        for verdict_on in witnesses.values():
            said = [verdict_on(server(known), 10 * samples * run) for run in range(runs)]
            mean = sum(verdict.samples for verdict in said) / runs
            cells.append(f"{sum(verdict.wrong for verdict in said):>14} of {runs:,}, {mean:>8,.0f}")
        yield f"{bug.name:22} {distance(known, truth)[1]:7.3f} " + " ".join(f"{cell:>30}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
