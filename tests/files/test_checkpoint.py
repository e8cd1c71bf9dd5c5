"""A pair on the disk: whole or not there, and read only if it is one."""

import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from nanospec.errors import DeviceError, NanospecError, PairError, RequestError, one_line, quoted
from nanospec.files import paths
from nanospec.files.paths import write_atomically, written_aside
from nanospec.files.model_file import (available, load_learned, load_model, load_saved, save_atomically, save_learned,
                                       save_model)
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.tokenizer import Tokenizer
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_learned

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
SIZES = dict(vocab_size=257, context=32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)


def small(**sizes) -> GPT:
    return GPT(Config(**SIZES | sizes))


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory):
    found = tmp_path_factory.mktemp("pair")
    BYTES.save(found / "ranks.tiktoken")
    for name in ("target.pt", "draft.pt"):
        save_model(small(), found / name, BYTES)
    return found


@pytest.fixture
def folder(saved_once, tmp_path):
    """A pair of small models."""
    shutil.copytree(saved_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def refused(path: Path, words: str) -> str:
    """What `load_model` says: one line that a terminal can show, and what is wrong in it."""
    with pytest.raises(PairError, match=words) as raised:
        load_model(path)
    said = str(raised.value).removeprefix(str(path))
    assert said.isprintable() and len(said) < 400
    return said


def test_what_others_say_is_put_on_one_line():
    assert one_line(ValueError("a\n\tb\x1b[2J\x9b\u202e")) == "a b\ufffd[2J\ufffd\ufffd"
    assert one_line(ValueError()) == one_line(ValueError(" \n")) == "ValueError" and one_line("") == ""
    assert len(one_line("x" * 10_000)) < 250 and one_line("é " * 100) == ("é " * 100).strip()

    class Mute(Exception):
        def __str__(self):
            raise OSError

        __repr__ = __str__

    assert one_line(Mute()) == quoted(Mute()) == "a Mute" and quoted(["a\n"]) == r"['a\n']"


def test_a_list_that_holds_a_list_twice_is_shown_three_levels_deep():
    """Its fiftieth level holds 2 ** 50 letters."""
    many = ["a"]
    for _ in range(50):
        many = [many, many]
    assert quoted(many) == "[[[[...], [...]], [[...], [...]]], [[[...], [...]], [[...], [...]]]]"
    assert quoted(list(range(30))) == str(list(range(30))) and quoted("x" * 500) == "'" + "x" * 239 + "..."


@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded(tmp_path, tied):
    gpt = small(tied=tied)
    save_model(gpt, tmp_path / "a.pt", BYTES)
    again = load_model(tmp_path / "a.pt", dtype=torch.float64)
    assert again.config == gpt.config and again.dtype == torch.float64 and not again.training
    for name, weight in gpt.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.bfloat16().double())
    assert (again.head.weight is again.embedding.weight) == tied
    assert not any(weight.requires_grad for weight in again.parameters())


def test_loading_takes_no_random_numbers(folder, monkeypatch):
    """Whoever seeds torch, and then loads a pair, gets the same numbers as without it. And to ask for random weights of
    a model on the "meta" device would import a second's worth of Python."""
    monkeypatch.delattr(torch.nn.init, "normal_")
    monkeypatch.delattr(torch.nn.Module, "to_empty")
    before = torch.get_rng_state()
    load_pair(folder)
    load_pair(draft_model="prefix")
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(AttributeError):
        small()


def test_a_pair_is_loaded(folder):
    pair = load_pair(folder)
    assert pair.target.config == pair.draft_model.config and pair.tokenizer.vocab_size == 257


def test_a_draft_model_of_other_weights_is_refused_and_of_these_is_not(folder):
    """Both targets have the same sizes; they differ in one weight."""
    target = load_model(folder / "target.pt")
    save_learned("mlp", small_learned("mlp", target), folder / "mlp.pt", target)
    found = load_pair(folder, draft_model="mlp").draft_model
    assert found.target.config == target.config and not found.training
    assert not any(weight.requires_grad for weight in found.parameters())
    target.blocks[0].attention_norm.weight.data[3] += 1
    save_model(target, folder / "target.pt", BYTES)
    with pytest.raises(PairError, match="mlp.pt was trained for another target than the one beside it"):
        load_pair(folder, draft_model="mlp")
    note = load_learned(folder / "mlp.pt", target, "mlp", same_weights=False).note
    assert "mlp.pt" in note and load_pair(folder).note == ""


