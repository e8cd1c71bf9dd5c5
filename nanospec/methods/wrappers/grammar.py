"""Constrained decoding: a grammar says which tokens may come next, in a text and in its drafts.

Willard, Louf 2023 (Outlines, arXiv 2307.09702, section 3): an automaton over characters becomes a
table over tokens, so that what may follow is looked up. Dong et al. 2024 (XGrammar, arXiv
2411.15100) do it for grammars that nest, with a stack in the automaton's place, and can roll the
stack back.

    node            0       1        2      3       `12` is as far as the pattern \\d\\d goes
    token           :       1        2      9
    state           4       5        6      -       after a node: its parent's state, its own token
    may follow    0..9    0..9       ,      -       each node's own mask; node 3 is never accepted

The state after a token stands in the token's slot of the cache (in_slots.py), so that it is taken
back with a rejected token, and nothing has to be rolled back.

The mask comes before temperature and cuts: p_target is what these make of the allowed
tokens' logits. It is not the target's distribution over whole texts, given that they match; that
would need a look ahead.

Left out: grammars that nest; special tokens, which count as the characters that they are written
with; and tokens that are a part of a character. For \\w alone an automaton over bytes would need
338 states in the place of one: for each beginning of a character after which only some bytes may
follow. Tokens that have no alternative are drafted for nothing by grammar_drafter.py.
"""

from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import RequestError, check_has, check_numbers, one_line, quoted
from nanospec.methods.wrappers.expression import Expression
from nanospec.methods.wrappers.in_slots import MOST_KEPT, InSlots

MOST_LOOKS = 10_000_000  # at a character of a token, while a grammar is made: some ten seconds
MOST_ENTRIES = 2 ** 26  # of a table: half a gigabyte
MOST_TOKENS = 2 ** 20


class Grammar:
    """An automaton over tokens. table: (states, V) int64, the next state, or -1 where the token may
    not follow. at_once: it is one of what follows a prompt, and not of the prompt.

    State 0 is that of an empty text. Only a prompt can hold a token that may not follow, or a node
    that is never accepted. It is read as if the text began with it; if that may not be either, the
    state is 0 again.
    allowed, after: (states, V), whether a token may follow, and the state after it.
    RequestError for a state after which no token may follow, or that is none.
    """

    def __init__(self, table: Tensor, at_once: bool = False):
        if not isinstance(table, Tensor) or table.dim() != 2 or table.dtype != torch.int64:
            raise RequestError("a grammar is a table (states, V) of int64, got "
                               f"{quoted(getattr(table, 'shape', table))}")
        states = len(table) + at_once
        if not table.numel() or states > MOST_KEPT or not (
                -1 <= int(table.min()) <= int(table.max()) < states):
            raise RequestError(f"a grammar has 1 to {MOST_KEPT} states, and each entry is one of "
                               "them or -1")
        self.allowed = table >= 0
        dead = (~self.allowed.any(-1)).nonzero()[:, 0].tolist()
        if dead:
            raise RequestError(f"the grammar has a dead end: in state {dead[0]} no token may "
                               "follow")
        self.after = torch.where(self.allowed, table, table[0].clamp(min=0))
        self.at_once = at_once
        if at_once:                     # one state more, that of a prompt
            self.allowed = F.pad(self.allowed, (0, 0, 0, 1), value=True)
            self.after = F.pad(self.after, (0, 0, 0, 1))

    @property
    def prompt(self) -> int:
        """The state of a prompt, or -1: a prompt has the states of its tokens."""
        return len(self.after) - 1 if self.at_once else -1

    def check(self, owner: str, vocab_size: int) -> None:
        """RequestError unless the model has as many tokens as the grammar."""
        if self.allowed.shape[1] != vocab_size:
            raise RequestError(f"the grammar is of {self.allowed.shape[1]} tokens, {owner} of "
                               f"{vocab_size}")


class Constrained(InSlots):
    """A language model that writes what a grammar allows: all other tokens' logits are -infinity.

    It stands in the target's place, and a second one in the draft model's. If the draft model is
    left as it is, or the drafter copies, the text has the same distribution, and draft tokens that
    may not follow are rejected.
    RequestError where there is no language model, or the two have different vocabularies.
    """

    def __init__(self, model: LanguageModel, grammar: Grammar):
        super().__init__("what is constrained", model)
        grammar.check("the model", model.config.vocab_size)
        self.allowed, self.after = grammar.allowed.to(model.device), grammar.after.to(model.device)
        self.prompt = grammar.prompt

    def changed(self, logits: Tensor, tokens: Tensor, cache: Cache,
                attention_mask: Tensor | None) -> Tensor:
        """Those of tokens that may not follow are -infinity."""
        states = self._states(tokens, cache, attention_mask, not logits.shape[1])
        states = states[:, tokens.shape[1] - logits.shape[1]:]                  # of those scored
        return logits.masked_fill(~self.allowed[states], float("-inf"))

    def _states(self, tokens: Tensor, cache: Cache, attention_mask: Tensor | None,
                of_prompt: bool) -> Tensor:
        """The state after every token (B, T), which is also written into its slot.

        What is read without being scored is a prompt, all of it but its last token. Where the text
        opens after a prompt, its tokens have a state of their own, also if they are read again.
        """
        (B, T), device = tokens.shape, tokens.device
        slots, row = cache.next_slots(T), torch.arange(B, device=device)
        parents = slots - 1                         # (B, T), slots too; -1 before the first token
        if attention_mask is not None:  # of a tree: the last slot that a node sees before its own
            numbers = torch.arange(attention_mask.shape[2], device=device)
            seen = attention_mask & (numbers < slots[:, :, None])
            parents = torch.where(seen, numbers, -1).amax(-1)
        known = self.kept(cache)                                                # (B, S)
        for t in range(T):
            parent, own = parents[:, t], slots[:, t]
            before = torch.where(parent < 0, max(self.prompt, 0), known[row, parent])
            after = self.after[before, tokens[:, t]]
            if self.prompt >= 0:
                again = (before == self.prompt) & (known[row, own] == self.prompt)
                after = torch.where(again | of_prompt, self.prompt, after)
            known[row, own] = after
        states = known.gather(1, slots)
        if of_prompt:                                   # what an earlier text has left behind it
            behind = torch.arange(known.shape[1], device=device) > slots[:, -1:]
            for part in cache.k, cache.v:
                part[self.layer].masked_fill_(behind[:, :, None, None], 0)
        self.keep(cache, slots, states)
        return states


