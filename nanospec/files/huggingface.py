"""Checkpoints in the Hugging Face layout, a folder with config.json and *.safetensors: into our
GPT, and back.

Llama's network is our own under other names, and so are Qwen2's and Qwen3's. Three matrices of
attention are stacked into one here, and two of the MLP. Left out: windows, quantised weights, other
rotary positions than the plain ones and Llama 3's, and every other architecture. Such a folder is
refused, not misread: what config.json asks for, and every tensor, must have its place in this GPT.
JSON and numbers are read; nothing in a folder is executed.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nanospec.errors import PairError, one_line
from nanospec.files.extra import extra
from nanospec.files.paths import TABLE, read_file, write_atomically, write_json
from nanospec.files.runnable import available, ready
from nanospec.files.safetensors_files import read_tensors
from nanospec.model import GPT, Config

# Each architecture, and which switches of a Config make it.
KINDS: dict[str, dict] = {"llama": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}
# What transformers fills in where config.json says nothing would be another number than ours.
MUST_SAY = {"qwen2": ("num_key_value_heads", "rope_theta"),
            "qwen3": ("num_key_value_heads", "rope_theta", "head_dim")}
# What config.json may say of things that this GPT does not have. It may always say nothing, or
# null.
ONLY: dict[str, list] = {
    "model_type": [*KINDS], "hidden_act": ["silu", "swish"],
    "rope_type": ["default", "llama3"], "type": ["default", "llama3"], "partial_rotary_factor": [1],
    "is_causal": [True], "sliding_window": [], "quantization_config": [], "quantization": [],
    "attn_logit_softcapping": [], "final_logit_softcapping": [],
    **dict.fromkeys(["attention_bias", "mlp_bias", "use_sliding_window",
                     "use_bidirectional_attention"], [False]),
    **dict.fromkeys(["embedding_multiplier", "residual_multiplier", "logits_scaling"], [1]),
}
# Newer and older files say there what they do with positions.
ROTARY = ("rope_parameters", "rope_scaling")
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
BUFFER = ".rotary_emb.inv_freq"         # in older files; it follows from the config and is not read
BACKBONE, EMBEDDING, HEAD = "model.", "model.embed_tokens.weight", "lm_head.weight"


def read_config(path: Path) -> Config:
    """config.json -> Config. FileNotFoundError; PairError where it asks for what is not here."""
    try:
        sizes = json.loads(read_file(path, TABLE))
        tables = [sizes] + [sizes[name] for name in ROTARY if sizes.get(name) is not None]
        unsupported = unknown(tables)
        if unsupported:
            raise PairError(f"{path} asks for what this GPT does not have: {one_line(unsupported)}")
        named = {key: value for table in tables for key, value in table.items()
                 if value is not None}
        kind = named.get("model_type", "llama")
        for key in MUST_SAY.get(kind, ()):
            named[key]                                   # a KeyError names it
        heads = named["num_attention_heads"]
        config = Config(named["vocab_size"], named["max_position_embeddings"],
                        named["num_hidden_layers"], named["hidden_size"],
                        heads, named.get("num_key_value_heads", heads), named["intermediate_size"],
                        named.get("tie_word_embeddings", False), named["rms_norm_eps"],
                        named.get("rope_theta", 10_000.0), next(iter(scalings(tables)), ()),
                        named.get("head_dim"), **KINDS[kind])
        own_size = config.head_size * config.heads != config.channels
        return config if own_size else replace(config, head_dim=None)
    except PairError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        missing = "there is no " if isinstance(error, KeyError) else ""
        raise PairError(f"{path} is not the config of a Llama: "
                        f"{missing}{one_line(error)}") from error


def unknown(tables: list[dict]) -> str:
    """What config.json and its rotary tables ask for and this GPT does not have, or ""."""
    for table in tables:
        for key, allowed in ONLY.items():
            # A Qwen names the window that it would have if it had one.
            window = key == "sliding_window" and table.get("model_type") in ("qwen2", "qwen3")
            if table.get(key) is not None and table[key] not in allowed and not window:
                return f"{key} {table[key]!r}"
    for table in tables[1:]:
        for key in table.keys() - {"rope_theta", *ONLY, *(LLAMA3 if scaled(table) else ())}:
            return f"rotary positions with a {key!r}"
    if set(tables[0].get("layer_types") or ()) - {"full_attention"}:
        return f"layer_types {tables[0]['layer_types']!r}"
    thetas = {table["rope_theta"] for table in tables if table.get("rope_theta") is not None}
    for what, found in {"rope_theta": thetas, "scaling": scalings(tables)}.items():
        if len(found) > 1:
            return f"rotary positions with more than one {what}"
    return ""


def scaled(table: dict) -> bool:
    """Whether a table of rotary positions asks for Llama 3's."""
    return "llama3" in (table.get("rope_type"), table.get("type"))


def scalings(tables: list[dict]) -> set[tuple[float, ...]]:
    """What the tables of rotary positions that say something say of `Config.rope_llama3`."""
    return {tuple(table[key] for key in LLAMA3) if scaled(table) else () for table in tables[1:]
            if table.keys() & {"rope_type", "type"}}


def load_folder(folder: Path, device="cpu", dtype: torch.dtype = torch.float32) -> GPT:
    """The model in `folder`, ready to decode; FileNotFoundError or PairError."""
    folder = Path(folder)
    return assemble(read_config(folder / "config.json"), read_tensors(folder), str(folder),
                    device, dtype)


