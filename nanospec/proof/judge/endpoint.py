"""A server before the judge. It speaks OpenAI's `POST /v1/completions`, as vLLM and SGLang do.

What is true of its text? It depends on what there is to compare with.
- A second server that does not speculate (`--plain URL`): two samples of texts, the same settings.
  It sees whatever differs between the two. It cannot see what both do wrong.
- A folder with the model (`--truth FOLDER`): its own logits, as for transformers. The server must
  name its tokens by their ids. It sees everything but chance that is shared between requests.
- Neither: the logprobs that the server reports with its text, at temperature 1. It sees whether its
  tokens are drawn from what it reports. It cannot see a report that is wrong itself: a stale cache,
  a wrong row, another temperature. And what lies below the most likely tokens that it reports is
  one lump. The server must name its tokens by their ids: by their texts a right server would look
  wrong, since tokens that are parts of one character all have the same text.

Each request has a seed of its own. Several are sent at once, so a server that can answers them in
one batch; what they then share is judged, too. `ignore_eos` is asked for: a draw that ends the text
would not be in the reply.
Left out: servers that ask for a key.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import SEEDS, NanospecError, RequestError, one_line
from nanospec.proof.judge.sequential import sequential
from nanospec.proof.judge.verdict import (ANOTHER_SEED, SETTINGS, Verdict, check_task, uniform,
                                          verdict_of)
from nanospec.proof.stats import Fit, pit, two_samples

# Of the most likely tokens that are asked for: OpenAI's limit, and within that of the others.
TOP = 5
ROUNDING = 1e-2         # what reported probabilities may add up to above 1
BY_ID = "token_id:"     # how vLLM writes a token that it was asked to name by its id


class EndpointError(NanospecError, OSError):
    """A server that does not answer, or not in a way that can be judged."""


@dataclass
class Endpoint:
    """A server and what is asked of it. prompt: a text, or token ids.
    settings: temperature, top_k, top_p.
    at_once: how many requests are sent before the first is answered.
    """

    url: str
    prompt: str | Sequence[int]
    new: int
    settings: dict
    model: str | None = None
    timeout: float = 60.0
    at_once: int = 8

    def __post_init__(self):
        if not self.url.startswith(("http://", "https://")):
            raise RequestError("an endpoint begins with http:// or https://, got "
                               f"{one_line(self.url)}")
        for name, number in ("timeout", self.timeout), ("at_once", self.at_once):
            if not number > 0:
                raise RequestError(f"{name} must be more than 0, got {number}")

    def complete(self, seed: int, **more) -> dict:
        """The reply's first choice. EndpointError, of one line, if there is none."""
        where = self.url.rstrip("/").removesuffix("/v1") + "/v1/completions"
        asked = {"model": self.model, "prompt": self.prompt, "max_tokens": self.new, "seed": seed,
                 "ignore_eos": True, **self.settings, **more}
        body = json.dumps({name: value for name, value in asked.items() if value is not None})
        try:
            request = Request(where, body.encode(), {"Content-Type": "application/json"})
            try:
                reply = urlopen(request, timeout=self.timeout)
            except HTTPError as error:              # a reply, too: it says what is wrong
                reply = error
            with reply:
                answer = reply.read()
        except (OSError, HTTPException, ValueError) as error:
            raise EndpointError(f"{where} did not answer in full: "
                                f"{one_line(getattr(error, 'reason', error))}") from error
        try:
            choice = json.loads(answer)["choices"][0]
            if not isinstance(choice["text"], str):
                raise TypeError("no text")
            return choice
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise EndpointError(f"{where} answered {reply.status}, without a completion: "
                                f"{one_line(answer.decode(errors='replace'))}") from error

    def named(self, seed: int, top: int) -> tuple[list[int], list[dict[int, float]]]:
        """The ids of a reply's tokens, and the probabilities of at least `top` at each place, by
        their ids.

        EndpointError if the reply does not say that, or has not as many tokens as were asked for.
        """
        choice = self.complete(seed, logprobs=top, return_tokens_as_token_ids=True)
        try:
            ids = [self._id(name) for name in choice["logprobs"]["tokens"]]
            places = [{self._id(name): math.exp(logprob) for name, logprob in place.items()}
                      for place in choice["logprobs"]["top_logprobs"]]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._not_judged("gives no logprobs that can be read "
                                   f"({type(error).__name__}: {one_line(error)})") from error
        if not len(ids) == len(places) == self.new:
            raise self._not_judged(f"wrote {len(ids)} tokens where {self.new} and ignore_eos were "
                                   f"asked for, and reports on {len(places)}")
        return ids, places

    def _id(self, name: str) -> int:
        if not name.startswith(BY_ID):
            raise self._not_judged("does not name its tokens by their ids "
                                   "(return_tokens_as_token_ids of vLLM), and two tokens may have "
                                   "one text")
        return int(name.removeprefix(BY_ID))

    def _not_judged(self, why: str) -> EndpointError:
        return EndpointError(f"{self.url} {why}: so it cannot be judged. Compare it with a second "
                             "server, --plain")

    def ids(self, dice: Dice) -> list[int]:
        """A sampler for the judge. EndpointError if the tokens have no ids."""
        return self.named(dice.generators[0].initial_seed(), 1)[0]


