from functools import partial

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import LogitsError, RequestError
from nanospec.generate import generate
from nanospec.text import Text, until
from nanospec.model import GPT, Config
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, chain_round, speculate, tokens_of, verify

TARGET, DRAFT = TableModel(5, 1), TableModel(5, 2)


class Fixed(Dice):
    """Dice whose uniforms are given."""

    def __init__(self, *u):
        super().__init__([0])
        self.u = torch.tensor([u], dtype=torch.float64)


def spec(ids=(1, 2), gamma=3, new=20, target=TARGET, draft=DRAFT, **settings):
    return list(speculate(target, ModelDrafter(draft), ids, gamma, new, **settings))


def test_the_worked_number():
    """p_target [.5, .5], q_draft [.8, .2], drafted 0: kept below .625, and if it falls, always token 1."""
    p_target, q_draft = torch.tensor([[[.5, .5], [0, 1]]]), torch.tensor([[[.8, .2]]])
    for u, kept, token in ((.6249, 1, 1), (.625, 0, 1), (.999, 0, 1)):
        for last in (0.0, .5, .999):
            got = verify(torch.tensor([[0]]), q_draft, p_target, Fixed(u, last))
            assert [part.tolist() for part in got] == [[kept], [token]]


def test_a_forbidden_token_is_refused_even_at_the_smallest_uniform():
    p_target, q_draft = torch.tensor([[[0., 1], [1, 0]]]), torch.tensor([[[1., 0]]])
    assert [x.tolist() for x in verify(torch.tensor([[0]]), q_draft, p_target, Fixed(0.0, 0.0))] == [[0], [1]]


def test_nothing_left_of_the_residual_falls_back_to_the_target():
    """Equal up to rounding, and the coin falls all the same: the replacement is a draw from p_target, not a 0/0."""
    p_target = torch.tensor([[[.3, .7], [1, 0]]])
    q_draft = torch.nextafter(p_target[:, :1], torch.ones(1))
    kept, token = verify(torch.tensor([[1]]), q_draft, p_target, Fixed(1 - 2 ** -53, 0.5))
    assert kept.tolist() == [0] and token.tolist() == [1]


