"""Judge a sampler of other people against its target's own distribution. Exit 0 if it is right as
far as can be seen, 1 if it is wrong, 2 if it cannot be judged, 3 if there are too few samples to
say.

    python -m nanospec.proof.judge transformers TARGET --assistant DRAFT --temperature 0.7 --top-k 3
    python -m nanospec.proof.judge endpoint http://127.0.0.1:8000 --plain http://127.0.0.1:8001
    python -m nanospec.proof.judge function my_file:sampler --target my_file:target

How often the judge itself errs, and vLLM judged on a CPU: in a clone, python -m tests.proof.itself,
and engines
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from nanospec.cli.launch import Parser, command
from nanospec.errors import NanospecError, RequestError
from nanospec.proof.judge.endpoint import Endpoint, against_logprobs, against_plain
from nanospec.proof.judge.other_programs import (SECONDS, SINGLE, error_in_a_line,
                                                 load_with_transformers,
                                                 model_of, of_function, of_transformers, recomputed)
from nanospec.proof.judge.sequential import LOOKS
from nanospec.proof.judge.verdict import BINS, SETTINGS, Verdict, check_task, judge

PROMPT = [0]


def parser() -> Parser:
    main = Parser(prog="python -m nanospec.proof.judge", description=__doc__)
    kinds = main.add_subparsers(dest="kind", required=True,
                                metavar="{transformers,endpoint,function}")
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

    kind = kinds.add_parser("transformers", parents=[common],
                            help="its generate, on models in folders")
    kind.add_argument("target", type=Path, metavar="TARGET",
                      help="a folder that transformers can read")
    how = kind.add_mutually_exclusive_group()
    how.add_argument("--assistant", type=Path, metavar="FOLDER",
                     help="the draft model: assistant_model")
    how.add_argument("--lookup", type=int, metavar="N",
                     help="draft tokens from the text: prompt_lookup_num_tokens")
    kind.add_argument("--gamma", type=int, default=2, metavar="N",
                      help="draft tokens of the assistant; default: 2")

    kind = kinds.add_parser("endpoint", parents=[common], help="a server's POST /v1/completions")
    kind.add_argument("url", metavar="URL", help="as in http://127.0.0.1:8000")
    truth = kind.add_mutually_exclusive_group()
    truth.add_argument("--plain", metavar="URL",
                       help="a server that does not speculate: two samples are compared")
    truth.add_argument("--truth", type=Path, metavar="FOLDER",
                       help="the model itself, which transformers can read; neither: the logprobs "
                            "that the server reports")
    kind.add_argument("--prompt", metavar="TEXT", help="instead of --ids")
    kind.add_argument("--model", metavar="NAME", help="the model's name on the server")
    kind.add_argument("--at-once", type=int, default=8, metavar="N",
                      help="requests at the same time; default: 8")
    kind.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                      help="of a request; default: 60")

    kind = kinds.add_parser("function", parents=[common], help="sampler(dice) -> tokens")
    kind.add_argument("sampler", metavar="MODULE:NAME")
    kind.add_argument("--target", required=True, metavar="MODULE:NAME",
                      help="tokens (1, T) -> logits (1, T, V), a model, or {tuple of tokens: "
                      "probability}")
    kind.add_argument("--draft", metavar="MODULE:NAME",
                      help="what it speculates with: a bug can then be named")
    kind.add_argument("--gamma", type=int, default=2, metavar="N",
                      help="draft tokens in a round; default: 2")
    return main


@command("judge")
def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(1)            # small tensors gain nothing from more
    options = parser().parse_args(argv)
    settings = {name: getattr(options, name) for name, usual in SETTINGS.items()
                if getattr(options, name) != usual}
    task = {"new": options.new, "samples": options.samples, "seed": options.seed}
    if getattr(options, "at_once", 1) < 1:
        raise RequestError(f"--at-once must be 1 or more, got {options.at_once}")
    check_task(gamma=getattr(options, "gamma", 1), settings=settings, **task)
    verdict, what = JUDGES[options.kind](options, task, settings)
    print(verdict)
    if verdict.wrong:
        print("\n" + report(verdict, what, argv, options))
    return 1 if verdict.wrong else 0 if verdict.decided else 3


def judge_transformers(options, task: dict, settings: dict) -> tuple[Verdict, str]:
    if options.lookup is not None and options.lookup < 1:
        raise RequestError(f"--lookup must be 1 or more, got {options.lookup}")
    ids, target = options.ids or PROMPT, load_with_transformers(options.target)
    assistant = options.assistant and load_with_transformers(options.assistant)
    sampler = of_transformers(target, ids, options.new, assistant, options.gamma,
                              options.lookup, **settings)
    verdict = judge(sampler, recomputed(target), assistant and recomputed(assistant), ids,
                    gamma=options.gamma, tolerance=SINGLE, seconds=SECONDS, **task, **settings)
    return verdict, (f"transformers {version('transformers')}, torch {torch.__version__}, "
                     f"{type(target).__name__}: generate" + f", assistant_model of {options.gamma} "
                     "draft tokens a round" * bool(assistant)
                     + f", prompt_lookup_num_tokens={options.lookup}" * bool(options.lookup))


def judge_endpoint(options, task: dict, settings: dict) -> tuple[Verdict, str]:
    if options.prompt is not None and options.ids:
        raise RequestError("a prompt is --prompt or --ids, not both")
    if not options.timeout > 0:
        raise RequestError(f"--timeout must be more than 0, got {options.timeout}")
    prompt = options.prompt if options.prompt is not None else options.ids or PROMPT
    asked = prompt, options.new, settings, options.model, options.timeout, options.at_once
    endpoint = Endpoint(options.url, *asked)
    counts = {"samples": options.samples, "seed": options.seed}
    if options.plain is not None:
        return (against_plain(endpoint, Endpoint(options.plain, *asked), **counts),
                "a server, against one that does not speculate")
    if not options.truth:
        verdict = against_logprobs(endpoint, **counts)
        return verdict, "a server, against the logprobs that it reports"
    if options.prompt is not None:
        raise RequestError("--truth reads token ids: give the prompt as --ids")
    verdict = judge(endpoint.ids, recomputed(load_with_transformers(options.truth)),
                    ids=prompt, looks=LOOKS, at_once=options.at_once, **task, **settings)
    return verdict, "a server, against the logits of its model"


def judge_function(options, task: dict, settings: dict) -> tuple[Verdict, str]:
    ids, sampler = options.ids or PROMPT, of_function(options.sampler)
    target, draft = (name and model_of(name, ids) for name in (options.target, options.draft))
    try:
        verdict = judge(sampler, target, draft, ids, gamma=options.gamma, tolerance=SINGLE,
                        seconds=SECONDS, **task, **settings)
    except NanospecError:
        raise
    except Exception as error:          # of the sampler, or of its models
        raise RequestError(f"{options.sampler} failed: {error_in_a_line(error)}") from error
    return verdict, options.sampler


JUDGES = {"transformers": judge_transformers, "endpoint": judge_endpoint,
          "function": judge_function}


def report(verdict: Verdict, what: str, argv: Sequence[str], options) -> str:
    """What to send to its authors: how it was sampled, and what was found."""
    lines = ["To send upstream:", f"  judged       {what}",
             f"  settings     temperature {options.temperature:g}, top_k {options.top_k}, top_p "
             f"{options.top_p}, {options.new} new tokens, seeds from {options.seed}",
             f"  again        python -m nanospec.proof.judge {shlex.join(argv)}"]
    if verdict.most_off is not None:
        outcome, expected, found = verdict.most_off
        name = (f"part {outcome + 1} of {BINS} ({verdict.unit})" if isinstance(outcome, int)
                else f"{outcome!r}")
        walked = verdict.distance is not None and "walked, is" in verdict.why
        lines.append(f"  most off     {name}: expected {expected:.4g}, found {found:.4g} "
                     + ("(exact, every path walked)" if walked else f"in {verdict.samples:,} "
                        "samples"))
    if verdict.bugs:
        lines.append(f"  looks like   {', '.join(verdict.bugs)}")
    return "\n".join([*lines, f"  chi-square   p = {verdict.p_value:.2g} of {verdict.samples:,} "
                      "samples"])


if __name__ == "__main__":
    sys.exit(main())
