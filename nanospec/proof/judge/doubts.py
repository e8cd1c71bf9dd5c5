"""Before a server is called wrong: is there another cause than its speculation?

A right server may read another prompt (a token that begins a text, a chat template), have other
weights or another precision, or sample with a parameter that it was not asked for and does not let
go of. Each function here looks for one of these causes, and raises an EndpointError that names it.
Where it finds none it returns, and the accusation stands.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from nanospec.errors import one_line
from nanospec.probs import Sampling
from nanospec.proof.judge.endpoint import Endpoint, EndpointError
from nanospec.proof.judge.sequential import FALSE_ALARM, MISS
from nanospec.proof.judge.verdict import own_uniforms, uniform
from nanospec.proof.stats import Fit, pit, two_samples

SAME = 0.01             # two reports of one distribution are no further apart, in total variation
PRECISION = 0.1         # what low precision may move
GREEDY = 16             # tokens that two servers must write alike at temperature 0
TRIES = 24              # seeds with which a parameter is tried
FRONT = 64              # tokens, besides the special ones, that may stand in front of the prompt
# Each leaves only the likeliest token, where the server takes it.
NARROW = {"top_k": 1, "top_p": 1e-6, "min_p": 1.0}


@dataclass
class Place:
    """A token that a server wrote: which of the known ones it is, or len(row) - 1; and their
    probabilities, the greatest first, the last of all others together.
    """

    token: int
    known: list[int]
    cell: int
    row: list[float]


def fit_of(drawn: Sequence[tuple[int, list[Place]]], seed: int) -> Fit:
    """Of what was drawn, (number, the places of a reply), by the probability integral transform."""
    return uniform([transform(places, own_uniforms(seed, number, len(places)))
                    for number, places in drawn])


def transform(places: Sequence[Place], u: Tensor) -> Tensor:
    """The probability integral transform of a reply's tokens (stats.py)."""
    rows = torch.tensor([place.row for place in places], dtype=torch.float64)
    # Tokens of one probability are one piece of the line: their order in the reply may depend
    # on the draw.
    order = torch.cat([rows[:, :-1], torch.full((len(rows), 1), -1.0)], 1)
    return pit(torch.tensor([place.cell for place in places]), rows, order, u)


# How it reports

def of_the_last(endpoint: Endpoint, drawn: Sequence[tuple[int, list[Place]]], seed: int) -> None:
    """Does it write the drawn token in the place of the last of the likeliest? Then that place
    depends on the draw, and its tokens fit where it is one of the others.
    """
    fewer = [(number, [Place(place.token, place.known[:-1], min(place.cell, len(place.row) - 2),
                             [*place.row[:-2], sum(place.row[-2:])]) for place in text])
             for number, text in drawn]
    if fit_of(fewer, seed).p_value >= FALSE_ALARM:
        raise endpoint.not_judged("fits what it reports but for the last of the likeliest tokens: "
                                  "it may write the drawn one there")


# What it was asked for

def of_settings(endpoint: Endpoint, drawn: Sequence[tuple[int, list[Place]]], ids: Sequence[int],
                special: Sequence[int] = ()) -> None:
    """Is it a sampling parameter of the server's own? drawn: (number, the places of a reply).

    Such a parameter takes some tokens away, and leaves the others in their proportions. So: of the
    tokens that it leaves, do the drawn ones fit, and does it write the others far too seldom?
    """
    inside, unseen, others = cut(drawn), seen(drawn, ids), without(drawn, special)
    causes = [("top_k, top_p or min_p", inside), ("a penalty on what the text has", unseen),
              ("no end of text", others),
              ("a penalty, with top_k, top_p or min_p", [
                  [both(*pair) for pair in zip(*texts)] for texts in zip(inside, unseen)])]
    for name, kept in causes:
        if explains(drawn, kept):
            declined = ", ".join(endpoint.declined or ())
            known = f"it refuses {declined}" if declined else "a generation_config.json may name it"
            raise endpoint.not_judged(
                f"writes some tokens far too seldom and all others in their right proportions, as "
                f"with a sampling parameter of its own: {name} ({known})",
                "Start it without such defaults (vLLM: --generation-config vllm)")


def both(one: list[bool], other: list[bool]) -> list[bool]:
    return [a and b for a, b in zip(one, other)]