def test_a_draft_model_is_named_by_its_file(folder, tmp_path):
    """Wherever it lies; of other weights, it says so."""
    target = load_model(folder / "target.pt")
    (tmp_path / "far").mkdir()
    save_learned("mlp", small_learned("mlp", target), tmp_path / "far" / "mlp.pt", target)
    for path in tmp_path / "far" / "mlp.pt", str(tmp_path / "far" / "mlp.pt"):
        pair = load_pair(folder, draft_model=path)
        assert pair.note == "" and pair.draft_model.sizes["depth"]
    target.norm.weight.data[3] += 1
    save_model(target, folder / "target.pt", BYTES)
    assert "mlp.pt was trained beside other weights" in load_pair(folder, draft_model=tmp_path / "far" / "mlp.pt").note
    with pytest.raises(PairError, match="draft.pt is no draft model that python -m training wrote"):
        load_pair(folder, draft_model=folder / "draft.pt")
    with pytest.raises(FileNotFoundError, match="none.pt"):
        load_pair(folder, draft_model="none.pt")


def test_what_to_type_where_a_draft_model_or_its_target_is_missing(folder, tmp_path):
    with pytest.raises(PairError, match=f"holds no mlp.pt: python -m training mlp --out {folder} trains it"):
        load_pair(folder, draft_model="mlp")
    target, alone = load_model(folder / "target.pt"), tmp_path / "alone"
    alone.mkdir()
    save_learned("mlp", small_learned("mlp", target), alone / "mlp.pt", target)
    with pytest.raises(PairError, match=f"{alone} holds mlp.pt and not the target that it is for: name the target's "
                       f"folder or file, and {alone}/mlp.pt as the draft model"):
        load_pair(alone, draft_model="mlp")


def test_a_draft_model_that_nobody_knows(folder):
    """Not the small GPT in its place."""
    with pytest.raises(RequestError, match="no draft model 'eagel' here: there are gpt, medusa"):
        load_pair(folder, draft_model="eagel")


