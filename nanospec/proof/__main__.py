"""python -m nanospec.proof: walk everything, then the zoo, then one long run with real dice; exit 1 if a law is off by
more than 1e-12, if a bug of the zoo goes unseen by the check that claims it, if a control does not pass, or if the
tokens of the long run do not follow the target's laws."""

import sys

import torch

from nanospec.files.checkpoint import load_pair
from nanospec.proof.checks import OF_THE_LAW
from nanospec.proof.judge import long_run
from nanospec.proof.checks import TOLERANCE, checks, run
from nanospec.proof.checks import tree_checks
from nanospec.proof.zoo.wings import ALL_BUGS, ALL_CONTROLS
from nanospec.proof.zoo import look


def main() -> int:
    torch.set_num_threads(1)            # small tensors gain nothing from more
    print(f"{'':2}  {'setting':56} {'paths':>8} {'greatest error':>15} {'TV':>9} {'seconds':>8}")
    results = []
    for check in checks() + tree_checks():
        results.append(result := run(*check))
        print(f"{result.layer}  {result.setting:56} {result.paths:8,} {result.error:15.1e} {result.tv:9.1e} "
              f"{result.seconds:8.1f}  {'ok' if result.passed else 'WRONG'}", flush=True)
    wrong = sum(not result.passed for result in results)
    print(f"{len(results) - wrong} of {len(results)} below {TOLERANCE:g}: "
          + ("nothing lost." if not wrong else f"{wrong} WRONG."))

    print(f"\nthe zoo: planted one at a time\n{'bug':32} {'caught by':12} {'how far off':>12}  shipped in")
    unseen = 0
    for bug in ALL_BUGS:
        sighting = look(bug, bug.caught_by)
        unseen += not sighting.caught
        found = ("fell over" if sighting.tv is None else sighting.found) if sighting.caught else "NOT CAUGHT"
        print(f"{bug.name:32} {bug.caught_by:12} {found:>12}  {bug.source}", flush=True)
    flagged = 0
    for control in ALL_CONTROLS:
        failed = [name for name in OF_THE_LAW if look(control, name).caught]
        flagged += bool(failed)
        found = "exact" if not failed else "WRONG: " + ", ".join(failed)
        print(f"{control.name:32} {'control':12} {found:>12}  {control.source}", flush=True)
    print(f"{len(ALL_BUGS) - unseen} of {len(ALL_BUGS)} bugs caught, "
          f"{len(ALL_CONTROLS) - flagged} of {len(ALL_CONTROLS)} controls passed.")

    print("\nT8: real dice on the pair that ships")
    verdict = long_run(load_pair())
    print(verdict)
    return 1 if wrong or unseen or flagged or verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