def against_plain(endpoint: Endpoint, plain: Endpoint, samples: int, seed: int) -> Verdict:
    """Do two servers, of which one speculates, write texts of one distribution?"""
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)

    def pair(i: int) -> tuple[str, str]:
        return endpoint.complete(seed + i)["text"], plain.complete(seed + i + samples)["text"]

    def fit_of(pairs: list[tuple[str, str]]) -> Fit:
        return two_samples(*map(Counter, zip(*pairs)))

    pairs, fit, bar = sequential(pair, samples, fit_of, at_once=endpoint.at_once)
    verdict = verdict_of(fit, bar, "the texts of both servers fit one distribution",
                         "the texts of the two servers are not of one distribution")
    verdict.samples = 2 * len(pairs)
    return verdict


def against_logprobs(endpoint: Endpoint, samples: int, seed: int) -> Verdict:
    """Are the tokens of a server drawn from the logprobs that it reports with them?"""
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)
    if SETTINGS | endpoint.settings != SETTINGS:
        raise RequestError("logprobs are reported before or after the temperature, as a server "
                           "likes: without --plain or --truth only temperature 1 can be judged, "
                           "without top_k and top_p")

    def values(i: int) -> Tensor:
        cells, rows = reported(endpoint, seed + i)
        dice = Dice([(ANOTHER_SEED + seed + i) % SEEDS])
        dice.refill(len(cells))
        # Tokens of one probability are one piece of the line: their order in the reply may depend
        # on the draw.
        order = torch.cat([rows[:, :-1], torch.full((len(rows), 1), -1.0)], 1)
        return pit(cells, rows, order, dice.u[0])

    _, fit, bar = sequential(values, samples, uniform, at_once=endpoint.at_once)
    return verdict_of(fit, bar, "its tokens fit the logprobs that it reports",
                      "its tokens do not fit the logprobs that it reports",
                      "of the tokens moved, in the order of the logprobs")


def reported(endpoint: Endpoint, seed: int) -> tuple[Tensor, Tensor]:
    """For every token of a reply: its place among the TOP most likely ones, or TOP, (T,); and their
    probabilities, the last one of all others together, (T, TOP + 1). EndpointError if the reply
    does not say that.
    """
    cells, rows = [], []
    for token, place in zip(*endpoint.named(seed, TOP)):
        if len(place) > TOP:                    # the drawn token was added to the most likely ones
            place.pop(token, None)
        row, total = [*place.values()], sum(place.values())
        lacking = len(row) < TOP and total < 1 - ROUNDING
        if len(row) > TOP or not total <= 1 + ROUNDING or lacking:
            raise endpoint._not_judged(f"reports {len(row)} of {TOP} probabilities, which add up "
                                       f"to {total:.3g}")
        cells.append([*place].index(token) if token in place else TOP)
        rows.append([*row, *[0.0] * (TOP - len(row)), max(0.0, 1 - total)])
    return torch.tensor(cells), torch.tensor(rows, dtype=torch.float64)
