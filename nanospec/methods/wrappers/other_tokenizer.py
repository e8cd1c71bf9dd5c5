"""A draft model that was made for another tokenizer: it drafts the tokens that both have.

Timor et al. 2025, token-level intersection (TLI; arXiv 2502.05202, section 4).

    the text     target's tokens    " def" " main" "():", each read as one token of the draft model
    draft model  its own logits     of what both have, moved to the target's ids; others: -infinity

Claim: the text is lossless, whatever the two tables below say.
Proof. What comes out is a language model over the target's vocabulary, if a strange one. A drafter
makes a distribution of its logits, draws from that, and reports that: q_draft adds up to 1 over the
shared tokens and is 0 elsewhere. The rule asks for no more. A wrong table costs accepted tokens,
and no walk of the text shows it.

Which tokens do both have? Those with the same bytes, whatever the tokenizers' files write for them:
GPT-2's letter for a blank is not a blank, and half a character is no text. A special token has no
bytes: it is shared with the one of its name, and the end of a text is one and the same in both,
whatever its names. And if all that both have has one id in both, they are two versions of one
tokenizer, in which special tokens of one id are one, too. If several ids
of one tokenizer have the same bytes, the last one counts. It is the one that texts have: what is
added to a vocabulary stands after the rest and is looked for first, and the bytes that a tokenizer
keeps for rare characters stand before the letters.

What is read for a token that the draft model lacks? One token has one slot of its cache, so it
cannot be several. Its longest ending that is a token stands for it: " function" is read as
"function", or as "tion". A special token that it lacks is read as end of text, the only border
between texts that the draft model is sure to know.

Left out: reading the text in the draft model's own tokens, which needs a cache whose slots are not
the text's places. String-level exact match is string_match.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import PairError, check_model


class Tables(NamedTuple):
    """ids (n,): the target's tokens that can be drafted, ascending. own (n,): the same in the draft
    model's ids.

    read_as (V,): the draft model's token that each of the target's is read as.
    """

    ids: Tensor
    own: Tensor
    read_as: Tensor


def tables_of(draft_model: Any, target: Any, vocab_size: int) -> Tables:
    """The tables between two tokenizers of files/, which have `spellings`, the bytes of every id or
    None for no text, `special`, the special tokens by name, and `end_of_text`.

    vocab_size: V of the target, which may have ids that are no tokens.
    PairError if not one string is a token of both, or the target's tokenizer has more tokens than
    V.
    Example: the draft model's tokens are a, b, ab, the target's b, a, ba, and end of text comes
    after them in both. Then b, a and end of text are shared, ids [0, 1, 3] and own [1, 0, 3], and
    ba is read as a.
    """
    spellings = target.spellings
    if len(spellings) > vocab_size:
        raise PairError(f"the target has {vocab_size} tokens, and its tokenizer {len(spellings)}")
    of_draft, of_target = (
        {spelling: token for token, spelling in enumerate(listed) if spelling}
        for listed in (draft_model.spellings, spellings))
    shared = {of_target[spelling]: of_draft[spelling]
              for spelling in of_target.keys() & of_draft.keys()}
    if not shared:
        raise PairError("the draft model's tokenizer and the target's have no token in common")
    shared |= {target.special[name]: draft_model.special[name]
               for name in target.special.keys() & draft_model.special.keys()}
    if all(token == own for token, own in shared.items()):
        same = {*target.special.values()} & {*draft_model.special.values()}
        shared |= {token: token for token in same}
    shared.setdefault(target.end_of_text, draft_model.end_of_text)
    read_as = [draft_model.end_of_text] * vocab_size
    for token, spelling in enumerate(spellings):
        endings = (spelling[start:] for start in range(len(spelling))) if spelling else ()
        read_as[token] = next((of_draft[ending] for ending in endings if ending in of_draft),
                              shared.get(token, draft_model.end_of_text))
    ids = sorted(shared)
    return Tables(*(torch.tensor(table, device="cpu")
                    for table in (ids, [shared[token] for token in ids], read_as)))


class OtherTokenizer(nn.Module):
    """A GPT, `draft_model`, as a language model over the target's vocabulary. It stands wherever a
    draft GPT does.

    note: what a user should know of it, as Pair has it (files/checkpoint.py); nothing, if the
    tokens that both have are the same ids in both. Then they are of one tokenizer, and only the
    models have weights for more or fewer. PairError if it has fewer tokens than the tables say.
    """

    ids: Tensor
    own: Tensor
    read_as: Tensor

    def __init__(self, draft_model: LanguageModel, tables: Tables):
        super().__init__()
        check_model("the draft model", draft_model)
        if int(max(tables.own.max(), tables.read_as.max())) >= draft_model.config.vocab_size:
            raise PairError(f"the draft model has {draft_model.config.vocab_size} tokens, and its "
                            "tokenizer more")
        self.draft_model: Any = draft_model
        self.config = replace(draft_model.config, vocab_size=len(tables.read_as))
        for name, table in tables._asdict().items():
            self.register_buffer(name, table.to(draft_model.device), persistent=False)
        self.note = "" if tables.ids.equal(tables.own) else (
            f"the draft model has another tokenizer: it drafts the {len(self.ids):,} tokens that "
            f"both have, of the target's {len(self.read_as):,} and its own "
            f"{draft_model.config.vocab_size:,}")

    @property
    def device(self) -> torch.device:
        return self.draft_model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.draft_model.dtype

    @property
    def tables(self) -> Tables:
        return Tables(self.ids, self.own, self.read_as)

    def new_cache(self, rows: int, slots: int) -> Cache:
        return self.draft_model.new_cache(rows, slots)

    def forward(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                *, layers: Sequence[int] = (), scored: int | None = None, **placing: Any) -> Tensor:
        """As GPT.forward, in the target's ids. It has no hidden states to show."""
        logits = self.draft_model(self.read_as[tokens], cache, kv_length, scored=scored, **placing)
        never = logits.new_full((*logits.shape[:-1], len(self.read_as)), float("-inf"))
        return never.index_copy(-1, self.ids, logits[..., self.own])
