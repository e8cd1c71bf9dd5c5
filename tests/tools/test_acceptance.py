"""`nanospec bench acceptance`: what it expects of decoding, without decoding, is what decoding brings."""

import json

import pytest
import torch

from nanospec.cli.bench import acceptance
from nanospec.cli.bench import command as bench
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench.acceptance import by_kind, judged, kind_of, places_of_rounds, rows_of
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.cli.quantities import CallCosts, betas_of
from nanospec.fast.packed import pack
from nanospec.files.model_file import save_model
from nanospec.files.checkpoint import load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import target_distribution, walk
from nanospec.speculate import ModelDrafter, speculate

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
TABLE, DRAFT_MODEL = TableModel(3, 8), TableModel(3, 58)
PAIRS = {"tables": (TABLE, DRAFT_MODEL, 2, 3, 0.7), "tables, greedy": (TABLE, DRAFT_MODEL, 3, 4, 0),
         "mlp": (TABLE, small_learned("mlp", TABLE), 2, 2, 1.3)}


@pytest.mark.parametrize("name", PAIRS)
def test_what_it_expects_is_what_decoding_brings_on_average_over_all_texts(name):
    """Exact: every text that the target can write, read; and every run of decoding, walked."""
    target, draft_model, gamma, new, temperature = PAIRS[name]
    ids, calls, betas = [1, 0], 0.0, torch.zeros(2, gamma, dtype=torch.float64)
    # A round that begins at the last token reads gamma places more, which do not count.
    for text, weight in target_distribution(target, ids, new, temperature=temperature).items():
        tokens = torch.tensor([[*ids, *text, *[2] * gamma]])
        stood, beta = judged(target, draft_model, tokens, Sampling(temperature), gamma)
        stood, beta = (values[:, :, len(ids) - 1:len(ids) - 1 + new] for values in (stood, beta))
        likely = places_of_rounds(stood)
        calls += weight * likely[:, 0].sum().item()
        betas += weight * torch.stack([(likely[:, :-1] * beta).sum((0, 2)), likely[:, :-1].sum((0, 2))])

    def play(dice):
        done = list(speculate(target, ModelDrafter(draft_model, gamma), ids, new, temperature, dice=dice))
        # What is judged after the last token asked for is not part of the text.
        seen, place = [], 0
        for round_ in done:
            for position, (value,) in enumerate(betas_of([round_])):
                seen += [(position, round(value, 12))] * (place + position < new)
            place += len(round_.emitted)
        return len(done), tuple(seen)

    found, _ = walk(play)
    measured = torch.zeros(2, gamma, dtype=torch.float64)
    for (_, seen), weight in found.items():
        for position, value in seen:
            measured[:, position] += weight * torch.tensor([value, 1.0], dtype=torch.float64)
    assert calls == pytest.approx(sum(count * weight for (count, _), weight in found.items()), abs=1e-9)
    assert torch.allclose(betas, measured, atol=1e-9)


def test_where_the_target_would_never_write_the_texts_token_a_draft_counts_as_it_does_on_average():
    tokens = torch.tensor([[1, 0, 2, 1, 2, 0, 1]])
    stood, beta = judged(TABLE, DRAFT_MODEL, tokens, Sampling(0), 2)
    others = TABLE(tokens)[0, :5].argmax(-1) != tokens[0, 1:6]
    assert others.any() and torch.equal(stood[..., others], beta[..., others])


def test_after_each_text_the_bar_is_told():
    told = []
    judged(TABLE, DRAFT_MODEL, torch.tensor([[1, 0, 2], [0, 2, 1]]), Sampling(.7), 1, lambda: told.append(1))
    assert len(told) == 2


def test_rounds_by_hand():
    """Two draft tokens, accepted with 1/2 and 1: half of all rounds are of one place, half of three."""
    stood = torch.tensor([[[.5] * 4, [1.0] * 4]], dtype=torch.float64)
    likely = places_of_rounds(stood)[0]
    assert likely[0].tolist() == [1, .5, .25, .625] and likely[1].tolist() == [0, .5, .25, .125]
    assert likely[2].tolist() == [0, 0, .5, .25] and likely.sum(0).tolist() == [1] * 4
    rows = rows_of(stood, stood, CallCosts(.5, {2: 1.0, 3: 2.0}, 1.0))
    assert [row["gamma"] for row in rows] == [1, 2] and rows[1]["alpha_by_position"] == [.5, 1]
    assert rows[1]["acceptance_length"] == pytest.approx(4 / 2.375)
    assert rows[1]["acceptance_rate"] == pytest.approx((4 / 2.375 - 1) / 2)
    assert rows[1]["predicted_speedup"] == pytest.approx(4 / 2.375 / 3)
    # Rounds that begin at the first two of four places: 1.5, of which half accept none. None has room for 4.
    assert rows[1]["accepted_lengths"] == [.5, 0, .5] and rows[0]["accepted_lengths"] == pytest.approx([.5, .5])
    twice = stood.repeat(1, 2, 1)
    *_, three, four = rows_of(twice, twice, CallCosts(0, dict.fromkeys(range(6), 1.0), 1))
    assert three["accepted_lengths"] == [.5, 0, .25, .25] and four["accepted_lengths"] == []


