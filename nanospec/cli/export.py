"""A pair of ours as folders that transformers, vLLM and SGLang open: OUT/target and OUT/draft, or
OUT/eagle3.

    nanospec export OUT                         # the pair that ships
    nanospec export OUT --weights FOLDER        # one that train_tiny.py wrote
    nanospec export OUT --weights FOLDER --draft-model eagle3     # its FOLDER/eagle3.pt

FOLDER may hold a target of others, or be called as `nanospec demo` calls it: then the head alone is
written, and names it. Weights are written in float32, which holds the very numbers that are kept
here. docs/SCALING.md says how to go on.
"""

from collections.abc import Sequence

from nanospec.cli.launch import Parser, command
from nanospec.errors import RequestError
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.for_engines import export
from nanospec.files.speculators import ENGINES
from nanospec.files.tokenizer import Tokenizer
from nanospec.fast.announce import printable


@command("export")
def main(argv: Sequence[str]) -> None:
    parser = Parser(prog="nanospec export", description=__doc__)
    parser.add_argument("out", metavar="OUT", help="the folder to write to")
    parser.add_argument("--weights", default=WEIGHTS, metavar="FOLDER",
                        help="default: the pair that ships")
    parser.add_argument("--draft-model", choices=["gpt", "eagle3"], default="gpt",
                        help="default: %(default)s")
    parser.add_argument("--for", choices=[*ENGINES], dest="engine",
                        help="an EAGLE-3 head in the format of speculators, or in SpecForge's; "
                        "default: vllm")
    args = parser.parse_args(argv)
    if args.engine and args.draft_model != "eagle3":
        raise RequestError("--for is for an EAGLE-3 head: --draft-model eagle3")
    pair = load_pair(args.weights, draft_model=args.draft_model)
    name = "" if isinstance(pair.tokenizer, Tokenizer) else str(args.weights)
    written = export(pair, args.out, name, args.engine or "vllm")
    print(printable(f"{' and '.join(map(str, written))} written"))
