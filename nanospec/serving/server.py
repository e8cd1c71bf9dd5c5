"""Many requests at once: continuous batching, in which every request keeps as many draft tokens as
it accepts.

    server = Server(target, ModelDrafter(draft_model, 4), rows=8)
    request = server.submit(ids, max_new_tokens=100, temperature=0.8, seed=1)
    while not request.done:
        server.step()                       # one draft and one target call for all that are running
    request.tokens

Requests join and leave between steps (Orca, Yu et al. 2022). A prompt is read in pieces, one in
each step, so that those that write need not wait for the whole of a long one (Sarathi, arXiv
2308.16369). It is read in a cache of its own, and then put into a row of the batch:

    prompts     y y y y y y y y         64 tokens in a call of their own
    rows        x x x                   a draft in each row, verified in one call
                x x x

Sarathi reads a piece and the drafts in one call. Here attention takes a call as a rectangle: one
prompt beside seven drafts would make every row as wide as the piece.

A request has dice of its own. With drafts of one size its tokens do not depend on who else is
there.
A request that fails does so alone: the drafter refuses it, or its logits are NaN. Any other
exception ends the server, because it may have stopped halfway through moving rows. Whoever wants to
go on makes another server.
Left out: paged caches (where a request leaves, another row is copied into its place), priorities,
prompts in common, HTTP.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Drafter, Rule
from nanospec.errors import (SEEDS, NanospecError, RequestError, check_drafter, check_finite,
                             check_has, check_ids, check_known, check_numbers, check_request,
                             check_sampling, quoted)
from nanospec.serving import rows as batch
from nanospec.serving.ragged import Ragged
from nanospec.serving.request import Prompt, Request
from nanospec.speculate import one_round, verify
from nanospec.text import Text, until

# Of a text, if nobody says more: every row has slots for as many tokens, asked for or not.
CONTEXT = 4096


class ServerError(NanospecError, RuntimeError):
    """A step ended with an exception, the __cause__. The server takes no more of anything."""


class Server:
    """rows: the most requests that run at once. The others wait.

    drafter: for this server alone. rule: instead of the drafter's own. dice: decides instead of the
    requests' seeds, if it is no Dice, which has them itself.
    context: the most tokens of a prompt and its answer, by default CONTEXT, and never more than the
    target can read.
    """

    def __init__(self, target: LanguageModel, drafter: Drafter, rows: int = 8,
                 rule: Rule | None = None, dice: Dice | None = None, context: int = CONTEXT):
        check_drafter(target, drafter, rule, dice)
        check_numbers(Integral, rows=rows, context=context)
        if rows < 1 or context < 1:
            raise RequestError(f"a server has rows and a context: got {rows} and {context}")
        self.context, self.rows = min(int(context), target.config.context), int(rows)
        self.target, self.drafter = target, drafter
        self.rule = rule or drafter.rule or verify
        # What stands in the place of both in a round, where a text may lack some of the nodes of a
        # draft.
        self.round_of: tuple[Any, Any] = ((target, drafter) if drafter.fixed
                                          else (Ragged(target, drafter),) * 2)
        self.text = Text([[0]], self.context + drafter.most + 1, target.config.vocab_size,
                         target.device)
        self.cache = target.new_cache(*self.text.tokens.shape)
        self.dice = dice or Dice([0], target.device)
        drafter.begin(self.text)
        drafter.read(self.text, [0], self._hidden([]))  # refuses hidden states that it cannot read
        self.waiting: deque[Prompt] = deque()
        self.running: list[Request] = []                # in the order of their rows
        # Committed tokens of every row, known without asking the device.
        self.length: list[int] = []
        self.failed: ServerError | None = None
        self.seeds = SEEDS - 1          # the next that is given to a request; few ask for such

    # For those who have requests

    def submit(self, ids: Sequence[int], **settings) -> Request:
        """A new request, settings as for `speculate`. RequestError if it cannot be answered,
        ServerError if a step has failed.
        """
        if self.failed:
            raise self.failed
        known = {field.name for field in fields(Request) if field.init}
        check_known(settings.keys() - known)
        if "seed" not in settings:                      # two of one seed would not be independent
            settings["seed"], self.seeds = self.seeds, self.seeds - 1
        check_ids("the prompt", ids)
        if len(ids) > self.context:             # told before they are copied
            raise RequestError(f"{len(ids)} prompt tokens exceed this server's context of "
                               f"{self.context}: Server(..., context=...) makes it longer")
        request = Request([*ids], **settings)
        check_sampling(request.temperature, request.top_k, request.top_p, request.min_p)
        request.max_new_tokens = check_request(self.target, request.ids, request.max_new_tokens,
                                               request.seed, self.drafter.most, request.stop)
        if len(request.ids) + request.max_new_tokens > self.context:
            raise RequestError(f"{len(request.ids)} prompt tokens and {request.max_new_tokens} new "
                               f"ones exceed this server's context of {self.context}: Server(..., "
                               "context=...) makes it longer")
        if request.max_new_tokens:
            self.waiting.append(Prompt(request))
        else:
            request.end()                               # nothing has to be computed
        return request

    def cancel(self, request: Request) -> None:
        """It gets no more tokens, and its row is free from the next step on."""
        check_has("the request", request, "one that `submit` has returned", "done", "end")
        if not request.done:
            request.end()

    def step(self) -> None:
        """A piece of every prompt that there is a row for. Then one draft and one target call for
        all that write.

        An exception, be it Ctrl-C, is the server's last: all requests that were not done have
        failed. Those that were keep their tokens. Every later step raises a ServerError.
        """
        if self.failed:
            raise self.failed
        asked = [*self.running, *(prompt.request for prompt in self.waiting)]
        try:
            self._step()
        except BaseException as error:
            self.failed = ServerError("the server ended in the middle of a step, with "
                                      f"{quoted(error)}: go on with another one")
            self.failed.__cause__ = error
            for request in asked:
                if not request.done:
                    request.end(self.failed)
            raise

    # What a step does

    @torch.inference_mode()
    def _step(self) -> None:
        self.waiting = deque(prompt for prompt in self.waiting if not prompt.request.done)
        free = self.rows - sum(not request.done for request in self.running)
        for prompt in [*self.waiting][:max(1, free)]:   # one is read ahead, for the next free row
            prompt.read_piece(self.target, self.drafter.layers)
        self._leave_and_join()
        if not self.running:
            return
        self.dice.refill(self.drafter.uniforms + self.drafter.most + 1)
        target, drafter = self.round_of
        device = self.text.tokens.device
        sampling = batch.SamplingByRow([request.sampling for request in self.running], device)
        first = torch.tensor(self.length, device=device)  # sent while the device has nothing to do
        draft, p_target, *_ = one_round(target, self.cache, drafter, self.rule, self.text,
                                        sampling, self.dice, max(self.length) + drafter.most)
        places = first[:, None] + torch.arange(draft.tokens.shape[1], device=first.device)
        finite = torch.isfinite(p_target.sum((1, 2)) + draft.q_draft.sum((1, 2)))
        written = torch.cat([self.text.length[:, None], self.text.tokens.gather(1, places)], 1)
        # The one read-back.
        read = torch.cat([finite[:, None], written], 1).tolist()
        for b, (request, (is_finite, length, *new)) in enumerate(zip(self.running, read)):
            before, self.length[b] = self.length[b], length
            self._take(request, new[:length - before], bool(is_finite))

    def _leave_and_join(self) -> None:
        """Those that are done leave. Those whose prompts have been read come into the batch, in the
        order in which they asked.
        """
        alive = [b for b, request in enumerate(self.running) if not request.done]
        late = [b for b in alive if b >= len(alive)]    # they take the rows that have become free
        stay = [b if b in alive else late.pop() for b in range(len(alive))]
        come = [prompt for prompt in self.waiting if prompt.read][:self.rows - len(stay)]
        if len(stay) == len(self.running) and not come:
            return
        self.waiting = deque(prompt for prompt in self.waiting if prompt not in come)
        self.running = [self.running[b] for b in stay] + [prompt.request for prompt in come]
        self.length = [self.length[b] for b in stay] + [len(prompt.request.ids) for prompt in come]
        if not self.running:
            return
        for part in self.text, self.cache, self.dice, self.drafter:
            batch.move(part, stay, len(self.running))
        for b, prompt in enumerate(come, len(stay)):
            self._begin(b, prompt)
        if any(prompt.request.done for prompt in come):
            self._leave_and_join()

    def _begin(self, b: int, prompt: Prompt) -> None:
        """A request whose prompt has been read writes in row b from now on."""
        batch.begin(self.text, self.dice, b, prompt.request.ids, prompt.request.seed)
        if prompt.cache:
            self.cache.put([b], prompt.cache)
        try:
            self.drafter.read(self.text, [b], self._hidden(prompt.hidden))
        except NanospecError as error:
            prompt.request.end(error)

    def _take(self, request: Request, written: list[int], is_finite: bool) -> None:
        """What a step has written for a request."""
        try:
            check_finite(0.0 if is_finite else float("nan"))
        except NanospecError as error:
            return request.end(error)
        new, stopped = until(written, request.stop)
        request.tokens += new[:request.max_new_tokens - len(request.tokens)]
        if stopped or len(request.tokens) == request.max_new_tokens:
            request.end()

    def _hidden(self, parts: Sequence[Tensor]) -> Tensor | None:
        """(1, T, len(layers), C) of pieces that were read one after the other."""
        if not self.drafter.layers:
            return None
        none = torch.empty(1, 0, len(self.drafter.layers), self.target.config.channels,
                           dtype=self.target.dtype, device=self.target.device)
        return torch.cat([none, *parts], 1)
