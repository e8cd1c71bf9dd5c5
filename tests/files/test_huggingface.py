"""Checkpoints of others: read right and written right, against transformers; refused where they are something else."""

import json
import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nanospec.cli.bench.command import main as bench
from nanospec.cli.bench import questions
from nanospec.cli.bench.transformers import write_folders, their_dtype, their_writers
from nanospec.cli.options import tree
from nanospec.errors import PairError
from nanospec.files import safetensors_files
from nanospec.files.huggingface import load_folder, read_config, save_folder, taken_apart
from nanospec.files.paths import read_json
from nanospec.files.runnable import ready
from nanospec.files.safetensors_files import read_safetensors
from nanospec.generate import generate
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_gpt
from tests import small_gguf

pytest.importorskip("safetensors", reason="safetensors is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
CONFIG = {"model_type": "llama", "vocab_size": 31, "max_position_embeddings": 64, "num_hidden_layers": 2,
          "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
          "rms_norm_eps": 1e-6, "rope_theta": 5_000.0, "tie_word_embeddings": False}
SAID = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def packed(tensors: dict) -> tuple[dict, bytes]:
    """The header and the numbers of a safetensors file."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": SAID[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return header, data


def put(path, header: dict | str, data: bytes) -> None:
    head = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def write(folder, tensors: dict, config: dict = CONFIG, file: str = "model.safetensors") -> None:
    """A checkpoint in the layout that transformers writes."""
    put(folder / file, *packed(tensors))
    (folder / "config.json").write_text(json.dumps(config))


def refused(call, *args, words: str) -> None:
    """In one line that a terminal can show."""
    with pytest.raises(PairError, match=words) as raised:
        call(*args)
    assert str(raised.value).isprintable() and len(str(raised.value)) < 600


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(read_config_of(CONFIG)).requires_grad_(False)


def read_config_of(config: dict) -> Config:
    return Config(31, 64, 2, 16, 4, 2, 24, config["tie_word_embeddings"], 1e-6, 5_000.0)


@pytest.mark.parametrize("tied", [True, False])
def test_names_that_others_write_for_the_same_weights(tied, tmp_path):
    """Without "model." before them; and of one matrix for both ends, only the head's name."""
    config = CONFIG | {"tie_word_embeddings": tied}
    model = GPT(read_config_of(config)).requires_grad_(False)
    theirs = taken_apart(model)
    flat = {name.removeprefix("model."): tensor for name, tensor in theirs.items()}
    renamed = {("lm_head" + name.removeprefix("model.embed_tokens") if "embed" in name else name): tensor
               for name, tensor in theirs.items()}
    flat_and_renamed = {name.removeprefix("model."): tensor for name, tensor in renamed.items()}
    for tensors in [theirs, flat] + [renamed, flat_and_renamed] * tied:
        write(tmp_path, tensors, config)
        again = load_folder(tmp_path)
        for name, weight in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], weight), name
        assert (again.head.weight is again.embedding.weight) == tied
    if not tied:
        write(tmp_path, {name: tensor for name, tensor in theirs.items() if "embed" not in name}, config)
        refused(load_folder, tmp_path, words="model.embed_tokens.weight is not there")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_read_back(model, tmp_path, dtype):
    write(tmp_path, {name: tensor.to(dtype) for name, tensor in taken_apart(model).items()})
    before = torch.get_rng_state()
    again = load_folder(tmp_path)
    assert again.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.to(dtype).float()), name
    assert torch.equal(torch.get_rng_state(), before)


def test_several_files_and_a_tied_head(tmp_path):
    torch.manual_seed(0)
    tied = CONFIG | {"tie_word_embeddings": True}
    model = GPT(read_config_of(tied)).requires_grad_(False)
    tensors = list(taken_apart(model).items())
    write(tmp_path, dict(tensors[:5]), tied, "model-00001-of-00002.safetensors")
    write(tmp_path, dict(tensors[5:]), tied, "model-00002-of-00002.safetensors")
    again, x = load_folder(tmp_path), torch.arange(20)[None]
    assert again.head.weight is again.embedding.weight and torch.equal(again(x), model(x))


LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 5_000.0}
# A checkpoint of each shape: which class, and what its config says besides CONFIG.
SHAPES = {"llama": ("Llama", {}), "tied": ("Llama", {"tie_word_embeddings": True}),
          "own head_dim": ("Llama", {"head_dim": 6}), "llama3": ("Llama", {"rope_parameters": LLAMA3, "head_dim": 12}),
          "qwen2": ("Qwen2", {}), "qwen2, tied": ("Qwen2", {"tie_word_embeddings": True}),
          "qwen3": ("Qwen3", {"head_dim": 8}), "eps": ("Qwen3", {"head_dim": 8, "rms_norm_eps": 0.1})}


@pytest.fixture
def theirs(request, transformers):
    """A random model of theirs, of a shape that the test names; far from uniform, all its switches felt."""
    torch.manual_seed(1)
    kind, change = SHAPES[request.param]
    said = {key: value for key, value in CONFIG.items() if key not in ("model_type", "rope_theta")}
    said = said | {"rope_parameters": {"rope_type": "default", "rope_theta": 5_000.0}, "eos_token_id": 30} | change
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**said)).eval()
    for name, weight in model.named_parameters():
        weight.data *= 10.0 if weight.dim() == 2 else 1.3
        weight.data += torch.randn_like(weight) * (0.5 if name.endswith(("bias", "q_norm.weight")) else 0)
    return model


@pytest.mark.parametrize("theirs", SHAPES, indirect=True)
@torch.inference_mode()
def test_the_same_logits_and_greedy_tokens_as_transformers(theirs, tmp_path):
    """With grouped heads, another rotary base and another eps than our own; in one file, and in several."""
    x = torch.arange(60).view(2, 30) % 31
    expected = theirs(x).logits
    greedy = theirs.generate(x[:1], max_new_tokens=20, do_sample=False, eos_token_id=None)[0, 30:].tolist()
    assert expected.std() > 0.5 and len(set(greedy)) > 1
    for name, size in ("whole", "1GB"), ("parts", "4KB"):
        theirs.save_pretrained(tmp_path / name, max_shard_size=size)
        ours = load_folder(tmp_path / name)
        cache = ours.new_cache(2, 30)
        assert (ours(x) - expected).abs().max() < 1e-4
        assert (ours(x, cache) - expected).abs().max() < 1e-4
        assert list(generate(ours, x[0].tolist(), 20, temperature=0)) == greedy
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1


@pytest.mark.parametrize("theirs", SHAPES, indirect=True)
@torch.inference_mode()
def test_what_is_written_transformers_opens_as_it_is(theirs, tmp_path, transformers):
    """There and back: every tensor has the name, the shape and the numbers that it had."""
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_folder(tmp_path / "theirs")
    save_folder(ours, tmp_path / "ours", 30)
    again, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(told.values()) and type(again) is type(theirs) and again.dtype == torch.float32
    assert again.generation_config.eos_token_id == again.config.eos_token_id == 30
    assert again.generation_config.bos_token_id == again.generation_config.pad_token_id == 30
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    x = torch.arange(30)[None]
    assert torch.equal(theirs(x).logits, again(x).logits)
    assert load_folder(tmp_path / "ours").config == ours.config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_written_in_its_own_data_type(tmp_path, dtype):
    ours = small_gpt(31, 2, 1).to(dtype)
    save_folder(ours, tmp_path, 30)
    again = load_folder(tmp_path, dtype=dtype)
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in ours.state_dict().items())
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype).split(".")[1]


