"""The gate before a drafter: exact and rightly read however it opens and closes, and by an invented clock never much
slower than the better of plain decoding and the drafter alone.
"""

from dataclasses import replace
from random import Random

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Drafter
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.lengths import never_slower
from nanospec.methods.lengths.by_load import ByLoad, nothing_drafted
from nanospec.methods.lengths.never_slower import NeverSlower
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import shape
from nanospec.methods.trees.tree_draft import CopyingDrafter, Tree
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.proof.compare import Batch, caches, prompts_of, rounds
from tests.proof.contract import LARGE, SMALL, draft_model_of, drafter_of, entry_of

TABLE, DRAFT_TABLE = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)
TARGET, DRAFT_MODEL = small_gpt(4, 2, 1, context=64), small_gpt(4, 1, 2, context=64)
NAMES = ["chain", "tree", "dynamic-tree", "lookup", "recycling", "confidence", "by-survival", "hybrid", "stack",
         "chain of mlp", "tree of eagle3"]


class Clock:
    """A clock that shows invented seconds. In `speculate` it is read when a round begins and when it ends."""

    def __init__(self, seed: int = 0):
        self.now, self.random = 0.0, Random(seed)

    def __call__(self) -> float:
        return self.now

    def jumps(self) -> float:
        self.now += self.random.choice([1, 1, 2, 7])
        return self.now


class Priced:
    """A model whose calls take time: `step` for one token of one text, and a twentieth more for each token more."""

    def __init__(self, model, clock: Clock, step: float):
        self.model, self.clock, self.step = model, clock, step

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, tokens, *its, **more):
        self.clock.now += self.step * (.95 + .05 * tokens.numel())
        return self.model(tokens, *its, **more)


class Quick(TableModel):
    """What follows depends on the last token alone, so that a call costs next to nothing."""

    def __init__(self, seed: int = 11, vocab_size: int = 40, context: int = 520):
        super().__init__(vocab_size, seed, zeros=0)
        self.config = replace(self.config, context=context)

    def __call__(self, tokens, cache, kv_length=None, positions=None, attention_mask=None, layers=(), scored=None):
        places = cache.next_slots(tokens.shape[1]) if positions is None else positions
        number = self.number(tokens, places)
        return self.logits[number if scored is None else number[:, tokens.shape[1] - scored:]]

    def number(self, tokens, places):
        return tokens

    def opposite(self) -> "Quick":
        """Sure of what this one seldom writes."""
        other = Quick()
        other.logits = -40 * self.logits
        return other


class Told(Quick):
    """Writes a text that is given, whatever it reads."""

    def __init__(self, ids: list[int]):
        super().__init__(0, max(ids) + 1, len(ids) + 8)
        self.logits = torch.nn.functional.one_hot(torch.tensor([*ids, *[0] * 8])).log().double()

    def number(self, tokens, places):
        return places + 1


@pytest.fixture
def wound(monkeypatch) -> Clock:
    """A gate that soon tries again, by a clock whose seconds say nothing."""
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock.jumps)
    for name, rounds_of in (("FIRST", 1), ("WATCH", 3), ("PAUSE", 2), ("LONGEST", 3), ("DOUBT", 1)):
        monkeypatch.setattr(never_slower, name, rounds_of)
    return clock


@pytest.mark.parametrize("name", [name for name in NAMES if " of " not in name])
def test_whenever_it_opens_and_closes_the_text_is_the_targets(name, wound):
    modes = set()

    def run(*of, **more):
        wound.__init__(3)
        gate = NeverSlower(drafter_of(name, TABLE, DRAFT_TABLE, **SMALL))
        for done in speculate(TABLE, gate, *of, **more):
            modes.add(gate.mode)
            yield done

    new = 2 if name == "stack" else 3               # so many are the ways in which its own drafter's drafts can end
    assert rounds(TABLE, run, [1, 0, 1, 2, 1], new)[1] < 1e-12 and len(modes) > 1


