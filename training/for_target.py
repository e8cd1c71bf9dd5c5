"""train_tiny.py --weights: a draft model for a target of others, on its texts or on files."""

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from nanospec.errors import PairError, RequestError
from nanospec.fast.autotune import copy_of, dtypes_of, fastest, set_up
from nanospec.fast.announce import announced
from nanospec.fast.clock import step_seconds
from nanospec.fast.compiled import compiler_for
from nanospec.files.checkpoint import load_learned
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.sources import source_of
from nanospec.methods.draft_models import LEARNED
from nanospec.model import GPT
from training.jobs import Job, allowed
from training.kept import Kept, KeptTraining
from training.learning import files_of, plan_of
from training.own_texts import AT_ONCE, TOKENS, read, written
from training.pair import Size
from training.watch import report_alpha

PART = AT_ONCE * TOKENS         # tokens
PARTS = 16                      # that are made where --tokens does not say how many
RATE = 3e-3                     # top learning rate
FURTHER = 1e-3                  # of weights that are trained already


def checked(args: argparse.Namespace, size: Size) -> Job:
    """As jobs.checked. The target's sizes and tokenizer are read here, its weights are not."""
    if args.what not in LEARNED:
        raise RequestError(f"--weights is for draft models: --what is one of {', '.join(LEARNED)}, "
                           f"got {args.what}")
    if args.packages is not None or args.tokenizer:
        raise RequestError("--packages and --tokenizer are for a pair that is trained from scratch")
    target = source_of(args.weights).target
    if target is None:
        raise RequestError(f"--weights {args.weights} is a pair of ours: copy it to --out instead")
    if not args.text and target.tokenizer.template is None:
        raise RequestError(f"{args.weights} has no chat template, so it cannot write texts: name "
                           "files with --text")
    if args.tokens is not None and args.tokens < 2 * PART:
        raise RequestError(f"--tokens must be {2 * PART} or more, got {args.tokens}: {PART} of "
                           "them are held out")
    if args.batch and AT_ONCE % args.batch:
        raise RequestError(f"--batch must divide the {AT_ONCE} texts of a part here, got "
                           f"{args.batch}")
    plan = plan_of(args.what, target.config, replace(size, sampled=0))
    name, sizes = plan.draft
    if args.spoken is not None:
        if "spoken" not in sizes:
            raise RequestError(f"--spoken: {name} always drafts the whole vocabulary")
        if not 1 <= args.spoken <= target.config.vocab_size:
            raise RequestError(f"--spoken must be 1 to {target.config.vocab_size}, got "
                               f"{args.spoken}")
        sizes["spoken"] = args.spoken
    plan = replace(plan, rate=(FURTHER if args.begin else RATE,))
    return allowed(args, Job(plan, args.out, None, files_of(name), target))


def prepared(args: argparse.Namespace, job: Job,
             console: Console) -> tuple[KeptTraining, list[None]]:
    """As jobs.prepared; what is held out, the training knows. The texts are made first, part
    by part, unless they are there; they stay in the folder `texts`.
    """
    target: Any = job.target                            # by `checked`
    model, (name, sizes) = target.load(args.device), job.size.draft
    begun = load_learned(args.begin, model, name) if args.begin else None
    names = " ".join(sorted(path.name for path in args.text))
    kept = Kept(job.out / "texts", model, sizes["layers"], names)
    wanted = (args.tokens or PARTS * PART) // PART
    if args.text:
        texts = [text for path in args.text for text in sum(read_texts(path), [])]
        ids = to_ids(texts, target.tokenizer)
        wanted = min(wanted, len(ids) // PART)
    lacking = range(len(kept.parts), wanted)
    writer = quick_copy(model, AT_ONCE) if lacking and not args.text else model
    for _ in track(lacking, "texts", console=console):
        if args.text:
            kept.add(lambda part: read(model, ids, kept.layers, part))
        else:
            kept.add(lambda part: written(writer, target.tokenizer, kept.layers,
                                          args.seed * 1_000_003 + part))
    compiler = compiler_for(model.device) if args.compile or model.device.type == "cuda" else None
    training = KeptTraining(model, job.size, args.seed, kept, target.tokenizer, job.out,
                            compiler is not None, args.loss)
    draft = training.model
    if begun:
        if draft.sizes != begun.sizes:
            raise PairError(f"{args.begin} is of other sizes: {begun.sizes}")
        draft.load_state_dict(begun.state_dict())
    if args.resume:
        training.load()
    console.print(f"{training.ids.numel():,} tokens to train on, {PART:,} held out")
    console.print(f"{name}: {sum(p.numel() for p in draft.parameters()):,} parameters")
    if draft.ids is not None:
        share = torch.isin(training.ids, draft.ids).float().mean().item()
        console.print(f"{name} drafts {len(draft.ids):,} tokens, which are {share:.1%} of "
                      "these texts")
    return training, [None]


def report(console: Console, training: KeptTraining) -> None:
    """As watch.py's, on texts that were held out."""
    prompts = training.kept.rows(0, slice(0, 8)).tokens[:, :TOKENS // 4].tolist()
    draft = load_learned(training.out / training.weights_file, training.target, training.name)
    report_alpha(console, training.name, training.target, draft, prompts, (1.0, 0.7, 0.0))


def quick_copy(target: GPT, rows: int) -> GPT:
    """A copy, as a step of this many texts is fastest with torch's threads."""
    with announced(f"measuring in which data type and layout {rows} texts at once are fastest "
                   "here"):
        tuning = fastest(target, dtypes_of("auto", target.device), [torch.get_num_threads()],
                         partial(step_seconds, rows=rows, repeats=2, warm_up=1), turns=1)
    copy: Any = set_up(copy_of(target, target.dtype), tuning)
    return copy