def test_the_config_comes_last(tmp_path, monkeypatch):
    """A run that is killed before leaves no folder that looks whole."""
    def killed(path, write):
        raise KeyboardInterrupt

    monkeypatch.setattr("nanospec.files.huggingface.write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        save_folder(small_gpt(31, 2, 1), tmp_path, 30)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("size", [2 ** 24, 2 ** 24 + 1])
def test_tables_of_megabytes_are_not_made_objects(tmp_path, size):
    """config.json, and all others of a folder; a shape, too."""
    path = tmp_path / "config.json"
    with open(path, "wb") as file:
        file.truncate(size)                             # of zeros, which are no JSON
    words = "has 16,777,217 bytes, and at most 16,777,216 are read" if size > 2 ** 24 else "Expecting value"
    for read in read_config, read_json:
        refused(read, path, words=words)
    if size > 2 ** 24:
        refused(tree, str(path), words=words)


def test_what_nobody_else_has_is_not_written(tmp_path):
    config = replace(small_gpt(31, 1, 1).config, qkv_bias=True, qk_norm=True)
    refused(save_folder, GPT(config), tmp_path / "x", 30, words="no architecture")
    assert not (tmp_path / "x").exists()


def test_nothing_in_a_folder_is_executed(model, tmp_path):
    """Neither code that its config names, nor a pickle beside the weights, nor one instead of them."""
    class Exploit:
        def __reduce__(self):
            return Path.write_text, (tmp_path / "executed", "")

    write(tmp_path, taken_apart(model), CONFIG | {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}})
    (tmp_path / "modeling_x.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit()))
    load_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused(load_folder, tmp_path, words="has no weights")
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(Exploit()))
    refused(load_folder, tmp_path, words="no safetensors file")
    assert not (tmp_path / "executed").exists()


def configured(folder, text: str):
    (folder / "config.json").write_text(text)
    return folder / "config.json"


ROPE, ROPE_5 = "rope_scaling", "rope_parameters"


