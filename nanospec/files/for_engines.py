"""A pair of ours as folders that transformers, vLLM and SGLang open: OUT/target and OUT/draft, or
OUT/eagle3. Weights are written in the pair's data type, and float32 holds the very numbers that are
kept here.
"""

from pathlib import Path
from typing import Any

from nanospec.errors import PairError, quoted
from nanospec.files.checkpoint import Pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.paths import path_of, written_aside
from nanospec.files.speculators import save_eagle3
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.model import GPT


def export(pair: Pair, out: Path, name: str = "", engine: str = "vllm") -> list[Path]:
    """Write out/target and out/draft, each with the tokenizer; of an EAGLE-3 head out/eagle3, and
    out/target if that is ours. Returns what was written. name: what a target of others is called
    where it will be served.

    PairError if no one else opens such a draft model, or one of the folders is there already;
    OSError when they cannot be written.
    """
    if not isinstance(pair, Pair):
        raise PairError(f"a pair is exported, as load_pair reads it, got {quoted(pair)}")
    out = path_of(out)
    head, made_here = isinstance(pair.draft_model, Eagle3), isinstance(pair.tokenizer, Tokenizer)
    models: dict[Path, Any] = {out / "target": pair.target} if made_here else {}
    models[out / ("eagle3" if head else "draft")] = pair.draft_model
    if not made_here and not head:
        raise PairError("the pair is of others' files already, which other programs open")
    for folder, model in models.items():
        if not isinstance(model, (GPT, Eagle3)):
            raise PairError(f"the {folder.name} is no GPT and no EAGLE-3: no other program opens "
                            "it")
        if folder.exists():
            raise PairError(f"{folder} is there already")
    if head and len(pair.draft_model.layers) != 3:
        raise PairError(f"the head reads {len(pair.draft_model.layers)} layers of its target, and "
                        "others know heads on 3")
    for library in "transformers", "tokenizers", "safetensors":         # before anything is written
        extra(library)
    for folder, model in models.items():
        with written_aside(folder) as beside:
            if isinstance(model, Eagle3):
                save_eagle3(model, beside, name or str(out / "target"), engine)
            elif isinstance(pair.tokenizer, Tokenizer):
                save_tokenizer(pair.tokenizer, beside)
                save_folder(model, beside, pair.tokenizer.end_of_text)
    return [*models]
