"""What a file says of itself is compared with what it is before anything is allocated. Only plain files are read."""

import json
import os
import shutil
import struct
import zipfile

import pytest
import torch

from nanospec.cli.options import SHAPE
from nanospec.errors import PairError, RequestError
from nanospec.files import paths, quick_gguf
from nanospec.files.model_file import load_model, load_saved, save_model
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.gguf import GGUFFile, load_gguf
from nanospec.files.huggingface import load_folder, save_folder
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.proof.tables import small_gpt
from tests import small_gguf

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
NOT_PLAIN = {"a pipe": os.mkfifo, "zeros": lambda path: path.symlink_to("/dev/zero"), "a folder": os.mkdir,
             "a hole": lambda path: path.open("wb").truncate(2 ** 42)}


def test_a_file_may_be_as_large_as_all_memory(tmp_path, monkeypatch):
    """Here it is three pages of five bytes; where nobody knows it, there is no limit."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 5, "SC_PHYS_PAGES": 3}.__getitem__)
    for size in 15, 16:
        (tmp_path / str(size)).write_bytes(bytes(size))
    assert paths.fetched(tmp_path / "15") == tmp_path / "15"
    with pytest.raises(PairError, match="has 16 bytes, and at most 15 are read"):
        paths.fetched(tmp_path / "16")
    monkeypatch.delattr(os, "sysconf")
    assert paths.fetched(tmp_path / "16") == tmp_path / "16"


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_only_plain_files_are_read(tmp_path, kind):
    """Nor one that is larger than all memory."""
    for name in ("target.pt", "draft.pt", "ranks.tiktoken"):
        folder = tmp_path / name
        folder.mkdir()
        save_model(small_gpt(257, 1, 1), folder / "target.pt", BYTES)
        save_model(small_gpt(257, 1, 2), folder / "draft.pt", BYTES)
        BYTES.save(folder / "ranks.tiktoken")
        (folder / name).unlink()
        NOT_PLAIN[kind](folder / name)
        with pytest.raises(PairError, match="no plain file|at most"):
            load_pair(folder)
    NOT_PLAIN[kind](tmp_path / "a.gguf")
    with pytest.raises(PairError, match="no plain file|at most"):
        GGUFFile(tmp_path / "a.gguf")
    NOT_PLAIN[kind](tmp_path / "a.json")
    with pytest.raises(Exception, match="must be children"):
        SHAPE(str(tmp_path / "a.json"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                  "model.safetensors", "model.safetensors.index.json", "added_tokens.json"])
def test_of_a_folder_of_others_too(tmp_path, name):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    for kind, make in NOT_PLAIN.items():
        folder = tmp_path / kind
        save_tokenizer(BYTES, folder)
        save_folder(small_gpt(257, 1, 1), folder, 256)
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        with pytest.raises(PairError, match="no plain file|at most"):
            load_pair(folder)


def changed(path, **more):
    saved = load_saved(WEIGHTS / "draft.pt")
    torch.save(saved | {name: saved.get(name, {}) | value if isinstance(value, dict) else value
                        for name, value in more.items()}, path)
    return path


def test_a_checkpoint_that_would_become_larger(tmp_path):
    """Compressed, or with tensors that name the same bytes many times."""
    path, one = tmp_path / "a.pt", torch.zeros(2 ** 16)
    with zipfile.ZipFile(WEIGHTS / "draft.pt") as whole, \
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as small:
        for entry in whole.infolist():
            small.writestr(entry.filename, whole.read(entry))
    with pytest.raises(PairError, match="compressed"):
        load_model(path)
    for state, words in (({"embedding.weight": torch.zeros(1).expand(2 ** 20, 2 ** 20)}, "says that it holds"),
                         ({str(i): one[:] for i in range(1000)}, "says that it holds"),
                         ({str(i): one for i in range(1000)}, "one thing stands in two places")):
        with pytest.raises(PairError, match=words):
            load_model(changed(path, state=state))
    inner: list = []
    inner.append(inner)
    with pytest.raises(PairError, match="one thing stands in two places"):
        load_model(changed(path, more=inner))


def field(kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", 1) + b"a" + struct.pack("<I", kind) + value


@pytest.mark.parametrize("tensors, keys, data", [
    (0, 1, field(9, struct.pack("<IQ", 4, 2 ** 40))), (0, 1, field(9, struct.pack("<IQ", 8, 2 ** 40))),
    (0, 1, field(9, struct.pack("<IQ", 0, 2 ** 64 - 1))), (0, 1, field(8, struct.pack("<Q", 2 ** 60))),
    (0, 2 ** 62, b""), (2 ** 62, 0, b""), (0, 1, field(9, struct.pack("<IQ", 9, 1) * 5000)),
    (0, 1, field(9, struct.pack("<IQ", 9, 2 ** 40) + struct.pack("<IQ", 4, 0) * 50))])
def test_a_gguf_file_that_claims_more_than_it_has(tmp_path, tensors, keys, data):
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + data)
    with pytest.raises(PairError, match="cut short"):
        GGUFFile(tmp_path / "a.gguf")


def test_a_gguf_file_may_have_as_many_tokens_as_the_largest(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
                                      + field(9, struct.pack("<IQ", 0, 2_000_000) + bytes(2_000_000)))
    assert 2_000_000 < quick_gguf.gguf_reader(tmp_path / "a.gguf").read < 2_000_050


def test_a_gguf_file_of_more_layers_than_tensors(tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    for layers in 2 ** 31, 512, 0:
        monkeypatch.setattr(gguf.GGUFWriter, "add_block_count",
                            lambda self, count, layers=layers: self.add_uint32("llama.block_count", layers))
        small_gguf.write(tmp_path / "a.gguf")
        with pytest.raises(PairError, match=f"weights of {layers} layers"):
            load_gguf(tmp_path / "a.gguf")


@pytest.mark.parametrize("most", [1, 2])
def test_a_gguf_file_of_as_many_layers_as_are_read(tmp_path, monkeypatch, most):
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    model = small_gguf.write(tmp_path / "a.gguf")
    monkeypatch.setattr("nanospec.files.gguf.MOST_LAYERS", most)
    if most == model.config.layers:
        assert load_gguf(tmp_path / "a.gguf")
    else:
        with pytest.raises(PairError, match="weights of 2 layers, of which at most 1 are read"):
            load_gguf(tmp_path / "a.gguf")


EAGLE = {"fc.weight": (8, 16), "embed_tokens.weight": (257, 8)}


@pytest.mark.parametrize("config, tensors", [
    ({"model_type": "llama"}, EAGLE), ({"architectures": ["LlamaForCausalLMEagle3"]}, {"norm.weight": (8,)}),
    ({"speculators_model_type": "eagle3"}, {"norm.weight": (8,)}), ({"model_type": "llama"}, {"d2t": (8,)}),
    ({"medusa_num_heads": 3}, {"0.0.linear.weight": (8, 8)}), ({"model_type": "mlp_speculator"}, {"x": (8,)}),
    *(({"model_type": "llama"}, {name: (8,)}) for name in (
        "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight", "0.linear.weight", "medusa_head.0.weight",
        "t2d", "model.fc.weight")),
    *(({key: 9}, {"x": (8,)}) for key in (
        "speculators_config", "eagle_config", "draft_vocab_size", "medusa_num_heads")),
    *(({"architectures": [name]}, {"x": (8,)}) for name in (
        "MedusaModel", "HydraModel", "DFlashForCausalLM", "Qwen3DraftModel", "DeepSeekMTPModel"))])
def test_a_head_in_the_draft_models_place_is_refused_by_name(tmp_path, config, tensors):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed (the extra 'hf')")
    save_tokenizer(BYTES, tmp_path / "target")
    save_folder(small_gpt(257, 1, 1), tmp_path / "target", 256)
    shutil.copytree(tmp_path / "target", tmp_path / "draft")
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    safetensors.save_file({name: torch.zeros(shape) for name, shape in tensors.items()},
                          str(tmp_path / "draft" / "model.safetensors"))
    (tmp_path / "draft" / "model.safetensors.index.json").write_text('{"weight_map": 0.5}')      # no index
    with pytest.raises(PairError, match="EAGLE head .* reads the target's hidden states.* python -m training eagle3 "):
        load_pair(tmp_path)


@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_a_quantised_folder_is_refused_by_that_word(tmp_path, key):
    save_folder(small_gpt(257, 1, 1), tmp_path, 256)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: {"bits": 4, "group_size": 64}}))
    with pytest.raises(PairError, match="quantization"):
        load_folder(tmp_path)


def test_a_shape_of_very_many_rows_is_refused_before_it_is_made():
    for text in (json.dumps([-1] + [0] * 40_000), json.dumps([[0] * n for n in range(1, 200)] + [[0] * 10 ** 6])):
        with pytest.raises(Exception, match="must be children"):
            SHAPE(text)


def test_an_export_that_fails_leaves_nothing_that_blocks_the_next(tmp_path):
    with pytest.raises(OSError, match="full"), paths.written_aside(tmp_path / "out" / "target") as beside:
        (beside / "config.json").write_text("{}")
        raise OSError("the disk is full")
    assert not [*(tmp_path / "out").iterdir()]
    (tmp_path / "out" / "target.partial" / "deep").mkdir(parents=True)          # of one that was killed
    (tmp_path / "out" / "target.partial" / "model.safetensors").write_text("half")
    with paths.written_aside(tmp_path / "out" / "target") as beside:
        (beside / "config.json").write_text("{}")
    assert [path.name for path in (tmp_path / "out" / "target").iterdir()] == ["config.json"]


def test_a_device_is_written_to_and_a_link_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    paths.write_json(tmp_path / "pipe", [1])
    assert os.read(reader, 100) == b"[\n 1\n]\n"
    os.close(reader)
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    paths.write_json(tmp_path / "link", [1])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "[\n 1\n]\n"


def test_a_path_that_is_no_utf8_is_the_cause_that_is_named(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    save_folder(small_gpt(257, 1, 1), folder, 256)
    with pytest.raises(PairError, match="not UTF-8"):
        load_folder(folder)
    with pytest.raises(RequestError, match="must be a path"):
        load_pair("a\0b")
