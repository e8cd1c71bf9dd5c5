"""GGUF files, in which llama.cpp keeps a model: weights, sizes, tokenizer and chat template, all in
one.

The package `gguf` reads them and undoes the quantisation. The weights then get the names that they
have in a Hugging Face folder and are put together as those are (huggingface.py). One thing is
undone besides: GGUF keeps the rows of a Llama's queries and keys so that the two channels of a
rotary pair stand side by side; in a folder, and here, they stand half a head apart.

Left out, and refused rather than misread: architectures, rotary positions, windows, caps and scales
that this GPT does not have, models that are split into several files, and tokenizers other than
byte-level BPE with one of the pretokenizers below.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospec.errors import NanospecError, PairError, one_line
from nanospec.files.chat_template import ChatTemplate
from nanospec.files.control_tokens import ENDING, SURELY
from nanospec.files.extra import extra
from nanospec.files.huggingface import KINDS, assemble, names
from nanospec.files.paths import fetched
from nanospec.files.quick_gguf import gguf_reader
from nanospec.files.runnable import MOST_LAYERS
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.model import GPT, Config

JOINED = 64             # rows of a matrix that are dequantised as one, which takes half as long
CONTROL, ADDED = 3, 4           # in tokenizer.ggml.token_type: special tokens, and other added ones
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# tokenizer.ggml.pre -> the pattern by which a text is cut into words first; None is GPT-2's own.
PATTERNS: dict[str, str | None] = {"gpt-2": None, "smollm": None, "qwen2": QWEN,
                                   "llama-bpe": QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")}
SINGLE_DIGITS = {"smollm"}              # those that first cut out every digit
ENDS = ("eos", "eot", "eom")  # end of text, of a turn, of a message: each ends what a model writes
# Keys below the architecture's name, and what they may say; None: anything, for it is read, or
# changes nothing here. Any other key asks for something that this GPT does not have, unless it says
# 0: a window, a cap, a scale, experts.
KEYS: dict[str, tuple | None] = {
    **dict.fromkeys(["context_length", "block_count", "embedding_length", "feed_forward_length",
                     "vocab_size", "tensor_data_layout", "attention.head_count",
                     "attention.head_count_kv", "attention.key_length",
                     "attention.layer_norm_rms_epsilon", "rope.freq_base",
                     "rope.scaling.original_context_length", "rope.scaling.finetuned"]),
    **dict.fromkeys(["attention.causal", "logit_scale", "residual_scale", "embedding_scale",
                     "rope.scaling.attn_factor"], (1,)),
    **dict.fromkeys(["rope.scaling.factor", "rope.scale_linear"], (0, 1)),
    "rope.scaling.type": ("none", "linear")}
# What each pair's frequency is divided by: Llama 3's scaling, written out.
ROPE_FREQS = "rope_freqs.weight"
LOW, HIGH = 1.0, 4.0        # of every Llama 3: `low_freq_factor` and `high_freq_factor`
# Special tokens by GGUF's names, and as chat templates call them.
NAMED = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """PairError for whatever the package, which has no type of its own for it, cannot read."""
    try:
        yield
    except (NanospecError, OSError):
        raise
    except Exception as error:
        raise PairError(f"{path} is cut short, or is no GGUF file: {one_line(error)}") from error


def load_gguf(path: Path, device="cpu",
              dtype: torch.dtype = torch.float32) -> tuple[GPT, FolderTokenizer]:
    """The model, ready to decode, and its tokenizer. As GGUFFile, and PairError where the weights
    are not what it needs.
    """
    file = GGUFFile(path)
    return file.load(device, dtype), file.tokenizer


class GGUFFile:
    """What a GGUF file says of its model, sizes and tokenizer. The weights are read by `load`.

    FileNotFoundError; PairError if the file is no GGUF file, not whole, or holds what this GPT does
    not have.
    """

    def __init__(self, path: Path):
        self.path = fetched(path)
        with reading(self.path):
            self.reader, self.kind = gguf_reader(self.path), ""
            if self.value("split.count", 1) > 1:
                raise PairError(f"{self.path} is a part of a model that is split into "
                                f"{self.value('split.count')} files: llama-gguf-split --merge "
                                "joins them")
            self.kind = str(self.value("general.architecture"))
            self.config, self.tokenizer = parse_config(self), build_tokenizer(self)

    def load(self, device="cpu", dtype: torch.dtype = torch.float32) -> GPT:
        """The model, ready to decode. PairError where the weights are not what the file says."""
        with reading(self.path):
            return assemble(self.config, load_weights(self), str(self.path), device, dtype)

    def value(self, key: str, *default: Any) -> Any:
        """What the file has under this key, where {} is the name of its architecture.

        PairError if there is no such key and no default.
        """
        key = key.replace("{}", self.kind)
        field = self.reader.get_field(key)
        if field is None and not default:
            raise PairError(f"{self.path} does not say {key}")
        return default[0] if field is None else field.contents()

    def of_layers(self, key: str, *default: Any) -> Any:
        """The same of a number that may stand there for each layer. PairError if they differ."""
        found = self.value(key, *default)
        each = found if isinstance(found, list) else [found]
        if len(set(each)) != 1:
            raise PairError(f"{self.path} asks for what this GPT does not have: layers of "
                            f"different sizes, {key.replace('{}', self.kind)} {one_line(found)}")
        return each[0]

    def allow(self, key: str, *allowed: Any) -> None:
        """PairError if what stands under this key is not one of these. It may always be missing."""
        found = self.value(key, None)
        if found is not None and found not in allowed:
            raise PairError(f"{self.path} asks for what this GPT does not have: "
                            f"{key.replace('{}', self.kind)} {one_line(found)}")


def parse_config(file: GGUFFile) -> Config:
    file.allow("general.architecture", *KINDS)
    channels, heads = file.value("{}.embedding_length"), file.of_layers("{}.attention.head_count")
    size = file.value("{}.attention.key_length", None)
    size = None if size and size * heads == channels else size
    theta = file.value("{}.rope.freq_base", 10_000.0)
    llama3 = parse_scaling(file, size or channels // heads, theta)
    # The names of all their tensors are made before any is looked for.
    if not 0 < file.value("{}.block_count") <= min(MOST_LAYERS, len(file.reader.tensors)):
        raise PairError(f"{file.path} does not have the weights of "
                        f"{file.value('{}.block_count')} layers, of which at most {MOST_LAYERS} "
                        "are read")
    tied = all(tensor.name != "output.weight" for tensor in file.reader.tensors)
    return Config(len(file.value("tokenizer.ggml.tokens")), file.value("{}.context_length"),
                  file.value("{}.block_count"), channels, heads,
                  file.of_layers("{}.attention.head_count_kv", heads),
                  file.of_layers("{}.feed_forward_length"), tied,
                  file.value("{}.attention.layer_norm_rms_epsilon"),
                  theta, llama3, head_dim=size,
                  **KINDS[file.kind])


def parse_scaling(file: GGUFFile, head_size: int, theta: float) -> tuple[float, ...]:
    """Config.rope_llama3 of a file. PairError where it asks for anything else that this GPT does
    not have.
    """
    begin = f"{file.kind}."
    allowed = KEYS | {"rope.dimension_count": (head_size,), "attention.value_length": (head_size,)}
    # Then llama.cpp does not look at the factor.
    if file.value("{}.rope.scaling.type", "") == "none":
        allowed |= {"rope.scaling.factor": None, "rope.scale_linear": None}
    for key in file.reader.fields:
        only = allowed.get(key.removeprefix(begin), (0,)) if key.startswith(begin) else None
        if only is not None:
            file.allow(key, *only)
    tensor = next((tensor for tensor in file.reader.tensors if tensor.name == ROPE_FREQS), None)
    if tensor is None:
        return ()
    divisors = [float(divisor) for divisor in tensor.data]
    found = llama3_of(divisors, theta, head_size)
    if found is None:
        raise PairError(f"{file.path} asks for what this GPT does not have: rotary positions with "
                        f"{ROPE_FREQS} that are not Llama 3's")
    return found


def llama3_of(divisors: list[float], theta: float, head_size: int) -> tuple[float, ...] | None:
    """The Config.rope_llama3 by which the frequencies are divided by these numbers, () if by 1;
    None if there is none with Llama 3's LOW and HIGH.

    A config.json says the scaling in four numbers, and GGUF writes out what they come to. With the
    greatest divisor as `factor`, the share of full speed that a pair keeps is a straight line in
    its frequency, cut off at 0 and 1. The slowest pair that keeps some says where the line lies.
    """
    if len(divisors) != head_size // 2 or not all(1 <= divisor < math.inf for divisor in divisors):
        return None
    factor = max(divisors)
    if factor == 1:
        return ()
    turns = [theta ** (-2 * i / head_size) / (2 * math.pi) for i in range(len(divisors))]
    kept = [(1 / divisor - 1 / factor) / (1 - 1 / factor) for divisor in divisors]
    some = [(turn, share) for turn, share in zip(turns, kept) if share > 1e-6]
    turn, share = some[-1] if some else (turns[0], 0.0)
    context = (LOW + share * (HIGH - LOW)) / turn
    line = [min(max((context * turn - LOW) / (HIGH - LOW), 0.0), 1.0) for turn in turns]
    fits = all(abs(divisor * (share + (1 - share) / factor) - 1) < 1e-4
               for divisor, share in zip(divisors, line))
    return (factor, LOW, HIGH, context) if fits else None


def load_weights(file: GGUFFile) -> dict[str, Tensor]:
    """In float32, under the names that they have in a Hugging Face folder."""
    gguf, config = extra("gguf"), file.config
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[file.kind.upper()], config.layers)
    in_folder = {known.get_name(part, (".weight", ".bias")): part
                 for _, parts in names(config) for part in parts}
    found = {}
    for tensor in file.reader.tensors:
        if tensor.name == ROPE_FREQS:                   # in the config
            continue
        weight = torch.from_numpy(np.require(      # a copy only of what lies in the file itself
            dequantized(gguf, tensor), np.float32, ["C", "W"]))
        if file.kind == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            weight = half_apart(weight, config.head_size)
        found[in_folder.get(tensor.name, tensor.name)] = weight
    return found


def dequantized(gguf: Any, tensor: Any) -> np.ndarray:
    """The numbers of a tensor, in its shape.

    The package takes 16 rows at a time, which are too few: up to JOINED rows become one.
    """
    rows = len(tensor.data)
    long = tensor.data.reshape(rows // math.gcd(rows, JOINED), -1)
    shape = [int(size) for size in reversed(tensor.shape)]
    return gguf.quants.dequantize(long, tensor.tensor_type).reshape(shape)


def half_apart(weight: Tensor, head_size: int) -> Tensor:
    """Rows (H * D, in), the two of a pair side by side -> half a head apart.

    Example: of D = 4, 0 1 2 3 -> 0 2 1 3.
    """
    pairs = weight.view(-1, head_size // 2, 2, weight.shape[-1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def build_tokenizer(file: GGUFFile) -> FolderTokenizer:
    """With the ids that the tokenizer of the model's Hugging Face folder would give."""
    file.allow("tokenizer.ggml.model", "gpt2")
    tokenizers, pre = extra("tokenizers"), file.value("tokenizer.ggml.pre", "default")
    if pre == "default":        # what old converters wrote, or nothing; llama.cpp then guesses
        raise PairError(f"{file.path} does not say by which pattern a text is cut into words: "
                        "converted anew, it has tokenizer.ggml.pre")
    file.allow("tokenizer.ggml.pre", *PATTERNS)
    pieces, kinds = file.value("tokenizer.ggml.tokens"), file.value("tokenizer.ggml.token_type")
    if len(pieces) != len(kinds):
        raise PairError(f"{file.path} cannot be used: it has {len(pieces)} tokens, and types of "
                        f"{len(kinds)}")
    if len(set(pieces)) != len(pieces):
        raise PairError(f"{file.path} cannot be used: of its {len(pieces)} tokens "
                        f"{len(set(pieces))} differ")
    merges = [tuple(pair.split(" ")) for pair in file.value("tokenizer.ggml.merges")]
    ids = {piece: i for i, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges,
                                                      ignore_merges=pre == "llama-bpe"))
    first, pattern = [], PATTERNS[pre]
    if pre in SINGLE_DIGITS:
        first = [tokenizers.pre_tokenizers.Digits(individual_digits=True)]
    elif pattern:
        first = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")]
    if pre == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [*first, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False,
                                                     use_regex=pattern is None)])
    made.decoder = tokenizers.decoders.ByteLevel()
    # Some files have the wrong type for a token that no one writes by accident.
    control = [piece for piece, kind in zip(pieces, kinds)
               if kind == CONTROL or piece in ENDING and SURELY.fullmatch(piece)]
    made.add_special_tokens(control)
    made.add_tokens([piece for piece, kind in zip(pieces, kinds) if kind == ADDED])
    special = {name: file.value(f"tokenizer.ggml.{name}_token_id") for name in (*NAMED, *ENDS)
               if file.value(f"tokenizer.ggml.{name}_token_id", None) is not None}
    for name, i in special.items():
        if i >= len(pieces):
            raise PairError(f"{file.path} has {len(pieces)} tokens, and "
                            f"tokenizer.ggml.{name}_token_id is {i}")
    if file.value("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):         # llama.cpp's default
        if "bos" not in special:
            raise PairError(f"{file.path} puts a token before every text, and has no "
                            "tokenizer.ggml.bos_token_id")
        begin = pieces[special["bos"]]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=[begin, "$A"], special_tokens=[(begin, special["bos"])])
    ends = [special[name] for name in ENDS if name in special]
    ends += [ids[piece] for piece in control if piece in ENDING]
    if not ends:
        raise PairError(f"{file.path} does not say which token ends a text: no "
                        "tokenizer.ggml.eos_token_id")
    named = {called: pieces[special[name]] for name, called in NAMED.items() if name in special}
    template = file.value("tokenizer.chat_template", None)
    begins = [named["bos_token"]] if "bos_token" in named else []
    return FolderTokenizer(made, ends, ChatTemplate(template, named) if template else None, begins)
