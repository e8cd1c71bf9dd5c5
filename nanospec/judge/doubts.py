"""Before a server is called wrong: is there another cause than its speculation?

A right server may read another prompt (a token that begins a text, a chat template), have other
weights or another precision, or sample with a parameter that it was not asked for and does not let
go of (defaults.py). Each function here looks for one of these causes, and raises an EndpointError
that names it. Where it finds none it returns, and the accusation stands.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy

import torch

from nanospec.errors import one_line
from nanospec.probs import Sampling
from nanospec.judge.defaults import of_settings
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.places import TOP, Drawn, Place, fit_of, reported
from nanospec.judge.sequential import FALSE_ALARM, MISS, drawn_by
from nanospec.proof.stats import two_samples

CONTROL = 300           # replies of each of two servers that are compared with its own logprobs
SAME = 0.01             # two reports of one distribution are no further apart, in total variation
PRECISION = 0.1         # what low precision may move
GREEDY = 16             # tokens that two servers must write alike at temperature 0
TRIES = 24              # seeds with which a parameter is tried
FRONT = 64              # tokens, besides the special ones, that may stand in front of the prompt
# Each leaves only the likeliest token, where the server takes it.
NARROW = {"temperature": 0, "top_k": 1, "top_p": 1e-6, "min_p": 1.0}
NEUTRAL = {"temperature": 1, "top_p": 1, "min_p": 0}
# Each changes the text at temperature 0, where the server takes it.
STRONG = ("repetition_penalty", "repeat_penalty", "presence_penalty", "frequency_penalty")


def of_words(endpoint: Endpoint, seed: int) -> None:
    """Does it take the settings that it was asked for?"""
    for name, value in endpoint.settings.items():
        neutral = value is None or value == NEUTRAL.get(name)
        if not neutral and not takes(endpoint, name, seed):
            raise endpoint.not_judged(f"takes no {name}: its first token varies where {name} "
                                      f"{NARROW[name]:g} leaves a single one")


def of_the_last(endpoint: Endpoint, drawn: Drawn, seed: int) -> None:
    """Does the last of the likeliest depend on the draw? It may be the drawn token, or one of
    several with one probability. Then its tokens fit where it, and what ties with it, is one of the
    others.
    """
    fewer = [(number, [above_the_last(place) for place in text]) for number, text in drawn]
    if fit_of(fewer, seed).p_value >= FALSE_ALARM:
        raise endpoint.not_judged("fits what it reports but for the last of the likeliest tokens: "
                                  "it may write the drawn one there")


def above_the_last(place: Place) -> Place:
    """It, and what ties with it, becomes one of the others."""
    last = len(place.row) - 1
    known = sum(part > place.row[-2] for part in place.row[:-1])
    return Place(place.token, place.known[:known], place.cell if place.cell < known else last,
                 [*place.row[:known], *[0.0] * (last - known), sum(place.row[known:])])


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
                                  "average: another precision?")


def apart(place: dict[int, float], target, ids: Sequence[int], settings: dict) -> float:
    """Between what was reported of the token after ids and the model's own, before or after
    temperature, top_k, top_p and min_p: in total variation, over the tokens that were reported.
    """
    logits = target(torch.tensor([[*ids]], device=target.device))[0, -1]
    return min(sum(abs(part - own[token]) for token, part in place.items()) / 2
               for own in (logits.softmax(-1).tolist(), Sampling(**settings)(logits).tolist()))


def of_two(endpoint: Endpoint, plain: Endpoint, pairs: Sequence[tuple[str, str]], seed: int
           ) -> None:
    """Were two servers asked the same, and do both say all that they wrote?"""
    counted = endpoint.prompt_tokens, plain.prompt_tokens
    if None not in counted and counted[0] != counted[1]:
        raise differ(f"count {counted[0]} and {counted[1]} tokens in the prompt: a token that "
                     "begins a text, or a chat template")
    if endpoint.declined != plain.declined:
        raise differ("do not take the same parameters: one refuses "
                     f"{', '.join(endpoint.declined or ()) or 'none'}, the other "
                     f"{', '.join(plain.declined or ()) or 'none'}")
    for name in NARROW:
        if takes(endpoint, name, seed) != takes(plain, name, seed):
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
    first = [report(one, seed) for one in (endpoint, plain)]
    if first[0] and first[1]:
        off = sum(abs(first[0].get(name, 0) - first[1].get(name, 0))
                  for name in first[0].keys() & first[1].keys()) / 2
        if off > SAME or not first[0].keys() & first[1].keys():
            raise differ(f"report for the first token what is {off:.2g} apart: they read another "
                         "prompt, or have other weights or another precision")
    elif None in counted and greedy(endpoint, seed) != greedy(plain, seed):
        raise differ("write different texts at temperature 0, too, and do not say what they read: "
                     "another prompt, other weights, or a penalty")
    for server in endpoint, plain:
        of_itself(server, seed)
    for name in STRONG:
        if changes(endpoint, name, seed) != changes(plain, name, seed):
            raise differ(f"do not take the same parameters: at temperature 0 {name} changes the "
                         "text of one alone, and the other may have a default there")


def of_itself(server: Endpoint, seed: int) -> None:
    """Has it a sampling parameter of its own, by the logprobs that it reports at temperature 1? If
    it reports none that can be read, that is not known.
    """
    free = copy(server)
    free.settings, free.declined = {}, None
    try:
        drawn = drawn_by(lambda i: (i, reported(free, seed + i)), range(CONTROL), server.at_once)
    except EndpointError:
        return
    of_settings(free, drawn, () if isinstance(server.prompt, str) else server.prompt)


def differ(why: str) -> EndpointError:
    return EndpointError(f"the two servers {why}: so they cannot be compared")


def begins(text: str, prompt: str) -> bool:
    """Whether a text begins with the prompt's end, of one character at least."""
    return any(text.startswith(prompt[-n:]) for n in range(1, min(len(prompt), 40) + 1))


def takes(server: Endpoint, name: str, seed: int) -> bool:
    """Whether the first token is always one where this parameter leaves a single token. (It comes
    from the prompt, so no draft token is in its place.)
    """
    with suppress(EndpointError):
        asked = {"max_tokens": 1, name: NARROW[name]}
        if not isinstance(server.prompt, str):
            asked |= {"logprobs": 1, "return_tokens_as_token_ids": True}
        first = words(server.complete(seed, **asked))
        return all(words(server.complete(seed + i, **asked)) == first for i in range(1, TRIES))
    return False


def words(choice: dict) -> str:
    logprobs = choice.get("logprobs")
    return f"{choice['text']}{logprobs.get('tokens') if isinstance(logprobs, dict) else ''}"


def changes(server: Endpoint, name: str, seed: int) -> bool:
    """Whether this penalty changes its text at temperature 0, so that it takes it."""
    with suppress(EndpointError):
        return greedy(server, seed) != greedy(server, seed, **{name: 2.0})
    return False


def report(server: Endpoint, seed: int) -> dict[str, float] | None:
    """What it reports of its first token, by the names that it gives; None if it does not."""
    with suppress(EndpointError, KeyError, IndexError, TypeError, ValueError, AttributeError,
                  OverflowError):
        choice = server.complete(seed, logprobs=TOP, return_tokens_as_token_ids=True)
        place = choice["logprobs"]["top_logprobs"][0]
        return {name: math.exp(logprob) for name, logprob in place.items()}
    return None


def greedy(server: Endpoint, seed: int, **more) -> str:
    asked = {"temperature": 0, "max_tokens": max(server.new, GREEDY), **more}
    return server.complete(seed, **asked)["text"]