def assemble(config: Config, tensors: dict[str, Tensor], source: str, device="cpu",
             dtype: torch.dtype = torch.float32) -> GPT:
    """A GPT from weights under the names of a Hugging Face folder, ready to decode. `tensors` is
    emptied.

    source: where they come from, for a message. PairError unless they are what the config
    describes, all and no other.
    """
    device, state = available(device, dtype), {}
    as_named(tensors, config.tied)
    # Stops at the first that is missing, however many there may be.
    for name, parts in names(config):
        for part, shape in parts.items():
            if part not in tensors or tensors[part].shape != shape:
                there = f"of shape {tuple(tensors[part].shape)}" if part in tensors else "not there"
                raise PairError(f"{source} does not have the weights that its config describes: "
                                f"{part} is {there}")
        state[name] = torch.cat([tensors.pop(part) for part in parts])
    if config.tied and HEAD in tensors and torch.equal(tensors[HEAD], state["embedding.weight"]):
        del tensors[HEAD]
    left = sorted(name for name in tensors if not name.endswith(BUFFER))
    if left:
        raise PairError(f"{source} has weights that its config does not describe: "
                        f"{one_line(', '.join(left))}")
    try:
        return ready(config, state, device, dtype)
    except (ValueError, RuntimeError) as error:
        raise PairError(f"{source} is no model that can be used: {one_line(error)}") from error


def as_named(tensors: dict[str, Tensor], tied: bool) -> None:
    """Other names of the same: without "model.", and the head's for a matrix that is both."""
    if "norm.weight" in tensors:                    # the backbone was saved, or all but its name
        for name in [name for name in tensors if name != HEAD]:
            tensors[BACKBONE + name] = tensors.pop(name)
    if tied and HEAD in tensors and EMBEDDING not in tensors:
        tensors[EMBEDDING] = tensors.pop(HEAD)


def names(config: Config) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Our name of every weight, and theirs with their shapes, in the order of stacking."""
    channels, hidden, size = config.channels, config.hidden, config.head_size
    rows = {"q": config.heads * size, "k": config.kv_heads * size, "v": config.kv_heads * size}
    yield "embedding.weight", {EMBEDDING: (config.vocab_size, channels)}
    if not config.tied:
        yield "head.weight", {HEAD: (config.vocab_size, channels)}
    yield "norm.weight", {"model.norm.weight": (channels,)}
    layer: dict[str, dict[str, tuple[int, ...]]] = {
        "attention_norm.weight": {"input_layernorm.weight": (channels,)},
        "attention.qkv.weight": {f"self_attn.{part}_proj.weight": (rows[part], channels)
                                 for part in "qkv"},
        "attention.out.weight": {"self_attn.o_proj.weight": (channels, rows["q"])},
        "mlp_norm.weight": {"post_attention_layernorm.weight": (channels,)},
        "mlp.gate_up.weight": {"mlp.gate_proj.weight": (hidden, channels),
                               "mlp.up_proj.weight": (hidden, channels)},
        "mlp.down.weight": {"mlp.down_proj.weight": (channels, hidden)}}
    if config.qkv_bias:
        layer["attention.qkv.bias"] = {f"self_attn.{part}_proj.bias": (rows[part],)
                                       for part in "qkv"}
    if config.qk_norm:
        layer |= {f"attention.{part}_norm.weight": {f"self_attn.{part}_norm.weight": (size,)}
                  for part in "qk"}
    for i in range(config.layers):
        for name, parts in layer.items():
            in_layer = {f"model.layers.{i}.{part}": shape for part, shape in parts.items()}
            yield f"blocks.{i}.{name}", in_layer


def taken_apart(model: GPT) -> dict[str, Tensor]:
    """A model's weights under their names: what is stacked here is cut where its parts end."""
    state, out = model.state_dict(), {}
    for name, parts in names(model.config):
        cut = state[name].split([shape[0] for shape in parts.values()])
        out |= {part: weight.contiguous().cpu() for part, weight in zip(parts, cut)}
    return out


def config_json(config: Config) -> dict:
    """config.json of a model of these sizes. PairError for a mixture that no such model has."""
    if config.qkv_bias and config.qk_norm:
        raise PairError("no architecture that others open has biases and also normed queries and "
                        "keys")
    kind = "qwen2" if config.qkv_bias else "qwen3" if config.qk_norm else "llama"
    scaling = ({"rope_type": "llama3"} | dict(zip(LLAMA3, config.rope_llama3))
               if config.rope_llama3 else None)
    return {"architectures": [f"{kind.capitalize()}ForCausalLM"], "model_type": kind,
            "vocab_size": config.vocab_size, "max_position_embeddings": config.context,
            "num_hidden_layers": config.layers, "hidden_size": config.channels,
            "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_size, "intermediate_size": config.hidden,
            "hidden_act": "silu", "rms_norm_eps": config.eps, "rope_theta": config.rope_theta,
            "rope_scaling": scaling, "tie_word_embeddings": config.tied}


def save_folder(model: GPT, folder: Path, end_of_text: int) -> None:
    """Write the model, in its own data type, as transformers, vLLM and SGLang open it. config.json
    comes last.

    OSError when it cannot be written. PairError as `config_json`.
    """
    config = config_json(model.config)
    ends = {"bos_token_id": end_of_text, "eos_token_id": end_of_text}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "generation_config.json", ends | {"pad_token_id": end_of_text})
    write_folder(folder, taken_apart(model), config | ends)


def write_folder(folder: Path, tensors: dict[str, Tensor], config: dict) -> None:
    """The weights, and config.json, which says their data type."""
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    weights = extra("safetensors.torch").save(tensors, {"format": "pt"})
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.safetensors", lambda file: file.write(weights))
    write_json(folder / "config.json", config | {"dtype": dtype})
