"""Many requests at once: continuous batching, in which every request keeps as many draft tokens as it accepts.

    server = Server(target, ModelDrafter(draft, 4), rows=8)
    request = server.submit(ids, max_new_tokens=100, temperature=0.8, seed=1)
    while not request.done:
        server.step()                       # one draft and one target call for all that are running
    request.tokens

Requests join and leave between steps (Orca, Yu et al. 2022). A long prompt is read in pieces, beside those that write
already (Sarathi, arXiv 2308.16369). Here a piece of a prompt is a draft that is certainly accepted, so the round of
speculate.py serves those that read and those that write:

    row 0   writes   its last token   x  x  x  x   its draft tokens, which the rule judges
    row 1   reads    its last token   y  y  y  y   the next tokens of its prompt, which all stand

A request has dice of its own. With drafts of one size its tokens do not depend on who else is there.
Left out: paged caches (where a request leaves, another row is copied into its place), priorities, prompts in common,
HTTP.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule
from nanospec.errors import NanospecError, RequestError
from nanospec.probs import Sampling
from nanospec.speculate import one_round, verify
from nanospec.text import Text, check_layers, check_numbers, check_request, check_seed, until

PIECE = 16              # tokens of a prompt that are read in a step, or a whole draft if that is more


@dataclass(eq=False)
class Request:
    """What was asked for, and what has become of it. error: why it failed; the others go on."""

    ids: list[int]
    max_new_tokens: int = 128
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    stop: Sequence[int] = ()
    tokens: list[int] = field(default_factory=list, init=False)
    done: bool = field(default=False, init=False)
    error: NanospecError | None = field(default=None, init=False)

    @property
    def sampling(self) -> tuple[float, int | None, float | None]:
        return self.temperature, self.top_k, self.top_p

    def end(self, error: NanospecError | None = None) -> None:
        self.done, self.error = True, error


class Pieces(Drafter):
    """A drafter for those that write; those that read are given the next piece of their prompt, and it is accepted.

    reading: row -> the piece.  features: row -> the target's, of what it has read of the prompt.
    """

    def __init__(self, drafter: Drafter, rule: Rule):
        self.drafter, self.judge, self.layers = drafter, rule, drafter.layers
        self.size = max(PIECE, drafter.size)
        self.reading: dict[int, list[int]] = {}
        self.features: dict[int, list[Tensor]] = {}

    @property
    def columns(self) -> int:
        return self.drafter.columns

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        self.drafter.begin(text, rows, features)

    def move(self, rows: Sequence[int], count: int) -> None:
        self.drafter.move(rows, count)
        self.features = {i: self.features[b] for i, b in enumerate(rows) if b in self.features}

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        self.own = own = self.drafter.propose(text, sampling, dice, upto)
        n = own.tokens.shape[1]
        more = max([n, *map(len, self.reading.values())]) - n
        tokens, parents = F.pad(own.tokens, (0, more)).clone(), own.parents
        if parents is not None:
            parents = F.pad(parents, (0, more), value=-1).clone()
        for b, piece in self.reading.items():           # its last token stands behind the last row, as any round's does
            tokens[b, 1:len(piece)] = tokens.new_tensor(piece[:-1])
            if parents is not None:
                parents[b] = -1
                parents[b, 1:len(piece)] = torch.arange(len(piece) - 1, device=parents.device)
        q_draft = F.pad(own.q_draft, (0, 0, 0, more)).clone()
        q_draft[list(self.reading)] = 0                 # those that read have no draft
        return Draft(tokens, q_draft, parents, own.steps)

    def rule(self, draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """Judges the drafter's own rows. It takes the same uniforms whoever reads beside them."""
        dice.column = self.columns
        accepted, token = self.judge(self.own, p_target[:, :self.own.tokens.shape[1]], dice)
        for b, piece in self.reading.items():
            accepted[b], token[b] = len(piece) - 1, piece[-1]
        return accepted, token

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        n, accepted = self.own.tokens.shape[1], accepted.clone()
        for b, piece in self.reading.items():           # the drafter meets this request when its prompt is read
            accepted[b] = 0
            if features is not None:
                self.features[b].append(features[b, :len(piece)])
        own = self.own._replace(q_draft=draft.q_draft[:, :n])
        self.drafter.commit(own, accepted, p_target[:, :n], None if features is None else features[:, :n])


