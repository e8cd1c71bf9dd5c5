"""What speculation gains, measured: plain decoding beside it, in turns, and what a round should cost by its parts.

    nanospec bench                    # speed: the pair that ships, on texts it was not trained on
    nanospec bench speed --drafters all --gammas 8
    nanospec bench SUBCOMMAND --help

Every table of docs/results/ stands there with the command that made it; --markdown writes such a table. Most take some
minutes.

Plain decoding, the baseline, runs in the data type, with the threads and the weight layout in which it is fastest here.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import argparse
import json
import sys
from collections.abc import Sequence
from inspect import Parameter, signature
from pathlib import Path

from nanospec.cli.bench import acceptance, against, beside, markdown, questions, serve, speed
from nanospec.cli.parser import Parser
from nanospec.cli.show.options import (COUNT, FOLDER, GAMMA, HERE, MODEL, MODEL_HELP, REMEMBER, SEED, SHAPE,
                                       TEMPERATURE, TEXTS, THREADS, device, file, option)
from nanospec.cli.show.terminal import refuse
from nanospec.errors import NanospecError
from nanospec.fast.autotune import COPIES, DTYPES, name_of
from nanospec.files.checkpoint import WEIGHTS
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, REMEMBERING, RULES


def prompts(text: str) -> int | str | Path:
    if text.endswith(".jsonl"):
        return QUESTIONS(text)
    return text if text in ("repetitive", "chat") else COUNT(text)


SUBCOMMANDS = (speed, acceptance, serve, against, beside)
QUESTIONS = option("a .jsonl file that is there", Path, Path.is_file)
# A subcommand's options are the parameters of its `run`, and so are their defaults.
OPTIONS: dict[str, dict] = {
    "temperatures": dict(type=TEMPERATURE, nargs="+", metavar="T"),
    "temperature": dict(type=TEMPERATURE, metavar="T"),
    "draft": dict(choices=["gpt", *LEARNED], metavar="NAME",
                  help="the draft model: " + ", ".join(["gpt", *LEARNED])),
    "drafts": dict(choices=["gpt", *LEARNED, "all"], nargs="+", metavar="NAME",
                   help="draft models: " + ", ".join(["gpt", *LEARNED, "all"])),
    "drafters": dict(choices=[*DRAFTERS, "all"], nargs="+", metavar="NAME",
                     help="drafters: " + ", ".join([*DRAFTERS, "all"]) + "; speed takes chain if none is named, or "
                          "suffix where there is no draft model"),
    "rules": dict(choices=RULES, nargs="+", metavar="NAME", help="rules of verification: " + ", ".join(RULES)),
    "gammas": dict(type=GAMMA, nargs="+", metavar="N", help="draft tokens a round"),
    "gamma": dict(type=GAMMA, metavar="N", help="draft tokens a round"),
    "shape": dict(type=SHAPE, nargs="+", metavar="N",
                  help="children at every depth of a tree, or a whole one as JSON: its parents, or Medusa's choices; "
                       "default: the best for this pair here, measured; for dynamic-tree EAGLE-2's size, width and "
                       "depth, as {\"size\": 60, \"width\": 10, \"depth\": 6}"),
    "remember": dict(type=REMEMBER, metavar="N", help="how many tokens of earlier requests "
                     f"{', '.join(REMEMBERING)} may copy from"),
    "rows": dict(type=COUNT, nargs="+", metavar="N", help="the most requests that run at once"),
    "rate": dict(type=TEMPERATURE, metavar="R", help="requests that come in a second, at random; 0: all at once"),
    "prompts": dict(type=prompts, metavar="N", help="how many held-out texts to continue; repetitive: a table of "
                    "assertions and a dispatch dictionary; chat: requests to a chat model, of five kinds; FILE.jsonl: "
                    "questions in Spec-Bench's format"),
    "answers": dict(type=file(".jsonl"), metavar="FILE.jsonl", help="where the answers to such questions are kept, as "
                    "Spec-Bench keeps them, plain decoding's in FILE.plain.jsonl; a run that was cut goes on there"),
    "max_new_tokens": dict(type=COUNT, metavar="N", help="for each text"),
    "seed": dict(type=SEED, metavar="N"),
    "weights": dict(type=MODEL, metavar="MODEL", help=MODEL_HELP),
    "pair": dict(type=FOLDER, metavar="FOLDER", help="Llama checkpoints FOLDER/target and FOLDER/draft"),
    "device": dict(type=device, default=HERE),
    "dtype": dict(choices=["auto", *map(name_of, dict.fromkeys([*DTYPES, *COPIES]))],
                  help="auto: the fastest; int8 rounds more, so it is taken by name alone"),
    "threads": dict(type=THREADS, metavar="N", help="default: as many as are fastest"),
    "compile": dict(action="store_true", help="both sides through torch.compile, too: minutes, the first time"),
    "text": dict(type=TEXTS, metavar="PATH", help="a text, or a folder of many; default: the standard library's files "
                 "that the models were not trained on"),
    "tokens": dict(type=COUNT, metavar="N", help="how many of the text's tokens are read"),
    "figure": dict(type=file(".png"), metavar="FILE.png", help="the table as a picture"),
}


def parser() -> Parser:
    top = Parser(prog="nanospec bench", description=__doc__, epilog="Without a subcommand: speed.",
                 formatter_class=argparse.RawDescriptionHelpFormatter)
    subcommands = top.add_subparsers(required=True, metavar="SUBCOMMAND")
    for module in SUBCOMMANDS:
        command = subcommands.add_parser(module.__name__.split(".")[-1], description=module.__doc__,
                                         help=str(module.__doc__).splitlines()[0],
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parameters = signature(module.run).parameters
        command.epilog = questions.__doc__ if "answers" in parameters else None
        for name, parameter in parameters.items():
            must: dict = {"required": True} if parameter.default is Parameter.empty else {"default": parameter.default}
            command.add_argument("--" + name.replace("_", "-"), **must | OPTIONS[name] | help_of(name, **must))
        command.add_argument("--json", type=file(), metavar="FILE", help="the rows")
        command.add_argument("--markdown", type=file(".md"), metavar="FILE.md",
                             help="the table, with the command, the machine and the date")
        command.set_defaults(run=module.run)
    return top


def help_of(name: str, default=None, required: bool = False) -> dict:
    """The help of an option, with its default where a number or a word is one."""
    default = "the pair that ships" if default == WEIGHTS else default
    words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    shown = [f"default: {words}"] if type(default) in (tuple, int, float, str) and words and name != "device" else []
    return {"help": "; ".join([*filter(None, [OPTIONS[name].get("help")]), *shown])}


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        argv = ["speed", *argv]
    try:
        options = vars(parser().parse_args(argv))
        run, json_file, markdown_file = (options.pop(name) for name in ("run", "json", "markdown"))
        if sys.stderr.isatty():
            print("measuring; this can take minutes, and Ctrl-C ends it", file=sys.stderr)
        rows = run(**options)
        if json_file:
            json_file.write_text(json.dumps(rows, indent=1) + "\n")
        if markdown_file:
            markdown_file.write_text(markdown.page(argv), encoding="utf-8")
    except (NanospecError, OSError) as error:
        return refuse("bench", error)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
