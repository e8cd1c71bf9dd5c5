"""Draft models that read hidden states of a target: what they know, what is kept, how they are trained."""

import argparse
import inspect
import shlex
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import silu

import train_tiny
from nanospec.cli import __main__ as commands
from nanospec.errors import PairError, RequestError
from nanospec.files import packages
from nanospec.files.model_file import check_sizes_of, load_learned, save_learned, save_model
from nanospec.files.checkpoint import load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.dflash import DFlash
from nanospec.methods.draft_models.eagle import Eagle
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.methods.draft_models.unrolled import before_tokens, some_anchors, whole_texts
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import StoppingRule
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.model import Config, rotate
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text, prefill
from tests.device.pretend import NAME as PRETEND, plugged
from training import __main__ as training

TARGET = small_gpt(11, 3, 5)
TEXT = Path(argparse.__file__)
models = pytest.mark.parametrize("name", LEARNED)
readers = pytest.mark.parametrize("name", [name for name in LEARNED if name != "early_exit"])    # it reads no states


def hidden_of(tokens, layers):
    return TARGET(tokens, layers=layers)[1]


@models
def test_whole_texts_and_one_token_at_a_time_are_the_same(name):
    """Training reads whole texts, drafting reads token by token: the same logits, at every place, for every step."""
    model, steps = small_learned(name, TARGET), 4
    tokens = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1))
    whole = whole_texts(model, tokens, before_tokens(hidden_of(tokens, model.layers)), steps)
    for length in range(1, 12 - steps + 2):
        text = Text(tokens[:, :length].tolist(), 16, 11)
        _, hidden = prefill(TARGET, text, layers=model.layers)
        reader = model.reader(steps)
        reader.begin(text)
        reader.read(text, [0, 1], hidden)
        for k in range(steps):
            logits = (reader.step(tokens[:, length + k - 1, None], length + k) if k else
                      reader.start(text, 2, length + k))
            assert (logits[:, 0].softmax(-1) - whole[k, :, length - 1].softmax(-1)).abs().max() < 1e-10, (length, k)


@models
def test_it_knows_nothing_that_comes_later(name):
    """Other tokens and hidden states after a place change nothing that is predicted at this place."""
    model, steps, place = small_learned(name, TARGET), 3, 5
    tokens = torch.randint(11, (1, 12), generator=torch.Generator().manual_seed(2))
    before = before_tokens(hidden_of(tokens, model.layers))
    predicted = whole_texts(model, tokens, before, steps)
    for k in range(steps):
        others, unknown = tokens.clone(), before.clone()
        others[:, place + k + 1:] = (others[:, place + k + 1:] + 1) % 11
        unknown[:, place + 1:] = 99.0
        again = whole_texts(model, others, unknown, steps)[k, :, place]
        assert (again.softmax(-1) - predicted[k, :, place].softmax(-1)).abs().max() < 1e-12


@readers
def test_hidden_states_of_another_place_are_seen(name):
    """What it predicts depends on the hidden states before its place, so that one late is not the same."""
    model = small_learned(name, TARGET)
    tokens = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(3))
    hidden = hidden_of(tokens, model.layers)
    late, right = (whole_texts(model, tokens, before, 2).softmax(-1) for before in (before_tokens(hidden), hidden))
    assert (late - right).abs().max() > 0.1


@models
def test_some_anchors_are_some_of_all(name):
    """Drafts after some tokens alone are the same as among those after all of them."""
    model, steps = small_learned(name, TARGET), 3
    tokens = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(4))
    before, anchors = before_tokens(hidden_of(tokens, model.layers)), some_anchors(tokens, steps, 4)
    every, some = whole_texts(model, tokens, before, steps), whole_texts(model, tokens, before, steps, anchors)
    assert len(anchors) == 5 and (every[:, :, anchors].softmax(-1) - some.softmax(-1)).abs().max() < 1e-12


