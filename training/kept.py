"""Draft models for a target that is not ours: its texts and hidden states are made once and read
from disk.

To run a target of thirty layers again at every pass over its texts would take most of the time of a
training. A part is a file of AT_ONCE texts; the first is held out. The target's probabilities
follow from its last hidden states, by its own norm and that part of its head alone that a draft
model has, too: their logits less the total of all logits, which is kept. So what cannot be drafted
counts as rejected. Only tokens of answers are learned, since only these are drafted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.errors import PairError, TextError
from nanospec.fast.mixed import mixed
from nanospec.files.model_file import fingerprint, save_atomically
from nanospec.files.corpus import HeldOut
from nanospec.files.paths import fetched
from nanospec.files.pickled import check_parts
from nanospec.methods.draft_models.unrolled import predicted
from nanospec.model import GPT
from training.learning import Batch, LearnedTraining, Plan
from training.own_texts import AT_ONCE, TOKENS, Texts


class Kept:
    """The texts of a target, in a folder: parts 0000.pt, 0001.pt, ...

    layers: whose hidden states are kept, the last one among them. source: of which files; "": the
    target wrote them. PairError if there are parts of another target or source.
    """

    def __init__(self, folder: Path, target: GPT, layers: Sequence[int], source: str = ""):
        self.folder, self.layers = folder, sorted({*layers, target.config.layers - 1})
        self.made_of = {"target": fingerprint(target), "layers": self.layers, "source": source}
        self.parts: list[dict[str, Any]] = []
        while self._path(len(self.parts)).exists():
            self._open()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04}.pt"

    def _open(self) -> None:
        """The next part. Its tensors stay on disk until they are read."""
        path = self._path(len(self.parts))
        try:
            with ZipFile(fetched(path)) as parts:
                check_parts(parts, path.stat().st_size)
            part = torch.load(path, mmap=True, weights_only=True)
            made_of = part["made_of"]
        except Exception as error:      # there is no list of what torch makes of a stranger's bytes
            raise PairError(f"{path} is cut short, or holds no texts") from error
        if made_of != self.made_of or not {*Texts._fields} <= part.keys():
            raise PairError(f"{path} was made for another target, of other texts, or for other "
                            "draft models")
        self.parts.append(part)

    def add(self, make: Callable[[int], Texts]) -> None:
        """One part more. make: its number -> AT_ONCE texts."""
        texts = make(len(self.parts))
        smaller = {"tokens": texts.tokens.int(), "hidden": texts.hidden.to(torch.bfloat16)}
        self.folder.mkdir(parents=True, exist_ok=True)
        save_atomically(texts._asdict() | smaller | {"made_of": self.made_of},
                        self._path(len(self.parts)))
        self._open()

    def tokens(self) -> Tensor:
        """All that a training reads, (texts, tokens)."""
        return torch.cat([part["tokens"] for part in self.parts[1:]]).long()

    def rows(self, part: int, rows: Tensor | slice) -> Texts:
        """Some texts of a part."""
        found = Texts(*(self.parts[part][name][rows] for name in Texts._fields))
        return found._replace(tokens=found.tokens.long())


def check_parts_of_texts(count: int) -> None:
    """TextError if there is none to learn from."""
    if count < 2:
        raise TextError(f"too little text: a part of {AT_ONCE * TOKENS:,} tokens is held out, "
                        "there is no other")


class KeptTraining(LearnedTraining):
    """As LearnedTraining, on kept texts."""

    def __init__(self, target: GPT, plan: Plan, seed: int, kept: Kept, tokenizer: Any, out: Path,
                 **more: Any):
        check_parts_of_texts(len(kept.parts))
        self.kept, plan = kept, replace(plan, target=replace(plan.target, context=TOKENS))
        super().__init__(target, plan, seed, kept.tokens().flatten(), tokenizer, out, **more)

    def frequent(self) -> Tensor:
        """Those of answers."""
        return self.kept.tokens()[torch.cat([part["answers"] for part in self.kept.parts[1:]])]

    def loss(self) -> Tensor:
        """Of this step's batch. Text by text, and only where an answer's token comes next: that
        fits a processor's caches. What is compiled takes texts together, in one size.
        """
        if self.compiled:
            return super().loss()
        texts = self.chosen()
        anchors = self.anchors(texts.tokens, self.model.steps)
        counts = predicted(texts.answers, anchors, self.model.steps)
        losses = [self.loss_at(self.known(Texts(*(part[row:row + 1] for part in texts))),
                               anchors[counts[:, row].any(0)], counts.sum((1, 2)))
                  for row in range(len(texts.tokens))]
        return torch.stack(losses).sum()

    def batch(self) -> Batch:
        return self.known(self.chosen())

    def chosen(self) -> Texts:
        """This step's."""
        batch, parts = self.size.batch, len(self.kept.parts) - 1
        each = AT_ONCE // batch                                             # batches of a part
        shuffle = torch.Generator().manual_seed(self.seed * 1_000_003 + self.step // (each * parts))
        number = int(torch.randperm(each * parts, generator=shuffle)[self.step % (each * parts)])
        shuffle.manual_seed(int(shuffle.initial_seed()) + number // each + 1)
        rows = torch.randperm(AT_ONCE, generator=shuffle)
        return self.kept.rows(1 + number // each, rows[number % each * batch:][:batch])

    def known(self, texts: Texts) -> Batch:
        """What `batch` returns, of these texts, on the device."""
        x, hidden, totals, answers = (part.to(self.ids.device) for part in texts)
        hidden, model = hidden.float(), self.model
        with torch.no_grad(), mixed(x):
            last = self.frozen.norm(hidden[:, :, -1])
            head = self.frozen.head.weight[... if model.ids is None else model.ids]
            p_target = F.linear(last, head).float() - totals[:, :, None]
        # Not by a list, which would have to be sent to the device in every step.
        read = [hidden[:, :, self.kept.layers.index(layer)] for layer in model.layers]
        return Batch(x, torch.stack(read, 2), p_target, answers)

    def look(self, held: HeldOut | None = None, most: int = AT_ONCE) -> tuple[list[float], str]:
        """At the part that is held out."""
        batch = self.size.batch
        return self.looked(self.known(self.kept.rows(0, slice(first, first + batch)))
                           for first in range(0, most, batch))