@pytest.mark.parametrize("name", ["target.pt", "draft.pt", "ranks.tiktoken"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_pair(folder)


@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint(folder, part):
    whole = (folder / "target.pt").read_bytes()
    (folder / "target.pt").write_bytes(whole[:int(part * len(whole))])
    with pytest.raises(PairError, match="target.pt is cut short, or is no checkpoint") as raised:
        load_pair(folder)
    assert "\n" not in str(raised.value)


def test_a_file_without_an_end_is_not_read(folder, monkeypatch):
    """It may be a terabyte of nothing."""
    (folder / "target.pt").write_bytes((folder / "target.pt").read_bytes()[:-30] + bytes(200_000))
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read_bytes(path) if path.suffix != ".pt" else pytest.fail())
    with pytest.raises(PairError, match="target.pt is cut short"):
        load_pair(folder)


class Exploit:
    """What a stranger's pickle might hold: a call to be made while it is read."""

    def __reduce__(self):
        return exec, ("raise SystemExit('code ran')",)


@pytest.mark.parametrize("foreign", [b"hello", b"\x00" * 1000, pickle.dumps({"config": 1}), pickle.dumps(Exploit())],
                         ids=["text", "zeros", "pickle", "code"])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_that_is_no_checkpoint(folder, foreign):
    (folder / "draft.pt").write_bytes(foreign)
    with pytest.raises(PairError, match="draft.pt is cut short, or is no checkpoint"):
        load_pair(folder)


def saved_with(config=(), state=(), **parts) -> dict:
    """What `save_model` writes, with something changed. In a state, None takes a weight away."""
    weights = small().state_dict()
    del weights["head.weight"]
    weights = {name: weight for name, weight in (weights | dict(state)).items() if weight is not None}
    return {"config": SIZES | dict(config), "state": weights, "tokenizer": BYTES.fingerprint()} | parts


@pytest.mark.parametrize("saved", [torch.zeros(3), torch.tensor(1.0), [1, 2], 5, "text", None, (small().state_dict(),)],
                         ids=["tensor", "number", "list", "int", "str", "None", "tuple"])
def test_something_else_than_a_dict(folder, saved):
    torch.save(saved, folder / "target.pt")
    refused(folder / "target.pt", "no checkpoint of ours: it holds a")
    with pytest.raises(PairError):
        load_saved(folder / "target.pt")


@pytest.mark.parametrize("saved, words", [
    ({}, "there is no 'config'"), ({"model": {}}, "there is no 'config'"),
    ({"config": SIZES, "state": {}}, "there is no 'tokenizer'"), (saved_with(config={"n_embd": 3}), "n_embd"),
    (saved_with() | {"config": 5}, "mapping"), (saved_with() | {"config": {1: 2}}, "keywords must be strings"),
    (saved_with() | {"config": {}}, "missing 7 required"), (saved_with() | {"state": {}}, "0 weights"),
    (saved_with() | {"state": 5}, "no dict of names and tensors"),
    (saved_with() | {"state": torch.zeros(2)}, "no dict of names and tensors"),
    (saved_with(state={"norm.weight": 5}), "no dict of names and tensors"),
    (saved_with(state={7: torch.zeros(2)}), "no dict of names and tensors"),
    (saved_with(state={"norm.weight": torch.ones(8, dtype=torch.int64)}), "tensors of floats"),
    (saved_with(state={"norm.weight": torch.ones(8, dtype=torch.complex64)}), "tensors of floats"),
    (saved_with(state={"norm.weight": None}), "Missing.*norm.weight"),
    (saved_with(state={"embedding.weight": None}), "Missing.*embedding.weight"),
    (saved_with(state={"embedding.weight": torch.zeros(257, 9)}), "size mismatch"),
    (saved_with(state={"norm.weight": torch.ones(1)}), "size mismatch"),
    (saved_with(state={"more.weight": torch.ones(8)}), "Unexpected.*more.weight"),
    (saved_with(state={"\x1b[2J\n": torch.ones(8)}), "Unexpected"),
    (saved_with(state={"head.weight": torch.ones(257, 8)}), "tied, and has a head"),
    (saved_with(state={"norm.weight": torch.full((8,), float("nan"))}), "norm.weight is not finite"),
    (saved_with(state={"embedding.weight": torch.zeros(257, 8).index_fill(0, torch.tensor(9), -float("inf"))}),
     "embedding.weight is not finite"),
    (saved_with(config={"layers": 2}), "Missing.*blocks.1"), (saved_with(config={"layers": 2 ** 31 - 1}), "weights"),
    (saved_with(config={"vocab_size": 2 ** 31 - 1, "channels": 2 ** 31 - 2}), "not of this GPT"),
    (saved_with(config={"tied": False}), "Missing.*head.weight"), (saved_with(config={"channels": 6}), "odd|paired"),
])
def test_a_checkpoint_of_something_else(tmp_path, saved, words):
    torch.save(saved, tmp_path / "target.pt")
    assert "is a checkpoint, but not of this GPT" in refused(tmp_path / "target.pt", words)


@pytest.mark.parametrize("name", [*SIZES, "eps", "rope_theta", "tied"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "8", None, True, [8], float("nan"), float("inf"), 2 ** 31, 10 ** 400])
def test_a_config_of_wrong_sizes(tmp_path, name, value):
    """Whole numbers of 1 or more; finite numbers above 0; True or False."""
    right = {"eps": [2.0, 2 ** 31], "rope_theta": [2.0, 2 ** 31], "tied": [True]}.get(name, [])
    if any(type(value) is type(fine) and value == fine for fine in right):
        Config(**SIZES | {name: value})
        return
    with pytest.raises(ValueError, match=name):
        Config(**SIZES | {name: value})
    torch.save(saved_with(config={name: value}), tmp_path / "target.pt")
    refused(tmp_path / "target.pt", name)


@pytest.mark.parametrize("sizes", [dict(heads=3), dict(heads=16), dict(kv_heads=2, heads=4, channels=6),
                                   dict(heads=4, kv_heads=3), dict(kv_heads=4)])
def test_heads_that_do_not_divide(sizes):
    with pytest.raises(ValueError, match="multiple of the next"):
        Config(**SIZES | sizes)


def test_heads_of_an_odd_size_cannot_be_turned():
    with pytest.raises(ValueError, match="heads of 3 channels"):
        small(channels=6)


def test_whatever_the_bytes_it_is_a_model_or_refused(folder):
    """150 files with some bytes changed, cut out or put in. Weights have checksums, and the padding has none."""
    chance, path = random.Random(0), folder / "draft.pt"
    whole_file, outcomes = path.read_bytes(), {"read": 0, "refused": 0}
    for _ in range(150):
        data = bytearray(whole_file)
        for _ in range(chance.choice([1, 3, 30])):
            at = chance.randrange(len(data))
            data[at:at + chance.choice([0, 1, 1, 5])] = chance.randbytes(chance.choice([0, 1, 1, 5]))
        path.write_bytes(data)
        try:
            load_model(path)
            outcomes["read"] += 1
        except PairError as error:
            assert str(error).isprintable()
            outcomes["refused"] += 1
    assert outcomes["refused"] > 120 and outcomes["read"] > 0


def test_models_of_different_tokenizers_are_no_pair(folder):
    other = Tokenizer(BYTES.ranks | {b"th": 256})
    save_model(small(vocab_size=258), folder / "draft.pt", other)
    with pytest.raises(PairError, match="draft.pt was trained with another tokenizer"):
        load_pair(folder)


@pytest.mark.parametrize("target, draft_model", [(257, 300), (300, 257), (256, 256)])
def test_vocabularies_that_do_not_fit(folder, target, draft_model):
    """Forged: the files say that they were made for this tokenizer."""
    save_model(small(vocab_size=target), folder / "target.pt", BYTES)
    save_model(small(vocab_size=draft_model), folder / "draft.pt", BYTES)
    with pytest.raises(PairError, match="no pair" if target > 256 else "none for '<.endoftext.>', token 256"):
        load_pair(folder)
    learned_for = load_model(folder / "target.pt")
    save_learned("mlp", small_learned("mlp", learned_for), folder / "mlp.pt", learned_for)
    if target < BYTES.vocab_size:                       # else this pair is one
        with pytest.raises(PairError, match="none for '<.endoftext.>'"):
            load_pair(folder, draft_model="mlp")


def test_models_may_have_more_tokens_than_their_tokenizer(folder):
    for name in ("target.pt", "draft.pt"):
        save_model(small(vocab_size=300), folder / name, BYTES)
    assert load_pair(folder).tokenizer.decode([97, 299]) == "a\ufffd"


def test_a_weight_that_is_too_large_for_its_data_type(folder):
    torch.save(saved_with(state={"norm.weight": torch.full((8,), 1e38)}), folder / "target.pt")
    load_model(folder / "target.pt")
    with pytest.raises(PairError, match="norm.weight is not finite everywhere in torch.float16"):
        load_model(folder / "target.pt", dtype=torch.float16)


@pytest.mark.parametrize("dtype", ["float16", torch.int8, None])
def test_a_data_type_that_weights_lack(folder, dtype):
    with pytest.raises(RequestError, match="dtype must be one of torch's for floats, as torch.bfloat16, got "):
        load_pair(folder, dtype=dtype)


def test_a_truncated_tokenizer(folder):
    shutil.copy(WEIGHTS / "ranks.tiktoken", folder)
    lines = (folder / "ranks.tiktoken").read_text().splitlines()
    (folder / "ranks.tiktoken").write_text("\n".join(lines[:600]))          # whole lines: only the models can tell
    with pytest.raises(PairError, match="another tokenizer"):
        load_pair(folder)


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", "meta", "hpu", "privateuseone", "vulkan", "CPU", "", {}])
def test_a_device_that_is_not_here(folder, device):
    """Or on which nothing can be computed, as on "meta"; or of which torch knows the name and no more."""
    for call in (lambda: available(device), lambda: load_pair(folder, device)):
        with pytest.raises(DeviceError, match=f"no device {str(device)!r}") as raised:
            call()
        assert isinstance(raised.value, NanospecError) and str(raised.value).isprintable()


def test_a_device_that_is_here(folder):
    assert available("cpu") == available(torch.device("cpu")) == load_pair(folder, "cpu").target.device


# The model is so large that torch itself meets the full disk, and not Python when it closes the file.
WRITERS = {"target.pt": lambda path: save_model(small(channels=512), path, BYTES), "ranks.tiktoken": BYTES.save}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file(folder, name):
    """A limit on the size of files stands in for the disk: writes fail half-way through."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
        with pytest.raises(OSError, match="could not be written, what was there before still is"):
            WRITERS[name](folder / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    load_pair(folder)
    assert not list(folder.glob("*.partial"))


def save_and_die(save, path: Path, stage: str) -> None:
    setattr(paths.os, stage, lambda *args: os.kill(os.getpid(), signal.SIGKILL))
    save(path)


@pytest.mark.parametrize("stage", ["fsync", "replace"])
@pytest.mark.parametrize("name", WRITERS)
def test_killed_at_its_worst_moments_the_old_file_stays(folder, name, stage):
    """And what the killed one has left beside it is gone as soon as somebody saves again."""
    before = (folder / name).read_bytes()
    dying = multiprocessing.get_context("fork").Process(target=save_and_die, args=(WRITERS[name], folder / name, stage))
    dying.start()
    dying.join(60)
    assert dying.exitcode == -signal.SIGKILL and (folder / name).read_bytes() == before
    assert len(list(folder.glob("*.partial"))) == 1
    WRITERS[name](folder / name)
    load_pair(folder)
    assert not list(folder.glob("*.partial"))


def test_interrupted_while_saving_nothing_is_left(folder, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt
    monkeypatch.setattr(paths.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        BYTES.save(folder / "ranks.tiktoken")
    load_pair(folder)
    assert not list(folder.glob("*.partial"))


def test_all_bytes_are_on_the_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(paths.os, "fsync", lambda file: found.append((os.fstat(file).st_size, os.listdir(tmp_path))))
    write_atomically(tmp_path / "a", lambda file: file.write(b"1234567"))
    assert found == [(7, ["a.partial"])]


def test_a_file_that_is_called_partial_itself(tmp_path):
    BYTES.save(tmp_path / "ranks.partial")
    assert Tokenizer.load(tmp_path / "ranks.partial").ranks == BYTES.ranks

    def full(file):
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="what was there before still is"):
        write_atomically(tmp_path / "ranks.partial", full)
    assert Tokenizer.load(tmp_path / "ranks.partial").ranks == BYTES.ranks and len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_written_in_folders_that_are_not_there(tmp_path):
    with written_aside(tmp_path / "a" / "b") as beside:
        (beside / "c").write_text("d")
    assert (tmp_path / "a" / "b" / "c").read_text() == "d" and not beside.exists()


def test_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nowhere" / "a.pt", tmp_path / "file" / "a.pt", tmp_path):
        with pytest.raises(OSError, match="could not be written"):
            BYTES.save(path)


def save_for_ever(folder: Path, saved, enough: int) -> None:
    number = 0
    while True:
        save_atomically({"number": number, "twice": torch.full((50_000,), number)}, folder / "x.pt")
        if number == enough:
            saved.set()
        number += 1


def test_twenty_kills_while_saving_and_never_an_unreadable_file(tmp_path):
    fork, chance, seen = multiprocessing.get_context("fork"), random.Random(0), set()
    for kill in range(20):
        saved = fork.Event()
        saving = fork.Process(target=save_for_ever, args=(tmp_path, saved, kill % 5))
        saving.start()
        assert saved.wait(60)
        time.sleep(chance.random() * 0.02)
        saving.kill()
        saving.join()
        found = torch.load(tmp_path / "x.pt", weights_only=True)
        assert (found["twice"] == found["number"]).all()
        seen.add(found["number"])
    assert len(seen) > 2                                        # killed at different moments


def test_a_byte_that_has_changed_is_refused_or_changes_nothing(tmp_path):
    """Every 29th byte of a small file. Those between its parts mean nothing: what is read is the same."""
    path, refused = tmp_path / "small.pt", 0
    what = {"state": {"a": torch.arange(40.0), "b": torch.ones(3, 5)}, "step": 7}
    save_atomically(what, path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 29):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        try:
            found = load_saved(path)
        except PairError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert found["step"] == 7 and all(found["state"][name].equal(what["state"][name]) for name in "ab")
    assert refused


def test_a_learned_draft_model_with_a_weight_that_is_no_number(folder):
    target = small()
    model = small_learned("mlp", target)
    next(model.parameters())[0, 0] = float("nan")
    save_learned("mlp", model, folder / "mlp.pt", target)
    with pytest.raises(PairError, match="mlp.pt is no draft model of ours: .* is not finite everywhere"):
        load_learned(folder / "mlp.pt", target, "mlp")


def test_a_learned_draft_model_with_a_weight_that_its_targets_data_type_cannot_hold(folder):
    target, half = small(), small().half()
    model = small_learned("mlp", target)
    next(model.parameters())[0, 0] = 1e6
    save_learned("mlp", model, folder / "mlp.pt", target)
    assert load_learned(folder / "mlp.pt", target, "mlp")
    with pytest.raises(PairError, match="is not finite everywhere in torch.float16"):
        load_learned(folder / "mlp.pt", half, "mlp", same_weights=False)


@pytest.mark.parametrize("offsets", [[-1, 0, 0], [0, 0, 255], [0, -1, 0], [0, 0, 2 ** 62]])
def test_a_draft_model_that_drafts_what_is_no_token(folder, offsets):
    """Its head's outputs are tokens 0, 1, 2, each plus its offset: none below 0, beyond the last, 256, or twice."""
    target = small()
    model = small_learned("eagle3", target)
    save_learned("eagle3", model, folder / "eagle3.pt", target)
    loaded = load_learned(folder / "eagle3.pt", target, "eagle3")
    assert loaded.has_tokens() and not any(weight.is_meta for weight in loaded.state_dict().values())
    loaded.offsets = loaded.offsets.float()             # as a file may have them
    assert not loaded.has_tokens()
    model.offsets.copy_(torch.tensor(offsets))
    save_learned("eagle3", model, folder / "eagle3.pt", target)
    with pytest.raises(PairError, match="its offsets name tokens that are none, or one twice"):
        load_learned(folder / "eagle3.pt", target, "eagle3")
