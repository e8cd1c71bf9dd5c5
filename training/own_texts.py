"""Conversations that a chat model writes itself, both sides of them, and its hidden states
meanwhile.

A draft model is used on the target's own answers, so it should learn from such text. A model that
was trained on conversations writes the user's turns, too, if it is given no more than where one
begins (Magpie: Xu et al. 2024, arXiv 2406.08464). Most texts' first turn begins with a few words of
ours, so that all kinds of requests come up that people speculate on: chat, code, rewriting,
summaries, questions about a text.

While it writes, the target's hidden states are there anyway. They are kept on disk beside the
tokens, so that the target need not run again for a second pass, or for a second draft model that
reads the same layers. A draft model is used in answers alone, so it is kept, too, which tokens are
an answer's.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import SEEDS, RequestError, TextError
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.model import GPT

AT_ONCE = 64                    # texts that are written together: one part, one file
TOKENS = 384                    # of each text
READ_AT_ONCE = 4                # texts: logits of the whole vocabulary are made for each token
# Of the answers of one text in four; a user's turns are written at 1.
TEMPERATURES = (0.0, 0.4, 0.7, 1.0)
COLDEST = 1e-3                  # what stands for temperature 0
OPENINGS = {
    "chat": ["", "", "", "What", "How do I", "Explain", "Why", "Give me",
             "Write a short story about"],
    "code": ["Write a Python function that", "Write a program that",
             "Here is my code:\n\n```python\n", "How do I write",
             "Fix the bug in this function:\n\n```python\ndef "],
    "rewriting": ["Rewrite the following text in simpler words.\n\n",
                  "Make this email more polite.\n\n", "Correct the mistakes in this text.\n\n",
                  "Rewrite this paragraph in the past tense.\n\n"],
    "summary": ["Summarize the following text in two sentences.\n\n",
                "What are the main points of this article?\n\n"],
    "question": ["Read this text and answer the question after it.\n\n",
                 "Here is a paragraph about", "Answer with words of this text.\n\nText: "],
}


class Turns(NamedTuple):
    """What stands around the turns of a conversation, in tokens."""

    first: list[int]            # before the user's first turn
    answer: list[int]           # between a user's turn and the answer
    again: list[int]            # between an answer and the user's next turn

    @classmethod
    def of(cls, tokenizer: FolderTokenizer) -> "Turns":
        """As the model's chat template has it. RequestError if there is none."""
        if tokenizer.template is None:
            raise RequestError("this target has no chat template: it was not made for "
                               "conversations")
        text = tokenizer.template([{"role": role, "content": "<<turn>>"}
                                   for role in ("user", "assistant", "user")], answer=False)
        first, answer, again, _ = text.split("<<turn>>")
        return cls(*map(tokenizer.encode_special, (first, answer, again)))


class Texts(NamedTuple):
    """Texts in tokens, and what their target knows of them."""

    tokens: Tensor              # (B, T)
    hidden: Tensor              # (B, T, len(layers), C), its hidden states of each token
    totals: Tensor          # (B, T), the logarithm of the sum of all exp(logits) after each token
    answers: Tensor             # (B, T) bool, whether the target wrote the token in an answer


class Row:
    """A text that is being written. forced: tokens that come next, whatever the model would write.

    answered: whether the last token that it took was drawn in an answer.
    """

    def __init__(self, turns: Turns, opening: list[int], ends: Collection[int]):
        self.turns, self.ends, self.forced = turns, ends, turns.first + opening
        self.answering = self.answered = False

    def next(self, drawn: int) -> int:
        self.answered = self.answering and not self.forced
        if self.forced:
            return self.forced.pop(0)
        if drawn in self.ends:
            follows = self.turns.again if self.answering else self.turns.answer
            self.answering = not self.answering
            self.forced = follows[1:] if follows[:1] == [drawn] else follows[:]
        return drawn


def openings(tokenizer: FolderTokenizer, rows: int, chance: torch.Generator) -> list[list[int]]:
    """In tokens, the kinds in turns."""
    kinds, found = list(OPENINGS.values()), []
    for row in range(rows):
        kind = kinds[row % len(kinds)]
        found.append(tokenizer.encode(kind[int(torch.randint(len(kind), (), generator=chance))]))
    return found


@torch.inference_mode()
def written(target: GPT, tokenizer: FolderTokenizer, layers: Sequence[int], seed: int,
            rows: int = AT_ONCE, tokens: int = TOKENS) -> Texts:
    """Conversations."""
    chance, turns = torch.Generator().manual_seed(seed), Turns.of(tokenizer)
    dice = Dice(torch.randint(SEEDS, (rows,), generator=chance).tolist())
    texts = [Row(turns, opening, tokenizer.ends) for opening in openings(tokenizer, rows, chance)]
    of_answers = torch.tensor(TEMPERATURES).clamp(min=COLDEST).repeat(rows)[:rows, None]
    cache, drawn, found = target.new_cache(rows, tokens), [0] * rows, []
    for length in range(1, tokens + 1):
        new = torch.tensor([[row.next(token)] for row, token in zip(texts, drawn)])
        logits, hidden = target(new.to(target.device), cache, kv_length=length, layers=layers)
        cache.length += 1
        logits = logits[:, -1:].cpu().float()
        answered = torch.tensor([[row.answered] for row in texts])
        found.append(Texts(new, hidden.cpu(), logits.logsumexp(-1), answered))
        temperature = torch.where(torch.tensor([[row.answering] for row in texts]), of_answers, 1.0)
        dice.refill(1)
        drawn = dice.pick((logits[:, 0] / temperature).softmax(-1)).tolist()
    return Texts(*(torch.cat(parts, 1) for parts in zip(*found)))


@torch.inference_mode()
def read(target: GPT, ids: Tensor, layers: Sequence[int], part: int, rows: int = AT_ONCE,
         tokens: int = TOKENS) -> Texts:
    """As `written`, of a text (N,) of others: part number `part` of its windows. All of it counts
    as an answer.

    TextError where the text is too short for that.
    """
    cut = ids[part * rows * tokens:][:rows * tokens]
    if len(cut) < rows * tokens:
        raise TextError(f"too little text: {len(ids):,} tokens are less than {part + 1} x {rows} x "
                        f"{tokens}")
    texts = cut.view(rows, tokens)
    found = [target(few.to(target.device), layers=layers) for few in texts.split(READ_AT_ONCE)]
    return Texts(texts, torch.cat([hidden.cpu() for _, hidden in found]),
                 torch.cat([logits.float().logsumexp(-1).cpu() for logits, _ in found]),
                 torch.ones_like(texts, dtype=torch.bool))
