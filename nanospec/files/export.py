"""A pair of ours as folders that transformers, vLLM and SGLang open: OUT/target and OUT/draft, or
OUT/eagle3.

    nanospec export OUT                         # the pair that ships
    nanospec export OUT --weights FOLDER        # one that train_tiny.py wrote
    nanospec export OUT --weights FOLDER --draft eagle3     # its FOLDER/eagle3.pt

FOLDER may hold a target of others, or be called as demo.py calls it: then the head alone is
written, and names it. Weights are written in bfloat16, as they are kept here. docs/SCALING.md says
how to go on.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nanospec.cli.launch import Parser, command
from nanospec.errors import PairError, one_line
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.paths import path_of
from nanospec.files.speculators import ENGINES, save_eagle3
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.methods.draft_models.eagle3 import Eagle3
from nanospec.model import GPT


def export(pair: Pair, out: Path, name: str = "", engine: str = "vllm") -> list[Path]:
    """Write out/target and out/draft, each with the tokenizer; of an EAGLE-3 head out/eagle3, and
    out/target if that is ours. Returns what was written. name: what a target of others is called
    where it will be served.

    PairError if no one else opens such a draft, or one of the folders is there already; OSError
    when they cannot be written.
    """
    if not isinstance(pair, Pair):
        raise PairError(f"a pair is exported, as load_pair reads it, got {one_line(repr(pair))}")
    out = path_of(out)
    head, made_here = isinstance(pair.draft, Eagle3), isinstance(pair.tokenizer, Tokenizer)
    models: dict[Path, Any] = {out / "target": pair.target} if made_here else {}
    models[out / ("eagle3" if head else "draft")] = pair.draft
    if not made_here and not head:
        raise PairError("the pair is one of Hugging Face folders already")
    for folder, model in models.items():
        if not isinstance(model, (GPT, Eagle3)):
            raise PairError(f"the {folder.name} is no GPT and no EAGLE-3: no other program opens "
                            "it")
        if folder.exists():
            raise PairError(f"{folder} is there already")
    if head and len(pair.draft.layers) != 3:
        raise PairError(f"the head reads {len(pair.draft.layers)} layers of its target, and others "
                        "know heads on 3")
    for library in "transformers", "tokenizers", "safetensors":         # before anything is written
        extra(library)
    for folder, model in models.items():
        if isinstance(model, Eagle3):
            save_eagle3(model, folder, name or str(out / "target"), engine)
        elif isinstance(pair.tokenizer, Tokenizer):
            save_tokenizer(pair.tokenizer, folder)
            save_folder(model, folder, pair.tokenizer.end_of_text)
    return [*models]


@command("export")
def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="nanospec export", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write to")
    parser.add_argument("--weights", default=WEIGHTS, metavar="FOLDER",
                        help="default: the pair that ships")
    parser.add_argument("--draft", default="gpt", metavar="NAME",
                        help="gpt, eagle3 or the file of an EAGLE-3 head; default: %(default)s")
    parser.add_argument("--for", choices=[*ENGINES], default="vllm", dest="engine",
                        help="an EAGLE-3 head in the format of speculators, or in SpecForge's; "
                        "default: %(default)s")
    asked = parser.parse_args(argv)
    pair = load_pair(asked.weights, dtype=torch.bfloat16, draft=asked.draft)
    name = "" if isinstance(pair.tokenizer, Tokenizer) else str(asked.weights)
    written = export(pair, asked.out, name, asked.engine)
    print(f"{' and '.join(map(str, written))} written")


if __name__ == "__main__":
    sys.exit(main())
