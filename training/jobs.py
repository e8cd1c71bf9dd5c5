"""What train_tiny.py is asked to train: what is refused at once, and what is read first."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from nanospec.cli.options import option
from nanospec.errors import PairError, RequestError
from nanospec.fast.announce import announced
from nanospec.fast.compiled import compiler_for
from nanospec.files.checkpoint import WEIGHTS, Pair, load_model, load_pair, load_saved
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.paths import fetched, write_atomically
from nanospec.files.sources import Target
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.model import GPT
from training.batches import HeldOut
from training.grow import check_growth
from training.learning import LearnedTraining, files_of, plan_of
from training.packages import DEPENDENCIES, packages, read_packages
from training.pair import FILES, Distillation, Size, Training, further

PHASED = ("pair", "distil")             # what can be trained besides LEARNED
# How often the first text is read where the packages, being long, are read once. It alone is read
# while the target's learning rate falls.
TIMES = 4


def can_be_made(folder: Path) -> bool:
    """The folder, or the nearest one above it that exists, is a folder that can be written to."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)


NEW_FOLDER = option("a folder that can be written to, there or not", Path, can_be_made)


class Job(NamedTuple):
    """What is to be trained, and where. pair: the one that draft models are trained for, None for a
    pair's training. target: that of others instead, not loaded yet. shallow: what a target grows
    from.
    """

    size: Size
    out: Path
    pair: Pair | None
    files: Sequence[str]            # what it will write, the training's state last
    target: Target | None = None
    shallow: GPT | None = None


def checked(args: argparse.Namespace, size: Size | Any) -> Job:
    """What can be refused before the text is read is refused here."""
    if args.begin and args.what != "pair":
        raise RequestError("--from is for a pair, whose target grows from one of fewer layers, and "
                           "for a draft model of --weights; distil trains the draft that ships "
                           "further")
    if args.begin and args.resume:
        raise RequestError("--from: a training that is resumed has grown its target already")
    for name in args.packages or ():
        if not packages([name]):
            raise RequestError(f"--packages: {name} is not installed here")
    files: Sequence[str] = FILES
    out, pair, shallow = args.out, None, None
    if args.begin:                  # with its tokenizer, unless another is named
        args.tokenizer = args.tokenizer or fetched(args.begin).with_name("ranks.tiktoken")
        shallow = load_model(args.begin, args.device, tokenizer=Tokenizer.load(args.tokenizer))
        check_growth(shallow.config, size.target)
    if args.what != "pair":
        if args.tokenizer:
            raise RequestError("--tokenizer: a draft model has the tokenizer of its pair")
        pair = load_pair(out if (out / "target.pt").exists() else WEIGHTS, args.device)
        if args.what == "distil":
            files = (Distillation.state_file,)
            size = further(size, pair)
        else:
            files, size = files_of(args.what), plan_of(args.what, pair.target.config, size)
    return allowed(args, Job(size, out, pair, files, shallow=shallow))


def allowed(args: argparse.Namespace, job: Job) -> Job:
    """The job with the steps that were asked for; what no job may have is refused."""
    size, out, files = job.size, job.out, job.files
    if args.batch:
        size = scaled(size, args.batch)
    if args.steps:
        if len(args.steps) != len(size.steps):
            raise RequestError(f"--steps: wants {len(size.steps)} of them, got {len(args.steps)}")
        size = replace(size, steps=tuple(args.steps))
    if min(size.steps) < 1:
        raise RequestError(f"--steps must be 1 or more, got {min(size.steps)}")
    if not args.minutes >= 0:
        raise RequestError(f"--minutes must be 0 or more, got {args.minutes}")
    if args.tokenizer:
        Tokenizer.load(args.tokenizer)
    old = [name for name in files if (out / name).exists()]
    if old and not args.resume:
        raise PairError(f"{out} already holds {', '.join(old)}: name another folder with --out"
                        + ", or go on with --resume" * (files[-1] in old))
    if args.resume:
        load_saved(out / files[-1])
    return job._replace(size=size)