@pytest.mark.parametrize("change, words", [
    ({"model_type": "gpt2"}, "model_type 'gpt2'"), ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ({"attention_bias": True}, "attention_bias True"), ({"mlp_bias": True}, "mlp_bias True"),
    ({ROPE: {"type": "linear", "factor": 2}}, "type 'linear'"), ({ROPE: {"type": "dynamic", "factor": 2.0}}, "dynamic"),
    ({ROPE: {"type": "default", "factor": 2}}, "'factor'"), ({ROPE: LLAMA3 | {"beta_fast": 32.0}}, "'beta_fast'"),
    ({ROPE: LLAMA3, ROPE_5: {"rope_type": "default"}}, "more than one scaling"),
    ({ROPE: LLAMA3, ROPE_5: LLAMA3 | {"factor": 8.0}}, "more than one scaling"),
    ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}, "use_sliding_window"),
    ({"model_type": "qwen3", "attention_bias": True}, "attention_bias"),
    ({ROPE: {"rope_type": "default", "type": "yarn"}}, "yarn"), ({ROPE: {"factor": 2.0}}, "'factor'"),
    ({ROPE: {"short_factor": [1.0]}}, "short_factor"),
    ({ROPE_5: {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e3}}, "linear"),
    ({ROPE_5: {"full_attention": {"rope_theta": 5e3}}}, "full_attention"),
    ({ROPE_5: {"rope_theta": 6e3}}, "more than one rope_theta"),
    ({ROPE_5: {"rope_type": "default"}, ROPE: {"type": "linear", "factor": 2.0}}, "linear"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    ({ROPE_5: {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor"),
    ({"sliding_window": 4096}, "sliding_window 4096"), ({"use_sliding_window": True}, "use_sliding_window"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
    ({"is_causal": False}, "is_causal False"), ({"use_bidirectional_attention": True}, "use_bidirectional"),
    ({"final_logit_softcapping": 30.0}, "final_logit"), ({"logits_scaling": 8.0}, "logits_scaling"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50"), ({"embedding_multiplier": 12.0}, "embedding_mult"),
    ({"residual_multiplier": 0.22}, "residual_multiplier 0.22"),
    ({"hidden_act": "\x1b[2J\n"}, "hidden_act"), ({"hidden_act": "x" * 10_000}, "hidden_act")])
def test_what_this_gpt_does_not_have_is_refused(tmp_path, change, words):
    path = configured(tmp_path, json.dumps(CONFIG | change))
    refused(read_config, path, words=f"asks for what .* not have: .*{words}")


@pytest.mark.parametrize("change", [
    {"model_type": None}, {"hidden_act": "swish"}, {ROPE: None}, {ROPE: {}}, {ROPE: {"type": "default"}},
    {ROPE_5: {"rope_type": "default", "rope_theta": 5_000}},
    {"head_dim": 4}, {"head_dim": None}, {"attention_bias": None, "sliding_window": None, "quantization_config": None},
    {"layer_types": ["full_attention"] * 2}, {"partial_rotary_factor": 1.0}, {"use_sliding_window": False},
    {"torch_dtype": "bfloat16", "pretraining_tp": 1, "use_cache": True, "transformers_version": "4.31.0"}])
def test_what_means_the_same_is_read(tmp_path, change):
    assert read_config(configured(tmp_path, json.dumps(CONFIG | change))) == read_config_of(CONFIG)


@pytest.mark.parametrize("change, ours", [
    ({"head_dim": 8}, {"head_dim": 8}), ({ROPE: LLAMA3}, {"rope_llama3": (4.0, 1.0, 4.0, 16)}),
    ({ROPE_5: LLAMA3, ROPE: LLAMA3}, {"rope_llama3": (4.0, 1.0, 4.0, 16)}),
    ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32}, {"qkv_bias": True}),
    ({"model_type": "qwen3", "head_dim": 4, "sliding_window": 32}, {"qk_norm": True})])
def test_what_is_more_than_llama_was(tmp_path, change, ours):
    expected = replace(read_config_of(CONFIG), **ours)
    assert read_config(configured(tmp_path, json.dumps(CONFIG | change))) == expected


@pytest.mark.parametrize("change, words", [
    ({ROPE: {"rope_type": "llama3", "factor": 8.0}}, "there is no 'low_freq_factor'"),
    ({ROPE: LLAMA3 | {"factor": "8"}}, "finite number above 0"), ({ROPE: LLAMA3 | {"factor": 0}}, "above 0"),
    ({ROPE: LLAMA3 | {"high_freq_factor": 1.0}}, "low below high"), ({ROPE: LLAMA3 | {"factor": [8]}}, "list"),
    ({"model_type": "qwen3"}, "no 'head_dim'"), ({"model_type": "qwen2", "rope_theta": None}, "no 'rope_theta'"),
    ({"model_type": "qwen2", "num_key_value_heads": None}, "no 'num_key_value_heads'")])
def test_what_is_said_of_it_must_be_whole(tmp_path, change, words):
    """Where config.json of a Qwen says nothing, transformers fills in numbers that are not ours."""
    refused(read_config, configured(tmp_path, json.dumps(CONFIG | change)), words=f"not the config of a Llama.*{words}")


def test_what_a_config_may_leave_out(tmp_path):
    left_out = {key: value for key, value in CONFIG.items() if key not in ("rope_theta", "tie_word_embeddings")}
    config = read_config(configured(tmp_path, json.dumps(left_out | {"num_key_value_heads": None})))
    assert (config.rope_theta, config.tied, config.kv_heads) == (10_000.0, False, 4)


@pytest.mark.parametrize("text", [
    "", "{}", "[1", "[1]", "null", "7", '"llama"', '{"model_type": "llama"}', "[" * 100_000, "\x00", "1" * 5_000,
    json.dumps(CONFIG | {ROPE: "linear"}), json.dumps(CONFIG | {ROPE: 2}), json.dumps(CONFIG | {ROPE_5: [1]}),
    json.dumps(CONFIG | {"rope_theta": [1]}), json.dumps(CONFIG | {"layer_types": [[1]]})],
    ids=lambda text: text[:20] or "nothing")
def test_a_config_that_is_none(tmp_path, text):
    refused(read_config, configured(tmp_path, text), words="not the config of a Llama")


SIZES = ["vocab_size", "max_position_embeddings", "num_hidden_layers", "hidden_size", "num_attention_heads",
         "num_key_value_heads", "intermediate_size", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "head_dim"]


@pytest.mark.parametrize("key", SIZES)
def test_sizes_that_are_none(tmp_path, key):
    """Whole numbers of 1 or more, finite numbers above 0, True or False; and they must be there."""
    wrong = [0, -1, 2.5, 4.0, "4", [4], {}, True, False, float("nan"), float("inf"), -float("inf"), 2 ** 31, 10 ** 400]
    if key in ("rms_norm_eps", "rope_theta"):
        wrong = [value for value in wrong if value not in (2.5, 4.0, 2 ** 31)]
    if key == "tie_word_embeddings":
        wrong = [value for value in wrong if value is not True and value is not False]
    for value in wrong:
        refused(read_config, configured(tmp_path, json.dumps(CONFIG | {key: value})), words="not the config of a Llama")
    if key not in ("num_key_value_heads", "rope_theta", "tie_word_embeddings", "head_dim"):
        without = {name: value for name, value in CONFIG.items() if name != key}
        refused(read_config, configured(tmp_path, json.dumps(without)), words=f"there is no '{key}'")


@pytest.mark.parametrize("change", [{"num_attention_heads": 3}, {"num_key_value_heads": 3}, {"num_key_value_heads": 8},
                                    {"hidden_size": 18}, {"head_dim": 8, "num_key_value_heads": 3}])
def test_heads_that_do_not_divide(tmp_path, change):
    refused(read_config, configured(tmp_path, json.dumps(CONFIG | change)), words="multiple of the next")


def test_weights_that_are_not_those_of_the_config(model, tmp_path):
    right = taken_apart(model)
    o_proj, q_proj, k_proj = (f"model.layers.1.self_attn.{name}_proj.weight" for name in "oqk")
    without = {name: tensor for name, tensor in right.items() if "layers.1.mlp" not in name}
    stacked_right = {q_proj: right[q_proj][:12], k_proj: torch.cat([right[k_proj], right[q_proj][12:]])}
    for tensors, config, words in (
            (without, {}, "layers.1.mlp.gate_proj.weight is not there"), ({}, {}, "has no weights"),
            (right | {o_proj: right[o_proj][:-1]}, {}, r"o_proj.weight is of shape \(15, 16\)"),
            (right | {o_proj: right[o_proj][0]}, {}, r"of shape \(16,\)"),
            (right | stacked_right, {}, r"q_proj.weight is of shape \(12, 16\)"),    # as a stack they would fit
            (right, {"num_hidden_layers": 3}, "layers.2.input_layernorm.weight is not there"),
            (right, {"num_hidden_layers": 2 ** 31 - 1}, "layers.2.input_layernorm.weight is not there"),
            (right, {"num_hidden_layers": 1}, "does not describe: model.layers.1"),
            (right | {o_proj.replace("weight", "bias"): torch.ones(16)}, {}, "does not describe: .*o_proj.bias"),
            (right | {"model.layers.0.self_attn.q_norm.weight": torch.ones(4)}, {}, "does not describe"),
            (right | {"score.weight\x1b[2J": torch.ones(2, 16)}, {}, "does not describe"),
            (right, {"tie_word_embeddings": True}, "does not describe: lm_head.weight"),
            (right, {"vocab_size": 32}, r"embed_tokens.weight is of shape \(31, 16\)"),
            (right, {"hidden_size": 24}, "embed_tokens.weight is of shape"),
            (right, {"head_dim": 8}, r"q_proj.weight is of shape \(16, 16\)"),
            (right, {"model_type": "qwen2"}, "layers.0.self_attn.q_proj.bias is not there"),
            (right, {"model_type": "qwen3", "head_dim": 4}, "layers.0.self_attn.q_norm.weight is not there"),
            (right | {o_proj: torch.ones(16, 16, dtype=torch.int64)}, {}, "o_proj.weight is torch.int64"),
            (right | {o_proj: torch.full_like(right[o_proj], float("nan"))}, {}, "attention.out.weight is not finite"),
            (right | {o_proj: torch.full((16, 16), 1e300, dtype=torch.float64)}, {}, "not finite .* in torch.float32")):
        write(tmp_path, tensors, CONFIG | config)
        refused(load_folder, tmp_path, words=words)
    (tmp_path / "model.safetensors").unlink()
    refused(load_folder, tmp_path, words="has no weights")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    refused(load_folder, tmp_path, words="has no weights.*; pytorch_model.bin may hold code, and is not read")
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_folder(tmp_path)


def test_heads_of_an_odd_size(tmp_path):
    refused(read_config, configured(tmp_path, json.dumps(CONFIG | {"hidden_size": 12})), words="heads of 3 channels")


def test_harmless_tensors_are_passed_over(tmp_path):
    """Buffers that older versions saved, and a tied head that was saved all the same."""
    torch.manual_seed(0)
    config = CONFIG | {"tie_word_embeddings": True}
    model = GPT(read_config_of(config)).requires_grad_(False)
    more = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
    write(tmp_path, taken_apart(model) | more | {"lm_head.weight": model.embedding.weight}, config)
    again, x = load_folder(tmp_path), torch.arange(20)[None]
    assert torch.equal(again(x), model(x))
    write(tmp_path, taken_apart(model) | {"lm_head.weight": model.embedding.weight + 1}, config)
    refused(load_folder, tmp_path, words="lm_head.weight")


def test_a_model_of_thousands_of_layers_is_refused_before_it_is_made():
    """The largest have some hundred. Each layer is an object of objects, however small its weights are."""
    state = {str(number): torch.zeros(1) for number in range(513)}
    with pytest.raises(ValueError, match="not those of 513 layers, of which at most 512 are read"):
        ready(Config(5, 16, 513, 4, 1, 1, 4), state, torch.device("cpu"), torch.float32)
    with pytest.raises(RuntimeError, match="Missing key"):          # 512 are made, of other weights
        ready(Config(5, 16, 512, 4, 1, 1, 4), state, torch.device("cpu"), torch.float32)


def test_a_tensor_in_two_files(model, tmp_path):
    """Unless the index names one of the two alone."""
    tensors = taken_apart(model)
    write(tmp_path, tensors)
    write(tmp_path, {"model.norm.weight": tensors["model.norm.weight"] * 2}, file="model-2.safetensors")
    refused(load_folder, tmp_path, words="model.norm.weight is in another file")
    index, file = tmp_path / "model.safetensors.index.json", "model.safetensors"
    index.write_text(json.dumps({"weight_map": {name: file for name in tensors}}))
    assert torch.equal(load_folder(tmp_path).norm.weight, model.norm.weight)


@pytest.mark.parametrize("text, words", [
    ("", "no table in JSON"), ("{}", "no index"), ("[]", "no table in JSON"), ('{"weight_map": 5}', "no index"),
    ('{"weight_map": {"a": 5}}', "no index"), ('{"weight_map": {"a": []}}', "no index"),
    ('{"weight_map": {"a": "\\ud800.safetensors"}}', "whose path is not UTF-8"),
    ('{"weight_map": {"a": "../x.safetensors"}}', "no weights"), ('{"weight_map": {"a": "/x"}}', "no weights")])
def test_an_index_that_is_none(model, tmp_path, text, words):
    write(tmp_path, taken_apart(model))
    (tmp_path / "model.safetensors.index.json").write_text(text)
    refused(load_folder, tmp_path, words=words)


def test_a_file_of_the_index_that_is_not_there(model, tmp_path):
    write(tmp_path, taken_apart(model))
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises(FileNotFoundError, match="b.safetensors"):
        load_folder(tmp_path)


A = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}
B = {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}


@pytest.mark.parametrize("header, size", [
    ({"a": A, "b": B}, 11), ({"a": A, "b": B}, 13), ({"a": A, "b": B}, 0), ({}, 1), ({"b": B}, 12),
    ({"a": A, "b": B | {"data_offsets": [4, 8]}}, 8), ({"a": A, "b": B | {"data_offsets": [0, 4]}}, 8),
    ({"a": A, "b": A}, 8), ({"a": A, "b": B | {"data_offsets": [12, 16]}}, 16),
    ({"a": A, "b": B | {"data_offsets": [-4, 0]}}, 8), ({"a": A, "b": B | {"data_offsets": [12, 8]}}, 12),
    ({"a": A | {"shape": [3, 1]}}, 8), ({"a": A | {"shape": [-2, -1]}}, 8), ({"a": A | {"shape": [0]}}, 0),
    ({"a": A | {"shape": [2.0]}}, 8), ({"a": A | {"shape": "2"}}, 8), ({"a": A | {"shape": 2}}, 8),
    ({"a": A | {"shape": [True, 2]}}, 8), ({"a": A | {"shape": [2 ** 70]}}, 8), ({"a": A | {"shape": None}}, 8),
    ({"a": A | {"data_offsets": [0.0, 8.0]}}, 8), ({"a": A | {"data_offsets": [False, 8]}}, 8),
    ({"a": A | {"data_offsets": [0, 8, 16]}}, 8), ({"a": A | {"data_offsets": "08"}}, 8),
    ({"a": A | {"data_offsets": 8}}, 8), ({"a": A | {"data_offsets": [0, 2 ** 70]}}, 8), ({"a": {}}, 8),
    ({"a": A | {"dtype": "I32"}}, 8), ({"a": A | {"dtype": "F8_E4M3"}}, 8), ({"a": A | {"dtype": []}}, 8),
    ({"a": 5}, 8), ([], 0), (7, 0), ("[" * 100_000, 0), ('{"a": 1, "a": 1}', 8),
    (f'{{"a": {json.dumps(A)}, "a": {json.dumps(B)}}}', 12), ("\x00", 0), ("", 0)], ids=lambda said: str(said)[:60])
def test_a_file_that_is_no_safetensors(tmp_path, header, size):
    """Tensors that lie over another, behind the end, before the beginning, with gaps or rests; sizes that are none."""
    put(tmp_path / "x.safetensors", header if isinstance(header, str) else json.dumps(header), bytes(size))
    refused(read_safetensors, tmp_path / "x.safetensors", words="no safetensors file")


def test_a_header_that_is_longer_than_any(tmp_path, monkeypatch):
    """safetensors would make objects of it, in twenty times the memory."""
    monkeypatch.setattr(safetensors_files, "TABLE", 70)
    put(tmp_path / "x.safetensors", json.dumps({"a": A}), bytes(8))
    put(tmp_path / "x.safetensors", f"{json.dumps({'a': A}):70}", bytes(8))
    assert read_safetensors(tmp_path / "x.safetensors")["a"].shape == (2, 1)
    put(tmp_path / "x.safetensors", f"{json.dumps({'a': A}):71}", bytes(8))
    refused(read_safetensors, tmp_path / "x.safetensors", words="in 71 bytes what it holds, and at most 70 are read")


def test_in_any_order_the_same_tensors(tmp_path):
    """The order of the header is not that of the numbers; its length need not suit their alignment."""
    for blanks in range(8):
        put(tmp_path / "x.safetensors", json.dumps({"b": B, "a": A}) + " " * blanks,
            torch.tensor([1.0, 2, 3]).numpy().tobytes())
        found = read_safetensors(tmp_path / "x.safetensors")
        assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [[1.0], [2.0]], "b": [3.0]}


