"""Walk everything, then the zoo, then one long run with real dice. Exit 1 if a distribution is off by more than 1e-12,
if a drafter or a rule breaks the contract, if a bug of the zoo goes unseen by the check that claims it, if a control
does not pass, or if the tokens of the long run do not follow the target's distributions.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import sys
import time
from collections.abc import Sequence

import torch

from nanospec.cli.launch import Parser, command
from nanospec.errors import one_line
from nanospec.fast.announce import announced
from nanospec.files.checkpoint import load_pair
from nanospec.proof.walk import TOLERANCE
from nanospec.proof.zoo.plant import FALLS
from tests.proof.checks import CHECKS, OF_THE_DISTRIBUTION, result_of
from tests.proof.contract import CONTRACT, OF_MODELS, PAIRS, pairs_of
from tests.proof.itself import long_run
from tests.proof.look import look
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS, ENOUGH


def walk_checks(quick: bool) -> int:
    """Print every check, and say how many are wrong."""
    print(f"{'':2}  {'check':20} {'setting':72} {'paths':>8} {'greatest error':>15} {'TV':>9} {'seconds':>8}")
    wrong, checks = 0, [check for check in CHECKS.values() if not (quick and check.slow)]
    for check in checks:
        with announced(check.name, at_once=False):
            result = result_of(check)
        wrong += not result.passed
        print(f"{check.layer}  {check.name:20} {check.setting:72} {result.count:8,} {result.error:15.1e} "
              f"{result.tv:9.1e} {result.seconds:8.1f}  {'ok' if result.passed else 'WRONG'}", flush=True)
    print(f"{len(checks) - wrong} of {len(checks)} below {TOLERANCE:g}: "
          + ("nothing lost." if not wrong else f"{wrong} WRONG."))
    return wrong


def walk_contract(quick: bool) -> int:
    """Print every part of the contract, for all drafters and rules together, and say how many pairs break it."""
    print(f"\nthe contract: {len(PAIRS)} pairs of a drafter and a rule, {len(OF_MODELS)} with a learned model\n"
          f"{'part':20} {'paths, texts, ...':>18} {'greatest error':>15} {'seconds':>8}")
    broken = 0
    for name, part in CONTRACT.items():
        began, total, worst, wrong = time.perf_counter(), 0, 0.0, []
        with announced(name, at_once=False):
            for drafter, rule in pairs_of(name, quick):
                try:
                    count, error, tv = part(drafter, rule)
                except FALLS as fell:
                    count, error, tv = 0, float("inf"), 0.0
                    print(f"{drafter}, {rule}: {one_line(fell)}")
                total, worst = total + count, max(worst, error, tv)
                wrong += [f"{drafter}, {rule}"] * (not (count and error <= TOLERANCE and tv <= TOLERANCE))
        broken += len(wrong)
        print(f"{name:20} {total:18,} {worst:15.1e} {time.perf_counter() - began:8.1f}  "
              + ("ok" if not wrong else "WRONG: " + "; ".join(wrong)), flush=True)
    return broken


def walk_zoo(quick: bool) -> int:
    """Plant every bug and every control, and say how many were not taken for what they are."""
    print(f"\nthe zoo: planted one at a time\n{'bug':36} {'caught by':28} {'how far off':>12}  shipped in")
    unseen = flagged = 0
    for bug in ALL_BUGS:
        with announced(bug.name, at_once=False):
            sighting = look(bug, bug.caught_by)
        unseen += not sighting.caught
        found = ("fell over" if sighting.tv is None else sighting.found) if sighting.caught else "NOT CAUGHT"
        print(f"{bug.name:36} {bug.caught_by:28} {found:>12}  {bug.source}", flush=True)
    for control in ALL_CONTROLS:
        checks = ENOUGH[control.file] if quick else OF_THE_DISTRIBUTION
        with announced(control.name, at_once=False):
            failed = [name for name in checks if look(control, name).caught]
        flagged += bool(failed)
        found = "exact" if not failed else "WRONG: " + ", ".join(failed)
        print(f"{control.name:36} {'control':28} {found:>12}  {control.source}", flush=True)
    print(f"{len(ALL_BUGS) - unseen} of {len(ALL_BUGS)} bugs caught, "
          f"{len(ALL_CONTROLS) - flagged} of {len(ALL_CONTROLS)} controls passed.")
    return unseen + flagged


@command("proof")
def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what the tests run: no check that is marked slow, "
                                                             "fewer checks of a control, a shorter run")
    quick = parser.parse_args(argv).quick
    torch.set_num_threads(1)            # small tensors gain nothing from more
    wrong = walk_checks(quick) + walk_contract(quick) + walk_zoo(quick)
    print("\nT8: real dice on the pair that ships")
    with announced("writing texts", at_once=False):
        verdict = long_run(load_pair(), samples=30 if quick else 60)
    print(verdict)
    return 1 if wrong or verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
