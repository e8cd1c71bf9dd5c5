"""What the pair is trained on: three phases with a loss each, and a state that can be put aside.
step.py has a step, and train_tiny.py the loop. And the last phase alone, for a draft that is there.

The same seed and steps give the same model on the same machine, resumed or not. (On CUDA, kernels
that add in no fixed order can make the last bits differ.) Left out: more than one device, dropout,
averages of weights.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.errors import NanospecError, PairError, TextError, check_seed, one_line
from nanospec.files.checkpoint import Pair, fingerprint, load_saved, save_atomically, save_model
from nanospec.files.tokenizer import Tokenizer
from nanospec.methods.draft_models.losses import LOSSES, log_probs
from nanospec.model import GPT, Config
from training.batches import HeldOut, Sampled, batch_at
from training.grow import fit_first, grown
from training.mixed import mixed
from training.step import COOL_DOWN, new_optimizer

PHASES = ("target", "draft", "distil")
FILES = ("ranks.tiktoken", "target.pt", "draft.pt", "training.pt")
RATE = 5e-4             # top learning rate of a draft that is there: a tenth of a new model's


@dataclass
class Size:
    """The one dial. Steps are for: the target on text, the draft on text, the draft on the target's
    probabilities.

    draft: of a learned draft model (learning.py), which has one phase, its name and what it is made
    of.
    batch: texts of `context` tokens in a step. rate: top learning rates. held_out_every: steps
    between looks at the held-out text. short: the part of the target's steps that sees twice as
    many windows of half the length: attention to less takes less time. sampled: how many texts the
    target writes for `distil`; half of every batch is such text.
    """

    target: Config
    draft: Any
    batch: int
    steps: tuple[int, ...]
    rate: tuple[float, ...]
    held_out_every: int
    short: float = 0
    sampled: int = 0


def loss_of(phase: str, model: Callable, target: GPT, x: Tensor, y: Tensor,
            loss: str = "forward-kl") -> Tensor:
    """Cross-entropy, nats per token; `distil`: one of LOSSES."""
    with mixed(x):
        logits = model(x)
        if phase == "distil":
            with torch.no_grad():
                p_target = log_probs(target(x))
    if phase == "distil":
        return LOSSES[loss](p_target, log_probs(logits)).mean()
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


@torch.no_grad()
def held_out_loss(phase: str, model: Callable, target: GPT, held: HeldOut, batch: int,
                  most: int | None = None, loss: str = "forward-kl") -> float:
    """The mean over a held-out text, or its first `most` windows; `distil`: of `loss`, whatever the
    draft learns by. Not compiled, since the last batch is a short one.
    """
    x, y = held.windows(target.config.context, most)
    with torch.compiler.set_stance("force_eager"):
        losses = [len(a) * loss_of(phase, model, target, a, b, loss)
                  for a, b in zip(x.split(batch), y.split(batch))]
    return torch.stack(losses).sum().item() / len(x)


class Training:
    """The models, where they stand, and all that a resumed run needs.

    between: called while a step waits for texts that the target writes, token by token. What it
    raises ends the step before it has changed anything.
    """

    phases: Sequence[str] = PHASES
    state_file = "training.pt"
    between: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, size: Size, seed: int, ids: Tensor, tokenizer: Any, out: Path,
                 compiled: bool = False, last: Tensor | None = None, loss: str = "forward-kl"):
        """On the device of `ids`, the text in tokens. compiled: through torch.compile. TextError if
        it is too short.

        last: the text that the target sees while its learning rate falls; by default `ids`, as
        before.
        loss: one of LOSSES, for `distil`.
        """
        self.size, self.seed, self.ids, self.loss = size, check_seed(seed), ids, loss
        self.tokenizer, self.out = tokenizer, out
        self.last = ids if last is None else last
        for text in ids, self.last:
            batch_at(text, 0, size.batch, size.target.context, seed)            # raises
        torch.manual_seed(seed)                                                 # initial weights
        self.models = self.new_models()
        self.history: list[tuple] = []          # (phase, step, loss, *what a look has found)
        self.sampled: Sampled | None = None
        self.begin_phase(0)
        digest = hashlib.sha256()
        for text in ids, self.last:
            digest.update(text.cpu().numpy())
        self.made_of = {"size": repr(size), "seed": seed, "text": digest.hexdigest()[:16],
                        "loss": loss}
        if ids.is_cuda:
            torch.set_float32_matmul_precision("high")
        if compiled:
            self.compile()

    def new_models(self) -> dict[str, Any]:
        configs = {"target": self.size.target, "draft": self.size.draft}
        return {name: GPT(config).to(self.ids.device) for name, config in configs.items()}

    def compile(self) -> None:
        for block in [*self.models["target"].blocks, *self.models["draft"].blocks]:
            block.compile(dynamic=False)        # once a model: its blocks are alike

    def grow(self, shallow: GPT) -> None:
        """Before the first step: the target begins as a trained one of fewer layers (grow.py)."""
        size, self.made_of["from"] = self.size, fingerprint(shallow)
        self.target.load_state_dict(grown(shallow, size.target).state_dict())

        def texts(step: int) -> Tensor:
            return batch_at(self.ids, step, 2 * size.batch, size.target.context // 2, self.seed)[0]

        fit_first(self.target, shallow, texts)

    def begin_phase(self, phase: int) -> None:
        self.phase, self.step = phase, 0
        self.optimizer = new_optimizer(self.model)

    @property
    def name(self) -> str:
        return self.phases[self.phase]

    @property
    def steps(self) -> int:
        """Of this phase."""
        return self.size.steps[self.phase]

    @property
    def rate(self) -> float:
        """Its top learning rate."""
        return self.size.rate[self.phase]

    @property
    def target(self) -> GPT:
        return self.models["target"]

    @property
    def model(self) -> nn.Module:
        """What learns now."""
        return self.models["target" if self.name == "target" else "draft"]

    def save(self) -> None:
        """Whole files, the ranks first: no model lies beside a tokenizer that is not its own."""
        ranks = self.out / "ranks.tiktoken"
        if isinstance(self.tokenizer, Tokenizer) and not ranks.exists():    # others' are not copied
            self.tokenizer.save(ranks)
        self.save_models()
        state = {name: model.state_dict() for name, model in self.models.items()}
        state |= {key: getattr(self, key) for key in ("phase", "step", "history", "made_of")}
        state |= {"optimizer": self.optimizer.state_dict()}
        save_atomically(state, self.out / self.state_file)

    def save_models(self) -> None:
        for name in "target", "draft":
            save_model(self.models[name], self.out / f"{name}.pt", self.tokenizer)

    def load(self) -> None:
        """Go on where `save` left it. PairError for a torn file, TextError for another training."""
        path = self.out / self.state_file
        saved = load_saved(path)
        try:
            for key, mine in self.made_of.items():
                if saved["made_of"][key] != mine:
                    raise TextError(f"--resume: {path} was begun with another {key}")
            phase, step = saved["phase"], saved["step"]
            if phase not in range(len(self.phases)):
                raise ValueError(f"phase {phase}")
            if step not in range(self.size.steps[phase] + 1):
                raise ValueError(f"step {step}")
            self.begin_phase(phase)
            self.step = step
            self.history = [(int(at), int(step), *map(float, found))
                            for at, step, *found in saved["history"]]
            for name, model in self.models.items():
                model.load_state_dict(saved[name])
            self.optimizer.load_state_dict(saved["optimizer"])
        except NanospecError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise PairError(f"{path} is not a training that can be resumed: "
                            f"{one_line(error)}") from error

    def loss_now(self) -> Tensor:
        """Of this step's batch."""
        size, cut, ids = self.size, 1, self.ids
        if self.name == "target":
            cut = 2 if self.step < size.short * self.steps else 1
            ids = self.last if self.step >= (1 - COOL_DOWN) * self.steps else self.ids
        x, y = batch_at(ids, self.step, size.batch * cut, size.target.context // cut,
                        self.seed + self.phase)
        if self.name == "distil":
            x = self.half_sampled(x)
        return loss_of(self.name, self.model, self.target, x, y, self.loss)

    def half_sampled(self, x: Tensor) -> Tensor:
        """A batch, half of it exchanged for texts that the target has written, if there are any."""
        size, half = self.size, self.size.batch // 2
        if not size.sampled:
            return x
        if self.sampled is None:
            self.sampled = Sampled(self.target, self.ids, size.sampled, self.seed,
                                   self.out / "sampled.pt")
        written = self.sampled.texts(self.step * half, half, self.between)
        return torch.cat([x[half:], written])

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """The held-out loss of the first `most` windows, to be kept; and in words."""
        loss = held_out_loss(self.name, self.model, self.target, held, self.size.batch, most)
        return [loss], f"held out {loss:.3f}, {held.bits(loss):.3f} bits a byte"