def test_an_mlp_speculator_by_hand():
    """Of one layer and of three: each layer after the first adds to the state."""
    tokens = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(5))
    before = before_tokens(hidden_of(tokens, [0, 2]))
    torch.manual_seed(6)
    for depth in 1, 3:
        mlp = MLPSpeculator(11, TARGET.config.channels, [0, 2], 6, depth).double()
        assert len(mlp.further) == depth - 1
        state = mlp.start((before / (before.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(2))[:, 4]
        for k in 0, 1:
            state = silu(mlp.norm(mlp.carry(state) + mlp.embedding(tokens[:, 4 + k])))
            for layer in mlp.further:
                state = state + silu(layer[1](layer[0](state)))
            assert (whole_texts(mlp, tokens, before, 2)[k, :, 4] - mlp.head(state)).abs().max() < 1e-12


def test_two_layers_of_dflash_by_hand():
    """A block of three places after five tokens. All see the hidden states of the four that were read, at whose
    positions they stand, and each other. Its reader has a cache of two layers.
    """
    torch.manual_seed(7)
    model = DFlash(11, 16, [0, 2], heads=4, kv_heads=2, hidden=9, block=3, depth=2).double().attach(TARGET)
    torch.nn.init.normal_(model.requires_grad_(False).mask)
    text = Text([[3, 1, 4, 2, 7]], 1, 11)
    hidden = hidden_of(text.tokens[:, :4], [0, 2])
    context, table = model.context_norm(model.fuse(hidden.flatten(2))), model.rope(8)
    x = torch.stack([TARGET.embedding.weight[7], model.mask, model.mask])[None]
    for layer in model.blocks:
        keys, values = (torch.cat(its, 2).repeat_interleave(2, 1) for its in zip(
            layer.keys_values(context, table[:, :4]), layer.keys_values(layer.norm(x), table[:, 4:7])))
        q = rotate(layer.q(layer.norm(x)).unflatten(2, (4, 4)).transpose(1, 2), table[:, 4:7])
        weights = (q @ keys.mT / 2).softmax(-1)
        x = x + layer.out((weights @ values).transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.mlp_norm(x))
    right = TARGET.head(model.norm(x))[0]
    before = before_tokens(hidden_of(text.tokens[:, :5], [0, 2]))
    found = whole_texts(model, text.tokens[:, :5], before, 1)[:, 0, 4]
    assert (found - right[:1]).abs().max() < 1e-12
    reader = model.reader(3)
    reader.begin(text)
    reader.read(text, [0], hidden)
    found = [reader.start(text, 5, 5), *(reader.step(torch.tensor([[0]]), 5) for _ in range(2))]
    assert (torch.cat(found)[:, 0] - right).abs().max() < 1e-12


def test_a_layer_of_multi_token_prediction_by_hand():
    """The token after each place, predicted from the hidden states of the token before it, and the token there."""
    mtp = small_learned("mtp", TARGET)
    tokens = torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(1))
    before = before_tokens(hidden_of(tokens, mtp.layers))
    state = mtp.state_norm(TARGET.norm(before[:, :, -1]))
    x = mtp.fuse(torch.cat([mtp.token_norm(TARGET.embedding(tokens)), state], -1))
    q, k, v = mtp.attention.turned(mtp.attention_norm(x), mtp.rope(8))
    scores = q @ k.mT / q.shape[-1] ** 0.5 + torch.full((8, 8), float("-inf"), dtype=q.dtype).triu(1)
    x = x + mtp.attention.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    logits = TARGET.head(mtp.norm(x + mtp.mlp(mtp.mlp_norm(x))))
    assert (whole_texts(mtp, tokens, before, 1)[0] - logits).abs().max() < 1e-12


@pytest.mark.parametrize("size", ["heads", "kv_heads", "hidden"])
def test_its_layer_is_as_the_target_s(size):
    assert LEARNED["mtp"].sizes_for(TARGET.config)[size] == getattr(TARGET.config, size)


@models
def test_no_more_tokens_than_it_can_draft(name):
    model = small_learned(name, TARGET)
    most = longest_chain(model, 9)
    assert most == (8 if name in ("medusa", "hydra", "dflash", "dspark") else 9) and ModelDrafter(model, most)
    if most < 9:
        with pytest.raises(RequestError, match="at most 8 tokens one after the other, asked for 9"):
            ModelDrafter(model, 9)


def test_a_block_ends_past_the_room_of_a_text():
    """A text has room for 128 tokens, and this draft model predicts eight after every token."""
    target, prompt = small_gpt(11, 3, 5, context=128), [3, 1, 4, 2, 7, 5, 9] * 17 + [6, 8, 0]
    rounds = speculate(target, ModelDrafter(small_learned("dflash", target), 2), prompt, 3, temperature=0)
    assert tokens_of(rounds) == list(generate(target, prompt, 3, temperature=0))


@models
def test_a_file_keeps_it_and_knows_its_target(name, tmp_path):
    model, path = small_learned(name, TARGET), tmp_path / f"{name}.pt"
    save_learned(name, model, path, TARGET)
    again = load_learned(path, TARGET, name)
    assert again.sizes == model.sizes and again.layers == model.layers and again.target is TARGET
    assert {*inspect.signature(type(model)).parameters} - {"sizes"} <= {*model.sizes}
    assert all(torch.equal(weight.to(torch.bfloat16).to(weight), kept)
               for weight, kept in zip(model.parameters(), again.parameters()))
    with pytest.raises(PairError, match="another target"):
        load_learned(path, small_gpt(11, 3, 6), name)
    saved = torch.load(path, weights_only=True)
    assert not any(part.startswith("layer.") for part in saved["state"])
    for damage in ({"sizes": {}}, {"sizes": saved["sizes"] | {"layers": [9]}}, {"state": {}}, {"learned": "other"},
                   {"sizes": saved["sizes"] | {"vocab_size": 0}}, {"sizes": None},
                   {"state": saved["state"] | {"more": torch.zeros(1)}},
                   {"state": {key: weight * float("nan") for key, weight in saved["state"].items()}}):
        torch.save(saved | damage, path)
        with pytest.raises((PairError, RequestError)):
            load_learned(path, TARGET, name)


def test_of_a_text_of_a_single_token_the_first_others_are_drafted_too():
    model = LEARNED["eagle3"](11, 16, [0], heads=1, kv_heads=1, hidden=8, spoken=4).double().attach(TARGET)
    model.prepare(torch.tensor([2, 2]))
    assert model.ids.tolist() == [0, 1, 2, 3] and torch.equal(model.head.weight, TARGET.head.weight[:4])
    with pytest.raises(ValueError, match="cannot draft 12 of 11 tokens"):
        LEARNED["eagle3"](11, 16, [0], heads=1, kv_heads=1, hidden=8, spoken=12)


def test_a_head_that_has_learnt_nothing_says_what_the_target_s_says():
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(3))
    before = before_tokens(hidden_of(tokens, [2]))
    found = whole_texts(Medusa(11, 16, [2], heads=2).double().attach(TARGET), tokens, before, 2)
    assert (found - TARGET.head(TARGET.norm(before[:, :8, 0]))).abs().max() < 1e-12


