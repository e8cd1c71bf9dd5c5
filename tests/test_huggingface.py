"""Llama checkpoints: read right, against transformers where it is installed; refused where they are something else."""

import json

import pytest
import torch

from nanospec.bench.against import compare, in_turns
from nanospec.bench import main as bench
from nanospec.errors import PairError
from nanospec.files.huggingface import load_llama, names, read_config, read_safetensors
from nanospec.model import GPT, Config

CONFIG = {"model_type": "llama", "vocab_size": 31, "max_position_embeddings": 64, "num_hidden_layers": 2,
          "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
          "rms_norm_eps": 1e-6, "rope_theta": 5_000.0, "tie_word_embeddings": False}


def write(folder, tensors: dict, config: dict = CONFIG, file: str = "model.safetensors") -> None:
    """A checkpoint in the layout that transformers writes."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": "BF16" if tensor.dtype == torch.bfloat16 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    (folder / file).write_bytes(len(head).to_bytes(8, "little") + head + data)
    (folder / "config.json").write_text(json.dumps(config))


def taken_apart(model: GPT) -> dict:
    """A model's weights under Llama's names: the stacked ones cut where their rows end."""
    c, state, out = model.config, model.state_dict(), {}
    rows = {"self_attn.q_proj": c.channels, "self_attn.k_proj": c.kv_heads * c.head_size,
            "self_attn.v_proj": c.kv_heads * c.head_size, "mlp.gate_proj": c.hidden, "mlp.up_proj": c.hidden}
    for ours, theirs in names(c).items():
        at = 0
        for name in theirs:
            size = next((size for part, size in rows.items() if f".{part}." in name), len(state[ours]))
            out[name], at = state[ours][at:at + size], at + size
        assert at == len(state[ours])
    return out


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(read_config_of(CONFIG)).requires_grad_(False)


def read_config_of(config: dict) -> Config:
    return Config(31, 64, 2, 16, 4, 2, 24, config["tie_word_embeddings"], 1e-6, 5_000.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_read_back(model, tmp_path, dtype):
    write(tmp_path, {name: tensor.to(dtype) for name, tensor in taken_apart(model).items()})
    again = load_llama(tmp_path)
    assert again.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.to(dtype).float()), name


def test_several_files_and_a_tied_head(tmp_path):
    torch.manual_seed(0)
    tied = CONFIG | {"tie_word_embeddings": True}
    model = GPT(read_config_of(tied)).requires_grad_(False)
    tensors = list(taken_apart(model).items())
    write(tmp_path, dict(tensors[:5]), tied, "model-00001-of-00002.safetensors")
    write(tmp_path, dict(tensors[5:]), tied, "model-00002-of-00002.safetensors")
    again, x = load_llama(tmp_path), torch.arange(20)[None]
    assert again.head.weight is again.embedding.weight and torch.equal(again(x), model(x))


def test_the_same_logits_as_transformers(model, tmp_path):
    """With grouped heads, another rotary base and another eps than our own."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (the extra 'bench')")
    config = transformers.LlamaConfig(**{key: value for key, value in CONFIG.items() if key != "model_type"})
    theirs = transformers.LlamaForCausalLM(config).eval()
    for weight in theirs.parameters():
        weight.data *= 10.0 if weight.dim() == 2 else 1.3
    theirs.save_pretrained(tmp_path)
    ours, x = load_llama(tmp_path), torch.arange(30).view(2, 15)
    with torch.inference_mode():
        expected, cache = theirs(x).logits, ours.new_cache(2, 15)
        assert (ours(x) - expected).abs().max() < 1e-4 * expected.abs().max()
        assert (ours(x, cache) - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("change, words", [
    ({"model_type": "gpt2"}, "model_type is 'gpt2'"), ({"attention_bias": True}, "attention_bias"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "llama3"), ({"head_dim": 8}, "4 heads of 8")])
def test_what_this_gpt_does_not_have_is_refused(tmp_path, change, words):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(PairError, match=words):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["", "{}", "[1", "[1]", '{"model_type": "llama"}',
                                  json.dumps(CONFIG | {"num_attention_heads": 0}),
                                  json.dumps(CONFIG | {"hidden_size": "wide"})])
def test_a_config_that_is_none(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PairError, match="not the config of a Llama"):
        read_config(tmp_path / "config.json")


def test_weights_that_are_missing_or_cut_short(model, tmp_path):
    tensors = taken_apart(model)
    write(tmp_path, {name: tensor for name, tensor in tensors.items() if "layers.1.mlp" not in name})
    with pytest.raises(PairError, match="has not the weights"):
        load_llama(tmp_path)
    write(tmp_path, tensors)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for kept in (0, 5, 40, len(whole) - 100):
        (tmp_path / "model.safetensors").write_bytes(whole[:kept])
        with pytest.raises(PairError, match="cut short"):
            read_safetensors(tmp_path / "model.safetensors")


def test_the_bench_asks_for_both_and_says_what_is_missing(tmp_path, monkeypatch, capsys):
    for options, status, words in ((["--against", "hf"], 2, "belong together"),
                                   (["--against", "hf", "--pair", str(tmp_path)], 2, "config.json")):
        monkeypatch.setattr("sys.argv", ["bench", *options])
        try:
            assert bench() == status
        except SystemExit as left:
            assert left.code == status
        assert words in capsys.readouterr().err


def test_methods_take_turns_and_are_counted():
    order = []

    def method(name, tokens, calls):
        return lambda ids, seed: order.append((name, seed)) or (tokens, calls)

    rows = in_turns({"a": method("a", 6, 6), "b": method("b", 6, 2)}, [[1], [2]], repeats=2, seed=5)
    assert order == [("a", 5), ("a", 6), ("b", 5), ("b", 6)] * 3        # one turn to warm up
    assert [(row["method"], row["tokens_per_target_call"]) for row in rows] == [("a", 1.0), ("b", 3.0)]
    assert all(row["tokens_per_s"] > 0 and row["ms_per_call"] > 0 for row in rows)


def test_side_by_side_with_transformers(model, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed (the extra 'bench')")
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, taken_apart(model))
    rows = compare(load_llama(tmp_path / "target"), load_llama(tmp_path / "draft"), tmp_path, 2, 9, 1.0, 1, 1)
    assert [row["method"] for row in rows] == ["plain", "speculative", "hf generate", "hf assisted",
                                               "hf assisted defaults"]
    assert rows[0]["tokens_per_target_call"] == rows[2]["tokens_per_target_call"] == 1.0
    assert rows[1]["tokens_per_target_call"] > 1.5 and rows[3]["tokens_per_target_call"] > 1.5      # draft = target