def test_files_that_were_cut_short(model, tmp_path):
    write(tmp_path, taken_apart(model))
    whole = (tmp_path / "model.safetensors").read_bytes()
    for kept in (0, 5, 8, 40, 2_000, len(whole) - 100, len(whole) - 1):
        (tmp_path / "model.safetensors").write_bytes(whole[:kept])
        refused(load_folder, tmp_path, words="cut short")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 8 + whole[8:])
    refused(load_folder, tmp_path, words="cut short")


def test_whatever_the_bytes_it_is_read_or_refused(tmp_path):
    """300 small files with some bytes of the header changed."""
    chance, path, refusals = random.Random(0), tmp_path / "x.safetensors", 0
    put(path, json.dumps({"a": A, "b": B}), bytes(12))
    whole = path.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 2, 5])):
            data[chance.randrange(len(data) - 12)] = chance.choice(b'0123456789[]{},:"-. abF\x00\xff')
        path.write_bytes(data)
        try:
            read_safetensors(path)
        except PairError as error:
            assert str(error).isprintable()
            refusals += 1
    assert 150 < refusals < 300


def test_the_bench_names_what_is_missing(transformers, tmp_path, capsys):
    (tmp_path / "target").mkdir()
    assert bench(["transformers", "--weights", str(tmp_path)]) == 2
    assert "config.json" in capsys.readouterr().err


