"""Is it a sampling parameter of the server's own, and not its speculation?

A server may refuse or ignore a word that turns a parameter off (endpoint.py), and have a default
for it. Such a parameter takes some tokens away and leaves the others in their proportions: top_k,
top_p and min_p the least likely ones, a penalty those that the text has, and some servers the end
of text where it is to be ignored. So: of the tokens that it leaves, do the drawn ones fit, and are
the others far too seldom?
"""

from collections import Counter
from collections.abc import Callable, Sequence

import torch

from nanospec.judge.endpoint import Endpoint
from nanospec.judge.places import Drawn, Place
from nanospec.judge.sequential import FALSE_ALARM
from nanospec.judge.verdict import own_uniforms, uniform

OFTEN = 10.0    # a token that is expected so often and never comes has been taken away
FEW = 2         # so many of these tokens at most are ends of text
# Of a place and the tokens before it: which of its cells are left. What is not known one by one is
# not: a part of it may have been taken away.
Leaves = Callable[[Place, set[int]], list[bool]]


def of_settings(endpoint: Endpoint, drawn: Drawn, ids: Sequence[int]) -> None:
    """EndpointError if a parameter explains what was drawn after the prompt `ids`."""
    inside, ends = narrowest(drawn), never(drawn)
    causes: dict[str, Leaves] = {
        "top_k, top_p or min_p": inside, "a penalty on what the text has": unseen,
        f"it never writes {ends}": lambda place, _: [token not in ends for token in place.known],
        "a penalty, and top_k, top_p or min_p": lambda place, had: [
            *map(min, zip(inside(place, had), unseen(place, had)))]}
    for name, leaves in causes.items():
        if explains(drawn, ids, leaves):
            declined = ", ".join(endpoint.declined or ())
            known = f"it refuses {declined}" if declined else "a generation_config.json may name it"
            raise endpoint.not_judged(
                "writes some tokens far too seldom and all others in their right proportions, as "
                f"with a sampling parameter of its own: {name} ({known})",
                "Start it without such defaults (vLLM: --generation-config vllm)")


def narrowest(drawn: Drawn) -> Leaves:
    """The narrowest top_k, top_p and min_p that leave all that was drawn."""
    places = [place for _, text in drawn for place in text]
    others = any(place.cell >= len(place.known) for place in places)
    top_k = max(len(place.known) if others else place.cell + 1 for place in places)
    top_p = max(sum(place.row[:place.cell]) for place in places) + 1e-9
    # One of the others is at most as likely as the last that is known.
    min_p = min(place.row[min(place.cell, len(place.known) - 1)] / place.row[0]
                for place in places) - 1e-9

    def leaves(place: Place, had: set[int]) -> list[bool]:
        return [i < top_k and sum(place.row[:i]) <= top_p and place.row[i] >= min_p * place.row[0]
                for i in range(len(place.known))]
    return leaves


def unseen(place: Place, had: set[int]) -> list[bool]:
    return [token not in had for token in place.known]


def never(drawn: Drawn) -> list[int]:
    """Tokens that are expected often and never come; none where there are more than FEW."""
    expected: Counter = Counter()
    for _, text in drawn:
        for place in text:
            expected.update(dict(zip(place.known, place.row)))
    written = {place.token for _, text in drawn for place in text}
    gone = [token for token, count in expected.items()
            if count >= OFTEN and token not in written]
    return gone if len(gone) <= FEW else []


def explains(drawn: Drawn, ids: Sequence[int], leaves: Leaves) -> bool:
    """Do the drawn tokens that are left fit, each row divided by what is left of it; and are there
    fewer of the others than right samples have once in 1 / FALSE_ALARM times?
    """
    values, expected, found = [], 0.0, 0
    for number, text in drawn:
        had, uniforms = {*ids}, own_uniforms(number, 0, len(text)).tolist()
        for place, u in zip(text, uniforms):
            row = [part * left for part, left in zip(place.row, leaves(place, had))]
            total, own = sum(row), row[place.cell] if place.cell < len(row) else 0.0
            expected += 1 - total
            if own > 0:
                below, tied = (sum(part for part in row if part < own),
                               sum(part for part in row if part == own))
                values.append((below + u * tied) / total)
            else:
                found += 1
            had.add(place.token)
    if not values:
        return False
    poisson = torch.special.gammaincc(*torch.tensor([[found + 1.0], [expected]]).double())
    return (poisson.item() < FALSE_ALARM
            and uniform([torch.tensor(values).double()]).p_value >= FALSE_ALARM)
