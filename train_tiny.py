"""Train the pair: a target, then a draft that learns the same text and, for a while, the target's own probabilities.

    python train_tiny.py --packages --compile       # the pair that ships: some hours on two CPU cores
    python train_tiny.py --size nano                # a minute and a half on two CPU cores, on the standard library
    python train_tiny.py --what prefix --steps 4500 --loss lk-hybrid --compile      # its second draft model: 40 minutes
    python train_tiny.py --resume                   # go on where Ctrl-C, SIGTERM, --minutes or a power cut left it

Writes into --out: target.pt, draft.pt, ranks.tiktoken (what `load_pair` reads, usable at any moment), training.pt
(what --resume reads), sampled.pt (texts that the target wrote) and loss.png. With --what NAME it trains that draft
model for the target in --out; if there is none, for the one that ships, whose pair is copied there. It writes NAME.pt
and NAME.training.pt. The training itself is in nanospec/training/.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nanospec.bench.measure import compiler_for
from nanospec.bench.trained import needed, report
from nanospec.draft_models import LEARNED
from nanospec.errors import NanospecError, PairError, RequestError
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair, load_saved
from nanospec.files.corpus import packages, read_packages, read_texts, to_ids
from nanospec.files.ready import available
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.files.whole import write_whole
from nanospec.model import Config
from nanospec.show.figures import draw_accepted, draw_losses
from nanospec.show.options import NEW_FOLDER, Parser
from nanospec.show.terminal import refuse
from nanospec.training.batches import HeldOut
from nanospec.training.distil import Distillation, further
from nanospec.training.learned import LearnedTraining, files_of, plan_of
from nanospec.training.losses import LOSSES
from nanospec.training.pair import FILES, Size, Training, held_out_loss

SAVE_EVERY, SHOW_EVERY = 180, 0.5       # seconds
HELD_OUT_WINDOWS = 24                   # looked at on the way; at the end, all of them
TIMES = 4                               # the first text is read so often where the packages, being long, are read once;
                                        # and it alone while the target's learning rate falls

SIZES = {
    "dust": Size(Config(320, 64, layers=2, channels=64, heads=2, kv_heads=1, hidden=128),
                 Config(320, 64, layers=1, channels=32, heads=1, kv_heads=1, hidden=64),
                 batch=8, steps=(30, 20, 10), rate=(3e-3, 3e-3, 1e-3), held_out_every=10),
    "nano": Size(Config(1024, 256, layers=4, channels=192, heads=3, kv_heads=1, hidden=512),
                 Config(1024, 256, layers=1, channels=128, heads=2, kv_heads=1, hidden=352),
                 batch=8, steps=(600, 400, 200), rate=(2e-3, 3e-3, 1e-3), held_out_every=100),
    "tiny": Size(Config(1024, 512, layers=8, channels=384, heads=6, kv_heads=1, hidden=1216),
                 Config(1024, 512, layers=1, channels=320, heads=5, kv_heads=1, hidden=1024),
                 batch=8, steps=(8000, 1500, 6000), rate=(1e-3, 3e-3, 3e-3), held_out_every=250, short=0.75,
                 sampled=4096),
}
PHASED = ("pair", "distil")             # what --what trains besides LEARNED
SIZES["long"] = replace(SIZES["tiny"], batch=64, rate=(2e-3, 4e-3, 4e-3), sampled=16384)    # for a GPU, not tried


class Job(NamedTuple):
    """What is to be trained, and where. pair: the one that draft models are trained for, None for a pair's training."""

    size: Any                                           # a Size; of draft models, a Plan
    out: Path
    pair: Pair | None
    files: Sequence[str]                                # what it will write, the training's state last


