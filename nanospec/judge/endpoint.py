"""A server before the judge, and what it is asked. It speaks OpenAI's `POST /v1/completions`, as
vLLM and SGLang do.

A right server fills in what a request leaves out, from its model's generation_config.json or from
its own defaults. So a request leaves nothing out that changes the distribution: whatever was not
asked for is turned off in words (OFF). Where a server refuses such a word it is asked without it,
and `declined` has its name. witnesses.py says what is true of its text.

Each request has a seed of its own. `ignore_eos` is asked for: a draw that ends the text would not
be in the reply.
Left out: servers that ask for a key.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from threading import Lock
from typing import Any

from nanospec.dice import Dice
from nanospec.errors import (NanospecError, RequestError, check_ids, check_numbers, one_line,
                             quoted)
from nanospec.judge.replies import BROKEN, Way

BY_ID = "token_id:"     # how vLLM writes a token that it was asked to name by its id
LONGEST_WAIT, MOST_AT_ONCE = 86_400, 256
LONGEST_TOKEN = 1_000   # characters
REFUSES = 400, 422, 500, 501
MEANS = {401: " (it asks for a key)", 403: " (it lets nobody in without a key)",
         **dict.fromkeys((301, 302, 303, 307, 308), " (it names another address: give that one)")}
# What a request says besides: the values that turn a parameter off, of which the first that the
# server takes is sent. The names of vLLM, SGLang, llama.cpp and MLX; a server ignores others'.
OFF: dict[str, tuple] = {
    "ignore_eos": (True,), "n": (1,), "echo": (False,), "stream": (False,),
    "skip_special_tokens": (False,),
    "top_k": (-1, 0), "top_p": (1.0,), "min_p": (0.0,), "typical_p": (1.0,),
    "top_n_sigma": (-1.0,), "xtc_probability": (0.0,), "repetition_penalty": (1.0,),
    "repeat_penalty": (1.0,), "presence_penalty": (0.0,), "frequency_penalty": (0.0,),
    "dry_multiplier": (0.0,), "mirostat": (0,), "dynatemp_range": (0.0,)}


class EndpointError(NanospecError, OSError):
    """A server that does not answer, or not in a way that can be judged."""


class Declined(EndpointError):
    """A server that answers, and does not take the request."""


@dataclass
class Endpoint:
    """A server and what is asked of it. prompt: a text, or token ids.
    settings: temperature, top_k, top_p, min_p.
    at_once: how many requests are sent before the first is answered.
    declined: what it was asked without, because it refuses it; None before the first answer.
    prompt_tokens: how many it says that the prompt has, in its last answer.
    says_length: whether every answer so far said how it ended, or how many tokens it has.
    instead: what to do about a server that cannot be judged.
    """

    url: str
    prompt: str | Sequence[int]
    new: int
    settings: dict
    model: str | None = None
    timeout: float = 60.0
    at_once: int = 8
    declined: list[str] | None = field(default=None, init=False)
    prompt_tokens: int | None = field(default=None, init=False)
    says_length: bool = field(default=True, init=False)
    instead: str = field(default="Compare it with a second server, --plain", init=False)

    def __post_init__(self):
        check_numbers(Real, timeout=self.timeout)
        check_numbers(Integral, at_once=self.at_once)
        if not isinstance(self.prompt, str):
            check_ids("the prompt", self.prompt)
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://")):
            raise RequestError("an endpoint begins with http:// or https://, got "
                               f"{quoted(self.url)}")
        if not 0 < self.timeout <= LONGEST_WAIT:
            raise RequestError("timeout must be more than 0 seconds and at most "
                               f"{LONGEST_WAIT:,}, got {quoted(self.timeout)}")
        if not 0 < self.at_once <= MOST_AT_ONCE:
            raise RequestError(f"at_once must be more than 0 and at most {MOST_AT_ONCE}, got "
                               f"{quoted(self.at_once)}")
        self.where = self.url.rstrip("/").removesuffix("/v1") + "/v1/completions"
        self.taken: dict[str, Any] = {}
        self.failed: EndpointError | None = None
        self.first = Lock()
        try:
            self.way = Way(self.where)
        except ValueError as error:
            raise RequestError(f"{one_line(self.url)} is no address: {one_line(error)}") from error

    def complete(self, seed: int, **more) -> dict:
        """The reply's first choice. EndpointError, of one line, if there is none, or if it ended
        before `new` tokens (or the max_tokens in `more`).
        """
        with self.first:                # the first request finds out what is taken; the others wait
            if self.failed:             # but do not fail one after the other
                raise self.failed
            if self.declined is None:
                try:
                    return self._find_out(seed, more)
                except EndpointError as error:
                    self.failed = error
                    raise
        return self._ask(self.taken, seed, more)

    def _find_out(self, seed: int, more: dict) -> dict:
        every = {name: values[0] for name, values in OFF.items() if self._free(name)}
        try:
            choice = self._ask(every, seed, more)
            self.taken, self.declined = every, []
            return choice
        except Declined:
            choice = self._ask({}, seed, more)          # declined as well: that is the error
        declined = []
        for name in every:
            for value in OFF[name]:
                try:
                    choice = self._ask(self.taken | {name: value}, seed, more)
                    self.taken[name] = value
                    break
                except Declined:
                    pass
            else:
                declined.append(name)
        self.declined = declined
        return choice

    def _free(self, name: str) -> bool:
        """Whether nothing was asked for, or what turns the setting off."""
        return self.settings.get(name) in (None, *OFF.get(name, ()))

    def _ask(self, taken: dict, seed: int, more: dict) -> dict:
        given = {name: value for name, value in self.settings.items() if not self._free(name)}
        asked = {"prompt": self.prompt, "max_tokens": self.new, "seed": seed, **taken, **given,
                 **({} if self.model is None else {"model": self.model}), **more}
        try:
            status, answer = self.way.post(self.where, json.dumps(asked).encode(), self.timeout)
        except BROKEN as error:
            # Some servers have nothing else to say to a word that they do not know.
            kind = Declined if isinstance(error, ConnectionResetError) else EndpointError
            raise kind(f"{self.where} did not answer in full{self.way.through}: "
                                f"{one_line(getattr(error, 'reason', error))}") from error
        try:
            whole = json.loads(answer)
            choice = whole["choices"][0]
            if not isinstance(choice["text"], str):
                raise TypeError("no text")
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            kind = Declined if status in REFUSES else EndpointError
            raise kind(f"{self.where} answered {status}{self.way.through}, without a completion"
                       f"{MEANS.get(status, '')}: "
                       f"{one_line(answer[:2_000].decode(errors='replace'))}") from error
        self._look_at_length(choice, whole.get("usage"), asked["max_tokens"])
        return choice

    def _look_at_length(self, choice: dict, usage: Any, new: int) -> None:
        usage = usage if isinstance(usage, dict) else {}
        read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
        ended = choice.get("finish_reason")
        if isinstance(read, int):
            self.prompt_tokens = read
        if isinstance(written, int) and written != new:
            raise self.not_judged(f"says that it wrote {written} tokens where {new} and ignore_eos "
                                  "were asked for (an end of text, a limit of its own, or another "
                                  "way to count)")
        if isinstance(ended, str) and ended != "length":
            raise self.not_judged(f"ended a text by {quoted(ended)} where {new} tokens and "
                                  "ignore_eos were asked for")
        if len(choice["text"]) > LONGEST_TOKEN * new:
            raise self.not_judged(f"wrote {len(choice['text']):,} characters where {new} tokens "
                                  "were asked for")
        self.says_length &= isinstance(written, int) or isinstance(ended, str)

    def named(self, seed: int, top: int) -> tuple[list[int], list[dict[int, float]]]:
        """The ids of a reply's tokens, and the probabilities of at least `top` at each place, by
        their ids.

        EndpointError if the reply does not say that, or has not as many tokens as were asked for.
        """
        choice = self.complete(seed, logprobs=top, return_tokens_as_token_ids=True)
        try:
            names, tops = (choice["logprobs"][key] for key in ("tokens", "top_logprobs"))
            if not isinstance(names, list) or not isinstance(tops, list):
                raise TypeError("no lists")
            ids = [self._id(name) for name in names]
            places = [{self._id(name): probability_of(logprob) for name, logprob in place.items()}
                      for place in tops]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.not_judged("gives no logprobs that can be read "
                                  f"({type(error).__name__}: {one_line(error)})") from error
        if not len(ids) == len(places) == self.new:
            raise self.not_judged(f"wrote {len(ids)} tokens where {self.new} and ignore_eos were "
                                  f"asked for, and reports on {len(places)}")
        return ids, places

    def _id(self, name: str) -> int:
        if not name.startswith(BY_ID):
            raise self.not_judged("does not name its tokens by their ids "
                                  "(return_tokens_as_token_ids of vLLM), and two tokens may have "
                                  "one text")
        if not re.fullmatch("-?[0-9]{1,40}", name.removeprefix(BY_ID)):     # int() takes more
            raise ValueError(f"the id {name.removeprefix(BY_ID)!r}")
        return int(name.removeprefix(BY_ID))

    def not_judged(self, why: str, instead: str = "") -> EndpointError:
        return EndpointError(f"{self.url} {why}: so it cannot be judged. {instead or self.instead}")

    def ids(self, dice: Dice) -> list[int]:
        """A sampler for the judge. EndpointError if the tokens have no ids."""
        return self.named(dice.generators[0].initial_seed(), 1)[0]


def probability_of(logprob: Any) -> float:
    if type(logprob) not in (int, float):                       # True is no number here
        raise TypeError(f"logprob {quoted(logprob)}")
    return math.exp(logprob)
