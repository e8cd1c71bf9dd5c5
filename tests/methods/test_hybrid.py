"""Copy or chain, whichever is expected to write more a second. That it is lossless: contract.py, by its name."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.serving.rows import move
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from tests.proof.compare import Batch

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
V = {m: 1 + 0.05 * (m - 1) for m in range(2, 10)}


def chain() -> ByLoad:
    return ByLoad(DRAFT_MODEL, lambda rows, gamma: gamma * 0.1 + (V[gamma + 1] if gamma else 1.0), 4)


SAID = [7, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3, 4]         # 1 2 3 4 stood there before, and 5 6 8 1 2 3 4 after it


def copied(ids: list[int], rate: float, chances: list[float]) -> tuple[int, list[int]]:
    drafter = Hybrid(chain(), V)
    drafter.other.begin = lambda *of: None                  # the small draft model knows five tokens only
    drafter.begin(Text([ids], 20, 10))
    drafter.chances = chances
    drafter.memory.read(0, ids, 0)
    return drafter._copy(0, rate)


@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_copy_is_as_long_as_pays_best(chance):
    """All lengths are tried, with the chances of the matches, which grow."""
    chances = [chance ** (6 - i) for i in range(6)]
    class_of = {4: 2, 5: 3, 6: 3, 7: 3, 8: 3, 9: 4, 10: 4, 11: 4}
    goodput = {}
    for length in range(1, 9):
        stands = [chances[class_of[n]] for n in range(4, 4 + length)]
        expected = 1 + sum(torch.tensor(stands).cumprod(0).tolist())
        goodput[length] = expected / V[length + 1]
    best = max(goodput, key=goodput.__getitem__)
    n, copy = copied(SAID, goodput[best] - 1e-4, chances)
    assert (n, copy) == (4, [5, 6, 8, 1, 2, 3, 4, 5][:best])
    assert copied(SAID, goodput[best] + 1e-4, chances) == (0, [])
    assert copied(SAID, 0.0, chances) == (n, copy)          # not all that is better than the chain


def test_of_two_copies_the_one_of_the_longer_match_is_taken():
    """Not the longer copy: in its own text 4 stood before, in an earlier one 1 2 3 4 with a single token after it."""
    ids = [4, 6, 7, 8, 1, 2, 3, 4]
    drafter = Hybrid(chain(), V, 100)
    drafter.other.begin = lambda *of: None
    drafter.begin(Text([[1], ids], 20, 10))
    drafter.memory.read(0, [1, 2, 3, 4, 5], 0)
    drafter.memory.read(1, ids, 9)
    drafter.chances = [1.0] * 6
    assert drafter._copy(1, 1.0) == (4, [5])


def test_of_two_copies_of_matches_as_long_the_one_of_its_own_text_is_taken():
    drafter = Hybrid(chain(), V, 100)
    drafter.other.begin = lambda *of: None
    drafter.begin(Text([[1], [3, 4, 5, 6, 3, 4]], 20, 10))
    drafter.memory.read(0, [3, 4, 7, 8], 0)
    drafter.memory.read(1, [3, 4, 5, 6, 3, 4], 9)
    drafter.chances = [1.0] * 6
    assert drafter._copy(1, 1.0) == (2, [5, 6, 3, 4] * 2)


def test_what_is_beside_the_copies_must_say_what_it_brings():
    with pytest.raises(RequestError, match="the drafter beside the copies must be one that says what it brings"):
        Hybrid(ModelDrafter(DRAFT_MODEL, 4), V)


def test_where_nothing_was_said_before_there_is_nothing_to_copy():
    assert copied([1, 2, 3, 4], 0.0, [1.0] * 6) == (0, [])


def test_matches_are_put_into_classes_by_the_tokens_that_agree():
    drafter = Hybrid(chain(), V)
    assert [drafter._class(n) for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 99)] == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_it_learns_from_what_the_target_says_of_a_copy_and_turns_to_the_chain():
    """A target that never goes on as it did. What is learnt is p_target of each copied token that was judged."""
    drafter = Hybrid(chain(), V)
    batch, dice = Batch(TARGET, drafter, [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2]], 60), Dice([1])
    begins = drafter.acceptance.share.tolist()
    assert begins == pytest.approx([0.8 * n / (n + 1) for n in (1, 2, 4, 8, 16, 32)])
    draft, p_target, _, count, _ = batch.round(dice, Sampling())
    (n, copy), judged = drafter.copied[0], min(int(count[0]) + 1, draft.tokens.shape[1] - 1)
    assert n == 6 and copy and drafter.acceptance.judged[3].item() == pytest.approx(0.98 * 4 + min(judged, 3))
    said = sum(p_target[0, k, copy[k]].item() for k in range(min(judged, 3)))
    assert drafter.acceptance.accepted[3].item() == pytest.approx(0.98 * 4 * 0.8 * 8 / 9 + said)
    drafter.acceptance = Acceptance(torch.zeros(6))
    draft, *_ = batch.round(dice, Sampling())
    assert drafter.copied == [(0, [])] and draft.steps > 0


def test_what_the_chain_learns_is_of_its_own_rounds():
    drafter = Hybrid(chain(), V)
    batch, dice = Batch(TARGET, drafter, [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2]], 60), Dice([1])
    batch.round(dice, Sampling())
    assert drafter.copied[0][1] and drafter.other.acceptance.judged == 0
    drafter.acceptance = Acceptance(torch.zeros(6))
    batch.round(dice, Sampling())
    assert drafter.other.acceptance.judged >= 1


def three_tokens(draft_model) -> ByLoad:
    return ByLoad(draft_model, lambda rows, gamma: 1.0 if gamma == 3 else 9.0, 3)


@pytest.mark.parametrize("draft_model", [DRAFT_MODEL, small_learned("mlp", TARGET), small_learned("eagle3", TARGET),
                                   small_learned("prefix", TARGET)], ids=["gpt", "mlp", "eagle3", "prefix"])
def test_after_copies_it_is_drafted_as_by_one_that_has_read_everything(draft_model):
    """Two texts; now and then one of them copies, or both, or none."""
    drafter, fixed = Hybrid(three_tokens(draft_model), V), [(True, False), (True, True), (False, True),
                                                            (False, False)] * 5
    batch, dice, seen = Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1, 1, 2]], 90), Dice([1, 2]), 0
    for which in fixed:
        of = drafter.memory.seen
        drafter._copy = lambda b, rate: (1, [*of[b].ids[:2], of[b].ids[-1], 0][:2 + 2 * b]) if which[b] else (0, [])
        fresh = Batch(TARGET, ModelDrafter(draft_model, 3), batch.text.ids(), 90)
        drawn, *_ = batch.round(dice, Sampling())
        if all(which):
            assert drawn.steps == 0
            continue
        dice.column = 0                                     # the same uniforms once more
        again = fresh.drafter.propose(fresh.text, Sampling(), dice, int(fresh.text.length.max()) + 4)
        for b, copies in enumerate(which):
            tokens, q_draft = drawn.tokens[b].tolist(), drawn.q_draft[b]
            if copies:
                own = drafter.copied[b][1]
                assert tokens[1:len(own) + 1] == own and q_draft.sum() == len(own)
                assert q_draft[1:len(own) + 1, own].diagonal().tolist() == [1] * len(own)
            else:
                same = again.tokens.shape[1]
                assert tokens[:same] == again.tokens[b].tolist()
                assert (q_draft[:same] - again.q_draft[b]).abs().max() < 1e-12 and not q_draft[same:].any()
                seen += 1
    assert seen == 20


def test_after_copies_of_which_one_texts_were_right_nothing_of_either_is_missed():
    """Four rounds: of one text all four copied tokens are accepted, of the other none."""
    drafter, prompts = Hybrid(three_tokens(DRAFT_MODEL), V), [[1, 2, 3], [4, 0, 1, 1, 2]]
    batch, dice = Batch(TARGET, drafter, prompts, 90), Dice([1, 2])
    right, other = ([*generate(TARGET, ids, 40, 0)] for ids in prompts)

    def copy(b, rate):
        done = len(batch.text.ids()[b]) - len(prompts[b])
        return 1, [(other[done] + 1) % 5] if b else right[done:done + 4]

    drafter._copy = copy
    for _ in range(4):
        batch.round(dice, Sampling(0))
    assert [len(ids) - len(prompt) for ids, prompt in zip(batch.text.ids(), prompts)] == [20, 4]
    drafter._copy = lambda b, rate: (0, [])
    fresh = Batch(TARGET, ModelDrafter(DRAFT_MODEL, 3), batch.text.ids(), 90)
    drawn, *_ = batch.round(dice, Sampling())
    dice.column = 0                                         # the same uniforms once more
    again = fresh.drafter.propose(fresh.text, Sampling(), dice, int(fresh.text.length.max()) + 4)
    assert torch.equal(drawn.tokens, again.tokens) and (drawn.q_draft - again.q_draft).abs().max() < 1e-12


def test_a_row_that_moves_takes_its_text_along():
    drafter = Hybrid(chain(), V)
    batch = Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1, 1, 2]], 90)
    drafter.memory.read(1, [4, 0, 1, 1, 2], 0)
    seen = drafter.memory.seen[1]
    move(batch.text, [1], 1)
    move(drafter, [1], 1)
    assert drafter.memory.seen == {0: seen}


def test_of_a_new_text_in_a_row_nothing_has_been_copied():
    """Else the draft model would be told that it has missed fewer tokens than none."""
    drafter = Hybrid(chain(), V)
    batch = Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1]], 90)
    drafter.since = {0: 9, 1: 2}
    for b, ids in enumerate(batch.text.ids()):
        drafter.memory.read(b, ids, b)
    drafter.read(batch.text, [0], None)
    assert drafter.since == {1: 2} and [*drafter.memory.seen] == [1]


def test_a_batch_of_fewer_texts_is_drafted_by_the_same_drafter():
    """The second text of the last one had copied."""
    drafter = Hybrid(chain(), V)
    Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1] * 4], 90).round(Dice([1, 2]), Sampling())
    assert drafter.copies.tolist() == [False, True]
    draft, *_ = Batch(TARGET, drafter, [[1, 2, 3]], 90).round(Dice([1]), Sampling())
    assert draft.steps > 0


def test_the_most_draft_tokens_are_those_of_a_copy_or_of_the_chain():
    assert Hybrid(chain(), V).most == 8 and Hybrid(chain(), {2: 1.0, 3: 1.1}).most == 4


def test_costs_with_a_gap_are_refused():
    with pytest.raises(RequestError, match="v must say"):
        Hybrid(chain(), {2: 1.0, 4: 1.2})