def checked(args: argparse.Namespace) -> Job:
    """What can be refused before the text is read is refused here."""
    available(args.device)
    size: Any = SIZES[args.size]
    files: Sequence[str] = FILES
    out, pair = args.out or Path("out") / args.size, None
    if args.what != ["pair"]:
        for name in PHASED:
            if name in args.what and len(args.what) > 1:
                raise RequestError(f"--what: {name} is trained alone")
        if args.tokenizer:
            raise RequestError("--tokenizer: a draft model has the tokenizer of its pair")
        out = args.out or Path("out") / "_".join(args.what)
        pair = load_pair(pair_of(out), args.device)
        if args.what == ["distil"]:
            files = (Distillation.state_file,)
            size = further(size, pair)
        else:
            files, size = files_of(args.what), plan_of(args.what, pair.target, size)
    if args.steps:
        if len(args.steps) != len(size.steps):
            raise RequestError(f"--steps: wants {len(size.steps)} of them, got {len(args.steps)}")
        size = replace(size, steps=tuple(args.steps))
    if min(size.steps) < 1:
        raise RequestError(f"--steps must be 1 or more, got {min(size.steps)}")
    if not 0 <= args.seed < 2 ** 32:
        raise RequestError(f"--seed must be 0 to {2 ** 32 - 1}, got {args.seed}")
    if not args.minutes >= 0:
        raise RequestError(f"--minutes must be 0 or more, got {args.minutes}")
    if args.tokenizer:
        Tokenizer.load(args.tokenizer)
    there = [name for name in files if (out / name).exists()]
    if there and not args.resume:
        raise PairError(f"{out} already holds {', '.join(there)}: name another folder with --out"
                        + ", or go on with --resume" * (files[-1] in there))
    if args.resume:
        load_saved(out / files[-1])
    return Job(size, out, pair, files)


def pair_of(out: Path) -> Path:
    """The folder with the pair that a learned draft model is trained for."""
    return out if (out / "target.pt").exists() else WEIGHTS


def prepared(args: argparse.Namespace, job: Job, console: Console) -> tuple[Training, list[HeldOut]]:
    """The training, and what is held out of each source. Nothing has been written yet."""
    size, out, pair, _ = job
    texts = {str(path): read_texts(path) for path in args.text} or {"the standard library": read_texts()}
    if args.packages:
        texts["packages"] = read_packages()
        for package in packages():
            console.print(f"{package.name} {package.version}, {package.licence}", style="dim", markup=False)
    known = out / "ranks.tiktoken" if args.resume else args.tokenizer
    if pair:
        tokenizer = pair.tokenizer
    elif known:
        tokenizer = Tokenizer.load(known)
    else:                                               # learnt from the first source, whatever else is read
        tokenizer = Tokenizer(train("\n".join(next(iter(texts.values()))[0]), size.target.vocab_size - 1))
    if tokenizer.vocab_size > size.target.vocab_size:
        raise PairError(f"{known} has {tokenizer.vocab_size} tokens, these models {size.target.vocab_size}")
    held = [HeldOut.of(name, held, tokenizer, args.device) for name, (_, held) in texts.items()]
    for text in held:
        text.windows(size.target.context)               # raises where there is not one
    parts, last = [to_ids(read, tokenizer).to(args.device) for read, _ in texts.values()], None
    if args.packages:                                   # much text first, in the end what the model is to write
        last, parts = parts[0], parts[:1] * TIMES + parts[1:]
    ids = torch.cat([parts[0][:1], *(part[1:] for part in parts)])      # each begins with an end of text
    compiler = compiler_for(torch.device(args.device)) if args.compile or ids.is_cuda else None
    more: tuple[int, torch.Tensor, Any, Path, bool] = args.seed, ids, tokenizer, out, compiler is not None
    training: Training
    if pair is None:
        training = Training(size, *more, last, args.loss)
    elif args.what == ["distil"]:
        training = Distillation(pair, size, *more, args.loss)
    else:
        training = LearnedTraining(pair.target, size, *more, args.loss)
    if args.resume:
        training.load()
    console.print(f"{sum(len(read) for read, _ in texts.values())} files, {len(ids):,} tokens to train on")
    for text in held:
        console.print(f"{len(texts[text.name][1])} files, {len(text.ids):,} tokens of {text.name} held out",
                      markup=False)
    for name, model in training.models.items():
        console.print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")
    return training, held


