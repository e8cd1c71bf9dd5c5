"""python -m nanospec.proof: walk everything, print what was found, exit 1 if anything is off by more than 1e-12."""

import sys

from nanospec.proof.layers import TOLERANCE, checks, run


def main() -> int:
    print(f"{'':2}  {'setting':56} {'paths':>8} {'greatest error':>15} {'TV':>9} {'seconds':>8}")
    results = []
    for check in checks():
        results.append(result := run(*check))
        print(f"{result.layer}  {result.setting:56} {result.paths:8,} {result.error:15.1e} {result.tv:9.1e} "
              f"{result.seconds:8.1f}  {'ok' if result.passed else 'WRONG'}", flush=True)
    wrong = sum(not result.passed for result in results)
    print(f"{len(results) - wrong} of {len(results)} below {TOLERANCE:g}: "
          + ("nothing lost." if not wrong else f"{wrong} WRONG."))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
