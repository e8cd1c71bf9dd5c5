"""What copies remember of earlier requests: which places, for whom, and how much; and that the text stays exact."""

from collections import Counter

import pytest

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.memory import Memory, seeds_of
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.index import DRAFTERS, Options
from nanospec.dice import Dice
from nanospec.probs import Sampling
from tests.proof.checks import GPT4, GPT_DRAFT_MODEL4
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution
from nanospec.serving.rows import SamplingByRow
from nanospec.serving.server import Server

FULL = TableModel(3, 5, zeros=0)


def places(memory, b, token):
    """Texts that row b may copy from, and where `token` stands there."""
    return [(text.ids, at) for text in memory.others(b) for at in text.places.get(token, ())]


def memory_of(most, *texts):
    """Texts of rows 0, 1, ..., each with a seed of its own."""
    memory = Memory(most)
    for b, ids in enumerate(texts):
        memory.begin(b)
        memory.read(b, ids, seed=b)
    return memory


def test_it_copies_what_followed_the_longest_match_elsewhere():
    memory = memory_of(99, [9, 1, 2, 3, 4], [8, 2, 3, 5, 6], [7, 1, 2, 3])
    assert memory.copy(2, 8, 2) == (3, [4])                 # 1 2 3 stands in row 0, and there the text ends
    assert memory.copy(2, 2, 8) == (2, [5, 6])              # of equals the latest
    assert memory.copy(0, 8, 8) == (0, [])                  # 4 stands nowhere else, and its own text is not copied
    memory.read(0, [9, 1, 2, 3, 4, 6], 0)
    assert memory.copy(2, 8, 9) == (3, [4, 6])


def test_a_new_request_s_drafter_forgets_the_last_one_of_its_row():
    drafter = SuffixDrafter(remember=9)
    drafter.memory = memory_of(9, [1, 2], [3, 4])
    drafter.read(None, [1], None)
    assert [*drafter.memory.seen] == [0]


def test_the_oldest_text_goes_first():
    memory = memory_of(9, [1, 2, 3, 4], [1, 2, 5, 6])
    assert memory.tokens == 8 and [at for _, at in places(memory, 0, 1)] == [1]
    memory.begin(2)
    memory.read(2, [1, 2], 2)                               # the tenth token: row 0's text, which still grows, is gone
    assert memory.tokens == 6 and [kept for kept, _ in places(memory, 2, 2)] == [[1, 2, 5, 6]]
    memory.read(0, [1, 2, 3, 4, 1, 2], 0)
    assert memory.tokens == 6 and len(places(memory, 1, 2)) == 0
    memory.begin(3)
    memory.read(3, list(range(20)), 3)                      # longer than all that may be kept
    assert memory.tokens == 0 and not memory.texts


def test_a_seed_that_was_there_before_finds_it_closed():
    """A greedy text has no dice, copies from all, and is copied by all."""
    memory = memory_of(99, [1, 2, 3], [1, 2, 4])
    for seed, found in (0, 0), (1, 0), (2, 3), (2, 0), (None, 5), (None, 6):
        memory.begin(2)
        memory.read(2, [5, 1], seed)
        assert len(places(memory, 2, 1)) == (2 if found else 0), seed
    assert len(places(memory, 0, 1)) == 1                     # who was there first goes on copying


def asked(name, remember, temperature, seeds, prompts, rows=2):
    """The texts and the calls of a server."""
    server = Server(GPT4, DRAFTERS[name].make(GPT_DRAFT_MODEL4, Options(gamma=4, remember=remember)), rows=rows)
    requests = [server.submit(ids, max_new_tokens=24, temperature=temperature, seed=seed)
                for seed, ids in zip(seeds, prompts)]
    steps = 0
    while not all(request.done for request in requests):
        server.step()
        steps += 1
    return [request.tokens for request in requests], steps


@pytest.mark.parametrize("name", ["suffix", "suffix-tree", "hybrid"])
def test_requests_that_resemble_one_another_take_fewer_steps(name):
    """At temperature 0 the same tokens."""
    prompts = [[1, 0, 2, 3], [3, 1, 0, 2, 3], [0, 1, 0, 2, 3], [2, 1, 0, 2, 3]] * 2
    alone = [list(generate(GPT4, ids, 24, temperature=0)) for ids in prompts]
    found = [asked(name, remember, 0, [0] * 8, prompts) for remember in (0, 500)]
    assert [texts for texts, _ in found] == [alone, alone]
    assert found[1][1] < found[0][1]


@pytest.mark.parametrize("broken", [False, True])
def test_a_seed_that_comes_again_does_not_betray_its_dice(broken, monkeypatch):
    """Two requests with one seed: the second has the target's distribution. Were memory open to it, it would not."""
    if broken:
        monkeypatch.setattr("nanospec.methods.copies.memory.Memory.seeds",
                            property(lambda self: set(), lambda self, _: None), raising=False)
    seen, runs = Counter(), 250
    for seed in range(runs):
        server = Server(FULL, SuffixDrafter(2, remember=50), rows=1)
        requests = [server.submit([0, 1, 2], max_new_tokens=2, seed=seed) for _ in range(2)]
        while not requests[1].done:
            server.step()
        seen[tuple(requests[1].tokens)] += 1 / runs
    off = distance(seen, target_distribution(FULL, [0, 1, 2], 2))[1]
    assert off > 0.2 if broken else off < 0.15              # 250 samples of these 9 outcomes: .05, and .09 is rare


def test_dice_are_compared_by_what_counts_of_their_seeds():
    """Somebody else's generator may have a seed of 64 bits, of which it uses 32."""
    dice = Dice([3, 4])
    dice.generators[1].manual_seed(3 + (9 << 32))
    assert seeds_of(dice, Sampling(), 2) == [3, 3] and seeds_of(dice, Sampling(0), 2) == [None, None]


def test_greedy_requests_among_others_of_their_seed():
    """A drawn one must not copy from its drawn twin. A greedy one may, and takes no seed from anybody."""
    mixed = SamplingByRow([Sampling(0.5), Sampling(0), Sampling(1), Sampling(0)])
    assert seeds_of(Dice([7, 7, 7, 8]), mixed, 4) == [7, None, 7, None]
    server = Server(GPT4, SuffixDrafter(4, remember=500), rows=5)
    asked_for = [(0, 7), (0.8, 7), (0, 8), (0.9, 7), (0.8, 8)]
    requests = [server.submit([1, 0, 2], max_new_tokens=9, temperature=t, seed=seed) for t, seed in asked_for]
    server.step()
    assert server.drafter.memory.open == {0: True, 1: True, 2: True, 3: False, 4: True}
    while not all(request.done for request in requests):
        server.step()
    alone = [list(generate(GPT4, [1, 0, 2], 9, temperature=0))] * 2
    assert [requests[0].tokens, requests[2].tokens] == alone


def test_how_much_is_remembered_is_no_less_than_nothing():
    with pytest.raises(RequestError, match="remember must not be negative"):
        SuffixDrafter(remember=-1)


def test_no_more_is_remembered_while_a_text_is_being_written():
    memory, ids = memory_of(12, [1, 2, 3, 4]), [5, 6]
    memory.begin(1)
    for token in range(20):
        memory.read(1, ids, seed=7)
        assert memory.tokens <= 12
        ids = [*ids, token]