def test_dspark_s_table_says_nothing_at_first():
    logits, model = torch.rand(1, 3, 11), LEARNED["dspark"](11, 16, [1], heads=1, kv_heads=1, hidden=8)
    assert torch.equal(model.after_token(logits, torch.tensor([[1, 2, 3]])), logits)


def test_it_reads_a_layer_that_its_target_has():
    """They count from 0: the last of 3 is 2."""
    assert Medusa(11, TARGET.config.channels, [2], heads=3).attach(TARGET).layers == (2,)
    with pytest.raises(RequestError, match="and more than 3 layers, this one has 11, .* and 3"):
        Medusa(11, TARGET.config.channels, [3, 1], heads=3).attach(TARGET)
    with pytest.raises(RequestError, match="made for a target with 12 tokens, .*, this one has 11,"):
        Medusa(12, TARGET.config.channels, [2], heads=3).attach(TARGET)


def test_which_sizes_weights_may_have_at_most():
    """As many heads as weights or channels, and nothing that is more than the tokens or the longest side of a weight.
    """
    target, state = SimpleNamespace(channels=5, vocab_size=9), {"a": torch.zeros(7, 2), "b": torch.zeros(0, 99)}
    for size, most in ("heads", 5), ("width", 9):
        check_sizes_of(state, {size: most, "layers": [10 ** 9]}, target)
        with pytest.raises(ValueError, match=f"its weights are not those of {size} = {most + 1}"):
            check_sizes_of(state, {size: most + 1}, target)
    check_sizes_of(state | {"c": torch.zeros(13)}, {"width": 13}, target)


def test_sizes_of_more_weights_than_there_are(tmp_path):
    save_learned("medusa", small_learned("medusa", TARGET), tmp_path / "medusa.pt", TARGET)
    saved = torch.load(tmp_path / "medusa.pt", weights_only=True)
    torch.save(saved | {"sizes": saved["sizes"] | {"heads": 16}}, tmp_path / "medusa.pt")
    with pytest.raises(PairError, match="it has [0-9,]+ weights, and its sizes are those of [0-9,]+"):
        load_learned(tmp_path / "medusa.pt", TARGET, "medusa")