def further(size: Size, pair: Pair) -> Size:
    """A Size of one phase, for models that are there already."""
    draft: Any = pair.draft                                     # a GPT
    return replace(size, target=pair.target.config, draft=draft.config, steps=size.steps[-1:],
                   rate=(RATE,))


class Distillation(Training):
    """The last phase alone, from the draft GPT as it stands. draft.pt is written anew; the target
    and the tokenizer are as they were.

    By total variation it ends with just what counts, since alpha = 1 - TV (DistillSpec, Zhou et al.
    2023, arXiv 2310.08461).
    """

    phases = PHASES[-1:]
    state_file = "distil.training.pt"

    def __init__(self, pair: Pair, size: Size, *of: Any, **more: Any):
        """of, more: as for Training."""
        self.pair = pair
        super().__init__(size, *of, **more)
        self.made_of["target"] = fingerprint(pair.target)

    def new_models(self) -> dict[str, Any]:
        self.pair.draft.requires_grad_(True)
        return {"target": self.pair.target, "draft": self.pair.draft}

    def save_models(self) -> None:
        save_model(self.models["draft"], self.out / "draft.pt", self.tokenizer)

    def look(self, held: HeldOut, most: int) -> tuple[list[float], str]:
        """Held-out total variation, whatever it learns by; how often a token is accepted."""
        off = held_out_loss(self.name, self.model, self.target, held, self.size.batch, most,
                            "total-variation")
        return [off], f"accepted {1 - off:.4f}"