def run(training: Training, held: HeldOut, seconds: float, progress: Progress, stopped=lambda: False) -> bool:
    """Train to the end of the last phase. False if `seconds` or `stopped` ended it before; saved either way."""
    began = saved_at = time.monotonic()
    size = training.size

    def save_if_it_can() -> None:                       # a disk that is full now need not be full at the end
        try:
            training.save()
        except OSError as error:
            progress.console.print(f"train_tiny: {error}; training goes on", style="red", markup=False)

    while True:
        name, steps = training.name, training.steps
        bar = progress.add_task(name, total=steps, completed=training.step, loss=float("nan"), speed=0.0)
        shown, shown_at = training.step, time.monotonic()
        while training.step < steps:
            if stopped() or time.monotonic() - began > seconds:
                training.save()
                return False
            of_step = training.train_step()
            look = training.step % size.held_out_every == 0 or training.step == steps
            if look or time.monotonic() - shown_at > SHOW_EVERY:
                loss, now = of_step.item(), time.monotonic()
                tokens = (training.step - shown) * size.batch * size.target.context
                progress.update(bar, completed=training.step, loss=loss, speed=tokens / (now - shown_at))
                shown, shown_at = training.step, now
            if look:
                found, said = training.look(held, HELD_OUT_WINDOWS)
                training.history.append((training.phase, training.step, loss, *found))
                progress.console.print(f"{name:6} step {training.step:5}/{steps}  loss {loss:.3f}  {said}  "
                                       f"{(time.monotonic() - began) / 60:5.1f} min")
            if time.monotonic() - saved_at > SAVE_EVERY:
                saved_at = time.monotonic()
                save_if_it_can()
        if training.phase == len(training.phases) - 1:
            training.save()
            return True
        training.begin_phase(training.phase + 1)
        save_if_it_can()


def main(argv: list[str] | None = None) -> int:
    parser, console, signals = Parser(description=__doc__.splitlines()[0]), Console(), []
    parser.add_argument("--what", choices=[*PHASED, *LEARNED], default=["pair"], nargs="+", metavar="NAME",
                        help="the pair; distil, its draft once more; or draft models for it: " + ", ".join(LEARNED))
    parser.add_argument("--size", choices=SIZES, default="tiny", help="sets widths, depths, batch and steps")
    parser.add_argument("--steps", type=int, nargs="+", metavar="N",
                        help="of the target, the draft, the distillation; of what --what names")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--text", type=Path, nargs="+", default=[], metavar="PATH",
                        help="files or folders; default: Python's standard library")
    parser.add_argument("--packages", action="store_true", help="also the sources of the packages this one needs")
    parser.add_argument("--loss", choices=LOSSES, default="forward-kl",
                        help="what the draft learns the target's probabilities by (default: forward-kl)")
    parser.add_argument("--compile", action="store_true",
                        help="through torch.compile: a third faster on a CPU (on CUDA always)")
    parser.add_argument("--tokenizer", type=Path, help="ranks to use; default: learnt from the first text")
    parser.add_argument("--out", type=NEW_FOLDER, help="folder to write to; default: out/SIZE, or out/NAME of --what")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from --out")
    columns = (TextColumn("{task.description:6}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("loss {task.fields[loss]:.3f}"),
               TextColumn("{task.fields[speed]:,.0f} tokens/s"), TimeRemainingColumn())
    try:
        args = parser.parse_args(argv)
        job = checked(args)
        training, held = prepared(args, job, console)
        out = job.out
        out.mkdir(parents=True, exist_ok=True)
        for left in out.glob("*.partial"):              # by a run that was killed while it wrote
            left.unlink()
        for name in FILES[:3]:                          # draft models lie beside the pair that they are for
            if job.pair and not (out / name).exists():
                write_whole(out / name, lambda file: file.write((WEIGHTS / name).read_bytes()))
        training.save()                                 # a folder that cannot be written to is found now
        before = {number: signal.signal(number, lambda got, frame: signals.append(got))
                  for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with Progress(*columns, console=console) as progress:
                finished = run(training, held[0], args.minutes * 60, progress, lambda: signals)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        picture = training.state_file.replace("training.pt", "loss.png")
        if isinstance(training, LearnedTraining) and job.pair:
            missed = held_out_loss("distil", job.pair.draft, training.target, held[0], training.size.batch,
                                   HELD_OUT_WINDOWS, "total-variation")
            levels = needed(out, args.what, args.device, 1 - missed) if finished else [{} for _ in args.what]
            for level in levels:
                level["any token of the draft GPT"] = 1 - missed
            draw_accepted(training.history, args.what, levels, out / picture)
        else:
            draw_losses(training.history, training.phases, out / picture)
        if not finished:
            console.print(f"stopped; everything is in {out}. Go on with --resume.")
            return 128 + signals[0] if signals else 0
        for what in args.what:
            report(console, out, held, args.device, what)
    except (NanospecError, OSError) as error:
        return refuse("train_tiny", error)
    except KeyboardInterrupt:                           # before the training, when nothing has been made, or behind it
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