@pytest.mark.parametrize("name, size", [("medusa", "heads"), ("mlp", "depth"), ("mlp", "width"), ("dflash", "block")])
def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_made(name, size, tmp_path, monkeypatch):
    """A file may ask for a thousand million heads."""
    path = tmp_path / f"{name}.pt"
    save_learned(name, small_learned(name, TARGET), path, TARGET)
    saved = torch.load(path, weights_only=True)
    torch.save(saved | {"sizes": saved["sizes"] | {size: 10 ** 9}}, path)
    monkeypatch.setitem(LEARNED, name, None)
    with pytest.raises(PairError, match=f"no draft model of ours: its weights are not those of {size} = 1000000000"):
        load_learned(path, TARGET, name)


@readers
def test_a_foreign_target_is_refused(name):
    for target in (small_gpt(7, 3, 5), small_gpt(11, 2, 5)):
        with pytest.raises(RequestError):
            next(speculate(target, ModelDrafter(small_learned(name, TARGET), 2), [1, 2], 4))


# Oracles: a table's hidden state is the number of the context, and the next one follows from it and the next token.

TABLE = TableModel(5, 3, zeros=0)


def next_number(state, tokens):
    """(the next state, the table's own logits there)"""
    number = (state[..., 0].long() * 31 + tokens + 1) % TABLE.CONTEXTS
    return number[..., None].to(state).expand(*number.shape, 2), TABLE.logits[number]


class KnowsTheState(MLPSpeculator):
    def read(self, tokens, before, call):
        return next_number(call.asking(before)[..., -1, :], call.asking(tokens))

    def step(self, state, tokens, call):
        return next_number(state, tokens)


class KnowsTheHiddenState(Eagle):
    """With a reader that gives draft tokens slots of their own."""

    read, step = KnowsTheState.read, KnowsTheState.step


ORACLES = {"state": lambda: KnowsTheState(5, 2, [0], 1),
           "hidden state": lambda: KnowsTheHiddenState(5, 2, [0], 1, 1, 4)}
