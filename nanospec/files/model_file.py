"""The files that a model of ours is kept in: a target or a small GPT, config and weights, and what
its tokenizer must be; a learned draft model, and the target that it is for.

What a model is, its file says: weights are rounded (eight_bits.py), and a draft model knows its
target by what is read from the file.

Written whole or not at all. Read with `weights_only`, so that a checkpoint from a stranger cannot
run code, and looked through before it is used: what is no GPT of ours is refused in one line.
"""

import hashlib
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor

from nanospec.errors import NanospecError, PairError, check_has, check_model, one_line, quoted
from nanospec.files.runnable import available, check_weights, ready
from nanospec.files.eight_bits import rounded, widened
from nanospec.files.paths import check_claimed, fetched, write_atomically
from nanospec.files.pickled import check_parts
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import AnyTokenizer
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.pruned import Pruned
from nanospec.model import GPT, Config

OTHER_WEIGHTS = ("the draft model {} was trained beside other weights of this shape: fewer of its "
                 "tokens may be accepted, and the text is exact all the same")
BEGIN = b"PK\x03\x04"   # of every zip file that torch takes for one
LAYER = "layer."        # how the parts of a draft model's DecoderLayer are named


def save_model(model: GPT, path: Path, tokenizer: Tokenizer) -> None:
    """Write config, weights, rounded, and which tokenizer they are for; whole or not at all."""
    check_model("the model", model)
    check_has("the tokenizer", tokenizer, "a tokenizer", "fingerprint")
    state = dict(model.state_dict())
    if model.config.tied:
        del state["head.weight"]
    save_atomically({"config": asdict(model.config), "state": rounded(state),
                     "tokenizer": tokenizer.fingerprint()}, path)


def save_learned(name: str, model: Learned, path: Path, target: GPT,
                 tokenizer: AnyTokenizer | None = None) -> None:
    """Write a learned draft model, rounded, what it was made of, and which target it is for; whole
    or not at all.

    name: one of LEARNED. In the file the parts of its decoder layer have names without "layer.".
    tokenizer: the target's. With it the file is found, among the weights that ship, by a target of
    these sizes.
    """
    state = {name.removeprefix(LAYER): tensor for name, tensor in model.state_dict().items()}
    found_by = {"found_by": key_of(target.config, tokenizer)} if tokenizer else {}
    save_atomically({"learned": name, "sizes": model.sizes, "state": rounded(state),
                     "target": fingerprint(target)} | found_by, path)


def fingerprint(model: GPT) -> str:
    """Two targets have the same one if their weights in bfloat16 are the same."""
    digest = hashlib.sha256()
    for weight in model.parameters():
        in_16_bits = weight.detach().to(torch.bfloat16).contiguous()
        digest.update(in_16_bits.view(torch.uint8).cpu().numpy())
    return digest.hexdigest()[:16]


def key_of(config: Config, tokenizer: AnyTokenizer) -> str:
    """Targets have the same one if their weights' shapes and their tokens' ids are the same."""
    shape = [config.vocab_size, config.layers, config.channels, config.heads, config.kv_heads,
             config.head_size, config.hidden]
    return " ".join([*map(str, shape), tokenizer.fingerprint()])


def save_atomically(what: dict, path: Path) -> None:
    """torch.save; the file is whole or not there at all. OSError when it cannot be written."""
    write_atomically(path, lambda file: torch.save(what, file))


