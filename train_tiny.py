"""Train the pair: a target, then a draft that learns the same text and, for a while, the target's own probabilities.

    python train_tiny.py                       # the size that ships, on this machine's Python standard library
    python train_tiny.py --size nano           # a minute and a half on two CPU cores
    python train_tiny.py --resume              # go on where Ctrl-C, SIGTERM, --minutes or a power cut left it

Writes into --out: target.pt, draft.pt, ranks.tiktoken (what `load_pair` reads, usable at any moment), training.pt
(what --resume reads) and loss.png. Step s sees a batch that is a function of the seed and s alone, and nothing else
in the training is random, so the same seed and steps give the same model on the same machine, resumed or not. (On
CUDA, kernels that add in no fixed order can make the last bits differ.)
"""

import argparse
import hashlib
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nanospec.files.checkpoint import available, load_pair, load_saved, save_atomically, save_model
from nanospec.files.corpus import read_texts, to_ids
from nanospec.errors import NanospecError, PairError, TextError
from nanospec.generate import generate
from nanospec.bench.measure import measure_alpha
from nanospec.model import GPT, Config
from nanospec.show.figures import draw_losses
from nanospec.show.terminal import refuse
from nanospec.files.tokenizer import Tokenizer, train

SAVE_EVERY = 180                # seconds
WARM_UP, COOL_DOWN = 100, 0.4   # steps of rising learning rate; the fraction of the steps over which it falls to 0
HELD_OUT_WINDOWS = 24


@dataclass
class Size:
    """The one dial. Steps are for: the target on text, the draft on text, the draft on the target's probabilities."""

    target: Config
    draft: Config
    batch: int                                      # texts of `context` tokens in a step
    steps: tuple[int, int, int]
    rate: tuple[float, float, float]                # top learning rates
    held_out_every: int                             # steps between looks at the held-out text


SIZES = {
    "dust": Size(Config(320, 64, layers=2, channels=64, heads=2, kv_heads=1, hidden=128),
                 Config(320, 64, layers=1, channels=32, heads=1, kv_heads=1, hidden=64),
                 batch=8, steps=(30, 20, 10), rate=(3e-3, 3e-3, 1e-3), held_out_every=10),
    "nano": Size(Config(1024, 256, layers=4, channels=192, heads=3, kv_heads=1, hidden=512),
                 Config(1024, 256, layers=1, channels=128, heads=2, kv_heads=1, hidden=352),
                 batch=8, steps=(600, 400, 200), rate=(2e-3, 3e-3, 1e-3), held_out_every=100),
    "tiny": Size(Config(1024, 512, layers=12, channels=320, heads=5, kv_heads=1, hidden=864),
                 Config(1024, 512, layers=1, channels=320, heads=5, kv_heads=1, hidden=1024),
                 batch=8, steps=(2600, 1000, 4400), rate=(1e-3, 3e-3, 3e-3), held_out_every=200),
}
PHASES = ("target", "draft", "distil")