SHAPES = {"chain": lambda model: ModelDrafter(model, 3), "tree": lambda model: TreeDrafter(model, [-1, 0, 0, 1, 2, 3]),
          "dynamic": lambda model: DynamicDrafter(model, StoppingRule(), 3)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("oracle", ORACLES)
def test_what_knows_the_next_hidden_state_is_always_right(oracle, shape):
    """Each hidden state meets the token that follows it: q_draft = p_target at every node, and nothing is rejected."""
    model = ORACLES[oracle]().double().attach(TABLE)
    for ids in ([3, 1], [1, 2, 0, 4, 1, 2]):
        for done in speculate(TABLE, SHAPES[shape](model), ids, 30, 0.8, seed=1):
            parents = torch.tensor(done.parents[1:])
            firsts = [node for node, parent in enumerate(done.parents) if node and done.parents.index(parent) == node]
            after = parents[[node - 1 for node in firsts]]
            assert firsts and (done.p_target[after] - done.q_draft[firsts]).abs().max() < 1e-12
            assert 1 in done.path


# Training

@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch):
    """One is drawn where a draft model learns from its target's own texts: test_own_texts.py."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: Path(path).write_bytes(b""))


def test_of_packages_nothing_is_read_that_is_held_out(tmp_path, monkeypatch):
    """As train_tiny.py does; what is learned from may lie in a package as well."""
    asked = []
    monkeypatch.setattr(training, "read_texts", lambda path: ([f"from {path}"], [f"held out of {path}"]))
    monkeypatch.setattr(training, "read_packages", lambda names, held, step: asked.append((names, held)) or pytest.exit)
    listed = tmp_path / "list"
    listed.write_text(f"rich=={metadata.version('rich')}\n")
    with pytest.raises(TypeError):                              # there are no texts
        training.main(["mlp", "--out", str(tmp_path), "--texts", str(listed)])
    assert asked == [(["rich"], ["held out of None"])]
    with pytest.raises(TypeError):
        training.main(["mlp", "--out", str(tmp_path), "--text", "a", "b"])
    assert asked[1:] == [([], ["held out of a", "held out of b"])]          # of all that are named


def train(*options):
    return training.main([*map(str, options), "--text", str(TEXT)])


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pair")
    assert train_tiny.main(["--size", "dust", "--text", str(TEXT), "--out", str(folder), "--steps", "20", "20", "1",
                            "1"]) == 0
    return folder


def copied(folder, to):
    for file in ("target.pt", "draft.pt", "ranks.tiktoken"):
        (to / file).write_bytes((folder / file).read_bytes())


# They differ most in how they are trained. What else trains all of them is in tests/device/test_training.py.
OF_EACH_KIND = ("medusa", "prefix", "eagle3", "dflash", "early_exit")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in OF_EACH_KIND))
                                  for name in LEARNED])
def test_it_learns_and_goes_on_where_it_was_stopped(name, pair_folder, tmp_path, capsys):
    """The last line says what to type next, and that works."""
    copied(pair_folder, tmp_path)
    command = (name, "--out", tmp_path, "--steps", 20)
    assert train(*command, "--minutes", 0) == 0
    assert train(*command, "--minutes", 0) == 2                                     # it is there already
    assert train(*command, "--resume") == 0
    pair = load_pair(tmp_path, draft_model=name)
    assert len(tokens_of(speculate(pair.target, ModelDrafter(pair.draft_model, 3), [1, 2], 40))) == 40
    history = torch.load(tmp_path / f"{name}.training.pt", weights_only=True)["history"]
    assert [row[1] for row in history] == [20] and history[-1][3] < 0.25            # rejected, held out
    assert (tmp_path / f"{name}.loss.png").exists()
    next_one = shlex.split(capsys.readouterr().out.split("Next: nanospec ")[1])
    assert next_one == ["demo", "--weights", str(tmp_path), "--draft-model", name]
    assert commands.main([*next_one, "--prompt", "def", "--max-new-tokens", "8", "--dtype", "float32", "--threads",
                          "1"]) == 0


def test_without_a_pair_in_its_folder_it_is_for_the_one_that_ships(pair_folder, tmp_path, monkeypatch):
    """Which is copied there."""
    monkeypatch.setattr(training, "WEIGHTS", pair_folder)
    assert train("mlp", "--out", tmp_path / "it", "--steps", 1, "--minutes", 0) == 0
    for name in "target.pt", "ranks.tiktoken", "draft.pt":
        assert (tmp_path / "it" / name).read_bytes() == (pair_folder / name).read_bytes()
    assert load_pair(tmp_path / "it", draft_model="mlp").draft_model.sizes["vocab_size"] == 320


def test_it_learns_from_a_list_of_packages_too(pair_folder, tmp_path, monkeypatch, capsys):
    copied(pair_folder, tmp_path)
    (tmp_path / "list").write_text("rich==0.0.1\n# tokens 5 abc\n")
    monkeypatch.setattr(training, "read_packages", lambda names, held, _: [f"# {names} {len(held)}"])
    monkeypatch.setattr(training, "read_texts", lambda path: read_texts(TEXT))
    assert training.main(["mlp", "--out", str(tmp_path), "--steps", "1", "--minutes", "0", "--texts",
                          str(tmp_path / "list")]) == 0
    tokenizer = load_pair(tmp_path).tokenizer
    wanted = packages.AGAIN * len(to_ids(read_texts(TEXT)[0], tokenizer)) + len(to_ids(["# ['rich'] 1"], tokenizer))
    told = " ".join(capsys.readouterr().out.split())
    assert f"{wanted:,} tokens to train on" in told and told.count("the weights will be others") == 2


def test_that_too_little_is_held_out_is_said_at_once(pair_folder, tmp_path, monkeypatch, capsys):
    copied(pair_folder, tmp_path)
    monkeypatch.setattr(training, "read_texts", lambda path: (read_texts(TEXT)[0], ["x"]))
    assert train("mlp", "--out", tmp_path, "--minutes", 0) == 2
    assert "too little text is held out" in capsys.readouterr().err and not (tmp_path / "mlp.pt").exists()


def test_it_is_trained_as_told(pair_folder, tmp_path, monkeypatch):
    """Each option unlike its default and all others."""
    copied(pair_folder, tmp_path)
    heard = []
    monkeypatch.setattr(training, "compiler_for", lambda device: device)
    monkeypatch.setattr(training.LearnedTraining, "compile", lambda its: None)
    monkeypatch.setattr(training, "run", lambda *its: heard.append(its))
    with plugged():
        assert train("mlp", "--out", tmp_path, "--steps", 7, "--seed", 3, "--minutes", 2.5, "--loss", "reverse-kl",
                     "--device", PRETEND, "--compile") == 0
    (its, held, _, minutes), = heard
    assert (its.name, its.steps, its.seed, its.out, its.compiled, minutes) == ("mlp", 7, 3, tmp_path, True, 2.5)
    assert its.made_of["loss"] == "reverse-kl"
    assert (tmp_path / "mlp.training.pt").exists()              # if it could not be written, that showed before
    assert {it.device.type for it in (its.ids, held.ids, its.model)} == {PRETEND}


def test_each_has_a_folder_of_its_own_by_default(monkeypatch):
    monkeypatch.setattr(training, "check", lambda args, phases, out, files: asked.append(out) or sys.exit(3))
    asked: list[Path] = []
    for name in "mlp", "eagle":
        with pytest.raises(SystemExit):
            training.main([name])
    assert asked == [Path("out/mlp"), Path("out/eagle")]


def test_another_loss_or_target_cannot_be_resumed(pair_folder, tmp_path, capsys):
    copied(pair_folder, tmp_path)
    assert train("mlp", "--out", tmp_path, "--steps", 1, "--minutes", 0) == 0
    assert train("mlp", "--out", tmp_path, "--steps", 1, "--resume", "--loss", "reverse-kl") == 2
    assert "was begun with another loss" in capsys.readouterr().err
    target = load_pair(tmp_path).target
    target.norm.weight.data[0] += 1
    save_model(target, tmp_path / "target.pt", load_pair(tmp_path).tokenizer)
    assert train("mlp", "--out", tmp_path, "--steps", 1, "--resume") == 2
    assert "was begun with another target" in capsys.readouterr().err


@pytest.mark.parametrize("options, words", [
    (["hydro"], "hydro"), ([], "NAME"), (["mlp", "hydra"], "unrecognized arguments: hydra"),
    (["mlp", "--steps", "1", "2"], "unrecognized arguments: 2"), (["mlp", "--steps", "0"], "--steps: wants 1 of them"),
    (["mlp", "--tokens", "49152"], "for a target of others"), (["mlp", "--spoken", "9"], "for a target of others"),
    (["mlp", "--from", "it"], "for a target of others"), (["mlp", "--weights", "none"], "--weights: must be"),
    (["mlp", "--texts", "none"], "none"), (["mlp", "--weights", "folder", "--texts", "x"], "--texts is for our pair"),
    (["mlp", "--text", "a", "--texts", "b"], "not allowed with"),
    (["mlp", "--out", "ranks"], "ranks has ranks.tiktoken and draft.pt, but no target.pt"),
    (["mlp", "--out", "alone"], "alone has draft.pt, but no target.pt"), (["mlp", "--out", ""], "--out: must be"),
    (["mlp", "--weights", "folder"], "folder is a pair of ours: name it with --out"),
    (["mlp", "--loss", "mse"], "mse"), (["mlp", "--minutes", "-1"], "--minutes must be"),
    (["mlp", "--resume"], "No such file"), (["mlp", "--out", "folder", "--text", "none"], "none is missing")])
def test_bad_input_is_one_clear_line(options, words, pair_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "folder", "ranks", "alone":
        (tmp_path / name).mkdir()
        copied(pair_folder, tmp_path / name)
    for path in "ranks/target.pt", "alone/target.pt", "alone/ranks.tiktoken":
        (tmp_path / path).unlink()
    assert training.main(options) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "ranks", "alone"}


@pytest.mark.parametrize("name, sizes", [
    ("medusa", {"layers": [23]}), ("hydra", {"layers": [23]}), ("mlp", {"layers": [6, 12, 23], "width": 512}),
    ("prefix", {"layers": [6, 12, 23], "width": 512, "heads": 4, "kv_heads": 2, "hidden": 20}),
    ("lookback", {"layers": [6, 12, 23], "spoken": 8192, "heads": 4, "kv_heads": 2, "hidden": 20}),
    ("dflash", {"layers": [6, 12, 23], "heads": 4, "kv_heads": 2, "hidden": 20}),
    ("eagle", {"layers": [23], "heads": 4, "kv_heads": 2, "hidden": 20}),
    ("eagle3", {"layers": [6, 12, 23], "spoken": 9000, "heads": 4, "kv_heads": 2, "hidden": 20}),
    ("early_exit", {"layers": [5], "hidden": 20})])
def test_what_each_is_made_of_for_a_target(name, sizes):
    """Of 24 layers; early exit leaves after the sixth, layer 5."""
    target = Config(vocab_size=9000, context=64, layers=24, channels=8, heads=4, kv_heads=2, hidden=20)
    assert LEARNED[name].sizes_for(target) == sizes
