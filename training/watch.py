"""What is seen of a training: a bar, losses, held-out text; then a picture and a report."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from nanospec.cli.quantities import alpha_of, per_second
from nanospec.fast.announce import announced
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.model import GPT
from nanospec.speculate import ModelDrafter, Round, speculate
from training.batches import HeldOut
from training.learning import LearnedTraining
from training.pair import PHASES, Training, held_out_loss
from training.pictures import draw_accepted, draw_losses

SAVE_EVERY, SHOW_EVERY = 180, 0.5       # seconds
HELD_OUT_WINDOWS = 24                   # looked at on the way; at the end, all of them


def new_progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description:6}"), BarColumn(), MofNCompleteColumn(),
                    TextColumn("loss {task.fields[loss]:.3f}"),
                    TextColumn("{task.fields[speed]:,.0f} tokens/s"), TimeRemainingColumn(),
                    console=console)


class Watch:
    """What is seen of a training while it runs. It is saved every SAVE_EVERY seconds."""

    def __init__(self, training: Training, held: HeldOut | Any, progress: Progress):
        self.training, self.held, self.progress = training, held, progress
        self.began = self.saved_at = time.monotonic()

    def phase(self) -> None:
        """A phase begins, or is resumed."""
        training = self.training
        self.bar = self.progress.add_task(training.name, total=training.steps,
                                          completed=training.step, loss=float("nan"), speed=0.0)
        self.shown, self.shown_at = training.step, time.monotonic()

    def step(self, of_step: Tensor) -> None:
        """A step has ended. Its loss is read now and then, for that is to wait for the device."""
        training, size = self.training, self.training.size
        name, step, steps = training.name, training.step, training.steps
        look = step % size.held_out_every == 0 or step == steps
        if look or time.monotonic() - self.shown_at > SHOW_EVERY:
            loss, now = of_step.item(), time.monotonic()
            tokens = (step - self.shown) * size.batch * size.target.context
            speed = per_second(tokens, [now - self.shown_at])
            self.progress.update(self.bar, completed=step, loss=loss, speed=speed)
            self.shown, self.shown_at = step, now
        if look:
            found, words = training.look(self.held, HELD_OUT_WINDOWS)
            training.history.append((training.phase, step, loss, *found))
            minutes = (time.monotonic() - self.began) / 60
            self.progress.console.print(f"{name:6} step {step:5}/{steps}  loss {loss:.3f}  "
                                        f"{words}  {minutes:5.1f} min")
        if time.monotonic() - self.saved_at > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """If it can: a disk that is full now need not be full at the end."""
        self.saved_at = time.monotonic()
        try:
            self.training.save()
        except OSError as error:
            self.progress.console.print(f"train_tiny: {error}; training goes on", style="red",
                                        markup=False)


def draw(training: Training) -> None:
    """The picture of a training, beside what it has written."""
    picture = training.out / training.state_file.replace("training.pt", "loss.png")
    if isinstance(training, LearnedTraining):
        draw_accepted(training.history, training.name, picture)
    else:
        draw_losses(training.history, training.phases, picture)


def report(console: Console, out: Path, held: list[HeldOut], device: str, what: str) -> None:
    """What was reached. Of a learned draft model, how often it is right: the pair is not new."""
    pair = load_pair(out, device, draft=what if what in LEARNED else "gpt")
    if what not in LEARNED:
        report_pair(console, pair, held)
    context, ids = pair.target.config.context, held[0].ids
    starts = range(0, len(ids) - context, len(ids) // 8)
    prompts = [ids[i:i + context // 4].tolist() for i in starts]
    report_alpha(console, what, pair.target, pair.draft, prompts, (1.0, 0.8, 0.0))


def measure_alpha(target: GPT, draft: Any, prompts: Sequence[Sequence[int]], **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds: list[Round] = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, seed=seed, **settings)
    return alpha_of(rounds)


def report_alpha(console: Console, what: str, target: GPT, draft: Any,
                 prompts: Sequence[list[int]], temperatures: Sequence[float]) -> None:
    """How often a draft token is accepted while the target decodes, as long again as a prompt."""
    for temperature in temperatures:
        with announced(f"measuring alpha at T = {temperature}", at_once=False):
            alpha = measure_alpha(target, draft, prompts, temperature=temperature,
                                  max_new_tokens=len(prompts[0]))
        console.print(f"alpha of {what} at T = {temperature}: {alpha:.3f}")


def report_pair(console: Console, pair: Pair, held: list[HeldOut]) -> None:
    """A sample of the target's text, and losses on what is held out."""
    context = pair.target.config.context
    ids = pair.tokenizer.encode("def ")
    new = generate(pair.target, ids, max_new_tokens=context // 2, temperature=0.8)
    console.print(pair.tokenizer.decode([*ids, *new]), style="dim", markup=False)
    models = {"target": pair.target, "draft": pair.draft, "distil": pair.draft}
    for part in held:
        with announced(f"measuring on what is held out of {part.name}", at_once=False):
            loss, draft, kl = (held_out_loss(phase, models[phase], pair.target, part, 16)
                               for phase in PHASES)
        console.print(f"held out of {part.name}: target {loss:.4f} nats a token, "
                      f"{part.bits(loss):.4f} bits a byte; draft {draft:.4f} nats a token, "
                      f"KL {kl:.4f}", markup=False)