@pytest.mark.parametrize("name", [name for name in NAMES if entry_of(name).needs_draft_model])
def test_after_plain_steps_its_model_has_read_every_token(name, wound):
    model = draft_model_of(name, TARGET, DRAFT_MODEL)
    drafter = NeverSlower(drafter_of(name, TARGET, DRAFT_MODEL, **LARGE))
    assert caches(TARGET, model, drafter, prompts_of(4, 2, 6), 30, copies=entry_of(name).remembers,
                  best=drafter.uniforms == 0, must_see=lambda done: len(done.path) > 1, temperature=0.8)[1] < 1e-9


class Around(Drafter):
    """What somebody writes around a drafter: it passes on what it is told, and shows nothing of what is inside."""

    def __init__(self, drafter):
        self.most, self.rule = drafter.most, drafter.rule
        for name in "begin", "read", "propose", "commit":
            setattr(self, name, getattr(drafter, name))

    def propose(self, *its, **more):                        # else the class would be abstract
        raise AssertionError


def test_after_plain_steps_a_drafter_in_a_drafter_has_read_every_token(wound):
    around = Around(ModelDrafter(DRAFT_MODEL, 3))
    assert caches(TARGET, DRAFT_MODEL, NeverSlower(around), prompts_of(4, 2, 6), 30, best=False,
                  must_see=lambda done: len(done.path) > 1, temperature=0.8)[1] < 1e-9


def test_after_plain_steps_one_that_counts_what_it_missed_has_read_every_token(wound):
    by_load = ByLoad(DRAFT_MODEL, lambda rows, gamma: 1.0, 1)               # it always drafts one token
    assert caches(TARGET, DRAFT_MODEL, NeverSlower(by_load), prompts_of(4, 2, 6), 30,
                  must_see=lambda done: len(done.path) == 1, temperature=0.8)[1] < 1e-9


def test_plain_steps_of_long_ago_do_not_count(monkeypatch):
    """A drafter that never pays: of some 400 plain steps the last five are known. The clock shows their numbers."""
    clock, target = Clock(), Quick()
    monkeypatch.setattr(never_slower, "perf_counter", lambda: clock.now ** 2)
    gate = NeverSlower(ModelDrafter(Priced(target.opposite(), clock, 50), 4))
    list(speculate(Priced(target, clock, 1), gate, [1, 2, 3], 500, 1, seed=5))
    assert len(gate.plain) == 5 and min(gate.plain) > 2 * 300


def seconds_of(drafter, target, clock, temperature) -> float:
    """Of 500 tokens by the invented clock."""
    began = clock.now
    assert len(tokens_of(speculate(target, drafter, [1, 2, 3], 500, temperature, seed=5))) == 500
    return clock.now - began


@pytest.mark.parametrize("what", ["a chain that is right", "a chain that is useless", "a chain that is slow", "a tree",
                                  "a useless tree", "copies", "copies where nothing repeats itself"])
def test_it_takes_hardly_longer_than_the_better_of_both(what, monkeypatch):
    """Plain steps take 500 seconds and the reading of the prompt."""
    clock, temperature = Clock(), 0 if what == "copies" else 1
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    right = Quick()
    target, useless, good = (Priced(model, clock, step) for model, step in (
        (right, 1), (right.opposite(), .15), (right, .15)))

    def drafter():
        return {"a chain that is right": lambda: ModelDrafter(good, 4),
                "a chain that is useless": lambda: ModelDrafter(useless, 4),
                "a chain that is slow": lambda: ModelDrafter(Priced(right, clock, .9), 4),
                "a tree": lambda: TreeDrafter(good, shape(2, 2, 1)),
                "a useless tree": lambda: TreeDrafter(useless, shape(2, 2, 1))}.get(what, lambda: PromptLookup(4))()

    alone, gated = (seconds_of(one, target, clock, temperature) for one in (drafter(), NeverSlower(drafter())))
    assert gated < min(alone, 500) / .97


