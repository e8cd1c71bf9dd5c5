"""A layer whose state cannot go back, in a model that can be target and draft model all the same.

    S_t = d S_(t-1) + (1 - d) k_t v_t       a matrix for each head, however long the text is
    y_t = q_t S_t

This is linear attention with a decay d (RetNet, Sun et al. 2023, arXiv 2307.08621, section 2.1).
The states of Mamba (Gu, Dao 2023, arXiv 2312.00752) and of Qwen3-Next are built otherwise and raise
the same question: a rejected draft token is in the state, and lowering a length does not take it
out. The lesson *A state that cannot go back* runs this model, with random weights.

The model is told what was accepted as every target is: `cache.length`, set before the call, is how
many tokens count. The cache keeps the tokens, and states after some numbers of tokens. A call takes
the latest of these states that has read no more than `length` tokens, and reads again what has come
since. Two ways to choose the states that are kept:

    snapshots = n   the states after each of the last n tokens. With one for each node of a draft,
                    nothing is read again.
    replay          two: the one before the round, and the newest. After a rejection, the accepted
                    tokens are read again (Wu et al. 2024, Snakes and Ladders, PMLR 262: Activation
                    Replay, which keeps what a layer computed of these tokens. Here the whole model
                    reads them.)

Both are exact with any number of states: with none left, the whole text is read again. Left out:
trees, in which a token needs the state of its parent (STree, Wu et al. 2025, arXiv 2505.14969); a
kernel that reads many tokens at once; compiled rounds, since how much is read again waits for the
device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.attention import Call, cached_call
from nanospec.cache import Cache
from nanospec.errors import RequestError
from nanospec.model import GPT
from nanospec.proof.tables import small_gpt


class StateCache(Cache):
    """A cache for B texts: of each K states, and slots for its tokens and for layers that attend.

    tokens: (B, S) int64, what was read into each slot. The last slot is a spare one, which no text
    uses.
    states: (B, K, L, H_kv, D, D), of L layers.
    after: (B, K) int64, the tokens that each has read; -1 for none.
    again: how many tokens were read again so far, of all texts together.
    """

    per_row = ("tokens", "states", "after")

    def __init__(self, rows: int, attend: int, states: Tensor, rope: Tensor):
        super().__init__(rows, attend, states.shape[3], rope)
        self.tokens = torch.zeros(rows, rope.shape[1], dtype=torch.int64, device=rope.device)
        self.states = states
        self.after = self.tokens.new_zeros(states.shape[:2])    # before the first token
        self.again = 0

    def next_slots(self, tokens: int) -> Tensor:
        """As Cache. A text with less to read than others may reach the spare slot."""
        return super().next_slots(tokens).clamp(max=self.tokens.shape[1] - 1)

    def put(self, rows: list[int], other: Cache) -> None:
        """As Cache."""
        super().put(rows, other)
        assert isinstance(other, StateCache)
        self.states[rows], self.after[rows] = other.states, other.after
        self.tokens[rows, :other.tokens.shape[1]] = other.tokens

    def roll_back(self) -> tuple[Tensor, Tensor]:
        """To the latest state that has read at most `length` tokens: their number (B,), and it (B,
        L, H_kv, D, D).
        """
        self.after.masked_fill_(self.after > self.length[:, None], -1)      # read what was rejected
        read, which = self.after.max(1)
        state = self.states[torch.arange(len(which), device=which.device), which]
        return read.clamp(min=0), torch.where(read[:, None, None, None, None] > 0, state, 0.0)

    def keep(self, states: Tensor, read: Tensor, T: int, snapshots: int | None) -> None:
        """Of the states (B, N + 1, L, H_kv, D, D) after read (B,) tokens and each later one, the
        last of which T are new: those that `snapshots` asks for. What was known before stays.
        """
        end = self.length[:, None] + T                                                      # (B, 1)
        if snapshots:                                       # a ring: n places, n tokens
            after = end - torch.arange(snapshots, device=end.device)
            places = after % snapshots
        else:   # The newest, and the one before the round, but for a call on one token: that is
            # plain decoding, or the next step of a draft, all of which may be taken.
            after = torch.cat([end, self.length[:, None].clamp(min=0)], 1)[:, :1 + (T > 1)]
            places = 1 - torch.arange(after.shape[1], device=end.device).expand_as(after)
        row, known = torch.arange(len(read), device=read.device)[:, None], after >= read[:, None]
        new = states[row, (after - read[:, None]).clamp(min=0)]
        self.states[row, places] = torch.where(known[:, :, None, None, None, None], new,
                                               self.states[row, places])
        self.after[row, places] = torch.where(known, after, self.after[row, places])


@dataclass
class StateCall(Call):
    """A call in which some layers keep a state, and the others attend.

    number: of each layer among those of its kind, and whether it keeps a state.
    decay: (H_kv, 1, 1).
    start: (B, L, H_kv, D, D).
    passed: for each of the L layers the states after 0, 1, ... T tokens.
    """

    number: Sequence[tuple[int, bool]] = ()
    decay: Tensor | Any = None
    start: Tensor | Any = None
    passed: list[Tensor] = field(default_factory=list)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As Call: queries (B, H, T, D), keys and values (B, H_kv, T, D) -> (B, H, T, D)."""
        number, has_state = self.number[layer]
        if not has_state:
            return super().attend(number, q, k, v)
        B, H, T, D = q.shape
        q, states, out = q.view(B, k.shape[1], -1, T, D), [self.start[:, number]], []
        for t in range(T):
            new = k[:, :, t, :, None] * v[:, :, t, None]                        # (B, H_kv, D, D)
            states.append(self.decay * states[-1] + (1 - self.decay) * new)
            out.append(q[:, :, :, t] @ states[-1])                          # (B, H_kv, H / H_kv, D)
        self.passed.append(torch.stack(states, 1))
        return torch.stack(out, 3).view(B, H, T, D)


