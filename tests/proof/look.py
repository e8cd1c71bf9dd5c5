"""What a check finds of a bug that is planted."""

from dataclasses import dataclass

from nanospec.errors import one_line
from nanospec.proof.walk import TOLERANCE
from nanospec.proof.zoo import Bug, planted
from nanospec.proof.zoo.plant import FALLS
from tests.proof.checks import CHECKS
from tests.proof.compare import Found
from tests.proof.contract import CONTRACT


def found_by(check: str) -> Found:
    """Run the check of this name."""
    if check in CHECKS:
        return CHECKS[check].run()
    part, pair = check.split(": ")
    return CONTRACT[part](*pair.split(", "))


@dataclass
class Sighting:
    """What one check found of one bug. tv: the exact total variation, of violations where the check counts those, or
    None where the code fell over."""

    caught: bool
    tv: float | None
    found: str


def look(bug: Bug, check: str) -> Sighting:
    """Plant the bug and run the check of that name."""
    with planted(bug):
        try:
            _, error, tv = found_by(check)
        except FALLS as fell:
            return Sighting(True, None, f"fell over: {one_line(fell)[:60]}")
    return Sighting(not (error <= TOLERANCE and tv <= TOLERANCE), tv, f"{tv:.2g}")          # a nan is caught, too