@pytest.mark.parametrize("repeats", [240, 0, 12])
def test_copies_are_listened_to_while_it_is_closed(repeats, monkeypatch):
    """A text that is new for long, and then repeats itself, does not, or does so here and there."""
    clock, random = Clock(), Random(4)
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    new = [random.choice(range(50)) for _ in range(600)]
    ids = new[:260] + [*range(50, 60)] * (repeats // 10) if repeats != 12 else [
        token for at in range(0, 500, 25) for token in [*new[at:at + 13], *range(50, 62)]]
    target = Priced(Told(ids + new), clock, 1)
    spent = []
    for drafter in PromptLookup(4), NeverSlower(PromptLookup(4)):
        began = clock.now
        written = tokens_of(speculate(target, drafter, ids[:3], 497, 0))
        assert written == (ids + new)[3:500]
        spent.append(clock.now - began)
    assert spent[1] < min(spent[0], 497) / .97


class Guesses(CopyingDrafter):
    """Eight draft tokens, right or all wrong by what `kind` says of the text's length; none where that is None."""

    most, rule = 8, staticmethod(verify_tree)

    def __init__(self, ids: list[int], kind):
        self.ids, self.kind = ids, kind

    def tree(self, b: int, ids: list[int]) -> Tree:
        kind, tree = self.kind(len(ids)), Tree(ids[-1])
        if kind is not None:
            tree.extend(0, self.ids[len(ids):][:8] if kind else [50] * 8)
        return tree


def modes_by_length(kind, clock, length: int, step: float = 1) -> dict[int, str]:
    """Of a gate before such guesses, in a text of tokens below 50: its mode after so many tokens."""
    random = Random(9)
    ids = [random.choice(range(50)) for _ in range(length)] + [50] * 9
    gate, modes, written = NeverSlower(Guesses(ids, kind)), {}, 1
    for done in speculate(Priced(Told(ids), clock, step), gate, ids[:1], length - 1, 0):
        written += len(done.emitted)
        modes[written] = gate.mode
    return modes


def test_eight_right_copies_in_a_row_open_it_and_twice_as_many_where_that_was_too_few(monkeypatch):
    """After 18 rounds it is plain that drafts at 1.4 plain steps do not pay. Open for long, it wants eight again."""
    clock, right = Clock(), [(40, 47), (50, 58), (80, 95), (100, 1116), (1400, 1408)]
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    modes = modes_by_length(lambda n: any(first <= n < last for first, last in right), clock, 1440)
    opened = [n for n in modes if modes[n] == "open"]
    assert [n for n in opened if n < 116] == [*range(4, 22), *range(59, 77)]
    assert min(n for n in opened if n > 77) == 116 + 9 and 1116 in opened
    assert not {*range(1372, 1409)} & {*opened} and {*range(1409, 1415)} <= {*opened}


@pytest.mark.parametrize("step", [1, .01])
def test_the_pause_is_a_hundred_times_what_was_lost_in_plain_steps_whatever_the_machine(step, monkeypatch):
    """A draft that is always wrong: 19 rounds lose .4 of a plain step each. Then two plain steps, and it closes. The
    next time it is twice as long, but 1024 plain steps at most.
    """
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    modes = modes_by_length(lambda n: False, clock, 1860, step)
    opened = [n for n in modes if modes[n] == "open"]
    again = 24 + 760 + 1 - (784 in opened)                  # 19 * .4 may be a rounding less than 7.6
    assert opened == [n + i for n in (4, again, again + 20 + 1024 + 1) for i in range(18)]


def test_what_rounds_have_gained_makes_up_for_what_others_have_lost(monkeypatch):
    """Open once more, for long: 28 rounds gain 7.6 plain steps each, and a hundred lose .4. It closes for the shortest
    pause, whatever the one before was.
    """
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    modes = modes_by_length(lambda n: 40 <= n < 300, clock, 700)
    closed = [n for n in modes if n > 77 and modes[n] == "closed"]
    assert closed[0] > 350 and closed[:65] == [*range(closed[0], closed[0] + 65)] and modes[closed[64] + 1] == "open"


