"""A pair of ours as folders that transformers, vLLM and SGLang open: OUT/target and OUT/draft.

    python -m nanospec.files.export OUT                         # the pair that ships
    python -m nanospec.files.export OUT --weights FOLDER        # one that train_tiny.py wrote

Weights are written in bfloat16, as they are kept here. docs/SCALING.md says how to go on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nanospec.errors import NanospecError, PairError, one_line
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.tokenizer import Tokenizer
from nanospec.files.tokenizer_json import save_tokenizer
from nanospec.model import GPT


def export(pair: Pair, out: Path) -> None:
    """Write out/target and out/draft, each with the tokenizer. PairError if the pair is none of ours, or one of the two
    folders is there already; OSError when they cannot be written.
    """
    models: dict[str, Any] = {"target": pair.target, "draft": pair.draft}
    if not isinstance(pair.tokenizer, Tokenizer):
        raise PairError("the pair is one of Hugging Face folders already")
    for name, model in models.items():
        if not isinstance(model, GPT):
            raise PairError(f"the {name} is no GPT: nobody else opens it")
        if (out / name).exists():
            raise PairError(f"{out / name} is there already")
    for library in "tokenizers", "safetensors":         # before anything is written
        extra(library)
    for name, model in models.items():
        save_tokenizer(pair.tokenizer, out / name)
        save_folder(model, out / name, pair.tokenizer.end_of_text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nanospec.files.export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder, there or not")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FOLDER", help="default: the pair that ships")
    asked = parser.parse_args(argv)
    try:
        export(load_pair(asked.weights, dtype=torch.bfloat16), asked.out)
    except (NanospecError, OSError) as error:
        print(f"export: {one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"{asked.out / 'target'} and {asked.out / 'draft'} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