class Recurrent(nn.Module):
    """A language model with the weights of a GPT. Only its layers in `attention` attend, and all
    others keep a state.

    snapshots: how many states are kept of a text, one for each of its last tokens; None: replay.
    """

    def __init__(self, gpt: GPT, attention: Sequence[int] = (), snapshots: int | None = None):
        super().__init__()
        self.gpt, self.config, self.snapshots = gpt, gpt.config, snapshots
        kinds = [layer not in attention for layer in range(self.config.layers)]
        self.number = [(kinds[:layer].count(kind), kind) for layer, kind in enumerate(kinds)]
        self.stateful = sum(kinds)

    @property
    def device(self) -> torch.device:
        return self.gpt.device

    @property
    def dtype(self) -> torch.dtype:
        return self.gpt.dtype

    def no_states(self, rows: int, count: int) -> Tensor:
        """(rows, count, L, H_kv, D, D): the state before the first token, `count` times."""
        c = self.config
        return torch.zeros(rows, count, self.stateful, c.kv_heads, c.head_size, c.head_size,
                           dtype=self.dtype, device=self.device)

    def new_cache(self, rows: int, slots: int) -> StateCache:
        """As GPT.new_cache."""
        attend = self.config.layers - self.stateful
        return StateCache(rows, attend, self.no_states(rows, self.snapshots or 2),
                          self.gpt.rope(slots + 1))

    def forward(self, tokens: Tensor, cache: StateCache | None = None, kv_length: int | None = None,
                *, layers: Sequence[int] = (), scored: int | None = None, **placing: Any) -> Any:
        """As GPT.forward. RequestError for a tree."""
        if placing:
            raise RequestError("a state reads tokens one after the other: this model verifies "
                               "chains, and no trees")
        T = tokens.shape[1]
        if cache is None:
            call = self._with_states(Call(self.gpt.rope(T)), self.no_states(len(tokens), 1)[:, 0])
            return self._run(tokens, call, torch.arange(T).expand_as(tokens), layers, scored)
        length, (read, start) = cache.length, cache.roll_back()
        cache.tokens.scatter_(1, cache.next_slots(T), tokens)
        cache.again += int((length - read).clamp(min=0).sum())
        cache.length, N = read, int((length - read).max()) + T  # from the state to the last token
        call = self._with_states(cached_call(self.config, N, cache, kv_length), start)
        cache.length = length
        asked = (length - read)[:, None] + torch.arange(T, device=read.device)              # (B, T)
        out = self._run(cache.tokens.gather(1, call.slots), call, asked.clamp(min=0),
                        layers, scored)
        cache.keep(torch.stack(call.passed, 2), read, T, self.snapshots)
        return out

    def _with_states(self, call: Call, start: Tensor) -> StateCall:
        heads = torch.arange(self.config.kv_heads, dtype=self.dtype, device=self.device)
        return StateCall(**vars(call), number=self.number,
                         decay=1 - 2.0 ** -(heads[:, None, None] + 2), start=start)

    def _run(self, tokens: Tensor, call: StateCall, asked: Tensor, layers: Sequence[int],
             scored: int | None) -> Any:
        """tokens (B, N) -> the logits of those at `asked` (B, T), or of the last of these, and the
        hidden states of all of these after `layers`.
        """
        x, hidden = self.gpt.through(self.gpt.embedding(tokens), call, layers)
        row = torch.arange(len(tokens), device=tokens.device)[:, None]
        last = asked if scored is None else asked[:, asked.shape[1] - scored:]
        logits = self.gpt.head(self.gpt.norm(x[row, last]))
        return (logits, hidden[row, asked]) if layers else logits


def small_recurrent(vocab_size: int, layers: int, seed: int, attention: Sequence[int] = (),
                    snapshots: int | None = None) -> Recurrent:
    """One to walk, with random weights in float64: those of `small_gpt`."""
    return Recurrent(small_gpt(vocab_size, layers, seed), attention, snapshots).eval()