@pytest.mark.parametrize("new", [0, 1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_exactly_as_many_tokens_as_asked_for(gamma, new):
    for seed in range(5):
        assert len(tokens_of(spec(gamma=gamma, new=new, seed=seed))) == new


def test_the_last_round_keeps_its_shape_and_its_counts():
    rounds = spec(new=7, gamma=5)
    assert all(len(one.drafted) == 5 and one.q_draft.shape == (5, 5) and one.p_target.shape == (6, 5) for one in rounds)
    whole = [len(one.emitted) == one.kept + 1 for one in rounds]
    assert all(whole[:-1])


def test_a_round_tells_what_happened():
    for one in spec(new=40, temperature=0.7, seed=3):
        assert 0 <= one.kept <= 3
        assert one.emitted == (one.drafted[:one.kept] + [one.token])[:len(one.emitted)]
        if one.kept < 3:
            assert one.p_target[one.kept, one.token] > one.q_draft[one.kept, one.token]
        assert one.draft_seconds > 0 and one.verify_seconds > 0
        assert all(one.q_draft[i, token] > 0 for i, token in enumerate(one.drafted))


@pytest.mark.parametrize("stop", [{0}, {1, 4}, [2]])
def test_nothing_after_a_stop_token_wherever_in_the_block_it_falls(stop):
    places = set()
    for seed in range(40):
        rounds = spec(new=30, stop=stop, seed=seed)
        out = tokens_of(rounds)
        assert not set(out[:-1]) & set(stop) and (out[-1] in stop or len(out) == 30)
        last = rounds[-1]
        if out[-1] in stop:
            places.add(len(last.emitted) - 1 if len(last.emitted) < last.kept + 1 else "last")
    assert len(places) > 1          # inside a block and at its end: both were seen


def test_until():
    assert until([1, 2, 3], {2}) == ([1, 2], True) and until([1, 2, 3], ()) == ([1, 2, 3], False)
    assert until([0, 0], {0}) == ([0], True) and until([], {0}) == ([], False)


def test_same_seed_same_text_other_seed_other_text():
    assert tokens_of(spec(seed=5)) == tokens_of(spec(seed=5)) != tokens_of(spec(seed=6))
    assert list(generate(TARGET, [1], 20, seed=5)) == list(generate(TARGET, [1], 20, seed=5))


def test_a_drafter_forgets_the_request_before():
    drafter = ModelDrafter(DRAFT)
    first = tokens_of(speculate(TARGET, drafter, [1, 2], 3, 20, seed=1))
    list(speculate(TARGET, drafter, [3, 3, 3, 0], 2, 9, seed=2))
    assert tokens_of(speculate(TARGET, drafter, [1, 2], 3, 20, seed=1)) == first


def test_a_draft_that_is_the_target_is_always_kept():
    """Needs a draft cache that misses nothing: a token it never read would make its laws differ."""
    gpt = small_gpt(7, 2, 5)
    for ids in ([3], [1, 2], [4, 4, 4]):
        assert all(one.kept == 3 for one in spec(ids, new=60, target=gpt, draft=gpt, temperature=0.8))


def test_a_round_is_branch_free_and_stays_on_its_device():
    """On the meta device tensors have shapes and no values: a branch on a value, a read-back, or a tensor made on
    another device would raise. What runs here can be captured as a CUDA graph and needs no change to run on CUDA."""
    config, rows, gamma = Config(11, 64, layers=2, channels=16, heads=2, kv_heads=1, hidden=24), 3, 4
    with torch.device("meta"):
        target, draft = GPT(config).eval(), GPT(config).eval()
    text, drafter = Text([[1, 2, 3], [4], [5, 6]], 20, "meta"), ModelDrafter(draft)
    cache, drafter.cache = target.new_cache(rows, 23), draft.new_cache(rows, 23)
    dice = Dice([0] * rows, "meta")
    dice.refill(2 * gamma + 1)
    with torch.inference_mode():
        drafted, q_draft, p_target, kept, token, _ = chain_round(target, cache, drafter, text, gamma,
                                                                 partial(probs, top_k=3, top_p=0.9, temperature=0.7),
                                                                 dice, upto=23)
    assert dice.column == 2 * gamma + 1
    assert {x.device.type for x in (drafted, q_draft, p_target, kept, token, text.tokens, text.length)} == {"meta"}
    shapes = [list(x.shape) for x in (drafted, q_draft, p_target, kept, token)]
    assert shapes == [[3, 4], [3, 4, 11], [3, 5, 11], [3], [3]]


def test_other_precisions_mix():
    """A draft in another dtype is only another draft: its law, in its own precision, is the one reported."""
    target, draft = small_gpt(7, 2, 5), small_gpt(7, 1, 6).float()
    rounds = spec(target=target, draft=draft, new=60)
    assert rounds[0].p_target.dtype == torch.float64 and rounds[0].q_draft.dtype == torch.float32
    assert len(tokens_of(rounds)) == 60


def test_the_texts_last_tokens():
    text = Text([[5], [1, 2, 3]], room=4)
    assert text.last(2).tolist() == [[5, 5], [2, 3]] and text.last(1).tolist() == [[5], [3]]
    text.commit(torch.tensor([[7, 8], [9, 6]]), torch.tensor([2, 1]))
    assert text.length.tolist() == [3, 4] and text.last(2).tolist() == [[7, 8], [3, 9]]


BAD = [({"ids": []}, "empty"), ({"ids": [9]}, "outside"), ({"ids": [-1]}, "outside"), ({"new": -1}, "negative"),
       ({"new": 63}, "context"), ({"temperature": -0.1}, "temperature"), ({"temperature": float("nan")}, "temperature"),
       ({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": 1.1}, "top_p")]


@pytest.mark.parametrize("bad, words", BAD)
def test_requests_that_cannot_be_answered(bad, words):
    with pytest.raises(RequestError, match=words):
        spec(**bad)
    settings = {"ids": [1, 2], "max_new_tokens": bad.get("new", 20)} | {k: v for k, v in bad.items() if k != "new"}
    with pytest.raises(RequestError, match=words):
        list(generate(TARGET, **settings))


def test_gamma_below_one():
    with pytest.raises(RequestError, match="gamma"):
        spec(gamma=0)


def test_the_context_can_be_filled_to_the_last_token():
    gpt = small_gpt(4, 1, 0)
    ids = [1, 2, 3]
    new = gpt.config.context - len(ids)
    assert len(tokens_of(spec(ids, target=gpt, draft=gpt, gamma=7, new=new))) == new


class Broken:
    """A table model whose logits turn to NaN at one place in the text."""

    def __init__(self, model, at: int):
        self.model, self.at = model, at
        self.config, self.device = model.config, model.device

    def new_cache(self, rows, slots):
        return self.model.new_cache(rows, slots)

    def __call__(self, tokens, cache=None, upto=None):
        logits = self.model(tokens, cache, upto).clone()
        slots = cache.next_slots(tokens.shape[1])
        return logits.masked_fill((slots == self.at)[:, :, None], float("nan"))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("who", ["target", "draft"])
def test_logits_with_nan_are_an_error_and_what_came_before_stands(who, temperature):
    """Everything up to the broken place is the text that whole models write; nothing behind it is yielded."""
    target, draft = TableModel(5, 1), TableModel(5, 2)
    settings = {"max_new_tokens": 20, "temperature": temperature, "seed": 3}
    whole = tokens_of(speculate(target, ModelDrafter(draft), [1, 2], 3, **settings))
    models = {"target": target, "draft": draft}
    models[who] = Broken(models[who], 9)
    written = []
    with pytest.raises(LogitsError, match="NaN"):
        for one in speculate(models["target"], ModelDrafter(models["draft"]), [1, 2], 3, **settings):
            written += one.emitted
    assert written == whole[:len(written)] and 1 < len(written) <= 8


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_plain_decoding_too_stops_at_nan(temperature):
    target, written = TableModel(5, 1), []
    settings = {"max_new_tokens": 20, "temperature": temperature, "seed": 3}
    whole = list(generate(target, [1, 2], **settings))
    with pytest.raises(LogitsError, match="NaN"):
        for token in generate(Broken(target, 9), [1, 2], **settings):
            written.append(token)
    assert written == whole[:8]


@pytest.mark.parametrize("sizes", [(5, 4), (4, 5)])
def test_a_draft_with_another_vocabulary_is_refused(sizes):
    target, draft = (TableModel(size, 1) for size in sizes)
    with pytest.raises(RequestError, match=f"{sizes[1]} tokens, the target knows {sizes[0]}"):
        list(speculate(target, ModelDrafter(draft), [1, 2], 3, 10))