class Server:
    """rows: the most requests that run at once. most_waiting: requests that may wait for a row.

    drafter: for this server alone. dice: to decide instead of the requests' seeds.
    """

    def __init__(self, target: LanguageModel, drafter: Drafter, rows: int = 8, most_waiting: int = 64,
                 rule: Rule = verify, dice: Dice | None = None):
        if rows < 1 or most_waiting < 0:
            raise RequestError(f"a server has rows, and room for those who wait: got {rows} and {most_waiting}")
        check_layers(target, drafter.layers)
        self.target, self.rows, self.most_waiting, self.pieces = target, rows, most_waiting, Pieces(drafter, rule)
        self.text = Text([[0]], target.config.context + self.pieces.size, target.config.vocab_size, target.device)
        self.cache, self.dice = target.new_cache(*self.text.tokens.shape), dice or Dice([0], target.device)
        drafter.share(target, self.cache)               # rows of prompts are read whole, so the target stays as it is
        self.pieces.begin(self.text, [0], self._features([]))
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []                # in the order of their rows
        self.length: list[int] = []                     # committed tokens of every row, known without asking the device

    # For whoever has requests

    def submit(self, ids: Sequence[int], **settings) -> Request:
        """A new request, settings as for `speculate`. RequestError if it cannot be answered, or if too many wait."""
        request = Request(list(ids), **settings)
        check_request(self.target, request.ids, request.max_new_tokens, *request.sampling, self.pieces.size)
        check_seed(request.seed)
        free = self.rows - sum(not running.done for running in self.running)
        if len(self.waiting) >= self.most_waiting + free:
            raise RequestError(f"{self.most_waiting} requests are waiting: try again later")
        self.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """It gets no more tokens. Its row is free from the next step on."""
        request.end()

    def stream(self, request: Request) -> Iterator[int]:
        """Its tokens as they come; every step serves the others, too. Raises what made it fail."""
        sent = 0
        while True:
            yield from request.tokens[sent:]
            sent = len(request.tokens)
            if request.error:
                raise request.error
            if request.done:
                return
            self.step()

    # What a step does

    @torch.inference_mode()
    def step(self) -> None:
        """One draft and one target call for all that are running."""
        self._leave_and_join()
        if not self.running:
            return
        unread = [request.ids[length:] for request, length in zip(self.running, self.length)]
        self.pieces.reading = reading = {b: ids[:self.pieces.size] for b, ids in enumerate(unread) if ids}
        settings = [(0.0, None, None) if b in reading else request.sampling for b, request in enumerate(self.running)]
        self.dice.refill(self.pieces.columns + self.pieces.drafter.size)
        rows = max([self.pieces.drafter.size, *map(len, reading.values())])
        draft, p_target, _, _ = one_round(self.target, self.cache, self.pieces, self.pieces.rule, self.text,
                                          Sampling(*map(list, zip(*settings))), self.dice, max(self.length) + rows - 1)
        first = torch.tensor(self.length, device=self.text.length.device)
        places = first[:, None] + torch.arange(draft.tokens.shape[1], device=first.device)
        totals = p_target.sum((1, 2)) + draft.q_draft.sum((1, 2))
        written = torch.cat([self.text.length[:, None], self.text.tokens.gather(1, places)], 1)
        read = torch.cat([totals[:, None].double(), written.double()], 1).tolist()      # the one read-back
        for b, request in enumerate(self.running):
            total, length, *new = read[b]
            new, self.length[b] = [*map(int, new[:int(length) - self.length[b]])], int(length)
            if b not in reading:
                self._take(request, new, total)
            elif self.length[b] == len(request.ids):
                self._begin(b)

    def _leave_and_join(self) -> None:
        """Those that are done leave, and those that have waited longest come into the batch."""
        self.waiting = deque(request for request in self.waiting if not request.done)
        alive = [b for b, request in enumerate(self.running) if not request.done]
        late = [b for b in alive if b >= len(alive)]            # they take the rows that have become free
        stay = [b if b in alive else late.pop() for b in range(len(alive))]
        come = [self.waiting.popleft() for _ in range(min(self.rows - len(stay), len(self.waiting)))]
        if len(stay) == len(self.running) and not come:
            return
        self.running = [self.running[b] for b in stay] + come
        self.length = [self.length[b] for b in stay] + [1] * len(come)
        if not self.running:
            self.pieces.features = {}
            return
        for part in self.text, self.cache, self.dice, self.pieces:
            part.move(stay, len(self.running))
        for b, request in enumerate(come, len(stay)):
            self.text.tokens[b, 0], self.pieces.features[b] = request.ids[0], []
            self.pieces.begin(self.text, [b], self._features([]))
            if len(request.ids) == 1:
                self._begin(b)

    def _begin(self, b: int) -> None:
        """The prompt in row b has been read, but for its last token. From now on it writes, with dice of its own."""
        self.dice.reseed(b, self.running[b].seed)
        try:
            self.pieces.begin(self.text, [b], self._features(self.pieces.features.pop(b)))
        except NanospecError as error:
            self.running[b].end(error)

    def _take(self, request: Request, written: list[int], total: float) -> None:
        """What a step has written for a request."""
        try:
            check_numbers(total)
        except NanospecError as error:
            return request.end(error)
        new, stopped = until(written, request.stop)
        request.tokens += new[:request.max_new_tokens - len(request.tokens)]
        if stopped or len(request.tokens) == request.max_new_tokens:
            request.end()

    def _features(self, parts: Sequence[Tensor]) -> Tensor | None:
        """(1, T, len(layers), C) of pieces that were read one behind the other, (T_i, len(layers), C) each."""
        if not self.pieces.layers:
            return None
        none = torch.empty(0, len(self.pieces.layers), self.target.config.channels, dtype=self.target.dtype,
                           device=self.target.device)
        return torch.cat([none, *parts])[None]
