"""What speculation gains, measured: plain decoding beside it, in turns, and what a round should
cost by its parts.

    nanospec bench                    # speed: the pair that ships, on texts it was not trained on
    nanospec bench speed --drafters all --gammas 8
    nanospec bench SUBCOMMAND --help

Every table of docs/results/ stands there with the command that made it; --markdown writes such a
table. Most take some minutes.

Plain decoding, the baseline, runs in the data type, with the threads and the weight layout in which
it is fastest here.
"""

import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

from nanospec.cli.bench import acceptance, markdown, questions, serve, speed, transformers
from nanospec.cli.bench.prompts import CHAT
from nanospec.cli.launch import Parser, command
from nanospec.cli.options import (COUNT, GAMMA, HERE, OPTIONS, TEMPERATURE, add_options, file,
                                  option)
from nanospec.files.paths import write_atomically, write_json
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, RULES


def prompts(text: str) -> int | str | Path:
    if text == "chat":
        return CHAT
    if text.endswith(".jsonl"):
        return QUESTIONS(text)
    return text if text == "repetitive" else HOW_MANY(text)


SUBCOMMANDS = (speed, acceptance, serve, transformers)
QUESTIONS = option("a .jsonl file that is there", Path, Path.is_file)
HOW_MANY = option("1 or more, repetitive, chat, or a file FILE.jsonl", int,
                  lambda number: 1 <= number <= 10 ** 9)
# A subcommand's options are the parameters of its `run`, and so are their defaults.
OF_THE_BENCH: dict[str, dict] = OPTIONS | {
    "temperatures": dict(type=TEMPERATURE, nargs="+", metavar="T"),
    "draft_models": dict(choices=["gpt", *LEARNED, "all"], nargs="+", help="draft models"),
    "drafters": dict(choices=[*DRAFTERS, "all"], nargs="+", help="drafters"),
    "rules": dict(choices=RULES, nargs="+", help="rules of verification"),
    "gammas": dict(type=GAMMA, nargs="+", metavar="N", help="draft tokens a round"),
    "rows": dict(type=COUNT, nargs="+", metavar="N", help="the most requests that run at once"),
    "rate": dict(type=TEMPERATURE, metavar="R",
                 help="requests that come in a second, at random; 0: all at once"),
    "prompts": dict(type=prompts, metavar="N",
                    help="how many held-out texts to continue; repetitive: a table of assertions "
                    "and a dispatch dictionary; FILE.jsonl: questions, as SPEED-Bench or "
                    "Spec-Bench has them; chat: twenty such questions of ours, of five kinds"),
    "answers": dict(type=file(".jsonl"), metavar="FILE.jsonl",
                    help="where the answers to such questions are kept, as Spec-Bench keeps them, "
                    "plain decoding's in FILE.plain.jsonl; a run that was cut goes on there"),
    "text": dict(type=option("a file or a folder that is there", Path, Path.exists), metavar="PATH",
                 help="a text, or a folder of many; default: the standard library's files that the "
                 "models were not trained on"),
    "tokens": dict(type=COUNT, metavar="N", help="how many of the text's tokens are read"),
}
WORDS = {"drafters": "chain, or suffix where there is no draft model", "prompts": "chat"}


def parser() -> Parser:
    top = Parser(prog="nanospec bench", description=__doc__, epilog="Without a subcommand: speed.")
    subcommands = top.add_subparsers(metavar="SUBCOMMAND")
    for module in SUBCOMMANDS:
        words = str(module.__doc__)
        parameters = signature(module.run).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()
                    if name in OF_THE_BENCH}
        one = subcommands.add_parser(
            module.__name__.split(".")[-1], description=words, help=words.splitlines()[0],
            epilog=questions.__doc__ if "answers" in defaults else None)
        add_options(one, defaults | {"device": HERE}, WORDS, OF_THE_BENCH)
        one.add_argument("--json", type=file(), metavar="FILE", help="the rows")
        one.add_argument("--markdown", type=file(".md"), metavar="FILE.md",
                         help="the table, with the command, the machine and the date")
        one.set_defaults(run=module.run)
    return top


@command("bench")
def main(argv: Sequence[str]) -> None:
    words = [*argv]
    if not words or words[0].startswith("-") and words[0] not in ("-h", "--help"):
        words = ["speed", *words]
    options = vars(parser().parse_args(words))
    run, rows_file, table_file = (options.pop(name) for name in ("run", "json", "markdown"))
    if sys.stderr.isatty():
        print("measuring; this can take minutes, and Ctrl-C ends it", file=sys.stderr)
    rows, table = run(**options)
    if rows_file:
        write_json(rows_file, rows)
    if table_file:
        page = markdown.page(words, table)
        write_atomically(table_file, lambda file: file.write(page.encode()))
