"""Judge a sampler, yours or of others, against its target's own distribution; or two texts at
temperature 0, where they differ. Exit 0 if it is right as far as can be seen, 1 if it is wrong, 2
if it cannot be judged, 3 if there are too few samples to say.

    nanospec judge transformers TARGET --assistant DRAFT_MODEL --temperature 0.7 --top-k 3
    nanospec judge endpoint http://127.0.0.1:8000 --plain http://127.0.0.1:8001
    nanospec judge function my_file:sampler --target my_file:target
    nanospec judge texts TARGET plain.txt speculated.txt --prompt "def area("

How often the judge itself errs, and vLLM judged on a CPU: in a clone, python -m tests.proof.itself,
and engines
"""

import re
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name

import torch

from nanospec.cli.launch import Parser, command
from nanospec.cli.options import COUNT, HERE, MODEL, TEXT
from nanospec.errors import NanospecError, RequestError, quoted
from nanospec.files.checkpoint import load_pair
from nanospec.judge.endpoint import Endpoint
from nanospec.judge.given import answers, given_in, prompt_of
from nanospec.judge.other_programs import (SECONDS, SINGLE, error_in_a_line,
                                                 load_with_transformers, model_of,
                                                 of_transformers, recomputed, special_tokens)
from nanospec.judge.rounding import DTYPES
from nanospec.judge.texts import Judged, Task, judge_texts
from nanospec.judge.verdict import BINS, SETTINGS, Verdict, check_task, judge
from nanospec.judge.witnesses import against_logprobs, against_model, against_plain
from nanospec.model import GPT


def parser() -> Parser:
    main = Parser(prog="nanospec judge", description=__doc__)
    kinds = main.add_subparsers(dest="kind", required=True,
                                metavar="{transformers,endpoint,function,texts}")
    common = Parser(add_help=False)
    common.add_argument("--ids", type=int, nargs="+", metavar="ID",
                        help="the prompt, as token ids; default: 0")
    common.add_argument("--new", type=int, default=3, metavar="N",
                        help="tokens of every sample; default: 3")
    common.add_argument("--samples", type=int, default=2_000, metavar="N", help="default: 2,000")
    common.add_argument("--seed", type=int, default=0, metavar="N",
                        help="of the first sample; the next has the next")
    common.add_argument("--temperature", type=float, default=1.0, metavar="X")
    common.add_argument("--top-k", type=int, metavar="N")
    common.add_argument("--top-p", type=float, metavar="X")
    common.add_argument("--min-p", type=float, metavar="X")

    drafted = Parser(add_help=False)
    drafted.add_argument("--gamma", type=int, default=2, metavar="N",
                         help="draft tokens in a round; default: 2")

    kind = kinds.add_parser("transformers", parents=[common, drafted],
                            help="its generate, on models in folders")
    kind.add_argument("target", type=Path, metavar="TARGET",
                      help="a folder that transformers can read")
    how = kind.add_mutually_exclusive_group()
    how.add_argument("--assistant", type=Path, metavar="FOLDER",
                     help="the draft model: assistant_model")
    how.add_argument("--lookup", type=int, metavar="N",
                     help="draft tokens from the text: prompt_lookup_num_tokens")

    kind = kinds.add_parser("endpoint", parents=[common], help="a server's POST /v1/completions")
    kind.add_argument("url", metavar="URL", help="as in http://127.0.0.1:8000")
    truth = kind.add_mutually_exclusive_group()
    truth.add_argument("--plain", metavar="URL",
                       help="a server that does not speculate: two samples are compared")
    truth.add_argument("--truth", type=Path, metavar="FOLDER",
                       help="the model itself, which transformers can read; neither: the logprobs "
                            "that the server reports")
    kind.add_argument("--prompt", metavar="TEXT", help="instead of --ids")
    asking(kind)

    kind = kinds.add_parser("function", parents=[common, drafted],
                            help="sampler(dice) -> tokens")
    kind.add_argument("sampler", metavar="MODULE:NAME")
    kind.add_argument("--target", required=True, metavar="MODULE:NAME",
                      help="tokens (1, T) -> logits (1, T, V), a model, or {tuple of tokens: "
                      "probability}")
    kind.add_argument("--draft-model", metavar="MODULE:NAME",
                      help="what it speculates with: a bug can then be named")

    kind = kinds.add_parser("texts", help="two greedy texts that should be one: rounding or a bug?")
    kind.add_argument("target", type=MODEL, metavar="TARGET", help="the model, or a folder with a "
                      "pair: what its draft model would write is then known")
    for name in "ab":
        kind.add_argument(name, metavar=name.upper(), help="a text, a .jsonl file with a text or a "
                          "list of token ids a line, or a server's http://...")
    asked = kind.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt", type=TEXT, metavar="TEXT", help="what they go on from")
    asked.add_argument("--prompts", type=Path, metavar="FILE.jsonl", help="of many texts")
    kind.add_argument("--dtype", choices=DTYPES, default="bfloat16",
                      help=f"what they were computed in: {', '.join(DTYPES)}; default: bfloat16")
    kind.add_argument("--new", type=COUNT, default=128, metavar="N",
                      help="tokens that a server is asked for; default: 128")
    asking(kind)
    return main


def asking(kind: Parser) -> None:
    """How a server is asked."""
    kind.add_argument("--model", metavar="NAME", help="the model's name on the server")
    kind.add_argument("--at-once", type=int, default=8, metavar="N",
                      help="requests at the same time; default: 8")
    kind.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                      help="of a request, from its first byte to its last; default: 60")