def grammar_of(pattern: str, tokenizer: Any, vocab_size: int, opens: str = "") -> Grammar:
    """What follows the prompt matches `pattern`, whole, as `re.fullmatch` says, and then the text
    ends. With `opens`, say a line break, it is what follows the last one of a text; before it, and
    in a text without it, every token may follow.

    tokenizer: one of files/, for a model of vocab_size tokens. A token may follow if its characters
    may, one after the other, which no part of a character may; one of the tokenizer's `ends` may
    follow where the pattern is through.
    opens: if not empty, it must stand at the end of a token.
    No token may follow after which no tokens could spell the rest.
    RequestError as Expression, where the tokens spell no text of the pattern, or it has a place for
    `opens`, and where no token ends so.
    Example: grammar_of(r'\\{"age": \\d\\d?\\}', tokenizer, V): after the prompt {"age": 7}, or
    another age.
    """
    check_has("the tokenizer", tokenizer, "one of files/", "decode", "ends")
    check_numbers(Integral, vocab_size=vocab_size)
    if not max(tokenizer.ends, default=0) < vocab_size <= MOST_TOKENS:
        raise RequestError(f"a vocabulary has the tokenizer's tokens, and at most {MOST_TOKENS:,}: "
                           f"got {quoted(vocab_size)}")
    if not isinstance(opens, str):
        raise RequestError(f"opens must be a text, got {quoted(opens)}")
    pieces = [tokenizer.decode([token]) for token in range(vocab_size)]
    opening = [token for token, piece in enumerate(pieces) if opens and piece.endswith(opens)]
    if opens and not opening:
        raise RequestError(f"no token of this tokenizer ends in {quoted(opens)}: nothing "
                           "would open the text")
    ends, expression = sorted(tokenizer.ends), Expression(pattern)
    spelt = spelling_tree({token: piece for token, piece in enumerate(pieces)
                           if piece and "\ufffd" not in piece and token not in tokenizer.ends})
    # State 0 is before the text opens, and the last one after its end: there the end is written
    # again.
    none = torch.full((vocab_size,), -1, device="cpu")
    rows, order, number, looked = [none * 0], [expression.begin], {expression.begin: 1}, 0
    for state in order:                                     # it grows meanwhile
        found: dict[int, int] = {}
        open_: list[tuple[dict, Any]] = [(spelt, state)]
        while open_:
            node, reached = open_.pop()
            looked += len(node) * len(reached)
            for character, below in node.items():
                if character == "":                         # a token ends here
                    found |= dict.fromkeys(below, number.setdefault(reached, len(number) + 1))
                    continue
                after = expression.after(reached, character)
                if after:
                    open_.append((below, after))
        order += list(number)[len(order):]
        rows.append(none.index_put((torch.tensor([*found], dtype=torch.int64, device="cpu"),),
                                   torch.tensor([*found.values()], dtype=torch.int64,
                                                device="cpu")))
        expression.check_size(len(order))
        if looked > MOST_LOOKS or len(order) * vocab_size > MOST_ENTRIES:
            raise RequestError(f"the pattern {one_line(pattern)!r} is too large for a "
                               f"vocabulary of {vocab_size:,} tokens")
    table = torch.stack([*rows, none])
    table[0, opening] = 1
    # Below, -1 is a state, too, the last of all: none leads on from it.
    may_end = torch.tensor([False, *(() in state for state in order), True, False], device="cpu")
    table[may_end.nonzero(), ends] = len(table) - 1
    leads = torch.zeros(len(may_end), len(may_end), dtype=torch.bool, device="cpu")
    leads[torch.arange(len(table), device="cpu")[:, None], table] = True
    alive, new = torch.zeros_like(may_end), may_end         # tokens lead from there to an end
    while new.any():
        alive = alive | new
        new = leads[:, new].any(1) & ~alive
    if not alive[1]:
        raise RequestError(f"the pattern {one_line(pattern)!r} matches no text that these tokens "
                           "spell")
    table = torch.where(alive, alive.cumsum(0) - 1, -1)[table[alive[:-1]]]
    if (table[1:, opening] >= 0).any():
        raise RequestError(f"{quoted(opens)} opens the text, so the pattern must have no "
                           "place for it")
    return Grammar(table, at_once=not opens)        # nothing led on from its state 0: it is gone


def spelling_tree(pieces: dict[int, str]) -> dict:
    """Character -> what may follow it, the same again; under "" stand the tokens that end there."""
    tree: dict = {}
    for token, piece in pieces.items():
        node = tree
        for character in piece:
            node = node.setdefault(character, {})
        node.setdefault("", []).append(token)
    return tree
