"""Train a draft model that reads the hidden states of its target.

    python -m training prefix --out out/nano            # for the pair that train_tiny.py left there
    python -m training lookback --weights smollm2       # for a model of others, on conversations
    python -m training eagle --weights FOLDER --text FILES      # or on texts

Without --weights the target is the one in --out; if there is none, the one that ships, whose pair
is copied there. Writes into --out: NAME.pt, NAME.training.pt (what --resume reads), NAME.loss.png,
and for a model of others the folder texts.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from nanospec.cli.launch import Parser, command
from nanospec.cli.options import MODEL, NEW_FOLDER, whole_number
from nanospec.errors import PairError, RequestError
from nanospec.fast.autotune import copy_of, dtypes_of, fastest, set_up
from nanospec.fast.announce import announced
from nanospec.fast.clock import step_seconds
from nanospec.fast.compiled import compiler_for
from nanospec.files.model_file import load_learned
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.corpus import HeldOut, read_texts, to_ids
from nanospec.files.packages import Listed, in_tokens, read_packages
from nanospec.files.paths import write_atomically
from nanospec.files.sources import find_source
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.losses import LOSSES
from nanospec.model import GPT
from train_tiny import FILES, check, run, shared_options, warn
from training.kept import Kept, KeptTraining, check_parts_of_texts
from training.learning import STEPS, LearnedTraining, files_of, plan_of
from training.own_texts import AT_ONCE, TOKENS, read, written

IN_TOKENS = "turning texts into tokens"
PART = AT_ONCE * TOKENS         # tokens
PARTS = 16                      # that are made where --tokens does not say how many
BATCH, WRITTEN = 64, 16_384     # of a Plan for our pair on CUDA, where a step costs less
RATE, FURTHER = 3e-3, 1e-3      # top learning rate for others; of weights that are trained already


def options() -> Parser:
    parser = Parser(prog="python -m training", description=__doc__)
    add = parser.add_argument
    add("name", choices=LEARNED, metavar="NAME", help=", ".join(LEARNED))
    add("--weights", type=MODEL, metavar="MODEL", help="a target of others: a Hugging Face folder, "
        "a GGUF file, a name on the hub, smollm2")
    one = parser.add_mutually_exclusive_group().add_argument
    one("--text", type=Path, nargs="+", default=[], metavar="PATH", help="files or folders; "
        "default: Python's standard library, or conversations that a target of others writes")
    one("--texts", type=Path, metavar="FILE", help="for our pair: learn from the packages that "
        "FILE lists, too")
    add("--tokens", type=whole_number(2 * PART, 10 ** 9), metavar="N", help="how much text for "
        f"--weights; default: {PARTS * PART}, or less if --text holds less")
    add("--spoken", type=whole_number(1, 10 ** 9), metavar="N", help="the tokens that a draft "
        "model for --weights can draft: the N most frequent ones")
    add("--from", dest="begin", type=Path, metavar="FILE",
        help="a draft model for --weights, which is trained further")
    add("--loss", choices=LOSSES, default="lk-hybrid",
        help="how far it is from its target's probabilities; default: %(default)s")
    add("--steps", type=int, nargs=1, metavar="N", help=f"default: {STEPS}")
    add("--out", type=NEW_FOLDER, help="folder to write to; default: out/NAME")
    shared_options(add)
    return parser


@command("training")
def main(argv: Sequence[str] | None = None) -> int:
    args, console = options().parse_args(argv), Console()
    args.out = args.out or Path("out", args.name)
    check(args, 1, args.out, files_of(args.name))
    training, held = (for_others if args.weights else for_ours)(args, console)
    if args.resume:
        training.load()
    weights = sum(p.numel() for p in training.model.parameters())
    console.print(f"{training.ids.numel():,} tokens to train on; {args.name}: {weights:,} weights")
    training.save()                                     # if it cannot be written, that shows now
    if run(training, held, console, args.minutes):
        target, draft_model = ((args.weights, args.out / f"{args.name}.pt") if args.weights
                         else (args.out, args.name))
        console.print("Next: nanospec demo --weights", shlex.quote(str(target)), "--draft-model",
                      shlex.quote(str(draft_model)), markup=False, soft_wrap=True)
    return 0


def for_ours(args: argparse.Namespace, console: Console) -> tuple[LearnedTraining, HeldOut]:
    """The training, and what is held out. The pair lies in --out afterwards."""
    if args.tokens or args.spoken or args.begin:
        raise RequestError("--tokens, --spoken and --from are for a target of others, which "
                           "--weights names")
    beside = args.out if (args.out / "target.pt").exists() else WEIGHTS
    if beside is WEIGHTS and (old := [name for name in FILES[:3] if (args.out / name).exists()]):
        raise PairError(f"{args.out} has {' and '.join(old)}, but no target.pt beside")
    target, _, tokenizer = load_pair(beside, args.device)
    listed = Listed(args.texts) if args.texts else None
    warn(console, listed.differs if listed else [])
    names = listed.names if listed else []
    with announced("reading the texts", at_once=False, steps=len(names)) as step:
        parts = [read_texts(path) for path in args.text or [None]]
        texts, held_texts = (sum(texts, []) for texts in zip(*parts))
        more = read_packages(names, held_texts, step)
    with announced(IN_TOKENS, at_once=False, steps=len(texts) + len(more)) as step:
        held = HeldOut.of(held_texts, tokenizer, args.device)
        ids = in_tokens(texts, more, tokenizer, step).to(args.device)
    held.windows(target.config.context)                 # raises where there is not one
    warn(console, listed.compared(ids) if listed else [])
    plan = plan_of(args.name, target.config, steps_of(args))
    if ids.is_cuda:
        plan = replace(plan, batch=BATCH, written=WRITTEN)
    training = LearnedTraining(target, plan, args.seed, ids, tokenizer, args.out,
                               compiled=compiles(args), loss=args.loss)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in FILES[:3]:
        if not (args.out / name).exists():
            write_atomically(args.out / name,
                             lambda file: file.write((beside / name).read_bytes()))
    return training, held


def for_others(args: argparse.Namespace, console: Console) -> tuple[KeptTraining, None]:
    """The training; what is held out, it knows. The texts are made first, part by part, unless they
    are there; they stay in the folder `texts`.
    """
    if args.texts:
        raise RequestError("--texts is for our pair; for --weights name files with --text")
    source = find_source(args.weights).target
    if source is None:
        raise RequestError(f"{args.weights} is a pair of ours: name it with --out")
    if not args.text and source.tokenizer.template is None:
        raise RequestError(f"{args.weights} has no chat template, so it cannot write texts: name "
                           "files with --text")
    plan = plan_of(args.name, source.config, steps_of(args), FURTHER if args.begin else RATE)
    if args.spoken:
        if "spoken" not in plan.sizes:
            raise RequestError(f"--spoken: {args.name} always drafts the whole vocabulary")
        if args.spoken > source.config.vocab_size:
            raise RequestError(f"--spoken must be 1 to {source.config.vocab_size}, got "
                               f"{args.spoken}")
        plan = replace(plan, sizes=plan.sizes | {"spoken": args.spoken})
    target, tokenizer = source.load(args.device), source.tokenizer
    begun = load_learned(args.begin, target, args.name) if args.begin else None
    if begun:
        with torch.device("meta"):
            new = LEARNED[args.name](target.config.vocab_size, target.config.channels, **plan.sizes)
        if begun.sizes != new.sizes:
            raise PairError(f"{args.begin} is of other sizes: {begun.sizes}")

    # The texts.
    names = " ".join(sorted(str(path.resolve()) for path in args.text))
    kept = Kept(args.out / "texts", target, plan.sizes["layers"], names)
    wanted = (args.tokens or PARTS * PART) // PART
    if args.text:
        texts = [text for path in args.text for text in sum(read_texts(path), [])]
        with announced(IN_TOKENS, at_once=False, steps=len(texts)) as step:
            ids = to_ids(texts, tokenizer, step)
        wanted = min(wanted, len(ids) // PART)
    check_parts_of_texts(max(wanted, len(kept.parts)))
    lacking = range(len(kept.parts), wanted)
    writer = quick_copy(target, AT_ONCE) if lacking and not args.text else target
    for _ in track(lacking, "texts", console=console):
        if args.text:
            kept.add(lambda part: read(target, ids, kept.layers, part))
        else:
            kept.add(lambda part: written(writer, tokenizer, kept.layers,
                                          args.seed * 1_000_003 + part))

    training = KeptTraining(target, plan, args.seed, kept, tokenizer, args.out,
                            compiled=compiles(args), loss=args.loss)
    draft_model = training.model
    if begun:
        draft_model.load_state_dict(begun.state_dict())
    if draft_model.ids is not None:
        share = torch.isin(training.ids, draft_model.ids).float().mean().item()
        console.print(f"{args.name} drafts {len(draft_model.ids):,} tokens, which are {share:.1%} "
                      "of these texts")
    return training, None


def steps_of(args: argparse.Namespace) -> int:
    return args.steps[0] if args.steps else STEPS


def compiles(args: argparse.Namespace) -> bool:
    device = torch.device(args.device)
    return (args.compile or device.type == "cuda") and compiler_for(device) is not None


def quick_copy(target: GPT, rows: int) -> GPT:
    """A copy, as a step of this many texts is fastest with torch's threads."""
    with announced(f"measuring in which data type and layout {rows} texts at once are fastest "
                   "here"):
        tuning = fastest(target, dtypes_of("auto", target.device), [torch.get_num_threads()],
                         partial(step_seconds, rows=rows, repeats=2, warm_up=1), turns=1)
    copy: Any = set_up(copy_of(target, target.dtype), tuning)
    return copy


if __name__ == "__main__":
    sys.exit(main())