def scaled(size: Any, batch: int) -> Any:
    """A Size of another batch: as many texts, learning rates by the batch's root."""
    part = batch / size.batch
    return replace(size, batch=batch,
                   steps=tuple(max(1, round(steps / part)) for steps in size.steps),
                   rate=tuple(rate * part ** 0.5 for rate in size.rate),
                   held_out_every=max(1, round(size.held_out_every / part)))


def prepared(args: argparse.Namespace, job: Job,
             console: Console) -> tuple[Training, list[HeldOut]]:
    """The training, and what is held out of each source. Nothing has been written yet."""
    size, out, pair = job.size, job.out, job.pair
    with announced("reading the texts", at_once=False):
        texts = {str(path): read_texts(path) for path in args.text}
        texts = texts or {"the standard library": read_texts()}
        if args.packages is not None:
            texts["packages"] = read_packages([*DEPENDENCIES, *args.packages])
    if args.packages is not None:
        for package in packages([*DEPENDENCIES, *args.packages]):
            console.print(f"{package.name} {package.version}, {package.licence}", style="dim",
                          markup=False)
    known = out / "ranks.tiktoken" if args.resume else args.tokenizer
    tokenizer: Any
    if pair:
        tokenizer = pair.tokenizer
    elif known:
        tokenizer = Tokenizer.load(known)
    else:                           # learned from the first source, whatever else is read
        first, _ = next(iter(texts.values()))
        with announced("learning a tokenizer", at_once=False):
            tokenizer = Tokenizer(train("\n".join(first), size.target.vocab_size - 1))
    if tokenizer.vocab_size > size.target.vocab_size:
        raise PairError(f"{known} has {tokenizer.vocab_size} tokens, these models "
                        f"{size.target.vocab_size}")
    with announced("turning the texts into tokens", at_once=False):
        held = [HeldOut.of(name, held, tokenizer, args.device) for name, (_, held) in texts.items()]
        parts = [to_ids(read, tokenizer).to(args.device) for read, _ in texts.values()]
    for text in held:
        text.windows(size.target.context)           # raises where there is not one
    last = None
    if args.packages is not None:   # much text first, in the end what the model is to write
        last, parts = parts[0], parts[:1] * TIMES + parts[1:]
    ids = torch.cat([parts[0][:1], *(part[1:] for part in parts)])  # each begins with end of text
    compiler = compiler_for(torch.device(args.device)) if args.compile or ids.is_cuda else None

    compiled = compiler is not None
    training: Training
    if pair is None:
        training = Training(size, args.seed, ids, tokenizer, out, compiled, last, args.loss)
    elif args.what == "distil":
        training = Distillation(pair, size, args.seed, ids, tokenizer, out, compiled,
                                loss=args.loss)
    else:
        training = LearnedTraining(pair.target, size, args.seed, ids, tokenizer, out, compiled,
                                   loss=args.loss)
    if job.shallow:
        with announced("growing the target", at_once=False):
            training.grow(job.shallow)
    if args.resume:
        training.load()
    files = sum(len(read) for read, _ in texts.values())
    console.print(f"{files} files, {len(ids):,} tokens to train on")
    for text in held:
        files = len(texts[text.name][1])
        console.print(f"{files} files, {len(text.ids):,} tokens of {text.name} held out",
                      markup=False)
    for name, model in training.models.items():
        console.print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")
    return training, held


def opened(job: Job, training: Training) -> None:
    """The folder, with the pair beside draft models. If it cannot be written, that shows now."""
    job.out.mkdir(parents=True, exist_ok=True)
    for left in job.out.glob("*.partial"):              # by a run that was killed while it wrote
        left.unlink()
    for name in FILES[:3]:
        if job.pair and not (job.out / name).exists():
            write_atomically(job.out / name, lambda file: file.write((WEIGHTS / name).read_bytes()))
    training.save()
