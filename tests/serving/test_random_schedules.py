"""Random schedules: requests that join, end, are cancelled, fail and are refused at any time, under every drafter that
a server takes. Hypothesis draws the schedules, the same in every run, and makes one that fails as short as it can.

Two things are compared. A request's rounds are those of the same request alone, with the same dice. Where the company
decides how much is drafted (IN_COMPANY) they cannot be; there, and everywhere else where a table is the target, each
row of each round is judged by itself: p_target and the draft model's q_draft are recomputed from the request's own
text, the uniforms are those of its own seed, and what the rule says is what is written. A rule that is handed these
writes a text of the target's distribution; that is walked in contract.py.
"""

from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import integers, lists, sampled_from

from nanospec.dice import Dice
from nanospec.errors import LogitsError, RequestError
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.index import DRAFTERS, REMEMBERING
from nanospec.methods.trees.drawn import TopTree
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.serving.server import Server
from nanospec.speculate import speculate, verify
from tests.proof.contract import BY_COMPANY, drafter_of, entry_of

V, REFUSED, POISON = 7, 5, 6                # first tokens: the drafter refuses at `read`, the target says NaN
ROWS, MOST_WAITING = 4, 2


class Table(TableModel):
    """After a text that begins with POISON: NaN."""

    def __init__(self, seed: int, **how):
        super().__init__(V, seed, **how)
        self.logits = F.pad(self.logits, (0, 0, 0, 1), value=float("nan"))

    def _hash(self, context: list[int]) -> int:
        return self.CONTEXTS if context[0] == POISON else super()._hash(context)


TABLE, TABLE_DRAFT_MODEL = Table(8, zeros=0.4), TableModel(V, 58, zeros=0.3)
GPT, GPT_DRAFT_MODEL = small_gpt(V, 3, 5, context=128), small_gpt(V, 1, 6, context=128)
SIZES = {"gamma": 3, "topology": [-1, 0, 0, 1], "costs": (0.12, {2: 1.1, 3: 1.2, 4: 1.3}), "remember": 60}
LEARNED = ["chain of eagle3", "tree of mlp", "dynamic-tree of eagle"]
# In a server other rounds than alone: those that look around, that copy from others' texts, and the stack, which drafts
# for all until the slowest is done.
IN_COMPANY = BY_COMPANY | {*REMEMBERING, "stack"}
# The others keep for a text what one of these keeps. (Each is looked at by `alone` in tests/proof/contract.py.)
DIFFERENT = [name for name in DRAFTERS if name not in {"independent", "top", "confidence", "entropy", "suffix"}]
EXAMPLES = dict.fromkeys(LEARNED, 3) | {name: 8 for name in ("hybrid", "by-survival", "by-load")}

# No two have the same prompt, length, settings and seed.
ASKED = [([2, 1, 3], {"max_new_tokens": 9, "temperature": 0.7, "seed": 1}),
         ([0, 1, 0, 1, 2, 0, 1], {"max_new_tokens": 12, "temperature": 1.3, "top_k": 4, "seed": 2}),
         ([4], {"max_new_tokens": 7, "temperature": 0, "seed": 3}),
         ([3, 3, 0, 1] * 17, {"max_new_tokens": 5, "top_p": 0.8, "min_p": 0.1, "seed": 4}),     # is read in two pieces
         ([1, 2], {"max_new_tokens": 20, "temperature": 0.9, "seed": 5, "stop": (0,)}),
         ([4, 1, 4, 1, 4], {"max_new_tokens": 16, "temperature": 0, "seed": 6, "stop": (2, 6)}),
         ([3, 0], {"max_new_tokens": 0, "seed": 7}),
         ([REFUSED, 1], {"max_new_tokens": 8, "seed": 8}), ([REFUSED, 1, 2], {"max_new_tokens": 8, "seed": 9}),
         ([POISON, 1], {"max_new_tokens": 8, "seed": 10})]


