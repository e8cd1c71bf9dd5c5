"""What is known of every token that a server wrote: which of the likeliest ones it is, and their
probabilities, as the server reports them or as a model has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nanospec.probs import Sampling
from nanospec.judge.endpoint import Endpoint
from nanospec.judge.verdict import own_uniforms, uniform
from nanospec.proof.stats import Fit, pit

# Of the most likely tokens that are asked for: OpenAI's limit, and within that of the others.
TOP = 5
ROUNDING = 1e-2         # what reported probabilities may add up to above 1
LEAST = 1e-9            # what the likeliest tokens of any vocabulary have together
BELOW = 128             # tokens of a model's distribution that are looked at where doubts arise


@dataclass
class Place:
    """A token that a server wrote. known: the likeliest ones. row: their probabilities, the
    greatest first, then zeros, and at the end that of all others together. cell: the token's place
    in row.
    """

    token: int
    known: list[int]
    cell: int
    row: list[float]


Drawn = Sequence[tuple[int, list[Place]]]       # (its number, the places of a reply), of each reply


def reported(endpoint: Endpoint, seed: int) -> list[Place]:
    """What a reply says of each of its tokens: the TOP likeliest ones, and all others together.
    EndpointError if it does not.
    """
    places = []
    for token, place in zip(*endpoint.named(seed, TOP)):
        total = sum(place.values())             # also of a drawn token that was added to them
        if len(place) == TOP + 1:
            place.pop(token, None)
        lacking = total < (1 - ROUNDING if len(place) < TOP else LEAST)
        if not total <= 1 + ROUNDING or lacking:
            raise endpoint.not_judged(f"reports {len(place)} of {TOP} probabilities, which add up "
                                      f"to {total:.3g}")
        places.append(place_of(token, place, TOP))
    return places


def place_of(token: int, probabilities: dict[int, float], known: int) -> Place:
    best = sorted(probabilities, key=lambda one: (-probabilities[one], one))[:known]
    row = [probabilities[one] for one in best] + [0.0] * (known - len(best))
    return Place(token, best, best.index(token) if token in best else known,
                 [*row, max(0.0, 1 - sum(row))])


@torch.inference_mode()
def places_of(target, ids: Sequence[int], tokens: Sequence[int], settings: dict) -> list[Place]:
    """What the model says of each of these tokens after `ids`: the BELOW likeliest, and others."""
    text = torch.tensor([[*ids, *tokens]], device=target.device)
    rows = Sampling(**settings)(target(text)[0, len(ids) - 1:-1]).double()
    best = rows.topk(min(BELOW, rows.shape[-1]))
    return [place_of(token, dict(zip(at, row)), len(at))
            for token, at, row in zip(tokens, best.indices.tolist(), best.values.tolist())]


def fit_of(drawn: Drawn, seed: int) -> Fit:
    """Of what was drawn, by the probability integral transform."""
    u = torch.cat([own_uniforms(seed, number, len(places)) for number, places in drawn])
    return uniform([transform([place for _, places in drawn for place in places], u)])


def transform(places: Sequence[Place], u: Tensor) -> Tensor:
    """The probability integral transform of tokens, with a uniform for each (stats.py)."""
    rows = torch.tensor([place.row for place in places], dtype=torch.float64)
    # Tokens of one probability are one piece of the line: their order in the reply may depend
    # on the draw.
    order = torch.cat([rows[:, :-1], torch.full((len(rows), 1), -1.0)], 1)
    return pit(torch.tensor([place.cell for place in places]), rows, order, u)
