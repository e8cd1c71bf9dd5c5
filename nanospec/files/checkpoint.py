"""The files a pair is kept in: target.pt and draft.pt, config and weights, and ranks.tiktoken, the tokenizer's.

Written whole or not at all. Read with `weights_only`, so that a checkpoint from a stranger cannot run code, and looked
through before it is used: what is no GPT of ours is refused in one line.
"""

import hashlib
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch

from nanospec.draft_models import LEARNED
from nanospec.draft_models.learned import Learned
from nanospec.errors import NanospecError, PairError, RequestError, one_line
from nanospec.files.huggingface import load_folder
from nanospec.files.ready import available, check_finite, ready
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import AnyTokenizer, FolderTokenizer
from nanospec.files.whole import write_whole
from nanospec.model import GPT, Config

WEIGHTS = Path(__file__).parent.parent / "weights"


class Pair(NamedTuple):
    target: GPT
    draft: GPT | Learned
    tokenizer: AnyTokenizer


def save_model(model: GPT, path: Path, tokenizer: Tokenizer) -> None:
    """Write config, weights in bfloat16, and which tokenizer they are for; the file is whole or not there at all."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    if model.config.tied:
        del state["head.weight"]
    save_atomically({"config": asdict(model.config), "state": state, "tokenizer": tokenizer.fingerprint()}, path)


def save_learned(name: str, model: Learned, path: Path, target: GPT) -> None:
    """Write a learned draft model in bfloat16, what it was made of, and which target it is for; whole or not at all.

    name: one of LEARNED.
    """
    state = {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
             for name, tensor in model.state_dict().items()}
    save_atomically({"learned": name, "sizes": model.sizes, "state": state, "target": fingerprint(target)}, path)


def fingerprint(model: GPT) -> str:
    """Two targets have the same one if their weights in bfloat16 are the same."""
    digest = hashlib.sha256()
    for weight in model.parameters():
        digest.update(weight.detach().to(torch.bfloat16).contiguous().view(torch.uint8).cpu().numpy())
    return digest.hexdigest()[:16]


def save_atomically(what: dict, path: Path) -> None:
    """torch.save; the file is whole or not there at all. OSError when it cannot be written."""
    write_whole(path, lambda file: torch.save(what, file))


def load_saved(path: Path) -> dict:
    """What `save_atomically` wrote there. OSError if it cannot be read, PairError if it is anything else."""
    file = BytesIO(Path(path).read_bytes())
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:                          # there is no list of what torch makes of a stranger's bytes
        raise PairError(f"{path} is cut short, or is no checkpoint: {one_line(error)}") from error
    if not isinstance(saved, dict):
        raise PairError(f"{path} is no checkpoint of ours: it holds a {type(saved).__name__}, not a dict")
    return saved


def load_model(path: Path, device="cpu", dtype: torch.dtype = torch.float32,
               tokenizer: AnyTokenizer | None = None) -> GPT:
    """A model as `save_model` wrote it, ready to decode (no gradients).

    FileNotFoundError, or PairError if the file holds anything else, a model made for another tokenizer, or a weight
    that is NaN or infinite in `dtype`.
    """
    device, saved = available(device), load_saved(path)
    missing = {"config", "state", "tokenizer"} - saved.keys()
    if missing:
        raise PairError(f"{path} is a checkpoint, but not of this GPT: there is no {min(missing)!r} in it")
    if tokenizer and saved["tokenizer"] != tokenizer.fingerprint():
        raise PairError(f"{path} was trained with another tokenizer than the one beside it")
    try:
        return ready(Config(**saved["config"]), saved["state"], device, dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PairError(f"{path} is a checkpoint, but not of this GPT: {one_line(error)}") from error


def load_learned(path: Path, target: GPT, name: str) -> Learned:
    """A draft model as `save_learned` wrote it, on the target's device and in its dtype, ready to draft.

    FileNotFoundError, or PairError if the file holds anything else, or one for another target.
    """
    saved = load_saved(path)
    try:
        if saved["learned"] != name:
            raise PairError(f"{path} is a draft model of another kind: {saved['learned']}")
        if saved["target"] != fingerprint(target):
            raise PairError(f"{path} was trained for another target than the one beside it")
        state, sizes = saved["state"], saved["sizes"]
        sides = [side for weight in state.values() for side in weight.shape]
        largest = max([len(state), target.config.vocab_size, *sides])
        for size, number in sizes.items():              # said before so much is made
            if type(number) is int and number > largest:
                raise PairError(f"{path} is no draft model of ours: its weights are not those of {size} = {number}")
        model = LEARNED[name](**sizes).attach(target)
        model.load_state_dict(state)
        model = model.to(target.device, target.dtype).requires_grad_(False).eval()
        check_finite(model)
    except NanospecError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise PairError(f"{path} is no draft model of ours: {one_line(error)}") from error
    return model


def load_pair(folder: Path = WEIGHTS, device="cpu", dtype: torch.dtype = torch.float32, draft: str = "gpt") -> Pair:
    """The target, the draft and their tokenizer: the shipped pair, or one that train_tiny.py wrote into `folder`, or
    Hugging Face folders, `folder`/target and `folder`/draft.

    draft: "gpt", the small GPT; or one of LEARNED.
    RequestError for another draft. FileNotFoundError or PairError if they are not there, not whole, or not made for one
    another.
    """
    folder = Path(folder)
    if draft not in ("gpt", *LEARNED):
        raise RequestError(f"no draft model {draft!r} here: there is gpt, {', '.join(LEARNED)}")
    foreign = (folder / "target").is_dir()
    tokenizer = FolderTokenizer.load(folder / "target") if foreign else Tokenizer.load(folder / "ranks.tiktoken")

    def load(name: str) -> GPT:
        return (load_folder(folder / name, device, dtype) if foreign else
                load_model(folder / f"{name}.pt", device, dtype, tokenizer))

    target, learned = load("target"), folder / f"{draft}.pt"
    if draft != "gpt" and not learned.exists():
        raise PairError(f"{folder} holds no {draft}.pt: python train_tiny.py --what {draft} trains it")
    small = load("draft") if draft == "gpt" else load_learned(learned, target, draft)
    sizes = [target.config.vocab_size, small.vocab_size if isinstance(small, Learned) else small.config.vocab_size]
    if sizes[0] != sizes[1] or sizes[0] < tokenizer.vocab_size:
        raise PairError(f"{folder}: vocabularies of {sizes[0]} and {sizes[1]} tokens and a tokenizer of "
                        f"{tokenizer.vocab_size} are no pair")
    if foreign and draft == "gpt" and FolderTokenizer.load(folder / "draft").fingerprint() != tokenizer.fingerprint():
        raise PairError(f"{folder}: target and draft have different tokenizers, and are no pair")
    return Pair(target, small, tokenizer)