class Aligned(Dice):
    """Every decision of a round has a uniform of its own, whatever the others in the batch draft: the draft tokens have
    the first third, coins the second, and what is drawn after a coin the last one.
    """

    def refill(self, uniforms: int) -> None:
        super().refill(3 * uniforms)

    def draft_is_made(self) -> None:
        """What follows is the rule's, which may have no coin to flip."""
        self.column = max(self.column, self.u.shape[1] // 3)

    def pick(self, weights):
        third = self.u.shape[1] // 3
        self.column = 2 * third if third <= self.column < 2 * third else self.column
        return super().pick(weights)


def models_of(name: str):
    return (GPT, GPT_DRAFT_MODEL) if " of " in name else (TABLE, TABLE_DRAFT_MODEL)


def dice_of(name: str) -> type[Dice]:
    return Dice if entry_of(name).kind.fixed or name in IN_COMPANY else Aligned


def new_drafter(name: str):
    """One that refuses some requests, before it keeps anything of them or after."""
    drafter = drafter_of(name, *models_of(name), **SIZES)
    if name == "by-load":                   # silent for three texts and more
        drafter.seconds = lambda rows, gamma: 1 + (0.1 if rows < 3 else 9.0) * gamma
    reads = drafter.read

    def read(text, rows, hidden):
        refused = [b for b in rows if text.tokens[b, 0] == REFUSED]
        if not refused or text.length[refused[0]] == 2:
            reads(text, rows, hidden)
        if refused:
            raise RequestError("not this one")

    drafter.read = read
    return drafter


@cache
def alone(name: str, which: int) -> list[list[int]]:
    """The rounds of a request that has everything for itself."""
    (target, _), (ids, how) = models_of(name), ASKED[which]
    drafter = new_drafter(name)

    def judged(draft, p_target, dice):
        the_rule = drafter.rule or verify
        if isinstance(dice, Aligned):
            dice.draft_is_made()
        return the_rule(draft, p_target, dice)

    rounds = speculate(target, drafter, ids, dice=dice_of(name)([how["seed"]]), rule=judged, **how)
    try:
        return [done.emitted for done in rounds]
    except (RequestError, LogitsError):
        return []


def acceptances_of(part) -> list[Acceptance]:
    """What a drafter, and what it is made of, has learned."""
    if isinstance(part, Acceptance):
        return [part]
    ours = type(part).__module__.startswith("nanospec.methods")
    return [found for its in vars(part).values() for found in acceptances_of(its)] if ours else []


class Schedule(RuleBasedStateMachine):
    """A server, and what it has been asked for."""

    def __init__(self, name: str):
        super().__init__()
        self.name, (self.target, self.draft_model) = name, models_of(name)
        self.drafter = new_drafter(name)
        self.errors = {REFUSED: RequestError} | ({POISON: LogitsError} if self.target is TABLE else {})
        self.server = Server(self.target, self.drafter, ROWS, dice=dice_of(name)([0]))
        self.server.rule = partial(self.judged, self.server.rule)
        self.known = []                     # [request, which of ASKED, its rounds, cancelled]
        self.own, self.expected = {}, {}    # a request's own dice; what a step has to write for it

    @rule(those=lists(sampled_from(range(len(ASKED))), min_size=1, max_size=4), steps=integers(0, 2))
    def ask(self, those, steps):
        for which in those:
            self.ask_for(which)
        self.go_on(steps)

    def ask_for(self, which):
        """No more at once than ROWS + MOST_WAITING."""
        ids, how = ASKED[which]
        if sum(not request.done for request, *_ in self.known) < ROWS + MOST_WAITING:
            self.known.append([self.server.submit(ids, **how), which, [], False])

    @precondition(lambda self: not self.all_done())
    @rule(which=integers(0, ROWS + MOST_WAITING))
    def cancel(self, which):
        alive = [entry for entry in self.known if not entry[0].done]
        entry = alive[which % len(alive)]
        self.server.cancel(entry[0])
        entry[3] = True

    @precondition(lambda self: not self.all_done())
    @rule(steps=integers(1, 4))
    def go_on(self, steps):
        for _ in range(steps):
            self.step()

    def all_done(self) -> bool:
        return all(request.done for request, *_ in self.known)

    def step(self):
        before, running = [len(request.tokens) for request, *_ in self.known], self.server.running
        ended = [request.done for request, *_ in self.known]
        self.expected = {}
        self.server.step()
        for (request, which, rounds, _), start, was_done in zip(self.known, before, ended):
            new = request.tokens[start:]
            assert not (was_done and new)
            rounds += [new] * bool(new)
            if request in self.expected:            # it had a row, and every round brings a token
                assert new == self.expected[request] and (new or request.done)
        server, order = self.server, [request for request, *_ in self.known]
        joined = [order.index(request) for request in server.running if request not in running]
        passed_over = [order.index(prompt.request) for prompt in server.waiting if prompt.read]
        assert all(later > number for later in passed_over for number in joined)        # in their turn
        assert len(server.running) <= ROWS and len(set(server.running)) == len(server.running)
        assert len(server.running) == ROWS or not any(prompt.read for prompt in server.waiting)     # no row is idle

    @invariant()
    def every_request_is_as_if_it_were_alone(self):
        for request, which, rounds, cancelled in self.known:
            ids, how = ASKED[which]
            if (request.error or ids[0] in self.errors and request.done) and not cancelled:
                assert type(request.error) is self.errors.get(ids[0]) and not request.tokens
            right = alone(self.name, which)
            if self.name not in IN_COMPANY:
                assert rounds == right[:len(rounds)] and (not request.done or cancelled or len(rounds) == len(right))
            elif how["temperature" if "temperature" in how else "seed"] == 0:
                assert request.tokens == sum(right, [])[:len(request.tokens)]
                assert not request.done or cancelled or len(request.tokens) == len(sum(right, []))

    def judged(self, the_rule, draft, p_target, dice):
        """What the rule is handed is each request's own, and so will be what is written."""
        running, tokens, parents = self.server.running, draft.tokens.tolist(), draft.parents.tolist()
        for b, request in enumerate(running):
            if request not in self.own:
                self.own[request] = dice_of(self.name)([request.seed])
            self.own[request].refill(self.drafter.uniforms + self.drafter.most + 1)
            assert torch.equal(dice.u[b], self.own[request].u[0]), "not its own uniforms"
            if self.target is TABLE and request.ids[0] not in self.errors:
                self.row_is_right(request, tokens[b], parents[b], p_target[b], draft.q_draft[b])
        if isinstance(dice, Aligned):
            dice.draft_is_made()
        accepted, following = the_rule(draft, p_target, dice)
        path, count = (part.tolist() for part in draft.path(accepted))
        for b, request in enumerate(running):
            written = [tokens[b][node] for node in path[b][1:count[b] + 1]] + [int(following[b])]
            ends = [i for i, token in enumerate(written, 1) if token in request.stop]
            written = written[:min([len(written), request.max_new_tokens - len(request.tokens), *ends])]
            self.expected[request] = [] if request.ids[0] in self.errors else written
        return accepted, following

    def row_is_right(self, request, tokens, parents, p_target, q_draft):
        """Of a request's draft, against the tables: every node follows its own text."""
        text, paths, sampling = request.ids + request.tokens, {0: ()}, request.sampling
        learns = entry_of(self.name).learns
        assert tokens[0] == text[-1], "not its own text"
        for node, parent in enumerate(parents):
            if node and parent < 0:
                continue
            paths[node] = (*paths[parent], tokens[node]) if node else ()
            right = sampling(TABLE.logits[TABLE._hash([*text, *paths[node]])])
            assert (right - p_target[node]).abs().max() < 1e-12, "not its own distribution"
            if node and parents.index(parent) == node and learns != "tokens":         # a guess of any kind will do
                if q_draft[node, tokens[node]] == 1 and self.is_copied([*text, *paths[node]], len(paths[node])):
                    continue
                own = sampling(self.draft_model.logits[self.draft_model._hash([*text, *paths[parent]])])
                best = isinstance(getattr(self.drafter, "other", self.drafter), TopTree | DynamicTree)
                own = F.one_hot(own.argmax(), V) if best else own
                assert (own - q_draft[node]).abs().max() < 1e-12, "not drafted after its own text"

    def is_copied(self, text: list[int], count: int) -> bool:
        """Whether the last `count` + 1 tokens stand elsewhere, too; another's text may have helped."""
        if entry_of(self.name).needs_draft_model and self.name not in REMEMBERING:
            return False
        texts = [text[:-1]] + [request.ids + request.tokens for request, *_ in self.known
                               if self.name in REMEMBERING]
        end = text[-count - 1:]
        return any(each[at:at + len(end)] == end for each in texts for at in range(len(each)))

    def teardown(self):
        """All come to an end, and nothing is kept of anyone."""
        for _ in range(200):
            if self.all_done():
                break
            self.step()
            self.every_request_is_as_if_it_were_alone()
        assert self.all_done()
        self.server.step()
        assert not self.server.running and not self.server.waiting
        for learnt in acceptances_of(self.drafter):         # from all texts, and nothing from those that failed
            assert learnt.share.isfinite().all()


@pytest.mark.parametrize("name", [*DIFFERENT, *LEARNED])
def test_a_request_among_others_is_as_if_it_were_alone(name):
    run_state_machine_as_test(partial(Schedule, name), settings=settings(
        derandomize=True, database=None, deadline=None, max_examples=EXAMPLES.get(name, 4), stateful_step_count=25))
