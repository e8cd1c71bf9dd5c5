"""The answer of `nanospec why --counters FILE`: what an engine's counters say, under its names and
ours; the shape of the curve by place, what it means and what to look at first; the best length of a
draft.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nanospec.cli.acceptance_curve import (FEWEST, SHAPES, UNEVEN, VARIED, best_length, curve_of,
                                           is_full, places_of, shape_of)
from nanospec.cli.counters import Counters
from nanospec.cli.engine_lines import read_counters
from nanospec.cli.quantities import accepted_lengths
from nanospec.cli.show.terminal import show_table

COSTS = (.02, .05, .1, .2, .4)      # c, where the user names none


def answer(path: Path, gamma: int = 0, bonus: str = "", c: float | None = None) -> None:
    """gamma, bonus: as read_counters takes them. c: a draft step / a target step, if it is known.
    """
    for counters in read_counters(path, gamma, bonus):
        show(counters, gamma, c)


def numbers(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


def cells_of(counters: Counters) -> list[list[str]]:
    """Quantity, value, whose words these are; what is not known is left out."""
    full, cells = is_full(counters), []
    if counters.length is not None:
        cells += [["acceptance length", f"{counters.length:.2f}",
                   "engines: with the bonus token; here: tokens per target call"],
                  ["", f"{counters.length - 1:.2f}",
                   "without the bonus token: accepted draft tokens"]]
    if counters.rate is not None:
        cells.append(["acceptance rate", f"{counters.rate:.3f}",
                      "engines: accepted of all draft tokens, judged or not"])
    if counters.curve:
        before = [1.0, *counters.curve]
        if full:
            alpha = sum(counters.curve) / sum(before[:-1])
            cells.append(["", f"{alpha:.3f}", "here: accepted of those that were judged, alpha"])
        given = numbers([place.share for place in places_of(counters.curve, 1)])
        cells += [["by place", "", f"{numbers(counters.curve)}  engines: of all drafts"],
                  ["", "", f"{given}  {'' if full else 'at least, '}of drafts that came so far"],
                  ["accepted lengths", "", accepted_lengths(
                      [now - after for now, after in zip(before, [*counters.curve, 0.0])])]]
    return cells


def explained(counters: Counters) -> tuple[str, str, str]:
    """The shape in words, what it means, and what to look at first."""
    shape, at = shape_of(counters)
    place = counters.curve[0] if counters.curve else 0
    if shape == "uneven":
        return shape, *UNEVEN
    if shape == "varied":
        return "not known", *VARIED
    if shape:
        named = shape.replace("one place", f"place {at}")
        return named, *SHAPES[shape]
    if not counters.curve:
        return "not known", ("These lines do not say how often each place of a draft is accepted, "
                             "and no mean can."), (
            "a source that does: vLLM's metrics or log, llama.cpp's statistics, or a list of "
            "accepted lengths")
    if len(counters.curve) == 1 and (counters.drafts or 0) >= FEWEST:
        return "not known", f"Drafts of one token have one place, {place:.2f}.", "longer drafts"
    return "not known", f"{counters.drafts:,.0f} drafts are too few to tell a shape from chance.", (
        "counters of more rounds")


def show(counters: Counters, gamma: int = 0, c: float | None = None) -> None:
    """Quantities under the engines' names and ours, the shape, and the best length of a draft."""
    counted = []
    if counters.drafts and counters.drafted:
        each = counters.drafted / counters.drafts
        counted = [f"{counters.drafts:,.0f} drafts, tokens in each: {each:.3g} on "
                   "average."]
    show_table(["", counters.engine, ""], cells_of(counters), " ".join([*counted, *counters.notes]))
    shape, means, first = explained(counters)
    console = Console()
    console.print(Text(f"The shape: {shape}.", "bold"), Text(f"{means} Look first at {first}."),
                  sep="\n")
    curve = curve_of(counters, gamma)
    if not curve:
        no_gamma = ", and no --gamma" * (counters.engine == "SGLang")   # of others it is refused
        why = (f"no curve{no_gamma}" if not counters.curve else
               "drafts were of different lengths" if not is_full(counters) else "too few drafts")
        console.print(Text(f"The best length of a draft is not known: {why}."))
        return
    rows = []
    for cost in COSTS if c is None else (c,):
        best, gain = best_length(curve, cost)
        more = " or more" if best == len(curve) else ""
        rows.append([f"{cost:g}", f"{best}{more}", f"{1 + sum(curve[:best]):.2f}", f"{gain:.2f}"])
    alike = "" if counters.curve else "Every place is taken to be alike. "
    show_table(["c", "best draft length", "acceptance length", "speed-up"], rows,
               f"{alike}c: a draft step / a target step. v: a target call on a draft / on one "
               "token. Computed, not run, with v = 1 and shorter drafts accepted as the first "
               "places of these; where v is more, the speed-up is less and the best length "
               "shorter. 0: no draft. Or more: longer drafts were not counted")
