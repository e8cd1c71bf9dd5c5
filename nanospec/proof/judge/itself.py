"""How often the judge errs: it accuses the correct sampler, and it misses bugs of the zoo."""

import sys
from collections.abc import Callable, Sequence

from nanospec.files.checkpoint import load_pair
from nanospec.proof.checks import DRAFT, TABLE
from nanospec.proof.command import Parser, command
from nanospec.proof.judge import FALSE_ALARM, Verdict, judge, long_run
from nanospec.proof.zoo.plant import FALLS, Bug
from nanospec.proof.zoo.samplers import AS_IT_SHIPS, OF_A_CHAIN, sampler_with


@command
def main(argv: Sequence[str] | None = None) -> int:
    """How often the judge accuses the correct sampler, and what it misses of the zoo."""
    parser = Parser(prog="python -m nanospec.proof.judge.itself", description=main.__doc__)
    parser.add_argument("--runs", type=int, default=1000, metavar="N",
                        help="of the correct sampler, with other seeds each time; default: 1000")
    parser.add_argument("--quick", action="store_true", help="20 runs, and nothing on the pair that ships")
    options = parser.parse_args(argv)
    runs = 20 if options.quick else options.runs
    if runs < 1:
        parser.error(f"--runs must be 1 or more, got {runs}")
    small: dict = {"target": TABLE, "draft": DRAFT, "ids": [1], "new": 3, "gamma": 2, "temperature": 0.7}
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


if __name__ == "__main__":
    sys.exit(main())
