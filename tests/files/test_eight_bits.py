"""Large matrices are kept in 8 bits with a scale for each row: what the file says is the model."""

import pytest
import torch

from nanospec.errors import PairError
from nanospec.files import eight_bits
from nanospec.files.model_file import (fingerprint, load_learned, load_model, load_saved, save_atomically, save_learned,
                                       save_model)
from nanospec.files.eight_bits import LARGE, rounded, widened
from nanospec.files.tokenizer import Tokenizer
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_learned

BYTES = Tokenizer({bytes([b]): b for b in range(256)})


@pytest.fixture
def model(monkeypatch):
    """All of its matrices are large."""
    monkeypatch.setattr(eight_bits, "LARGE", 64)
    torch.manual_seed(3)
    return GPT(Config(257, context=32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)).requires_grad_(False)


def test_a_row_by_hand():
    """Of a matrix that is large; the largest number of each row is 127 of its scale, and zeros stay zeros."""
    weight = torch.zeros(3, LARGE)
    weight[0, :3], weight[1, :3] = torch.tensor([1.27, -.1, .004]), torch.tensor([2.0, -254.0, 1.0])
    kept = rounded({"a": weight, "b": weight[0], "c": torch.ones(2, 5, 5), "d": torch.arange(3)})
    assert kept["a"].dtype == torch.int8 and kept["a"][:2, :3].tolist() == [[127, -10, 0], [1, -127, 0]]
    assert kept["a.scale"].flatten().tolist() == [pytest.approx(.01, rel=1 / 256), 2.0, 0.0]
    assert [kept[name].dtype for name in ("a.scale", *"bcd")] == [torch.bfloat16] * 3 + [torch.int64]
    again = widened(kept)
    assert again.keys() == {*"abcd"} and torch.equal(again["a"][1, :3], torch.tensor([2.0, -254.0, 0.0]))
    assert not again["a"][2].any()


def test_from_how_many_numbers_on_a_matrix_is_large():
    kept = rounded({"a": torch.ones(256, LARGE // 256), "b": torch.ones(LARGE - 1, 1), "c": torch.ones(LARGE)})
    assert {name: kept[name].dtype for name in "abc"} == {"a": torch.int8, "b": torch.bfloat16, "c": torch.bfloat16}


def test_nothing_is_further_off_than_half_a_step():
    weight = torch.randn(40, LARGE // 40 + 1, generator=torch.Generator().manual_seed(0))
    off = (widened(rounded({"a": weight}))["a"] - weight).abs()
    assert (off <= weight.abs().amax(1, keepdim=True) / 127 * .51).all() and off.max() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_is_what_its_file_says(model, tmp_path, dtype):
    """Saved once more it stays the same, and a draft model knows it in any data type."""
    save_model(model, tmp_path / "a.pt", BYTES)
    assert load_saved(tmp_path / "a.pt")["state"]["embedding.weight"].dtype == torch.int8
    found = load_model(tmp_path / "a.pt", dtype=dtype)
    once = load_model(tmp_path / "a.pt")
    assert fingerprint(found) == fingerprint(once) != fingerprint(model)
    assert 0 < (once.embedding.weight - model.embedding.weight).abs().max() < 1e-3
    assert once.head.weight is once.embedding.weight
    save_model(once, tmp_path / "b.pt", BYTES)
    again = load_model(tmp_path / "b.pt")
    assert all(torch.equal(a, b) for a, b in zip(once.parameters(), again.parameters()))
    draft_model = small_learned("lookback", once)
    save_learned("lookback", draft_model, tmp_path / "lookback.pt", once)
    assert any(weight.dtype == torch.int8 for weight in load_saved(tmp_path / "lookback.pt")["state"].values())
    kept = load_learned(tmp_path / "lookback.pt", found, "lookback")
    assert kept.dtype == dtype and all((a.to(dtype) - b).abs().max() < .02 for a, b in
                                       zip(draft_model.parameters(), kept.parameters()))


def test_a_file_of_16_bits_is_read_as_before(model, tmp_path):
    state = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items() if name != "head.weight"}
    save_model(model, tmp_path / "a.pt", BYTES)
    save_atomically(load_saved(tmp_path / "a.pt") | {"state": state}, tmp_path / "a.pt")
    again = load_model(tmp_path / "a.pt")
    assert all(torch.equal(a.to(torch.bfloat16).float(), b) for a, b in zip(model.parameters(), again.parameters()))


@pytest.mark.parametrize("change", [
    {"embedding.weight.scale": None}, {"embedding.weight.scale": torch.ones(257)},
    {"embedding.weight.scale": torch.ones(1, 257)}, {"embedding.weight.scale": torch.ones(257, 999)},
    {"embedding.weight.scale": torch.ones(257, 1, dtype=torch.int64)}, {"embedding.weight.scale": 5},
    {"embedding.weight": torch.ones(257, dtype=torch.int8)}])
def test_whole_numbers_without_their_scales_are_refused(model, tmp_path, change):
    """Before anything is made of them: a weight times such scales could be larger than any memory."""
    save_model(model, tmp_path / "a.pt", BYTES)
    saved = load_saved(tmp_path / "a.pt")
    saved["state"] = {name: part for name, part in (saved["state"] | change).items() if part is not None}
    torch.save(saved, tmp_path / "a.pt")
    with pytest.raises(PairError, match="not of this GPT: embedding.weight has no scale for each row"):
        load_model(tmp_path / "a.pt")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(model, tmp_path, number):
    model.embedding.weight[3, 4] = number
    save_model(model, tmp_path / "a.pt", BYTES)
    with pytest.raises(PairError, match="embedding.weight is not finite"):
        load_model(tmp_path / "a.pt")