@command("judge")
def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    if options.kind == "texts":
        judged = judge_given(options)
        print(judged)
        return judged.status
    torch.set_num_threads(1)            # small tensors gain nothing from more
    settings = {name: getattr(options, name) for name in SETTINGS}
    check_task(options.new, getattr(options, "gamma", 1), options.samples, options.seed, settings)
    task = {"ids": options.ids or [0], "new": options.new, "samples": options.samples,
            "seed": options.seed}
    verdict = JUDGES[options.kind](options, task, settings)
    print(verdict)
    if verdict.wrong:
        print("\n" + report(verdict, argv, options))
    return 1 if verdict.wrong else 0 if verdict.decided else 3


def judge_transformers(options, task: dict, settings: dict) -> Verdict:
    if options.lookup is not None and options.lookup < 1:
        raise RequestError(f"--lookup must be 1 or more, got {options.lookup}")
    target = load_with_transformers(options.target)
    assistant = options.assistant and load_with_transformers(options.assistant)
    sampler = of_transformers(target, task["ids"], options.new, assistant, options.gamma,
                              options.lookup, **settings)
    return judge(sampler, recomputed(target), assistant and recomputed(assistant),
                 gamma=options.gamma, tolerance=SINGLE, seconds=SECONDS, **task, **settings)


def judge_endpoint(options, task: dict, settings: dict) -> Verdict:
    if options.prompt is not None and options.ids:
        raise RequestError("a prompt is --prompt or --ids, not both")
    prompt = task["ids"] if options.prompt is None else options.prompt
    asked = prompt, options.new, settings, options.model, options.timeout, options.at_once
    endpoint, run = Endpoint(options.url, *asked), (options.samples, options.seed)
    if options.plain is not None:
        verdict = against_plain(endpoint, Endpoint(options.plain, *asked), *run)
    elif not options.truth:
        verdict = against_logprobs(endpoint, *run)
    elif options.prompt is not None:
        raise RequestError("--truth reads token ids: give the prompt as --ids")
    else:
        model = load_with_transformers(options.truth)
        verdict = against_model(endpoint, recomputed(model), task["ids"], *run,
                                special_tokens(model))
    if endpoint.declined:
        verdict.why += (f"\nIt was asked without {', '.join(endpoint.declined)}, which it refuses. "
                        "What it does there is its own.")
    return verdict


def judge_function(options, task: dict, settings: dict) -> Verdict:
    sys.path.insert(0, "")              # a command's path lacks the folder in which it is called
    try:
        sampler = resolve_name(options.sampler)
        target = model_of(resolve_name(options.target), task["ids"])
        draft_model = options.draft_model and model_of(resolve_name(options.draft_model),
                                                       task["ids"])
        return judge(sampler, target, draft_model, gamma=options.gamma, tolerance=SINGLE,
                     seconds=SECONDS, **task, **settings)
    except NanospecError:
        raise
    # What others wrote may do anything, also when imported: end the program, too.
    except (Exception, SystemExit) as error:
        raise RequestError(f"{options.sampler!r} cannot be judged: "
                           f"{error_in_a_line(error)}") from error


def judge_given(options) -> Judged:
    prompts = ([options.prompt] if options.prompts is None
               else given_in(options.prompts, ("prompt", "tokens", "token_ids")))
    named = options.a, options.b
    for name in named:
        if re.fullmatch(r"[\w.-]+:\d+(/.*)?", name) and not Path(name).exists():
            raise RequestError(f"there is no file {quoted(name)}, and a server's address begins "
                               "with http://")
    asked = options.new, {"temperature": 0.0}, options.model, options.timeout, options.at_once
    texts = [answers(Endpoint(name, prompts[0], *asked), prompts) if "://" in name
             else given_in(Path(name), ("tokens", "token_ids", "text", "output")) for name in named]
    if not len(prompts) == len(texts[0]) == len(texts[1]):
        raise RequestError(f"{len(prompts)} prompts, {len(texts[0])} texts in A and "
                           f"{len(texts[1])} in B: each prompt has one text in both")
    target, draft_model, tokenizer = load_pair(options.target, HERE)
    tasks = [Task(one if isinstance(one, list) else prompt_of(one, tokenizer), a, b)
             for one, a, b in zip(prompts, *texts)]
    return judge_texts(target, tokenizer, tasks, options.dtype,
                       draft_model if isinstance(draft_model, GPT) else None,
                       told=any("://" in name for name in named))       # see endpoint.OFF


JUDGES = {"transformers": judge_transformers, "endpoint": judge_endpoint,
          "function": judge_function}


def report(verdict: Verdict, argv: Sequence[str], options) -> str:
    """What its authors need besides the verdict: how it was sampled, and what is most off."""
    lines = ["To send upstream with the lines above:",
             f"  again        nanospec judge {shlex.join(argv)}",
             f"  settings     temperature {options.temperature:g}, top_k {options.top_k}, top_p "
             f"{options.top_p}, min_p {options.min_p}, {options.new} new tokens, seeds from "
             f"{options.seed}"]
    if options.kind == "transformers":
        lines.append(f"  versions     transformers {version('transformers')}, torch "
                     f"{torch.__version__}")
    if verdict.most_off is not None:
        outcome, expected, found = verdict.most_off
        name = (f"part {outcome + 1} of {BINS} ({verdict.unit})" if isinstance(outcome, int)
                else quoted(outcome))
        lines.append(f"  most off     {name}: expected {expected:.4g}, found {found:.4g}")
    return "\n".join(lines)