def cut(drawn: Sequence[tuple[int, list[Place]]]) -> list[list[list[bool]]]:
    """What the narrowest top_k, top_p and min_p keep that keep all that was drawn. The tokens that
    are not known one by one are kept out: a part of them may be cut off.
    """
    places = [place for _, text in drawn for place in text]
    known = [place for place in places if place.cell < len(place.row) - 1]
    rank = len(places[0].row) if len(known) < len(places) else max(
        place.cell for place in known) + 1
    before = max((sum(place.row[:place.cell]) for place in places), default=0.0) + 1e-9
    least = min((place.row[place.cell] / place.row[0] for place in known), default=0.0) - 1e-9
    return [[[i < min(rank, len(place.row) - 1) and sum(place.row[:i]) <= before
              and part >= least * place.row[0] for i, part in enumerate(place.row)]
             for place in text] for _, text in drawn]


def seen(drawn: Sequence[tuple[int, list[Place]]], ids: Sequence[int]) -> list[list[list[bool]]]:
    """Known tokens that neither the prompt nor the text before has."""
    kept = []
    for _, text in drawn:
        had, of_text = {*ids}, []
        for place in text:
            of_text.append([i < len(place.known) and place.known[i] not in had
                            for i in range(len(place.row))])
            had.add(place.token)
        kept.append(of_text)
    return kept


def without(drawn: Sequence[tuple[int, list[Place]]], gone: Sequence[int]
            ) -> list[list[list[bool]]]:
    return [[[i < len(place.known) and place.known[i] not in gone for i in range(len(place.row))]
             for place in text] for _, text in drawn]


def explains(drawn: Sequence[tuple[int, list[Place]]], kept: list[list[list[bool]]]) -> bool:
    """Do the drawn tokens that are kept fit, each row divided by what it keeps; and are there fewer
    of the others than chance has in one of 1 / FALSE_ALARM cases?
    """
    values, expected, found = [], 0.0, 0
    for (number, text), of_text in zip(drawn, kept):
        u = own_uniforms(number, 0, len(text)).tolist()
        for place, keeps, uniform_number in zip(text, of_text, u):
            row = [part * keep for part, keep in zip(place.row, keeps)]
            total = sum(row)
            expected += 1 - total
            if keeps[place.cell] and total > 0:
                tied = sum(part for part in row if part == row[place.cell])
                below = sum(part for part in row if part < row[place.cell])
                values.append((below + uniform_number * tied) / total)
            else:
                found += 1
    seldom = torch.special.gammaincc(*map(_double, (found + 1, max(expected, 1e-9)))).item()
    return (len(values) > 0 and seldom < FALSE_ALARM
            and uniform([torch.tensor(values, dtype=torch.float64)]).p_value >= FALSE_ALARM)


# What it reads

def of_vocabulary(endpoint: Endpoint, tokens: Iterable[int], size: int) -> None:
    """Has the model in the folder all tokens that it names?"""
    for token in tokens:
        if not 0 <= token < size:
            raise endpoint.not_judged(f"names token {one_line(token)}, the model in the folder has "
                                      f"0 to {size - 1}", "Is that its model?")


@torch.inference_mode()
def of_prompt(endpoint: Endpoint, target, ids: Sequence[int], place: dict[int, float],
              settings: dict, special: Sequence[int] = ()) -> None:
    """Does it read the prompt that it was sent? By the number of tokens that it counts, and by what
    it reports of the first token: before that it has written nothing, so nothing was speculated.
    """
    counted = endpoint.prompt_tokens
    instead = "Judge it with the prompt that it reads, as --ids"
    if counted is not None and counted != len(ids):
        raise endpoint.not_judged(f"counts {counted} tokens in a prompt of {len(ids)}: a token "
                                  "that begins a text, or a chat template", instead)
    off = apart(place, target, ids, settings)
    if off <= SAME:
        return
    begins = sorted({*special, *range(min(target.config.vocab_size, FRONT))})
    for words, read in [*((f"with token {one} in front", [one, *ids]) for one in begins),
                        ("twice", [*ids, *ids]), ("without its first token", ids[1:]),
                        ("without its last token", ids[:-1])]:
        if read and len(read) < target.config.context and apart(
                place, target, read, settings) <= SAME:
            raise endpoint.not_judged(f"reads the prompt {words}, by what it reports of its first "
                                      "token", instead)
    raise endpoint.not_judged(f"reports for its first token what is {off:.2g} from the folder's "
                              "distribution: another prompt, other weights, another precision, or "
                              "a wrong report")


def of_precision(endpoint: Endpoint, target, ids: Sequence[int],
                 replies: Sequence[tuple[list[int], list[dict[int, float]]]], settings: dict
                 ) -> None:
    """Is all that it reports a little off, as with numbers of low precision?"""
    off = [apart(place, target, [*ids, *tokens[:n]], settings)
           for tokens, places in replies[:100] for n, place in enumerate(places)]
    mean = sum(off) / len(off)
    if SAME < mean <= PRECISION:
        raise endpoint.not_judged(f"reports probabilities that are {mean:.2g} from the folder's on "
                                  "average, and small everywhere: another precision?")


