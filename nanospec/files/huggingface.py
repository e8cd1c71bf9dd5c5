"""Llama checkpoints in the Hugging Face layout (a folder with config.json and *.safetensors), read into our GPT.

The two are the same network under other names; here three matrices of attention are stacked into one, and two of the
MLP. Left out: scaled rotary positions, biases, quantised weights, and every architecture but Llama's; such a folder is
refused, not misread.
"""

import json
from pathlib import Path

import torch

from nanospec.files.checkpoint import available
from nanospec.errors import PairError, one_line
from nanospec.model import GPT, Config

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
REFUSED = {"attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "model_type": "llama"}


def read_config(path: Path) -> Config:
    """config.json -> Config. PairError where it asks for something this GPT does not have."""
    try:
        said = json.loads(Path(path).read_text())
        for key, ours in REFUSED.items():
            if said.get(key, ours) != ours:
                raise PairError(f"{path}: {key} is {said[key]!r}, and this GPT has only {ours!r}")
        rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
        if rope.get("rope_type", "default") != "default":
            raise PairError(f"{path}: rotary positions of type {rope['rope_type']!r} are not in this GPT")
        heads, channels = said["num_attention_heads"], said["hidden_size"]
        if (said.get("head_dim") or channels // heads) * heads != channels:
            raise PairError(f"{path}: {heads} heads of {said['head_dim']} do not make {channels} channels")
        return Config(said["vocab_size"], said["max_position_embeddings"], said["num_hidden_layers"], channels, heads,
                      said.get("num_key_value_heads", heads), said["intermediate_size"],
                      said.get("tie_word_embeddings", False), said["rms_norm_eps"],
                      rope.get("rope_theta", said.get("rope_theta", 10_000.0)))
    except (KeyError, TypeError, AttributeError, ZeroDivisionError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PairError(f"{path} is not the config of a Llama: {error!r}") from error


def load_llama(folder: Path, device="cpu", dtype: torch.dtype = torch.float32) -> GPT:
    """The model in `folder`, ready to decode. FileNotFoundError or PairError if it is not there or not one of these."""
    device, folder, theirs = available(device), Path(folder), {}
    config = read_config(folder / "config.json")
    for path in sorted(folder.glob("*.safetensors")):
        theirs |= read_safetensors(path)
    model = GPT(config)
    try:
        model.load_state_dict({name: torch.cat([theirs[part] for part in parts])
                               for name, parts in names(config).items()})
    except (KeyError, RuntimeError) as error:
        raise PairError(f"{folder} has not the weights its config.json speaks of: {error!r:.200}") from error
    return model.to(device=device, dtype=dtype).requires_grad_(False).eval()


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Eight bytes of length, so much JSON, then the numbers: {name: tensor}. PairError if the file is not that."""
    data = bytearray(Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:begin])
        header.pop("__metadata__", None)
        out = {}
        for name, entry in header.items():
            a, b = entry["data_offsets"]
            numbers = torch.frombuffer(data, dtype=torch.uint8)[begin + a:begin + b]
            out[name] = numbers.clone().view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
        return out
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise PairError(f"{path} is cut short, or is no safetensors file of floats: {one_line(error)}") from error


def names(config: Config) -> dict[str, list[str]]:
    """Our name of every weight -> theirs, to be stacked in this order."""
    out = {"embedding.weight": ["model.embed_tokens.weight"], "norm.weight": ["model.norm.weight"],
           "head.weight": ["model.embed_tokens.weight" if config.tied else "lm_head.weight"]}
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}.", f"model.layers.{i}."
        for name, parts in {
                "attention_norm": ["input_layernorm"], "mlp_norm": ["post_attention_layernorm"],
                "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                "attention.out": ["self_attn.o_proj"],
                "mlp.gate_up": ["mlp.gate_proj", "mlp.up_proj"], "mlp.down": ["mlp.down_proj"]}.items():
            out[f"{ours}{name}.weight"] = [f"{theirs}{part}.weight" for part in parts]
    return out