def test_in_doubt_what_plain_steps_took_before_does_not_count(monkeypatch):
    """From token 70 on each round takes twelve seconds more, and a draft of eight is right. Before, a plain step took
    one second: by that such drafts would not pay.
    """
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)

    def kind(n):
        clock.now += 12 * (n >= 70)
        return n >= 60

    modes = modes_by_length(kind, clock, 400)
    assert modes[67] == "closed" and {modes[n] for n in modes if n >= 77} == {"open", "in doubt"}


def test_rounds_in_which_there_was_nothing_to_copy_are_plain_steps(monkeypatch):
    """They do not hide that the others do not pay: one in eight has a draft, and all of these are wrong."""
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    modes = modes_by_length(lambda n: None if n % 8 else False, clock, 210)
    assert modes[130] == "open" and modes[150] == modes[200] == "closed"


class Plain(Drafter):
    """Drafts nothing."""

    most = 0

    def propose(self, text, sampling, dice, kv_length, lag=0):
        return nothing_drafted(text)


class Asks(Drafter):
    """Calls its model in every round, for half a plain step, and drafts nothing."""

    most = 3

    def __init__(self, clock):
        self.clock = clock

    def propose(self, text, sampling, dice, kv_length, lag=0):
        self.clock.now += .5
        draft = nothing_drafted(text)
        draft.steps = 1
        return draft


def test_a_draft_model_that_is_asked_for_nothing_costs_what_it_costs(monkeypatch):
    """Such rounds are no plain steps. They bring a token each, for one and a half of their time: it closes, for as long
    as ten times what it lost, and then each time for twice as long as before.
    """
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    for name, number in ("SHARE", 0.1), ("PAUSE", 16), ("LONGEST", 400):
        monkeypatch.setattr(never_slower, name, number)
    gate, pauses = NeverSlower(Asks(clock)), []
    close = gate._close
    monkeypatch.setattr(gate, "_close", lambda: (close(), pauses.append(gate.left)))
    list(speculate(Priced(Told([1] * 800), clock, 1), gate, [1], 700, 0))
    assert max(gate.plain) == 1 and pauses[0] > 2 * never_slower.PAUSE
    assert pauses[1:4] == [min(2 ** n * pauses[0], never_slower.LONGEST) for n in (1, 2, 3)]


def test_requests_come_and_go(wound):
    """What was measured of three texts holds for two, not for one. Every text is the target's."""
    gate = NeverSlower(ModelDrafter(DRAFT_MODEL, 2))
    server, sizes = Server(TARGET, gate, rows=3), set()
    requests = [server.submit([1, 2, length], max_new_tokens=4 * length, temperature=0) for length in (1, 2, 3, 0, 2)]
    while not all(request.done for request in requests):
        server.step()
        sizes.add((len(server.running), gate.rows, gate.mode))
    assert {(now, measured) for now, measured, _ in sizes} == {(3, 3), (2, 3), (1, 1)}
    assert {mode for *_, mode in sizes} == {"closed", "open"}
    for request in requests:
        assert request.tokens == list(generate(TARGET, request.ids, request.max_new_tokens, temperature=0))


def test_what_was_measured_of_two_texts_holds_for_three_and_not_for_four(wound):
    gate, found = NeverSlower(ModelDrafter(DRAFT_MODEL, 2)), []
    server = Server(TARGET, gate, rows=4)
    for come in 2, 1, 1:
        for _ in range(come):
            server.submit([1, 2], max_new_tokens=40, temperature=0)
        server.step()
        found.append((len(server.running), gate.rows))
    assert found == [(2, 2), (3, 2), (4, 4)]


def test_a_round_of_several_texts_has_brought_what_a_text_got_on_average():
    """Four tokens and one, in the time of a plain step that brings one to each."""
    gate, dice = NeverSlower(ModelDrafter(DRAFT_MODEL, 3)), Dice([1, 2])
    batch = Batch(TARGET, gate, [[1, 2], [3]], 30)
    gate.left = 0                                           # it opens now
    gate.plain.append(1.0)
    dice.refill(7)
    draft = gate.propose(batch.text, Sampling(), dice, 9)
    gate.commit(draft, *draft.path(torch.tensor([3, 0])), torch.full_like(draft.q_draft, .25), None, draft.q_draft)
    assert (gate.rounds, gate.tokens, gate.cost) == (1, 2.5, -2.5)