def apart(place: dict[int, float], target, ids: Sequence[int], settings: dict) -> float:
    """Between what was reported of the token after ids and the model's own, before or after
    temperature, top_k and top_p: in total variation, over the tokens that were reported.
    """
    logits = target(torch.tensor([[*ids]], device=target.device))[0, -1]
    return min(sum(abs(part - own[token]) for token, part in place.items()) / 2
               for own in (logits.softmax(-1).tolist(), Sampling(**settings)(logits).tolist()))


# Two servers

def of_two(endpoint: Endpoint, plain: Endpoint, pairs: Sequence[tuple[str, str]], seed: int,
           top: int) -> None:
    """Were two servers asked the same, and do both say all that they wrote?"""
    counted = endpoint.prompt_tokens, plain.prompt_tokens
    if None not in counted and counted[0] != counted[1]:
        raise differ(f"count {counted[0]} and {counted[1]} tokens in the prompt: a token that "
                     "begins a text, or a chat template")
    if endpoint.declined != plain.declined:
        raise differ("do not take the same parameters: one refuses "
                     f"{', '.join(endpoint.declined or ()) or 'none'}, the other "
                     f"{', '.join(plain.declined or ()) or 'none'}")
    for name, value in NARROW.items():
        if takes(endpoint, name, value, seed) != takes(plain, name, value, seed):
            raise differ(f"do not take the same parameters: one ignores {name}, which may have a "
                         "default there")
    texts = list(zip(*pairs))
    stripped = two_samples(*(Counter(text.strip() for text in one) for one in texts))
    if stripped.p_value >= MISS and stripped.samples:
        raise differ("write texts of one distribution, but for blanks at their ends")
    prompt = endpoint.prompt if isinstance(endpoint.prompt, str) else ""
    repeats = [all(begins(text, prompt) for text in one) for one in texts]
    if prompt and repeats[0] != repeats[1]:
        raise differ("do not begin at the same place: one repeats the end of the prompt")
    shortest = [min(map(len, one)) for one in texts]
    if not (endpoint.says_length and plain.says_length) and shortest[0] != shortest[1]:
        raise differ("do not say how many tokens they wrote, and the shortest texts are not of one "
                     "length: one may stop at an end of text")
    first = [report(one, seed, top) for one in (endpoint, plain)]
    if first[0] and first[1]:
        off = sum(abs(first[0].get(name, 0) - first[1].get(name, 0))
                  for name in first[0].keys() & first[1].keys()) / 2
        if off > SAME or not first[0].keys() & first[1].keys():
            raise differ(f"report for the first token what is {off:.2g} apart: they read another "
                         "prompt, or have other weights or another precision")
    elif None in counted and greedy(endpoint, seed) != greedy(plain, seed):
        raise differ("write different texts at temperature 0, too, and do not say what they read: "
                     "another prompt, other weights, or a penalty")


def differ(why: str) -> EndpointError:
    return EndpointError(f"the two servers {why}: so they cannot be compared")


def begins(text: str, prompt: str) -> bool:
    """Whether a text begins with the prompt's end, of one character at least."""
    return any(text.startswith(prompt[-n:]) for n in range(1, min(len(prompt), 40) + 1))


def takes(server: Endpoint, name: str, value: float, seed: int) -> bool:
    """Whether the first token is always one where this parameter leaves a single token. (It comes
    from the prompt, so no draft token is in its place.)
    """
    with suppress(EndpointError):
        asked = {"max_tokens": 1, name: value}
        first = server.complete(seed, **asked)["text"]
        return all(server.complete(seed + i, **asked)["text"] == first for i in range(1, TRIES))
    return False


def report(server: Endpoint, seed: int, top: int) -> dict[str, float] | None:
    """What it reports of its first token, by the names that it gives; None if it does not."""
    with suppress(EndpointError, KeyError, IndexError, TypeError, ValueError, AttributeError,
                  OverflowError):
        choice = server.complete(seed, logprobs=top)
        place = choice["logprobs"]["top_logprobs"][0]
        return {name: math.exp(logprob) for name, logprob in place.items()}
    return None


def greedy(server: Endpoint, seed: int) -> str:
    return server.complete(seed, temperature=0, max_tokens=max(server.new, GREEDY))["text"]


def _double(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)
