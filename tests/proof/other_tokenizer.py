"""Is a draft model with another tokenizer exact, and does it draft what the two tokenizers have in common?

The tokenizers here are two short lists, in which every trap stands once: the ids are permuted, one string has two ids,
one token is a part of a character, each has special tokens of its own, and end of text has different ids. What follows
from them is written down by hand, not computed.
Left out: whether the bytes of real tokenizers' tokens are read rightly, which tests/methods/test_other_tokenizer.py
asks.
"""

from functools import partial
from typing import NamedTuple

import torch

from nanospec.dice import Dice
from nanospec.methods.wrappers.string_match import StringDrafter
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, tables_of
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.proof.tables import TableModel
from nanospec.speculate import ModelDrafter, speculate
from tests.proof.compare import Found, rounds, worst


class Spellings(NamedTuple):
    spellings: list[bytes | None]
    end_of_text: int
    special: dict[str, int] = {}


ITS = Spellings([b"b", None, b"a", b"ab", b"a", b"\xc3", None], 1)
OURS = Spellings([b"a", b"\xc3", b"ba", b"b", None, None], 5)
READ = {0: 4, 1: 5, 2: 4, 3: 0, 4: 1, 5: 1}             # ours -> its token; 4 is special, and the end of ba is a
SHARED = {0: 4, 1: 5, 3: 0, 5: 1}
TARGET, ITS_MODEL = TableModel(6, 8, zeros=0.5), TableModel(7, 58, zeros=0)


class Letters:
    """A tokenizer of a few letters: the longest token comes first. end_of_text has no letters."""

    begin: list[int] = []
    special: dict[str, int] = {}

    def __init__(self, *tokens: str):
        self.tokens, self.end_of_text = tokens, len(tokens)

    def encode(self, text: str) -> list[int]:
        if not text:
            return []
        token = max((token for token in self.tokens if text.startswith(token)), key=len)
        return [self.tokens.index(token), *self.encode(text[len(token):])]

    continued = encode

    def decode(self, ids: list[int]) -> str:
        return "".join([*self.tokens, ""][token] for token in ids)


LETTERS = TableModel(4, 8, zeros=0.2)
STRINGS = StringDrafter(TableModel(5, 58, zeros=0), Letters("b", "a", "bb", "ab"), Letters("a", "ba", "b"), 2)


def draft_model() -> OtherTokenizer:
    return OtherTokenizer(ITS_MODEL, tables_of(ITS, OURS, 6))


def walked() -> Found:
    """A chain, a tree and strings, at two temperatures: the distribution of the text is the target's. At T = 0 a tree
    draws evenly what no draft model wants: three tokens of it have as many paths as there is time for.
    """
    return worst(rounds(target, partial(speculate, target, drafter), ids,
                        min(new, 3) if isinstance(drafter, TreeDrafter) else new, **settings)
                 for new, settings in ((3, {"temperature": 0.7, "top_k": 2}), (6, {"temperature": 0}))
                 for target, drafter, ids in ((TARGET, ModelDrafter(draft_model(), 2), [2, 4, 0]),
                                              (TARGET, TreeDrafter(draft_model(), [-1, 0, 0, 1]), [2, 4, 0]),
                                              (LETTERS, STRINGS, [1, 0, 3])))


def drafted(temperature: float = 0.7) -> Found:
    """What is drafted has the draft model's own probabilities of what both have, over their sum."""
    error, count = 0.0, 0
    for seed, text in enumerate(([0, 1, 2, 3, 4, 5], [4, 2], [5])):
        for done in speculate(TARGET, ModelDrafter(draft_model(), 3), text, 12, temperature, dice=Dice([seed])):
            for row in range(1, len(done.tokens)):
                own = torch.tensor([[READ[token] for token in text + done.tokens[1:row]]])
                q_own = (ITS_MODEL(own)[0, -1] / temperature).softmax(-1)
                q_draft = torch.zeros(6, dtype=q_own.dtype)
                for token, its in SHARED.items():
                    q_draft[token] = q_own[its]
                error = max(error, (q_draft / q_draft.sum() - done.q_draft[row]).abs().max().item())
                count += 1
            text = text + done.emitted
    return count, error, error