def test_side_by_side_with_transformers(transformers, model, tmp_path):
    """The draft model is the target, so that nearly everything is accepted; of four tokens, five a call."""
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, taken_apart(model))
    folders = write_folders(load_folder(tmp_path / "target"), load_folder(tmp_path / "draft"), tmp_path / "out", 5)
    request = {"max_new_tokens": 15, "temperature": 0.0}
    writers = their_writers(folders, torch.float64, torch.device("cpu"), 4, request)
    assert list(writers) == ["transformers", "transformers, prompt lookup", "transformers, assisted",
                             "transformers, assisted, its defaults"]
    plain, *others = (write([1, 2], 0) for write in writers.values())
    assert plain == [[token] for token in generate(load_folder(tmp_path / "target"), [1, 2], 15, temperature=0)]
    assert all(sum(calls, [])[:15] == sum(plain, []) for calls in others) and max(map(len, others[1])) == 5
    assert list(their_writers(folders[:1], torch.float64, torch.device("cpu"), 4, request)) == list(writers)[:2]


def test_a_chat_model_beside_transformers(transformers, tmp_path, monkeypatch, capsys):
    """Plain decoding at temperature 0 writes what transformers writes, request by request."""
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    small_gguf.write(tmp_path / "a.gguf")
    (tmp_path / "q.jsonl").write_text('{"prompt": "aa"}\n{"prompt": "b"}\n{"prompt": "ccc"}')
    options = ["--weights", str(tmp_path / "a.gguf"), "--max-new-tokens", "20", "--threads", "1", "--dtype", "float32",
               "--prompts", str(tmp_path / "q.jsonl")]
    texts, asked = {}, questions.ask

    def ask(questions, writers, *more):
        for name, write in writers.items():
            texts[name] = [sum(write([1, 2, number], 0), [])[:20] for number in (3, 4)]
        return asked(questions, writers, *more)

    monkeypatch.setattr(questions, "ask", ask)
    assert bench(["transformers", *options, "--drafters", "lookup", "suffix", "--json", str(tmp_path / "a.json")]) == 0
    rows, out = json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    assert [row["method"] for row in rows] == ["lookup 4", "suffix 4", "transformers", "transformers, prompt lookup"]
    assert list(texts)[0] == "plain" and all(its == texts["plain"] for its in texts.values())
    assert {(row["task"], row["questions"], row["transformers"]) for row in rows} == {("prompts", 3, "float32")}
    assert "transformers in float32" in " ".join(out.split())


@pytest.mark.parametrize("theirs", ["qwen2", "llama"], indirect=True)
def test_a_checkpoint_is_compared_with_itself(theirs, transformers, tmp_path, monkeypatch):
    """Opened as a Llama, a Qwen would be another model: without its biases."""
    for name in ("target", "draft"):
        theirs.save_pretrained(tmp_path / name)
    assert their_dtype(tmp_path / "target", torch.device("cpu"), "bfloat16") == torch.bfloat16
    assert their_dtype(tmp_path / "target", torch.device("cpu"), "auto") in (torch.float32, torch.bfloat16)
    seen = []
    monkeypatch.setattr(type(theirs), "generate", lambda self, prompt, **_: seen.append(self) or prompt)
    their_writers([tmp_path / "target"], torch.float32, "cpu", 2, {"max_new_tokens": 3, "temperature": 1.0})[
        "transformers"]([1, 2], 0)
    x = torch.arange(20)[None]
    assert torch.equal(seen[0](x).logits, theirs(x).logits)