def batch_at(ids: torch.Tensor, step: int, batch: int, context: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and their next tokens, each (batch, context): step `step` of an endless shuffle, drawn from seed and step.

    Every pass over the text cuts it into windows at a fresh offset and deals them out in a fresh order.
    """
    windows = (len(ids) - 1 - context) // context
    steps = windows // batch
    if steps < 1:
        raise TextError(f"too little text: {len(ids):,} tokens do not fill one batch of {batch} x {context}")
    shuffle = torch.Generator().manual_seed(seed * 1_000_003 + step // steps)
    offset = torch.randint(context, (1,), generator=shuffle)
    dealt = torch.randperm(windows, generator=shuffle)[step % steps * batch:][:batch]
    rows = (offset + dealt * context)[:, None] + torch.arange(context + 1)
    rows = ids[rows.to(ids.device)]
    return rows[:, :-1], rows[:, 1:]


def learning_rate(step: int, steps: int, top: float) -> float:
    """Up in a straight line, level, down in a straight line."""
    return top * min(1.0, (step + 1) / WARM_UP, (steps - step) / (COOL_DOWN * steps))


def loss_of(phase: str, model: GPT, target: GPT, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Nats per token. `distil`: KL(p_target || q_draft), DistillSpec's forward KL (Zhou et al., arXiv 2310.08461)."""
    with torch.autocast(x.device.type, torch.bfloat16):
        logits = model(x)
        if phase == "distil":
            with torch.no_grad():
                p_target = target(x).float().log_softmax(-1)
    if phase == "distil":
        return F.kl_div(logits.float().log_softmax(-1).flatten(0, 1), p_target.flatten(0, 1),
                        reduction="batchmean", log_target=True)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


class Training:
    """All that a resumed run needs, and the steps themselves."""

    def __init__(self, size_name: str, seed: int, device: str, ids, held_ids, tokenizer: Tokenizer, out: Path):
        self.size, self.seed, self.out, self.tokenizer = SIZES[size_name], seed, out, tokenizer
        self.ids, self.held_ids = ids.to(device), held_ids.to(device)
        torch.manual_seed(seed)                                                 # initial weights
        self.models = {"target": GPT(self.size.target).to(device), "draft": GPT(self.size.draft).to(device)}
        self.phase, self.step, self.optimizer = 0, 0, None
        self.history = []                                                       # (phase, step, loss, held-out loss)
        self.stop_signal = 0
        digest = hashlib.sha256(ids.numpy().tobytes()).hexdigest()[:16]
        self.made_of = {"size": size_name, "seed": seed, "text": digest}

    @property
    def model(self) -> GPT:
        return self.models["target" if PHASES[self.phase] == "target" else "draft"]

    def new_optimizer(self) -> torch.optim.Optimizer:
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        gains = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)

    def save(self) -> None:
        for name, model in self.models.items():
            save_model(model, self.out / f"{name}.pt", self.tokenizer)
        state = {name: model.state_dict() for name, model in self.models.items()}
        save_atomically(state | {"phase": self.phase, "step": self.step, "history": self.history,
                                 "optimizer": self.optimizer.state_dict(), "made_of": self.made_of},
                        self.out / "training.pt")

    def save_if_it_can(self, console: Console) -> None:
        """On the way: a disk that is full now need not be full at the end."""
        try:
            self.save()
        except OSError as error:
            console.print(f"train_tiny: {error}; training goes on", style="red", markup=False)

    def load(self) -> None:
        saved = load_saved(self.out / "training.pt")
        if "made_of" not in saved:
            raise PairError(f"{self.out / 'training.pt'} is not a training that can be resumed")
        for key, mine in self.made_of.items():
            if saved["made_of"][key] != mine:
                raise TextError(f"--resume: that run had another {key} ({saved['made_of'][key]}, now {mine})")
        self.phase, self.step, self.history = saved["phase"], saved["step"], [tuple(h) for h in saved["history"]]
        for name, model in self.models.items():
            model.load_state_dict(saved[name])
        self.optimizer = self.new_optimizer()
        self.optimizer.load_state_dict(saved["optimizer"])

    @torch.no_grad()
    def held_out_loss(self) -> float:
        context = self.size.target.context
        windows = min(HELD_OUT_WINDOWS, (len(self.held_ids) - 1) // context)
        rows = self.held_ids[:windows * context + 1]
        x, y = rows[:-1].view(windows, context), rows[1:].view(windows, context)
        total = 0.0
        for a, b in zip(x.split(self.size.batch), y.split(self.size.batch)):
            total += len(a) * loss_of(PHASES[self.phase], self.model, self.models["target"], a, b).item()
        return total / windows

    def train_step(self) -> float:
        context, rate = self.size.target.context, self.size.rate[self.phase]
        x, y = batch_at(self.ids, self.step, self.size.batch, context, self.seed + self.phase)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.size.steps[self.phase], rate)
        loss = loss_of(PHASES[self.phase], self.model, self.models["target"], x, y)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def run(self, seconds: float, progress: Progress) -> bool:
        """Train to the end of the last phase. False if `seconds` or a signal ended it before."""
        began = saved_at = time.monotonic()
        self.optimizer = self.optimizer or self.new_optimizer()
        while True:
            name, steps = PHASES[self.phase], self.size.steps[self.phase]
            bar = progress.add_task(name, total=steps, completed=self.step, loss=float("nan"), speed=0.0)
            while self.step < steps:
                if self.stop_signal or time.monotonic() - began > seconds:
                    self.save()
                    return False
                tick = time.monotonic()
                loss = self.train_step()
                tokens = self.size.batch * self.size.target.context
                progress.update(bar, advance=1, loss=loss, speed=tokens / (time.monotonic() - tick))
                if self.step % self.size.held_out_every == 0 or self.step == steps:
                    held = self.held_out_loss()
                    self.history.append((self.phase, self.step, loss, held))
                    minutes = (time.monotonic() - began) / 60
                    progress.console.print(f"{name:6} step {self.step:5}/{steps}  loss {loss:.3f}  held out {held:.3f}"
                                           f"  {minutes:5.1f} min")
                if time.monotonic() - saved_at > SAVE_EVERY:
                    saved_at = time.monotonic()
                    self.save_if_it_can(progress.console)
            if self.phase == len(PHASES) - 1:
                self.save()
                return True
            self.phase, self.step = self.phase + 1, 0
            self.optimizer = self.new_optimizer()
            self.save_if_it_can(progress.console)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="tiny", help="sets widths, depths, batch and steps")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--text", type=Path, help="a file or a folder; default: Python's standard library")
    parser.add_argument("--out", type=Path, help="folder to write to; default: out/SIZE")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from --out")
    args = parser.parse_args()
    console = Console()
    out = args.out or Path("out") / args.size
    try:
        available(args.device)
        texts, held_texts = read_texts(args.text)
        if args.resume:
            tokenizer = Tokenizer.load(out / "ranks.tiktoken")
        else:
            tokenizer = Tokenizer(train("\n".join(texts), SIZES[args.size].target.vocab_size - 1))
            out.mkdir(parents=True, exist_ok=True)
            tokenizer.save(out / "ranks.tiktoken")
        ids, held_ids = to_ids(texts, tokenizer), to_ids(held_texts, tokenizer)
        training = Training(args.size, args.seed, args.device, ids, held_ids, tokenizer, out)
        if args.resume:
            training.load()
    except (NanospecError, OSError) as error:
        return refuse("train_tiny", error)
    console.print(f"{len(texts)} files, {len(ids):,} tokens to train on; "
                  f"{len(held_texts)} files, {len(held_ids):,} tokens held out")
    for name, model in training.models.items():
        console.print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, frame: setattr(training, "stop_signal", got))
    columns = (TextColumn("{task.description:6}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("loss {task.fields[loss]:.3f}"),
               TextColumn("{task.fields[speed]:,.0f} tokens/s"), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as progress:
            finished = training.run(args.minutes * 60, progress)
    except (NanospecError, OSError) as error:           # too little text for one batch; no room at the last save
        return refuse("train_tiny", error)
    draw_losses(training.history, PHASES, out / "loss.png")
    if not finished:
        console.print(f"stopped; everything is in {out}. Go on with --resume.")
        return 128 + training.stop_signal if training.stop_signal else 0
    report(console, out, held_ids, args.device)
    return 0


def report(console: Console, out: Path, held_ids: torch.Tensor, device: str) -> None:
    """A sample of text, and how often the draft is right."""
    pair = load_pair(out, device)
    context = pair.target.config.context
    ids = pair.tokenizer.encode("def ")
    text = pair.tokenizer.decode(ids + list(generate(pair.target, ids, max_new_tokens=context // 2, temperature=0.8)))
    console.print(text, style="dim", markup=False)
    prompts = [held_ids[i:i + context // 4].tolist() for i in range(0, len(held_ids) - context, len(held_ids) // 8)]
    for temperature in (1.0, 0.8, 0.0):
        alpha = measure_alpha(pair.target, pair.draft, prompts, temperature=temperature, max_new_tokens=context // 4)
        console.print(f"alpha at T = {temperature}: {alpha:.3f}")


if __name__ == "__main__":
    sys.exit(main())
