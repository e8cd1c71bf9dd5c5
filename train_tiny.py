"""Train a pair: a target, then a draft that learns the same text and, for a while, the target's own
probabilities. Or a draft model for any target.

    # A pair like the one that ships (docs/results/training.md says how that one was made): a
    # shallow target first, from which the deep one grows. Some hours each, on two CPU cores. Then
    # its second draft model: an hour.
    python train_tiny.py --size shallow --packages --compile
    python train_tiny.py --from out/shallow/target.pt --packages --compile
    python train_tiny.py --what prefix --out out/tiny --steps 4500 --loss lk-hybrid --compile
    # A small pair, on the standard library: a minute and a half.
    python train_tiny.py --size nano
    # Go on where Ctrl-C, SIGTERM, --minutes or a power cut left it: the same line, and --resume.
    python train_tiny.py --size nano --resume
    # A draft model for a target of others, on conversations that it writes itself.
    python train_tiny.py --weights smollm2 --what lookback --loss lk-hybrid

Writes into --out: target.pt, draft.pt, ranks.tiktoken (what `load_pair` reads, usable at any
moment), training.pt (what --resume reads), sampled.pt (texts that the target wrote) and loss.png.
With --what NAME it trains that draft model for the target in --out; if there is none, for the one
that ships, whose pair is copied there. It writes NAME.pt and NAME.training.pt.

Here are, from top to bottom, the sizes, the options, what happens, and the loop. training/step.py
is one step, and training/__init__.py says what stands in the other files.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from nanospec.cli.launch import Parser, command
from nanospec.cli.options import HERE, SEED, whole_number
from nanospec.files.ready import available
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.losses import LOSSES
from nanospec.model import Config
from training import for_target, jobs
from training.for_target import PART, PARTS
from training.jobs import NEW_FOLDER, PHASED, opened
from training.pair import Size, Training
from training.step import train_step
from training.watch import Watch, draw, new_progress, report

# Three phases: the target on text, the draft on the same text, the draft on the target's
# probabilities. `steps` and `rate`, the top learning rate, are of each.
SIZES = {
    "dust": Size(Config(320, 64, layers=2, channels=64, heads=2, kv_heads=1, hidden=128),
                 Config(320, 64, layers=1, channels=32, heads=1, kv_heads=1, hidden=64),
                 batch=8, steps=(30, 20, 10), rate=(3e-3, 3e-3, 1e-3), held_out_every=10),
    "nano": Size(Config(1024, 256, layers=4, channels=192, heads=3, kv_heads=1, hidden=512),
                 Config(1024, 256, layers=1, channels=128, heads=2, kv_heads=1, hidden=352),
                 batch=8, steps=(600, 400, 200), rate=(2e-3, 3e-3, 1e-3), held_out_every=100),
    "shallow": Size(Config(1024, 512, layers=8, channels=384, heads=6, kv_heads=1, hidden=1216),
                    Config(1024, 512, layers=1, channels=320, heads=5, kv_heads=1, hidden=1024),
                    batch=8, steps=(8000, 1500, 6000), rate=(1e-3, 3e-3, 3e-3), held_out_every=250,
                    short=0.75, sampled=4096),
}
# Deep and thin: speculation gains most where a step of the target costs many of the draft's.
SIZES["tiny"] = replace(SIZES["shallow"], steps=(2600, 1500, 6000),
                        rate=(8e-4, 3e-3, 3e-3), short=0.6,
                        target=replace(SIZES["shallow"].target, layers=24, hidden=352))
# Ten minutes of one GPU, by arithmetic alone (docs/DEVICE.md): it has not been trained. The
# target sees as many tokens as shallow's: more of this text would not help it. The draft sees more,
# of the target's own.
SIZES["long"] = replace(SIZES["tiny"], batch=64, steps=(1000, 250, 5000), rate=(2e-3, 4e-3, 4e-3),
                        held_out_every=100, sampled=8192)


def options() -> Parser:
    parser = Parser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--what", choices=[*PHASED, *LEARNED], default="pair", metavar="NAME",
        help="pair; distil, which trains its draft further; or a draft model for it: "
        + ", ".join(LEARNED) + "; default: pair")
    add("--size", choices=SIZES, default="tiny",
        help="sets widths, depths, batch and steps; default: %(default)s")
    add("--steps", type=int, nargs="+", metavar="N",
        help="steps of the target, the draft and the distillation, or of what --what names; "
        "default: those of --size")
    add("--batch", type=whole_number(1, 1024), metavar="N",
        help="texts in a step; steps and learning rates follow; default: that of --size")
    add("--minutes", type=float, default=float("inf"), help="stop after this time; default: never")
    add("--text", type=Path, nargs="+", default=[], metavar="PATH",
        help="files or folders; default: Python's standard library")
    add("--weights", help="draft models for this target: a Hugging Face folder, a GGUF file, a "
        "name on the hub, smollm2; by default on conversations that it writes itself")
    add("--tokens", type=int, metavar="N",
        help=f"how much text for --weights; default: {PARTS * PART}, or what --text holds")
    add("--spoken", type=int, metavar="N",
        help="the tokens that a draft model for --weights can draft: the N most frequent ones")
    add("--from", dest="begin", type=Path, metavar="FILE",
        help="what the training begins with, instead of random weights: for a pair a target of "
        "fewer layers, from which this one grows; a draft model for --weights")
    add("--packages", nargs="*", metavar="NAME",
        help="learn from the sources of the packages that this one needs, too, and of these")
    add("--loss", choices=LOSSES, default="forward-kl",
        help="the loss by which the draft learns the target's probabilities; default: %(default)s")
    add("--compile", action="store_true",
        help="through torch.compile: a third faster on a CPU (on CUDA always)")
    add("--tokenizer", type=Path, help="ranks to use; default: learned from the first text")
    add("--out", type=NEW_FOLDER,
        help="folder to write to; default: out/SIZE, or out/NAME of --what")
    add("--device", default=HERE, help="default: %(default)s")
    add("--seed", type=SEED, default=0,
        help="the seed of initial weights and of the order of the text; default: %(default)s")
    add("--resume", action="store_true", help="go on with the training that --out holds")
    return parser


@command("train_tiny")
def main(argv: Sequence[str] | None = None) -> int:
    """Ctrl-C ends it before the training, when nothing has been made, or after."""
    return train(options().parse_args(argv), Console())


def train(args: argparse.Namespace, console: Console) -> int:
    # What is to be trained, on which texts: our target and draft, a draft model for them, or one
    # for a target of others. What can be refused is refused before anything is read or written.
    args.out = args.out or Path("out") / (args.size if args.what == "pair" else args.what)
    available(args.device)
    kind: Any = for_target if args.weights else jobs
    job = kind.checked(args, SIZES[args.size])
    training, held = kind.prepared(args, job, console)
    opened(job, training)

    # The loop, until the last step, a signal, or the end of --minutes.
    with signals() as got, new_progress(console) as progress:
        watch, end = Watch(training, held[0], progress), time.monotonic() + args.minutes * 60
        finished = run(training, watch, lambda: got or time.monotonic() > end)

    # What came of it.
    draw(training)
    if not finished:
        console.print(f"stopped; everything is in {job.out}. Go on with --resume.")
        return 128 + got[0] if got else 0
    if args.weights:
        for_target.report(console, training)
    else:
        report(console, job.out, held, args.device, args.what)
    return 0


class Stopped(Exception):
    """The training is to stop, before a step or within one that has not changed anything yet."""


def run(training: Training, watch: Watch, stopped: Callable[[], object] = lambda: False) -> bool:
    """Train to the end of the last phase, or until `stopped` says so: then it returns False. Saved
    either way.
    """
    def look() -> None:
        if stopped():
            raise Stopped

    training.between = look             # a target may write texts for minutes before a step
    try:
        while True:
            watch.phase()
            while training.step < training.steps:
                look()
                loss = train_step(training)
                watch.step(loss)        # shows it, looks at held-out text, and saves now and then
            if training.phase == len(training.phases) - 1:
                break
            training.begin_phase(training.phase + 1)
            watch.save()
    except (Stopped, SystemExit) as end:        # or what it shows can no longer be written
        training.save()
        if isinstance(end, SystemExit):
            raise
        return False
    training.save()
    return True


@contextmanager
def signals() -> Iterator[list[int]]:
    """Within it, SIGINT and SIGTERM end nothing: they are listed, and the loop stops after the
    step.
    """
    got: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: got.append(number))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
