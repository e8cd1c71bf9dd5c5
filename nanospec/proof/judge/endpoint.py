"""A server that speaks OpenAI's completions, `POST /v1/completions`, as vLLM and SGLang do, before the judge.

What is true of its text? It depends on what there is to compare with.
- A second server that does not speculate (`--plain URL`): two samples of texts, the same settings. It sees whatever
  differs between the two. It cannot see what both do wrong.
- A folder with the model (`--truth FOLDER`): its own logits, as for transformers. The server must name its tokens by
  their ids. It sees everything but chance that is shared between requests.
- Neither: the logprobs that the server reports with its text, at temperature 1. It sees whether its tokens are drawn
  from what it reports. It cannot see a report that is wrong itself: a stale cache, a wrong row, another temperature.
  And what lies below the most likely tokens that it reports is one lump.

Left out: what happens when requests are answered together, and servers that ask for a key. The requests are sent one
after the other, each with a seed of its own. `ignore_eos` is asked for: a draw that ends the text is not in the reply.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch

from nanospec.dice import Dice
from nanospec.errors import EndpointError, RequestError, one_line
from nanospec.proof.foreign import Progress
from nanospec.proof.judge import ANOTHER_SEED, BINS, Verdict, check_task, verdict_of
from nanospec.proof.stats import goodness_of_fit, pit, two_samples

TOP = 5                 # of the most likely tokens that are asked for: OpenAI's limit, and within that of the others
ROUNDING = 1e-2         # what reported probabilities may add up to above 1
BY_ID = "token_id:"     # how vLLM writes a token that it was asked to name by its id


@dataclass
class Endpoint:
    """A server and what is asked of it. prompt: a text, or token ids.  settings: temperature, top_k, top_p."""

    url: str
    prompt: str | Sequence[int]
    new: int
    settings: dict
    model: str | None = None
    timeout: float = 60.0

    def __post_init__(self):
        if not self.url.startswith(("http://", "https://")):
            raise RequestError(f"an endpoint begins with http:// or https://, got {one_line(self.url)}")

    def complete(self, seed: int, **more) -> dict:
        """The reply's first choice. EndpointError if there is none: one line, whatever has gone wrong."""
        body = {"prompt": self.prompt, "max_tokens": self.new, "seed": seed, "ignore_eos": True, **more}
        body |= {name: value for name, value in {"model": self.model, **self.settings}.items() if value is not None}
        where = self.url.rstrip("/").removesuffix("/v1") + "/v1/completions"
        try:
            request = Request(where, json.dumps(body).encode(), {"Content-Type": "application/json"})
            try:
                with urlopen(request, timeout=self.timeout) as reply:
                    failed, said = "", reply.read()
            except HTTPError as error:                          # what it says may break off, too
                failed, said = f"{where} answered {error.code}", error.read(1000)
        except TimeoutError as error:
            raise EndpointError(f"{where} did not answer within {self.timeout:g} seconds") from error
        except URLError as error:
            raise EndpointError(f"nobody answers at {where}: {one_line(error.reason)}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise EndpointError(f"{where} broke off: {one_line(error)}") from error
        if failed:
            raise EndpointError(f"{failed}: {one_line(said.decode(errors='replace'))}")
        try:
            choice = json.loads(said)["choices"][0]
            if not isinstance(choice["text"], str):
                raise TypeError("no text")
            return choice
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise EndpointError(f"{where} answered something else than a completion: "
                                f"{one_line(said.decode(errors='replace'))}") from error

    def ids(self, dice: Dice) -> list[int]:
        """A sampler for the judge. EndpointError if the tokens have no ids."""
        choice = self.complete(dice.generators[0].initial_seed(), logprobs=1, return_tokens_as_token_ids=True)
        try:
            return [int(token.split(BY_ID)[1]) for token in choice["logprobs"]["tokens"]]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EndpointError(f"{self.url} does not name its tokens by their ids (return_tokens_as_token_ids of "
                                "vLLM): compare it with a second server, --plain") from error


def against_plain(endpoint: Endpoint, plain: Endpoint, samples: int, seed: int) -> Verdict:
    """Do two servers, one that speculates and one that does not, write texts of one distribution?"""
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)
    counts, say = (Counter(), Counter()), Progress()
    for i in range(samples):
        for which, server in enumerate((endpoint, plain)):
            counts[which][server.complete(seed + i + which * samples)["text"]] += 1
        say(f"{i + 1:,} of {samples:,} pairs of samples")
    verdict = verdict_of(two_samples(*counts), "the texts of both servers fit one distribution")
    verdict.samples = 2 * samples
    if verdict.wrong:
        verdict.why = "the texts of the two servers are not of one distribution"
    return verdict


def against_logprobs(endpoint: Endpoint, samples: int, seed: int) -> Verdict:
    """Are the tokens of a server drawn from the logprobs that it reports with them?"""
    check_task(endpoint.new, 1, samples, seed, endpoint.settings)
    if any(endpoint.settings.get(name) not in plain for name, plain in
           {"temperature": (None, 1), "top_k": (None,), "top_p": (None, 1)}.items()):
        raise RequestError("logprobs are reported before or after the temperature, as a server likes: without --plain "
                           "or --truth only temperature 1 can be judged, without top_k and top_p")
    say, values = Progress(), []
    for i in range(samples):
        places = reported(endpoint, endpoint.complete(seed + i, logprobs=TOP))
        dice = Dice([ANOTHER_SEED + seed + i])
        dice.refill(len(places))
        values += [pit(torch.tensor([cell]), torch.tensor([row]), -torch.arange(len(row))[None], u[None]).item()
                   for (cell, row), u in zip(places, dice.u[0])]
        say(f"{i + 1:,} of {samples:,} samples")
    bins = Counter(min(int(value * BINS), BINS - 1) for value in values)
    verdict = verdict_of(goodness_of_fit(bins, {i: 1 / BINS for i in range(BINS)}),
                         "its tokens fit the logprobs that it reports")
    verdict.unit = "of the tokens moved, in the order of the logprobs"
    if verdict.wrong:
        verdict.why = "its tokens do not fit the logprobs that it reports"
    return verdict


def reported(endpoint: Endpoint, choice: dict) -> list[tuple[int, list[float]]]:
    """For every token of a reply: its place among the most likely ones, and their probabilities; the last is what is
    left for all others. EndpointError if the reply does not say that.
    """
    try:
        logprobs = choice["logprobs"]
        tokens, tops = logprobs["tokens"], logprobs["top_logprobs"]
        if not tokens or len(tokens) != len(tops):
            raise ValueError("not as many as tokens")
        places = []
        for token, top in zip(tokens, tops):
            best = sorted(top.items(), key=lambda item: -item[1])[:TOP]     # the drawn token may stand there as well
            row = [math.exp(other) for _, other in best]
            if not sum(row) <= 1 + ROUNDING:                                # a nan is no probability
                raise ValueError(f"probabilities that add up to {sum(row):.3g}")
            names = [name for name, _ in best]
            places.append((names.index(token) if token in names else len(row), [*row, max(0.0, 1 - sum(row))]))
        return places
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise EndpointError(f"{endpoint.url} gives no logprobs that can be read ({type(error).__name__}: "
                            f"{one_line(error)}): compare it with a second server, --plain") from error