def load_saved(path: Path) -> dict:
    """What `save_atomically` wrote there. OSError if it cannot be read, PairError if it is anything
    else, if a byte of what it holds has changed, or if it says that it is more than it is.
    """
    whole = fetched(path)
    try:
        if not is_zipfile(whole):               # looks at its end, before all of it is read
            raise ValueError("it does not end as one")
        file = BytesIO(whole.read_bytes())
        size = file.getbuffer().nbytes
        if file.read(len(BEGIN)) != BEGIN:      # torch would look for a pickle alone
            raise ValueError("it does not begin as one")
        with ZipFile(file) as parts:  # torch writes a checksum of every part, and does not read it
            check_parts(parts, size)
            damaged = parts.testzip()
        if damaged:
            raise ValueError(f"the checksum of {damaged} is wrong")
        file.seek(0)
        saved = torch.load(file, map_location="cpu", weights_only=True)
        claimed = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(saved))
        check_claimed(claimed // 2, size)               # a tied matrix stands there under two names
    except Exception as error:          # there is no list of what torch makes of a stranger's bytes
        raise PairError(f"{path} is cut short, or is no checkpoint: {one_line(error)}") from error
    if not isinstance(saved, dict):
        raise PairError(f"{path} is no checkpoint of ours: it holds a {type(saved).__name__}, not "
                        "a dict")
    return saved


def resumed(saved: dict, optimizer: torch.optim.Optimizer, config: Config,
            found: int) -> tuple[list[tuple], Tensor]:
    """The history of a training that was saved, and the texts that its target has written.
    LookupError, TypeError or ValueError for what would otherwise be noticed late or never.

    optimizer: AdamW, its state loaded. A fused one writes beyond averages that are too short. The
    texts are ids (any number, context), of a model with this config; the history has phase,
    step, loss and the `found` numbers of every look.
    """
    for weight, state in optimizer.state.items():
        if any(state[name].shape != weight.shape for name in ("exp_avg", "exp_avg_sq")):
            raise ValueError("its optimizer is another model's")
    history = [(int(phase), int(step), *map(float, rest))
               for phase, step, *rest in saved["history"]]
    if any(len(row) != 3 + found for row in history):
        raise ValueError("its history is another's")
    texts = saved["written"]
    if texts.shape[1:] != (config.context,) or texts.is_floating_point():
        raise ValueError("its texts are another's")
    if texts.numel() and not 0 <= texts.min() <= texts.max() < config.vocab_size:
        raise ValueError("its texts hold tokens that are none")
    return history, texts


def tensors_in(saved: Any) -> list[Tensor]:
    """All tensors of a checkpoint, wherever they stand in it."""
    found, open_ = list[Tensor](), [saved]
    while open_:
        thing = open_.pop()
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, dict | list | tuple):
            open_ += thing.values() if isinstance(thing, dict) else thing
    return found


def load_model(path: Path, device="cpu", dtype: torch.dtype = torch.float32,
               tokenizer: AnyTokenizer | None = None) -> GPT:
    """A model as `save_model` wrote it, ready to decode (no gradients).

    FileNotFoundError, or PairError if the file holds anything else, a model made for another
    tokenizer, or a weight that is NaN or infinite in `dtype`.
    """
    device, saved = available(device, dtype), load_saved(path)
    missing = {"config", "state", "tokenizer"} - saved.keys()
    if missing:
        raise PairError(f"{path} is a checkpoint, but not of this GPT: there is no "
                        f"{min(missing)!r} in it")
    if tokenizer and saved["tokenizer"] != tokenizer.fingerprint():
        raise PairError(f"{path} was trained with another tokenizer than the one beside it")
    try:
        return ready(Config(**saved["config"]), widened(saved["state"]), device, dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PairError(f"{path} is a checkpoint, but not of this GPT: "
                        f"{one_line(error)}") from error


def check_sizes_of(state: dict[str, Tensor], sizes: dict[str, Any], target: Config) -> None:
    """ValueError for sizes that no draft model of these weights has, as far as can be seen."""
    few = max(len(state), target.channels)
    sides = [side for weight in state.values() if weight.numel() for side in weight.shape]
    largest = max([few, target.vocab_size, *sides])
    for size, number in sizes.items():
        if type(number) is int and number > (few if size == "heads" else largest):
            raise ValueError(f"its weights are not those of {size} = {number}")


def load_learned(path: Path, target: GPT, name: str, same_weights: bool = True) -> Learned:
    """A draft model as `save_learned` wrote it, on the target's device and in its dtype, ready to
    draft.

    FileNotFoundError, or PairError if the file holds anything else, or one for another target. With
    same_weights=False it may have been trained on other weights of these shapes: then its `note`
    says so.
    """
    saved = load_saved(path)
    try:
        if saved["learned"] != name:
            raise PairError(f"{path} is a draft model of another kind: "
                            f"{quoted(saved['learned'])}")
        same = saved["target"] == fingerprint(target)
        if same_weights and not same:
            raise PairError(f"{path} was trained for another target than the one beside it")
        state, sizes = widened(saved["state"]), saved["sizes"]
        check_sizes_of(state, sizes, target.config)
        with torch.device("meta"):                      # it has no weights yet
            model = LEARNED[name](**sizes).attach(target)
        wanted, there = (sum(weight.numel() for weight in weights.values())
                         for weights in (model.state_dict(), state))
        if wanted > there:                              # refused before they are made
            raise ValueError(f"it has {there:,} weights, and its sizes are those of {wanted:,}")
        names = {name.removeprefix(LAYER): name for name in model.state_dict()}
        model.load_state_dict({names[name]: tensor for name, tensor in state.items()}, assign=True)
        if isinstance(model, Pruned) and not model.has_tokens():
            raise ValueError("its offsets name tokens that are none, or one twice")
        model = model.to(target.device, target.dtype).requires_grad_(False).eval()
        check_weights(model)
        setattr(model, "note", "" if same else OTHER_WEIGHTS.format(path.name))
    except NanospecError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise PairError(f"{path} is no draft model of ours: {one_line(error)}") from error
    return model
