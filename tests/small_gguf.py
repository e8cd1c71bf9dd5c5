"""GGUF files of small random models that write bytes and a few merges, made by the package's own writer."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from nanospec.files.huggingface import taken_apart
from nanospec.files.tokenizer_json import LETTERS
from nanospec.model import GPT, Config

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PIECES = [*SPECIAL, *LETTERS.values(), "Ġt", "he", "Ġthe", "ĊĊ"]
MERGES = ["Ġ t", "h e", "Ġt he", "Ċ Ċ"]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
            "+ '<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SIZES = Config(len(PIECES), 256, layers=2, channels=32, heads=4, kv_heads=2, hidden=64, eps=2 ** -16)
KINDS = {"llama": SIZES, "qwen2": replace(SIZES, qkv_bias=True, tied=False), "qwen3": replace(SIZES, qk_norm=True)}


def model_of(kind: str = "llama") -> GPT:
    """Its distributions are far from uniform."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT(KINDS[kind]).requires_grad_(False)
    for weight in model.parameters():
        weight.data *= 8.0 if weight.dim() == 2 else 1.0
    return model.eval()


@cache
def gguf_name(name: str, kind: str = "llama") -> str:
    """A folder's name of a tensor -> GGUF's."""
    import gguf
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], SIZES.layers)
    return known.get_name(name, (".weight", ".bias"))


def side_by_side(weight: torch.Tensor, size: int) -> torch.Tensor:
    """As llama.cpp's converter writes queries and keys."""
    return weight.view(-1, 2, size // 2, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def write(path: Path, kind: str = "llama", leave_out: str = "", pre: str = "smollm", quantised: bool = False,
          template: str | None = TEMPLATE, ids: tuple[str, ...] = (), order: str = "LITTLE",
          **more: str | int | float | np.ndarray) -> GPT:
    """A file with a small model, without tensors of this name, its bytes in that order.

    ids: names of special tokens besides "eos", each with the id of its place here. more: further keys, dots as double
    underscores; and tensors.
    """
    import gguf
    model, writer = model_of(kind), gguf.GGUFWriter(path, kind, endianess=gguf.GGUFEndian[order])
    config = model.config
    writer.add_context_length(config.context)
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.channels)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    if leave_out != "rope base":
        writer.add_rope_freq_base(config.rope_theta)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(PIECES)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(SPECIAL)
                           + [gguf.TokenType.NORMAL] * (len(PIECES) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(PIECES.index("<|im_end|>"))
    for number, name in enumerate(ids):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in more.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, np.ndarray: writer.add_tensor}
        add[type(value)](key.replace("__", "."), value)
    for name, weight in taken_apart(model).items():
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = side_by_side(weight, config.head_size)
        if leave_out and leave_out in name:
            continue
        numbers, quantity = weight.float().numpy(), gguf.GGMLQuantizationType.Q8_0
        name = gguf_name(name, kind)
        if quantised and numbers.ndim == 2 and numbers.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(numbers, quantity), raw_dtype=quantity)
        else:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
