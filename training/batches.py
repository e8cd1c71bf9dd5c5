"""The texts that models learn from and are judged on: windows of real text, and what a target
writes itself.

Step s sees a batch that is a function of the seed and s alone, and nothing else is random.
"""

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nanospec.errors import PairError, TextError
from nanospec.files.checkpoint import fingerprint, load_saved, save_atomically
from nanospec.files.corpus import to_ids
from nanospec.files.tokenizer_json import AnyTokenizer
from nanospec.model import GPT
from training.mixed import bfloat16_is_faster

PROMPT = 64             # tokens of real text before what the target samples
AT_ONCE = 256           # texts that it samples at once
PIECE = 8               # tokens of the prompts that it reads at once


class HeldOut(NamedTuple):
    """A held-out text, all its files in a row."""

    name: str
    ids: Tensor
    bytes: int

    @classmethod
    def of(cls, name: str, texts: list[str], tokenizer: AnyTokenizer, device) -> "HeldOut":
        size = sum(len(text.encode()) for text in texts)
        return cls(name, to_ids(texts, tokenizer).to(device), size)

    def bits(self, loss: float) -> float:
        """Nats per token -> bits per byte, which can be compared between tokenizers."""
        return loss * len(self.ids) / self.bytes / math.log(2)

    def windows(self, context: int, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and their next tokens, each (windows, context): cut one after the other."""
        count = min(most or len(self.ids), (len(self.ids) - 1) // context)
        if count < 1:
            raise TextError(f"too little text is held out of {self.name}: {len(self.ids):,} tokens "
                            f"do not fill one window of {context}")
        rows = self.ids[:count * context + 1]
        return rows[:-1].view(count, context), rows[1:].view(count, context)


def batch_at(ids: Tensor, step: int, batch: int, context: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and their next tokens, each (batch, context): step `step` of an endless shuffle, drawn
    from seed and step.

    Every pass over the text cuts it into windows at a fresh offset and deals them out in a fresh
    order.
    """
    windows = (len(ids) - 1 - context) // context
    steps = windows // batch
    if steps < 1:
        raise TextError(f"too little text: {len(ids):,} tokens do not fill one batch of {batch} x "
                        f"{context}")
    shuffle = torch.Generator().manual_seed(seed * 1_000_003 + step // steps)
    offset = torch.randint(context, (1,), generator=shuffle)
    dealt = torch.randperm(windows, generator=shuffle)[step % steps * batch:][:batch]
    # Not to wait until the device has done the step before.
    first = (offset + dealt * context)[:, None].to(ids.device, non_blocking=True)
    rows = ids[first + torch.arange(context + 1, device=ids.device)]
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def sample(target: GPT, ids: Tensor, rows: int, seed: int,
           between: Callable[[], object] = lambda: None) -> Tensor:
    """(rows, context): some tokens from anywhere in `ids`, and how the target goes on, at
    temperature 1.

    A draft is used on text of the target's, so it learns from such text, too.
    between: called before every call of the target, and may end it by what it raises.
    """
    context, device = target.config.context, ids.device
    prompt, chance = min(PROMPT, context // 2), torch.Generator(device).manual_seed(seed)
    first = torch.randint(len(ids) - prompt, (rows, 1), generator=chance, device=device)
    tokens = ids.new_zeros(rows, context)
    tokens[:, :prompt] = ids[first + torch.arange(prompt, device=device)]
    target = copy.deepcopy(target)                                  # the copy is not a compiled one
    if bfloat16_is_faster(device.type):
        target = target.to(torch.bfloat16)
    cache, read = target.new_cache(rows, context), 0
    for length in range(prompt, context):
        while read < length:
            between()
            new = tokens[:, read:min(read + PIECE, length)]
            read += new.shape[1]
            logits = target(new, cache, kv_length=read)
            cache.length += new.shape[1]
        p_target = logits[:, -1].float().softmax(-1)
        tokens[:, length:length + 1] = torch.multinomial(p_target, 1, generator=chance)
    return tokens


class Sampled:
    """`rows` texts that the target has written, AT_ONCE together when one of them is first asked
    for.

    They are kept in the file `path`, for the next training too. If it holds texts of another
    target, they are drawn anew.
    """

    def __init__(self, target: GPT, ids: Tensor, rows: int, seed: int, path: Path):
        self.target, self.ids, self.rows, self.seed, self.path = target, ids, rows, seed, path
        self.made_of = {"target": fingerprint(target), "rows": rows, "seed": seed}
        self.parts: dict[int, Tensor] = {}
        with suppress(OSError, PairError, LookupError, AttributeError):
            saved = load_saved(path)
            if saved["made_of"] == self.made_of:
                self.parts = {number: texts.to(ids) for number, texts in saved["parts"].items()}

    def texts(self, first: int, count: int, between: Callable[[], object] = lambda: None) -> Tensor:
        """(count, context): those from number `first` on; after the last comes the first again.

        between: as for `sample`, which may take minutes.
        """
        numbers = [number % self.rows for number in range(first, first + count)]
        return torch.stack([self.part(number // AT_ONCE, between)[number % AT_ONCE]
                            for number in numbers])

    def part(self, number: int, between: Callable[[], object]) -> Tensor:
        if number not in self.parts:
            rows = min(AT_ONCE, self.rows - number * AT_ONCE)
            self.parts[number] = sample(self.target, self.ids, rows,
                                        self.seed * 1_000_003 + number, between)
            kept = {number: texts.int() for number, texts in self.parts.items()}
            with suppress(OSError):             # a full disk costs the drawing, not the training
                save_atomically({"made_of": self.made_of, "parts": kept}, self.path)
        return self.parts[number]
