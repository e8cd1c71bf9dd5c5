"""A layer that is trained together with its target, beside EAGLE that is trained afterwards, at equal steps.

For every seed two targets are trained, one alone and one with a layer of multi-token prediction (training/with_mtp.py).
Then draft models are trained for both. The table has two things: how often the first to fifth draft token is accepted
after true tokens of held-out text, and the target's own held-out loss, which says what the layer costs its target.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nanospec.cli.show.terminal import show_table
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer
from nanospec.methods.draft_models.mtp import MTP
from nanospec.model import Config
from nanospec.training.batches import HeldOut
from nanospec.training.learning import STEPS_SHOWN, LearnedTraining, plan_of
from nanospec.training.pair import Size, Training
from nanospec.training.step import train_step
from nanospec.training.with_mtp import WithMTP

# The target of `train_tiny.py --size nano`, with half its context. The draft GPT of the pair is not trained here.
SIZE = Size(Config(1024, 128, layers=4, channels=192, heads=3, kv_heads=1, hidden=512),
            Config(1024, 128, layers=1, channels=32, heads=1, kv_heads=1, hidden=64),
            batch=8, steps=(1,), rate=(2e-3,), held_out_every=100)
AFTERWARDS = "eagle", "mtp"
WINDOWS = 64            # of held-out text
NOWHERE = Path()        # where nothing is saved


def run(steps: int = 500, seeds: Sequence[int] = (0, 1), device: str = "cpu") -> list[dict]:
    """A row for each draft model, target and seed. steps: of the targets, and of the draft models after them."""
    tokenizer = Tokenizer.load(WEIGHTS / "ranks.tiktoken")
    read, kept = read_texts()
    ids = to_ids(read, tokenizer).to(device)
    held = HeldOut.of("the standard library", kept, tokenizer, device)
    rows = []
    for seed in seeds:
        for kind in Training, WithMTP:
            training = kind(replace(SIZE, steps=(steps,)), seed, ids, tokenizer, NOWHERE)
            with announced(f"training {' and '.join(training.models)} with seed {seed}, then draft models"):
                rows += rows_of(training, held)
    names = list(dict.fromkeys((row["draft"], row["target"]) for row in rows))
    losses = "; ".join(f"{loss:.3f} {target} (seed {seed})" for seed, target, loss in
                       dict.fromkeys((row["seed"], row["target"], row["loss"]) for row in rows))
    show_table(["draft model", "its target", *(f"seed {seed}" for seed in seeds)],
               [[*name, *(" ".join(f"{part:.3f}" for part in row["accepted"]) for row in rows
                          if (row["draft"], row["target"]) == name)] for name in names],
               f"{steps} steps each; how often draft tokens 1 to {STEPS_SHOWN} are accepted. The held-out loss of "
               f"the targets, nats a token: {losses}")
    return rows


def rows_of(training: Training, held: HeldOut) -> list[dict]:
    """The target trained, then draft models for it; a row for each of these and for the layer that learned with it."""
    finished(training)
    target = training.target.requires_grad_(False)
    common = {"seed": training.seed, "target": "with mtp" if "mtp" in training.models else "alone",
              "loss": training.look(held, WINDOWS)[0][0]}

    def learning(*names: str) -> LearnedTraining:
        plan = plan_of(names, target.config, training.size)
        return LearnedTraining(target, plan, training.seed, training.ids, training.tokenizer, NOWHERE)

    rows, joint = [], training.models.get("mtp")
    if isinstance(joint, MTP):
        only = learning("mtp")
        only.models["mtp"].load_state_dict(joint.state_dict())
        rows.append({"draft": "mtp, trained with its target", "accepted": only.look(held, WINDOWS)[0][1:]})
    later = finished(learning(*AFTERWARDS))
    accepted = torch.tensor(later.look(held, WINDOWS)[0][1:]).view(-1, STEPS_SHOWN).tolist()
    rows += [{"draft": f"{name}, trained afterwards", "accepted": of} for name, of in zip(AFTERWARDS, accepted)]
    return [row | common for row in rows]


def finished(training: Training) -> Training:
    """Its first phase, to the last step."""
    while training.step < training.steps:
        train_step(training)
    return training
