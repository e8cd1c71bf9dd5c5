"""The lines in which engines print what they count of their speculation.

    vLLM        its metrics, as /metrics has them, or the lines "SpecDecoding metrics" of its log
    SGLang      the lines "Decode batch" of its log that have an "accept len"
    llama.cpp   the lines "statistics" of its log, or "draft acceptance" where there are none
    a list      of each round, how many draft tokens were accepted

As they are in vLLM 0.32, SGLang 0.5.23 and llama.cpp of November 2026, and in some older ones.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from nanospec.cli.acceptance_curve import FEWEST
from nanospec.cli.counters import (DIGITS, ROUGH, Counters, Window, check_curve, of_list,
                                   parse_count, summed)
from nanospec.errors import MOST_NODES, RequestError
from nanospec.files.paths import read_file

MOST = 2 ** 25          # bytes of a file: a line takes up to 24 times as many in memory
UNLIKE = 1.5            # times: if engines accept so differently, their sum is like none of them
NUMBER = r"\s*([0-9][0-9.eE+]*)"
SERIES = re.compile(r"vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens(?:_per_pos)?)"
                    r"(?:_total)?(?:\{(.*)\})?\s+(\S+)")
SHARES = {"vLLM's log": r"Per-position acceptance rate: ([0-9., ]+)",
          "llama.cpp's log": r"(?:acceptance rate per position|#acc rate/pos) = \(([0-9., ]+)\)"}
Line = tuple[str, str]  # where it stands, and what it says


def read_counters(path: Path, gamma: int = 0, bonus: str = "") -> list[Counters]:
    """Of one engine; more than one of a llama.cpp with several drafters. gamma: draft tokens of a
    round, which SGLang's log and a list do not say. bonus: whether a list is with the bonus token
    or without. RequestError for a file that says nothing, or what cannot be.
    """
    found: dict[str, list[Line]] = {}
    data = read_file(path, MOST)
    for number, line in enumerate(io.BytesIO(data), 1):
        for mark, kind in MARKS.items():
            if mark in line:
                at = f"{path}, line {number}"
                found.setdefault(kind, []).append((at, line.decode(errors="replace").strip()))
    if "llama.cpp's log" in found:                  # the same, for each request: counted already
        found.pop("llama.cpp's log, by request", None)
    if len(found) > 1:
        raise RequestError(f"{path} has {' and '.join(found)}: give one at a time")
    if not found:
        return [of_list(path, data, gamma, bonus)]
    (kind, lines), = found.items()
    if bonus or gamma and kind != "SGLang's log":
        raise RequestError(f"{path} has {kind}, which says this: --bonus is for a list, --gamma "
                           "for a list and SGLang's log")
    return READERS[kind](kind, lines, gamma)


def field(name: str, line: Line) -> float | None:
    match = re.search(name + NUMBER, line[1])
    return parse_count(match[1], line[0]) if match else None


def needed(name: str, line: Line) -> float:
    value = field(name, line)
    if value is None:
        raise RequestError(f"{line[0]}: no {name.strip(' =:')!r} there")
    return value


def parse_shares(kind: str, line: Line) -> list[float]:
    """What a line says of each place, if it does. RequestError for what no such shares can be."""
    match = re.search(SHARES[kind.split(",")[0]], line[1])
    shares = [parse_count(share.strip(), line[0]) for share in match[1].split(",")
              if share.strip()] if match else []
    check_curve(shares, line[0])
    return shares


def of_metrics(kind: str, lines: Sequence[Line], gamma: int) -> list[Counters]:
    totals: dict[str, float] = {}
    by_place: dict[int, float] = {}
    by_engine: dict[str, dict[str, float]] = {}
    seen, models = set[tuple[str, str]](), set[str]()
    for at, line in lines:
        if not (match := SERIES.match(line)):
            continue                                        # a comment, or when a counter was made
        what, labels, value = match[1], match[2] or "", parse_count(match[3], at)
        if (what, labels) in seen:
            raise RequestError(f"{at}: the same counter again: give one scrape")
        seen.add((what, labels))
        models.update(re.findall(r'model_name="([^"]*)"', labels))
        if what == "accepted_tokens_per_pos":
            place = re.search(r'position="(\d{1,4})"', labels)
            if not place or int(place[1]) >= MOST_NODES - 1:
                raise RequestError(f"{at}: no position that a draft can have")
            by_place[int(place[1])] = by_place.get(int(place[1]), 0.0) + value
        else:
            totals[what] = totals.get(what, 0.0) + value
            engine = re.sub(r'model_name="[^"]*"', "", labels).strip(",")
            by_engine.setdefault(engine, {})[what] = value
    if len(models) > 1:
        raise RequestError(f"{kind} of {len(models)} models: give one at a time")
    names = "drafts", "draft_tokens", "accepted_tokens"
    if lacking := [name for name in names if name not in totals]:
        raise RequestError(f"{kind} have no num_{lacking[0]}: is it the whole answer?")
    drafts, drafted, accepted = (totals[name] for name in names)
    if not drafts:
        raise RequestError(f"{kind}: no draft was counted")
    places = range(max(by_place, default=-1) + 1)
    if missing := [place for place in places if place not in by_place]:
        raise RequestError(f'{kind} have no position="{missing[0]}" and have later ones: is it the '
                           "whole answer?")
    curve = [by_place[place] / drafts for place in places]
    check_curve(curve, kind)
    if curve and abs(sum(curve) * drafts - accepted) > ROUGH * accepted:
        raise RequestError(f"{kind}: {sum(curve) * drafts:g} tokens accepted by place, and "
                           f"{accepted:g} in all")
    rates = {engine: its["accepted_tokens"] / its["draft_tokens"]
             for engine, its in by_engine.items()
             if len(its) == len(names) and its["drafts"] >= FEWEST and its["draft_tokens"]}
    return [summed(kind, [Window(drafts, drafted, accepted, curve)],
                   [DRAFTED, SINCE, *unlike("acceptance rate", rates)])]


def unlike(what: str, of_engines: dict[str, float], bonus: int = 0) -> list[str]:
    """A note, if engines that are counted together differ, beside the bonus token of each."""
    values = [value - bonus for value in of_engines.values()]
    if not values or max(values) <= UNLIKE * min(values):
        return []
    each = ", ".join(f"{engine} {value:.2f}" for engine, value in of_engines.items())
    return [f"Engines differ in their {what}: {each}. The other numbers and the shape are of all "
            "together, which hides that."]


def of_vllm_log(kind: str, lines: Sequence[Line], gamma: int) -> list[Counters]:
    windows = [parse_window(kind, line, needed("Accepted: ", line), needed("Drafted: ", line),
                            "acceptance length: ") for line in lines]
    return [summed(kind, windows, [DRAFTED, REBUILT])]


def parse_window(kind: str, line: Line, accepted: float, drafted: float, length: str) -> Window:
    """How many drafts a line is about follows from its other numbers. length: the name of one."""
    if accepted > drafted:
        raise RequestError(f"{line[0]}: {accepted:g} accepted of {drafted:g} draft tokens")
    shares, mean = parse_shares(kind, line), field(length, line)
    total, off = sum(shares), DIGITS * len(shares)
    # The fewest places that the shares allow, and one more, for what a quotient is rounded by.
    fewest = max(len(shares), math.ceil((total - off) * drafted / accepted) if accepted else 0)
    for places in range(fewest, min(fewest + 2, MOST_NODES) if shares else 0):
        full = drafted / places
        if (total - off) * full <= accepted <= (total + off) * full:
            return Window(full, drafted, accepted, shares)  # every draft had all these places
    if total:
        return Window(accepted / total, drafted, accepted, shares)
    drafts = accepted / (mean - 1) if accepted and mean and mean > 1 else None
    return Window(drafts, drafted, accepted, shares)


def of_requests(kind: str, lines: Sequence[Line], gamma: int) -> list[Counters]:
    windows = []
    for line in lines:
        match = re.search(r"\(\s*(\d+) accepted /\s*(\d+) generated\)", line[1])
        if not match:
            raise RequestError(f"{line[0]}: no '(N accepted / N generated)' there")
        accepted, drafted = (parse_count(number, line[0]) for number in match.groups())
        length = "mean (?:acceptance length|len) ="
        windows.append(parse_window(kind, line, accepted, drafted, length))
    return [summed(kind, windows, [DRAFTED, REBUILT])]


def of_statistics(kind: str, lines: Sequence[Line], gamma: int) -> list[Counters]:
    """Of each drafter its largest line, which counts from the server's start: the last one. Where
    counters fall, others began, after a restart or of another slot. If lines of the two alternate,
    adding up what came before each fall would count drafts twice; so nothing is added.
    """
    by_name: dict[str, list[tuple[list[float], Line]]] = {}
    for line in lines:
        named = re.search(r"([\w-]{1,40}):?\s+#calls", line[1])
        counts = [needed(f"#{what} =", line) for what in (
            "gen drafts", "acc drafts", "gen tokens", "acc tokens")]
        by_name.setdefault(named[1] if named else "without a name", []).append((counts, line))
    found, idle = [], [f"Drafter {name} never drafted." for name, its in by_name.items()
                       if not any(any(counts) for counts, _ in its)]
    for name, its in by_name.items():
        (drafts, some, drafted, accepted), line = max(its)
        if (some > min(drafts, accepted) or accepted > drafted or accepted and not some
                or drafted <= drafts and some != accepted or drafted and not drafts):
            raise RequestError(f"{line[0]}: {accepted:g} accepted of {drafted:g} draft tokens, in "
                               f"{some:g} of {drafts:g} drafts")
        if drafts:
            shares = parse_shares(kind, line) or [some / drafts] * (drafted <= drafts)
            fell = any(after < before for (earlier, _), (later, _) in pairwise(its)
                       for before, after in zip(earlier, later))
            found.append(summed(f"{kind}, {name}", [Window(drafts, drafted, accepted, shares)],
                                [f"Drafter {name}. {DRAFTED}", SINCE, *fell * [SEVERAL], *idle]))
    if not found:
        raise RequestError(f"{kind}: no draft was counted")
    return found


def of_sglang(kind: str, lines: Sequence[Line], gamma: int) -> list[Counters]:
    """The mean over lines, each of which stands for as many steps, with as many requests."""
    lengths, rates = list[tuple[float, float]](), list[tuple[float, float]]()
    by_engine: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        length, requests = needed("accept len: ", line), field("#running-req: ", line)
        if 0 < length < 1:
            raise RequestError(f"{line[0]}: an accept len counts the bonus token, so it is 1 or "
                               "more")
        if length > MOST_NODES:
            raise RequestError(f"{line[0]}: an accept len of {length:g}, which no draft can reach")
        if length and requests:
            lengths.append((requests, length))
            if engine := re.search(r"\[[^\]]{0,80}\b(DP\d{1,4})\b", line[1]):
                by_engine.setdefault(engine[1], []).append((requests, length))
            if (rate := field("accept rate: ", line)) is not None:
                rates.append((requests, rate))
    if not lengths:
        raise RequestError(f"{kind}: no line with requests and an accept len")
    length = weighted(lengths)
    if gamma and length > gamma + 1:
        raise RequestError(f"{kind} has an accept len of {length:.2f}: drafts are longer than "
                           f"--gamma {gamma}")
    notes = [f"The mean of {len(lengths)} lines, weighted by their requests.",
             *unlike("accept len", {name: weighted(its) for name, its in by_engine.items()}, 1)]
    if rates:
        notes.append(meaning_of_rate(weighted(rates), length, gamma))
    return [Counters("SGLang", length, (length - 1) / gamma if gamma else None, notes=tuple(notes))]


def weighted(values: Sequence[tuple[float, float]]) -> float:
    """Of (weight, value)."""
    return sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)


def meaning_of_rate(rate: float, length: float, gamma: int) -> str:
    """SGLang has had two accept rates; what tells them apart is the length of its drafts."""
    if not gamma:
        return (f"Its accept rate, {rate:.2f}, is accepted of drafted in newer versions and counts "
                "the bonus token on both sides in older ones: which, only --gamma can tell.")
    new, old = (length - 1) / gamma, length / (gamma + 1)
    fits = [words for found, words in ((new, "accepted of drafted, without the bonus token"),
                                       (old, "with the bonus token on both sides"))
            if abs(found - rate) <= ROUGH]
    return f"Its accept rate, {rate:.2f}, is " + (" or ".join(fits) + "." if fits else (
        f"neither {new:.2f}, accepted of drafted, nor {old:.2f}, with the bonus token on both "
        "sides: is --gamma right, and are its drafts chains?"))


DRAFTED = "Calls without a draft are not counted."
SINCE = "Counted since the server's start, warm-up included."
SEVERAL = ("Counters fall in this log (a restart, or slots that count by themselves): these are "
           "the largest, and the others are not added.")
REBUILT = "How many drafts there were is computed from printed shares, which have three digits."
MARKS = {b"vllm:spec_decode_num_": "vLLM's metrics", b"SpecDecoding metrics:": "vLLM's log",
         b"accept len:": "SGLang's log", b"#gen drafts =": "llama.cpp's log",
         b"draft acceptance": "llama.cpp's log, by request"}
READERS: dict[str, Callable[[str, Sequence[Line], int], list[Counters]]] = {
    "vLLM's metrics": of_metrics, "vLLM's log": of_vllm_log, "SGLang's log": of_sglang,
    "llama.cpp's log": of_statistics, "llama.cpp's log, by request": of_requests}