def test_where_requests_come_and_go_it_takes_hardly_longer_than_the_better_of_both(monkeypatch):
    """Of 120 requests up to twelve run at once. When one ends the next one comes some rounds later. The gate
    looks once whether drafts pay, and not again whenever the batch has changed.
    """
    clock, random = Clock(), Random(6)
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    right = Quick()
    target = Priced(right, clock, 1)

    def seconds(drafter) -> float:
        """Up to the last requests, of which there are ever fewer."""
        server, began, sizes = Server(target, drafter, rows=12), clock.now, []
        requests = [server.submit([1, 2], max_new_tokens=5 * n + 5, seed=n) for n in range(12)]
        while len(requests) < 120:
            server.step()
            sizes.append(len(server.running))
            if sum(not request.done for request in requests) < 12 and random.random() < 0.85:
                requests.append(server.submit([1, 2], max_new_tokens=60, seed=len(requests)))
        assert min(sizes) > 6 and sum(a != b for a, b in zip(sizes, sizes[1:])) > 20
        return clock.now - began

    plain = seconds(Plain())
    for model in right, right.opposite():
        alone, gated = (seconds(drafter) for drafter in (
            ModelDrafter(Priced(model, clock, .15), 4), NeverSlower(ModelDrafter(Priced(model, clock, .15), 4))))
        assert gated < min(plain, alone) / .95


def test_when_a_batch_has_halved_an_open_gate_takes_one_plain_step(monkeypatch):
    """Eight texts end one after the other. Of four, of two and of one the gate looks once what a plain step takes, and
    the rounds of more texts do not count any more.
    """
    clock = Clock()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    target = Quick()
    gate, seen, counted = NeverSlower(ModelDrafter(Priced(target, clock, .15), 4)), [], []
    server = Server(Priced(target, clock, 1), gate, rows=8)
    for n in range(8):
        server.submit([1, 2], max_new_tokens=11 * n + 11, seed=n)
    while server.running or server.waiting:
        server.step()
        seen.append((gate.rows, gate.mode, gate.drafts))
        if gate.mode == "open" and not gate.drafts:
            counted.append((gate.rows, gate.rounds, gate.seconds, gate.tokens))
    assert counted == [(4, 0, 0, 0), (2, 0, 0, 0), (1, 0, 0, 0)]
    for rows, plain in (8, [("closed", False)] * 2), (4, [("open", False)]), (2, [("open", False)]), (1, [
            ("open", False)]):
        found = [(mode, drafts) for now, mode, drafts in seen if now == rows]
        assert found[:len(plain)] == plain and found[len(plain):] == [("open", True)] * (len(found) - len(plain))
        assert len(found) > len(plain)


def test_where_all_calls_take_longer_as_texts_grow_it_stays_open(monkeypatch):
    """A draft of four pays by a fifth at any length, but a round of the end takes as long as six plain steps of the
    beginning. The gate takes a plain step in 97 rounds and, in doubt, a few more.
    """
    clock, right = Clock(), Quick()
    monkeypatch.setattr(never_slower, "perf_counter", clock)
    length = 0

    class Longer(Priced):
        def __call__(self, tokens, *its, **more):
            clock.now += length / 50
            return super().__call__(tokens, *its, **more)

    gate, modes = NeverSlower(ModelDrafter(Priced(right, clock, .15), 4)), []
    for done in speculate(Longer(right, clock, 1), gate, [1, 2, 3], 500, 1, seed=5):
        length += len(done.emitted)
        modes.append(gate.mode)
    assert "closed" not in modes[2:] and 0 < modes.count("in doubt") <= 3


def test_what_is_no_drafter_is_refused():
    with pytest.raises(RequestError, match="behind the gate must be a drafter"):
        NeverSlower(DRAFT_MODEL)
