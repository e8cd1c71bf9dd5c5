"""Which models and tokenizer belong together: the pair that ships, one in a folder of ours, or a
target of others with a draft model beside it, one that ships for it, or none.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nanospec.errors import PairError, RequestError, quoted
from nanospec.files.model_file import key_of, load_learned, load_model, load_saved
from nanospec.files.paths import path_of
from nanospec.files.sources import Source, Target, find_source, model_at
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import AnyTokenizer, FolderTokenizer
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, Tables, tables_of
from nanospec.model import GPT

WEIGHTS = Path(__file__).parent.parent / "weights"


class Pair(NamedTuple):
    """draft_model: a GPT or a Learned; None for a target that has none beside it."""

    target: GPT
    draft_model: Any
    tokenizer: AnyTokenizer

    @property
    def note(self) -> str:
        """What the user should know of the draft model, or ""."""
        return getattr(self.draft_model, "note", "")


def find_draft_model(source: Source, name: str | Path = "gpt") -> tuple[Path, str] | None:
    """Where a draft model of this name is to be read, and which it is; None if there is none for
    this target.

    name: as for `load_pair`.
    """
    if name not in ("gpt", *LEARNED):
        kind = load_saved(Path(name)).get("learned")
        if not isinstance(kind, str) or kind not in LEARNED:
            raise PairError(f"{name} is no draft model that python -m training wrote")
        return Path(name), kind
    if name == "gpt":
        draft_model = source.draft_model if source.target else source.path / "draft.pt"
        if draft_model:
            return draft_model, name
    elif (source.path / f"{name}.pt").exists():
        return source.path / f"{name}.pt", name
    return shipped_for(source.target, str(name)) if source.target else None


def shipped_for(target: Target, name: str) -> tuple[Path, str] | None:
    """The draft model of this name, or with "gpt" of any, that ships for a target of others."""
    key = key_of(target.config, target.tokenizer)
    for path in sorted(WEIGHTS.glob("*_*.pt")):
        found_by, kind = what_for(path, path.stat().st_mtime_ns)
        if found_by == key and name in ("gpt", kind):
            return path, kind
    return None


@cache
def what_for(path: Path, changed: int) -> tuple[str | None, str]:
    """The key of a learned draft model's target, and its kind. Its whole file is read for it, but
    once as long as it has not changed.
    """
    saved = load_saved(path)
    return saved.get("found_by"), saved.get("learned", "")


def load_pair(source: Path | str | Source = WEIGHTS, device="cpu",
              dtype: torch.dtype = torch.float32, draft_model: str | Path = "gpt") -> Pair:
    """The target, the draft model and their tokenizer: the shipped pair, or what `source`
    names (files/sources.py).

    draft_model: "gpt", the small GPT, or where there is none one that ships for this target; one of
    LEARNED, beside the target; or the .pt file of one, wherever it lies. A GPT of others may have
    another tokenizer: then it drafts the tokens that both have, and Pair.note says so.
    Pair.draft_model is None for a target alone, if "gpt" finds nothing.
    RequestError for another name. FileNotFoundError or PairError if they are not there, not whole,
    or not made for one another.
    """
    if draft_model not in ("gpt", *LEARNED) and path_of(draft_model).suffix != ".pt":
        raise RequestError(f"no draft model {str(draft_model)!r} here: there are gpt, "
                           f"{', '.join(LEARNED)}, and .pt files")
    source = source if isinstance(source, Source) else find_source(source)
    folder, foreign, found = source.path, source.target, find_draft_model(source, draft_model)
    if not found and draft_model != "gpt":
        remedy = f"--weights {folder} trains one, whose file can be named" if foreign else \
            f"--out {folder} trains it"
        raise PairError(f"{folder} holds no {draft_model}.pt: "
                        f"python -m training {draft_model} {remedy}")
    if found and draft_model in LEARNED and not foreign and not (folder / "target.pt").exists():
        raise PairError(f"{folder} holds {draft_model}.pt and not the target that it is for: name "
                        f"the target's folder or file, and {found[0]} as the draft model")
    tokenizer: AnyTokenizer = (foreign.tokenizer if foreign
                               else Tokenizer.load(folder / "ranks.tiktoken"))
    target = (foreign.load(device, dtype) if foreign
              else load_model(folder / "target.pt", device, dtype, tokenizer))
    check_rows(folder, target, tokenizer)
    small: Any = None
    tokens = target.config.vocab_size
    if found:
        file, kind = found
        if kind != "gpt":
            small = load_learned(file, target, kind, same_weights=file.parent == folder)
        elif foreign:
            other = model_at(file)
            small, draft_tokenizer = other.load(device, dtype), other.tokenizer
            check_rows(file, small, draft_tokenizer)
            if (small.config.vocab_size != tokens
                    or draft_tokenizer.fingerprint() != tokenizer.fingerprint()):
                small = OtherTokenizer(small,
                                       tables_between(draft_tokenizer, foreign.tokenizer, tokens))
        else:
            small = load_model(file, device, dtype, tokenizer)
        tokens = small.vocab_size if isinstance(small, Learned) else small.config.vocab_size
    if target.config.vocab_size != tokens:
        raise PairError(f"{folder}: vocabularies of {target.config.vocab_size} and {tokens} tokens "
                        "are no pair")
    return Pair(target, small, tokenizer)


def tables_between(draft_model: FolderTokenizer, target: FolderTokenizer,
                   vocab_size: int) -> Tables:
    """As `tables_of`, if they differ: where one has all of the other's ids, they are the same."""
    same = draft_model.vocab.items() & target.vocab.items()
    if len(same) < min(len(draft_model.vocab), len(target.vocab)):
        return tables_of(draft_model, target, vocab_size)
    ids = torch.tensor(sorted(i for _, i in same), device="cpu")
    read_as = torch.full((vocab_size,), draft_model.end_of_text, device="cpu")
    return Tables(ids, ids, read_as.index_copy(0, ids, ids))


def check_rows(path: Path, model: GPT, tokenizer: AnyTokenizer) -> None:
    """PairError unless the model has a row for every token of its tokenizer, and for those that its
    files put before a text; and for one at least of those that end it.
    """
    rows, last = model.config.vocab_size, tokenizer.vocab_size - 1
    if last >= rows:
        raise PairError(f"{path}: the model has rows for {rows} tokens, and its tokenizer has "
                        f"{last + 1}: there is none for "
                        f"{quoted(tokenizer.decode([last]))}, token {last}")
    for ids, what in (tokenizer.begin, "stands before a text"), (tokenizer.ends, "ends a text"):
        beyond = [i for i in ids if i >= rows]
        if beyond and (ids is tokenizer.begin or len(beyond) == len(ids)):
            raise PairError(f"{path}: the model has rows for {rows} tokens, and by its files token "
                            f"{beyond[0]} {what}")
