"""Conversations that a chat model writes itself, both sides of them, and its hidden states meanwhile.

A draft model is used on the target's own answers, so it should learn from such text. A model that was trained on
conversations writes the user's turns, too, if it is given no more than where one begins (Magpie: Xu et al. 2024, arXiv
2406.08464). Most texts' first turn begins with a few words of ours, so that all kinds of requests come up that people
speculate on: chat, code, rewriting, summaries, questions about a text.

While it writes, the target's hidden states are there anyway. They are kept on disk beside the tokens, so that
the target need not run again for a second draft model or a second pass.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nanospec.errors import RequestError, TextError
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.model import GPT

AT_ONCE = 64                    # texts that are written together: one part, one file
TOKENS = 384                    # of each text
READ_AT_ONCE = 4                # texts: logits of the whole vocabulary are made for each token
TEMPERATURES = (1.0, 0.7)       # of every other text
OPENINGS = {
    "chat": ["", "", "", "What", "How do I", "Explain", "Why", "Give me", "Write a short story about"],
    "code": ["Write a Python function that", "Write a program that", "Here is my code:\n\n```python\n",
             "How do I write", "Fix the bug in this function:\n\n```python\ndef "],
    "rewriting": ["Rewrite the following text in simpler words.\n\n", "Make this email more polite.\n\n",
                  "Correct the mistakes in this text.\n\n", "Rewrite this paragraph in the past tense.\n\n"],
    "summary": ["Summarize the following text in two sentences.\n\n", "What are the main points of this article?\n\n"],
    "question": ["Read this text and answer the question after it.\n\n", "Here is a paragraph about",
                 "Answer with words of this text.\n\nText: "],
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
            raise RequestError("this target has no chat template: it was not made for conversations")
        roles = ("user", "assistant", "user")
        text = tokenizer.template([{"role": role, "content": "<<turn>>"} for role in roles], answer=False)
        first, answer, again, _ = text.split("<<turn>>")
        return cls(*map(tokenizer.encode_special, (first, answer, again)))


class Row:
    """A text that is being written. forced: tokens that come next, whatever the model would write."""

    def __init__(self, turns: Turns, opening: list[int], ends: Collection[int]):
        self.turns, self.ends, self.forced = turns, ends, turns.first + opening
        self.answering = False

    def next(self, drawn: int) -> int:
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
def written(target: GPT, tokenizer: FolderTokenizer, layers: Sequence[int], seed: int, rows: int = AT_ONCE,
            tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    """Texts (rows, tokens) of conversations, and the target's hidden states (rows, tokens, len(layers), C) of them."""
    chance, turns = torch.Generator().manual_seed(seed), Turns.of(tokenizer)
    texts = [Row(turns, opening, tokenizer.ends) for opening in openings(tokenizer, rows, chance)]
    temperature = torch.tensor(TEMPERATURES).repeat(rows)[:rows, None]
    new = torch.tensor([[row.next(0)] for row in texts])
    cache, found, hidden = target.new_cache(rows, tokens), [new], []
    for length in range(1, tokens + 1):
        logits, states = target(new.to(target.device), cache, kv_length=length, layers=layers)
        cache.length += 1
        hidden.append(states.cpu())
        drawn = torch.multinomial((logits[:, -1].cpu().float() / temperature).softmax(-1), 1, generator=chance)
        new = torch.tensor([[row.next(token)] for row, token in zip(texts, drawn[:, 0].tolist())])
        found.append(new)
    return torch.cat(found[:-1], 1), torch.cat(hidden, 1)


@torch.inference_mode()
def read(target: GPT, ids: Tensor, layers: Sequence[int], part: int, rows: int = AT_ONCE,
         tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    """As `written`, of a text (N,) of others: part number `part` of its windows.

    TextError where the text is too short for that.
    """
    cut = ids[part * rows * tokens:][:rows * tokens]
    if len(cut) < rows * tokens:
        raise TextError(f"too little text: {len(ids):,} tokens are less than {part + 1} x {rows} x {tokens}")
    texts = cut.view(rows, tokens)
    hidden = [target(few.to(target.device), layers=layers, scored=0)[1].cpu() for few in texts.split(READ_AT_ONCE)]
    return texts, torch.cat(hidden)