def test_kinds_of_tokens():
    texts = ["\n    ", " def", "def", "42", "):", " x1", " 7", " self.", "_x", "\tx"]
    assert [kind_of(text) for text in texts] == [
        "white space", "the beginning of a word", "a word, or the rest of one", "digits", "signs",
        "the beginning of a word", "digits", "the beginning of a word", "a word, or the rest of one",
        "the beginning of a word"]
    kinds = by_kind(torch.tensor([[.5, .7], [1.0, .2]]), torch.tensor([[0, 3, 1], [3, 4, 1]]), texts.__getitem__)
    assert kinds == {"white space": (.25, pytest.approx(.5)), "digits": (.5, pytest.approx(.85)),
                     "signs": (.25, pytest.approx(.2))}


def test_on_texts_of_others_it_is_near():
    """The pair that ships: held-out files read, against continuations of them that it writes. An estimate, which may be
    a fourth too high.
    """
    target, small, _ = pair = load_pair()
    pack(target)
    texts = torch.tensor(held_out_prompts(pair, 8, 128))
    rows = rows_of(*judged(target, small, texts, Sampling(1.0), 4), CallCosts(0, dict.fromkeys(range(6), 1.0), 1))
    done = sum((list(speculate(target, ModelDrafter(small, 4), ids, 64, seed=seed))
                for seed, ids in enumerate(texts[:4, :64].tolist())), [])
    measured = sum(len(round_.emitted) for round_ in done) / len(done)
    assert rows[3]["acceptance_length"] == pytest.approx(measured, rel=.3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A pair of small models that write bytes."""
    folder = tmp_path_factory.mktemp("pair")
    BYTES.save(folder / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=512), folder / name, BYTES)
    return folder


def test_the_command(weights, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "step_seconds", lambda model, tokens=1, *_, **__: 1e-3 * tokens)
    monkeypatch.setattr(measuring, "draft_seconds", lambda *_, **__: 1e-4)
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_: "as loaded")
    (tmp_path / "text.txt").write_text("def of(text):\n    return text + 1\n" * 200)
    argv = ["acceptance", "--weights", str(weights), "--text", str(tmp_path / "text.txt"), "--gamma", "2",
            "--device", "cpu"]
    assert bench.main([*argv, "--json", str(tmp_path / "a.json")]) == 0
    out, rows = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    assert [row["gamma"] for row in rows] == [1, 2] and "alpha by position" in out and "signs" in out
    best = max(rows, key=lambda row: row["predicted_speedup"])["gamma"]
    assert f"best gamma {best}" in " ".join(out.split()) and "NOT text that the target writes" in " ".join(out.split())
    assert rows[0]["c"] == pytest.approx(.1) and rows[1]["v"] == 3
    assert sum(share for share, _ in rows[0]["kinds"].values()) == pytest.approx(1)


@pytest.mark.parametrize("stood, alpha, words", [
    (.31, .1, "0.31 of the time, those of the target 0.10, so all lengths here are too large"),
    (.2, .5, "0.20 of the time, those of the target 0.50, so all lengths here are too small"),
    (.56, .5, ""), (.45, .5, "")])
def test_a_text_that_is_not_the_targets_is_said_to_be_none(stood, alpha, words):
    said = acceptance.foreign(stood, alpha)
    assert words in said and bool(said) == bool(words)


def test_the_text_is_judged_at_the_temperature(weights, tmp_path, monkeypatch):
    """Two of its windows, where 600 tokens may be read; alpha as computed here, and others for other settings."""
    monkeypatch.setattr(acceptance, "measure_costs", lambda *_, **__: CallCosts(0, dict.fromkeys(range(6), 1.0), 1))
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_: "as loaded")
    path, found = tmp_path / "text.txt", {}
    path.write_text("def of(text):\n    return text + 1\n" * 200)
    for temperature in ("0.5", "1.5"):
        argv = ["acceptance", "--weights", str(weights), "--text", str(path), "--gamma", "1", "--device", "cpu",
                "--temperature", temperature, "--tokens", "600", "--json", str(tmp_path / "a.json")]
        assert bench.main(argv) == 0
        row, = json.loads((tmp_path / "a.json").read_text())
        target, small, _ = load_pair(weights)
        ids = to_ids(sum(read_texts(path), []), BYTES)
        texts = ids[:len(ids) // 2 * 2].view(2, -1)[:, :256].long()
        _, beta = judged(target, small, texts, Sampling(float(temperature)), 1)
        found[temperature] = beta[:, 0].mean().item()
        assert row["alpha"] == pytest.approx(found[temperature], rel=1e-4)
        kinds = by_kind(beta[:, 0], texts[:, 1:], lambda token: BYTES.decode([token]))
        assert row["kinds"] == {kind: pytest.approx(list(of), rel=1e-4) for kind, of in kinds.items()}
    assert abs(found["0.5"] - found["1.5"]) > 0.01


@pytest.mark.parametrize("options, words", [(["--tokens", "9"], "fewer than"), (["--text", "nowhere"], "--text"),
                                            (["--gamma", "256"], "drafts of 256 tokens have no place in texts of 256"),
                                            (["--gamma", "255", "--tokens", "255"], "255 tokens are fewer than a text"),
                                            (["--gamma", "0"], "--gamma"), (["--draft-model", "mlp"], "mlp")])
def test_what_cannot_be_read_is_refused(options, words, weights, capsys):
    assert bench.main(["acceptance", "--weights", str(weights), *options]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1
