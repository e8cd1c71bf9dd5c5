"""Two draft layers for a learner's drafter to call: one knows the target by heart, one has settled answers."""

from functools import lru_cache
from itertools import zip_longest

import torch

from lessons.check import seeds
from lessons.check.seen import Failure
from nanospec.probs import probs

TARGET = seeds.table(2, 8, zeros=0)      # two tokens are enough: every text has a distribution of its own


@lru_cache(maxsize=None)
def hidden_of(text: tuple[int, ...]) -> tuple[int, ...]:
    """The target's hidden states of every token: here, the number of its context."""
    _, hidden = TARGET(torch.tensor([text]), layers=(0,))
    return tuple(int(number) for number in hidden[0, :, 0, 0])


class Layer:
    """A draft layer that predicts the target's hidden states. Every pair that is wrong or missing puts it off.

    off: so far it is off in any case.
    """

    def __init__(self, text: tuple[int, ...], off: int, dice):
        self.text, self.off, self.dice = text, off, dice
        self.right = list(zip(hidden_of(text), text[1:]))             # the pairs to be read
        self.predicted, self.drafted, self.q_draft = [], [], []

    def __call__(self, pairs):
        off = self.off + sum(pair != right for pair, right in zip_longest(pairs_in(pairs), self.right))
        predicted = (hidden_of((*self.text, *self.drafted))[-1] + off) % TARGET.CONTEXTS
        q_draft = probs(TARGET.logits[predicted])
        token = self.dice.pick(q_draft)
        self.right.append((predicted, token))
        self.predicted.append(predicted)
        self.drafted.append(token)
        self.q_draft.append(q_draft)
        return predicted, token


class Scripted:
    """A layer of settled answers, which remembers what it was handed."""

    def __init__(self, answers=((42, 6), (43, 9))):
        self.answers, self.reads, self.drafted = answers, [], []

    def __call__(self, pairs):
        hidden, token = self.answers[len(self.reads) % len(self.answers)]
        self.reads.append(pairs_in(pairs))
        self.drafted.append(token)
        return hidden, token


def pairs_in(pairs) -> list[tuple[int, int]]:
    try:
        return [(int(hidden), int(token)) for hidden, token in pairs]
    except (TypeError, ValueError):
        raise Failure(f"layer takes a list of pairs (hidden state, token), got {pairs!r:.80}") from None
