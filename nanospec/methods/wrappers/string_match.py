"""A draft model with any other tokenizer: the target's own cuts up the string that it drafts.

Timor et al. 2025, string-level exact match (SLEM; arXiv 2502.05202, section 3); transformers'
universal assisted generation.

    the text    decoded, and encoded anew as the draft model's own tokens
    the draft   its likeliest tokens one after the other, decoded, encoded as the target's tokens

A special token is no string. It is read as the one of that name, where the other tokenizer has it,
and as end of text where it has not. What stands before a text is the draft model's own if the text
begins with the target's.

Claim: the text is lossless, whatever the two tokenizers do to a string.
Proof. A string is a function of the committed text, and so are its tokens. They were chosen and not
drawn: q_draft is one-hot, and each token x is accepted with p_target(x). This is how often the
target, left alone, would have written x, hence "exact match".

Against other_tokenizer.py this can draft any token of the target, and reads the text as the draft
model knows it. What it cannot do is to be accepted with min(1, p_target / q_draft): which
probability a string had over all ways to cut it up is not known. At temperature 0 nothing is lost
by that.

Where strings are cut they may be cut in another way than the target would. A draft ends in the
middle of a word, and its last token is then the beginning of one. The text ends in the middle of a
word, too, and there the draft model reads tokens that it has seldom seen. What is committed stays
as it is; only new tokens are encoded.

The paper draws the string; here it is the likeliest one, since of one-hot drafts that is accepted
more often. Every text has a cache of its own, whose slots are the draft model's tokens and not the
text's.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import LanguageModel
from nanospec.errors import check_gamma, check_model
from nanospec.methods.trees.tree_draft import CopyingDrafter, Tree
from nanospec.text import Text

WIDTH = 256     # a cache's slots are a multiple of it


class StringDrafter(CopyingDrafter):
    """gamma tokens of the draft model, a GPT, as a chain of at most gamma of the target's.

    kept: of every text what the cache holds. It waits for the device at every draft token, to see
    whether the text has ended.
    """

    needs_draft_model, per_row = True, ("kept",)

    def __init__(self, draft_model: LanguageModel, draft_tokenizer: Any, target_tokenizer: Any,
                 gamma: int = 4):
        check_model("the draft model", draft_model)
        self.draft_model, self.most = draft_model, check_gamma(gamma, "gamma")
        self.draft_tokenizer, self.target_tokenizer = draft_tokenizer, target_tokenizer
        self.kept: dict[int, ReadText] = {}

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: forget the last ones of these rows."""
        for b in rows:
            self.kept[b] = ReadText(self.draft_model)

    def tree(self, b: int, ids: list[int]) -> Tree:
        """A string, in the target's tokens."""
        draft_model, target = self.draft_tokenizer, self.target_tokenizer
        begins = ids[:len(target.begin)] == target.begin
        read = ([*draft_model.begin, *translated(ids[len(target.begin):], target, draft_model)]
                if begins
                else translated(ids, target, draft_model))
        own = self.kept[b].likeliest(read or [draft_model.end_of_text], self.most,
                                     draft_model.end_of_text)
        tokens = translated(own, draft_model, target)
        tree = Tree(ids[-1])
        tree.extend(0, tokens[:self.most])
        return tree


def translated(ids: Sequence[int], source: Any, to: Any) -> list[int]:
    """Tokens of one tokenizer as those of another, where they go on with a text that is there."""
    names: dict[int, str] = {source.end_of_text: ""}
    names |= {i: name for name, i in source.special.items()}
    found: list[int] = []
    for special, run in groupby(ids, lambda i: i in names):
        if special:
            found += [to.special.get(names[i], to.end_of_text) for i in run]
        else:
            found += to.continued(source.decode([*run]))
    return found


class ReadText:
    """What the draft model has read of one text: tokens, and a cache with a slot for each."""

    def __init__(self, draft_model: LanguageModel):
        self.draft_model, self.tokens, self.slots = draft_model, list[int](), 0

    def likeliest(self, text: list[int], count: int, end: int) -> list[int]:
        """The `count` tokens that follow, each the likeliest one; `end` is the last."""
        if len(text) + count > self.slots:
            self.slots = -(-2 * (len(text) + count) // WIDTH) * WIDTH
            self.cache, self.tokens = self.draft_model.new_cache(1, self.slots), []
        same = next((i for i, pair in enumerate(zip(self.tokens, text[:-1])) if pair[0] != pair[1]),
                    min(len(self.tokens), len(text) - 1))
        self.tokens, new, found = text[:same], text[same:], list[int]()
        while len(found) < count and found[-1:] != [end]:
            self.cache.length[:] = len(self.tokens)
            logits = self.draft_model(torch.tensor([new], device=self.draft_model.device),
                                      self.cache, len(self.tokens + new), scored=1)
            self.tokens += new
            new = [int(logits[0, -1].argmax())]
            found += new
        return found
