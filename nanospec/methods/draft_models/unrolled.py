"""Learned draft models over whole texts, all places at once: what they would draft after every
token, and how far that is from the target. Training needs it, and so does a proof that they draft
what they have learned.

Token a of a text is called an anchor where a draft begins after it. At step k the model reads token
a + k, as if it were its own draft token, for all anchors at once. The same `read` and `step` run
that a reader calls (methods/draft_models/text_reader.py); what differs is who attends to what.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.losses import log_probs


class Unrolled(Reading):
    """Attention over whole texts, several steps ahead. EAGLE-3 calls it training-time test.

    At step k, anchor a stands at position a + k. It attends to all places up to a as they were at
    step 0, where they read the target's hidden states, and to itself at steps 1 to k, where it read
    what it had predicted. It does not attend to anything that another anchor has predicted.
    """

    def __init__(self, model: Learned, T: int, anchors: Tensor, steps: int):
        places = torch.arange(T, device=anchors.device)
        table = model.rope(T + max(steps, model.deepest or 0)) if model.config else None
        rope = None if table is None else table[:, :T]
        super().__init__(rope, asks=anchors, steps=steps, table=table, positions=places[None],
                         text=(places <= anchors[:, None])[None])
        self.anchors, self.k = anchors, 0
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}    # of every layer: the text's k and v
        self.own: list[tuple[Tensor, Tensor]] = []          # keys and values of steps 1 to k

    def next(self) -> "Unrolled":
        """The next step, in which all tokens that are read ask."""
        self.k, self.asks = self.k + 1, slice(None)
        if self.table is not None:
            self.rope = self.table[:, self.anchors + self.k]                    # (2, N, D)
        return self

    def keep(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.kept[layer] = k, v
        return k, v

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.k:
            self.own.append((k, v))
        else:
            self.keep(layer, k, v)
        return self._found(layer, q[:, :, self.asks], self.own)

    def look(self, layer: int, q: Tensor) -> Tensor:
        return self._found(layer, q, [])

    def _found(self, layer: int, q: Tensor, own: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """What queries (B, H, N, D) find in the text, and in the anchors' own keys (B, H_kv, N, D):
        (B, H, N, D).
        """
        keys, values = self.kept[layer]                                         # (B, H_kv, T, D)
        T, D = keys.shape[2:]
        q = q.unflatten(1, (keys.shape[1], -1))                             # (B, H_kv, -1, N, D)
        far = q @ keys[:, :, None].transpose(-1, -2)                        # (B, H_kv, -1, N, T)
        scores = [far.masked_fill(~self.text[:, None, None], float("-inf"))]
        scores += [(q * key[:, :, None]).sum(-1, keepdim=True) for key, _ in own]
        wide = torch.promote_types(q.dtype, torch.float32)
        weights = (torch.cat(scores, -1).to(wide) * D ** -0.5).softmax(-1).to(q)
        out = weights[..., :T] @ values[:, :, None]
        for j, (_, value) in enumerate(own):
            out = out + weights[..., T + j, None] * value[:, :, None]
        return out.flatten(1, 2)


def unrolled(model: Learned, tokens: Tensor, before: Tensor, steps: int,
             anchors: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
    """Of every step the states (B, N, ...) and logits (B, N, V) after the anchors.

    tokens (B, T), before (B, T, len(layers), C): as for Learned.read. anchors (N,), at most T -
    steps; by default all of these. Logits [k][b, i] are for token a + k + 1, a = anchors[i]. They
    know the hidden states before token a, and tokens up to a + k.
    """
    anchors = all_anchors(tokens, steps) if anchors is None else anchors
    call = Unrolled(model, tokens.shape[1], anchors, steps)
    found = [model.read(tokens, before, call)]
    for k in range(1, steps):
        found.append(model.step(found[-1][0], tokens[:, anchors + k], call.next()))
    return found


def whole_texts(model: Learned, tokens: Tensor, before: Tensor, steps: int,
                anchors: Tensor | None = None) -> Tensor:
    """The logits alone of `unrolled`, (steps, B, N, V)."""
    found = unrolled(model, tokens, before, steps, anchors)
    return torch.stack([model.spread(logits) for _, logits in found])


def before_tokens(hidden: Tensor) -> Tensor:
    """Hidden states (B, T, ...) of each token -> of the token before each; zeros at first."""
    return F.pad(hidden[:, :-1], [0, 0] * (hidden.dim() - 2) + [1, 0])


def all_anchors(tokens: Tensor, steps: int) -> Tensor:
    """Every token of texts (B, T) after which there are `steps` - 1 more."""
    return torch.arange(tokens.shape[1] - steps + 1, device=tokens.device)


def some_anchors(tokens: Tensor, steps: int, count: int) -> Tensor:
    """About `count` of them, spread evenly; where they begin follows from the texts (B, T)."""
    places = tokens.shape[1] - steps + 1
    stride = max(1, places // count)
    first = tokens.sum() % stride           # stays on its device: to read it would be to wait
    return first + stride * torch.arange(places // stride, device=tokens.device)


def learned_loss(model: Learned, tokens: Tensor, hidden: Tensor, p_target: Tensor,
                 divergence: Callable[[Tensor, Tensor], Tensor],
                 anchors: Tensor | None = None, counted: Tensor | None = None,
                 total: Tensor | None = None) -> Tensor:
    """The mean over the anchors of texts (B, T), and over the draft tokens after each.

    hidden (B, T, len(layers), C), p_target (B, T, V): the target's hidden states of each token, and
    its log-probabilities after each, perhaps of the tokens alone that the model can draft.
    divergence: one of losses.py. counted (B, T) bool: the tokens whose prediction counts.
    total (steps,): how many predictions of each step count in all, where these texts are a part of
    a batch. The parts' losses add up to the batch's.
    """
    anchors = all_anchors(tokens, model.steps) if anchors is None else anchors
    counted = torch.ones_like(tokens, dtype=torch.bool) if counted is None else counted
    found = unrolled(model, tokens, before_tokens(hidden), model.steps, anchors)
    counts = predicted(counted, anchors, model.steps)
    total = counts.sum((1, 2)) if total is None else total
    losses = [mean_of(divergence(*compared(model, p_target[:, anchors + k], logits)), counts[k],
                      total[k]) for k, (_, logits) in enumerate(found)]
    weights = [model.decay ** k for k in range(model.steps)]
    weighted = torch.stack([weight * loss for weight, loss in zip(weights, losses)])
    of_tokens = weighted.sum() / sum(weights)
    if not model.hidden_loss:
        return of_tokens
    states, wanted = found[0][0], model.last_hidden(hidden[:, anchors])
    off = F.smooth_l1_loss(states.float(), wanted.float(), reduction="none").mean(-1)
    of_states = mean_of(off, counts[0], total[0])
    return model.hidden_loss * of_states + model.token_loss * of_tokens


def compared(model: Learned, p_target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probabilities that a loss compares: of the tokens alone that the model can draft.

    p_target (..., V), or of these tokens already; logits: as `read` and `step` return them.
    """
    if p_target.shape[-1] != logits.shape[-1]:
        p_target = p_target[..., model.ids]
    return p_target, log_probs(logits)


def predicted(counted: Tensor, anchors: Tensor, steps: int) -> Tensor:
    """counted (B, T) -> (steps, B, N) bool: whether the token counts that a step predicts.

    The one after the text's last token does, if that one does.
    """
    counted = torch.cat([counted, counted[:, -1:]], 1)
    return torch.stack([counted[:, anchors + k + 1] for k in range(steps)])


def mean_of(values: Tensor, counted: Tensor, total: Tensor) -> Tensor:
    """The sum of those that count, divided by how many do in all; 0 if none does."""
    return (values * counted).sum() / total.clamp(min=1)
