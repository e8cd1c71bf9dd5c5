"""How often draft tokens are accepted, as the rounds so far show: what several drafters learn.

    share = accepted / judged       of each class of draft tokens, such as those of which the draft
                                    model was as sure; where there is one class, of all

Judged are the draft tokens of a round up to the first that was rejected, and that one too. The
sums stay on the device, and nothing is waited for until a share is read.

With every round what is known weighs less (MEMORY). At first there is no round, so each class
begins as if `trust` of its draft tokens had been judged. How much of that trust is `lasting`
decides what a long silence does. By default next to nothing is: a share that is no longer seen
stays what it was, and only after thousands of rounds, when almost nothing is left of it, goes back
to what it began with. With all of the trust it soon goes back, and what has become silent is tried
again.
Example: begins .5, trust 4, three judged of which one was accepted: 2.96 of 6.92, a share of .43.
"""

import torch
from torch import Tensor

MEMORY = 0.98           # what a round still weighs when the next one is over
SURENESS = 8            # classes of the probability that a draft model gives to a token


class Acceptance:
    """begins (k,): what each of k classes is believed to be at first, a share from 0 to 1.

    judged, accepted (k,): draft tokens, without the lasting ones. share (k,), of each class. All
    are of the dtype and on the device of `begins`.
    """

    def __init__(self, begins: Tensor, trust: float = 4.0, lasting: float = 1e-6):
        self.begins, self.lasting, self.share = begins, lasting, begins
        self.judged = torch.full_like(begins, trust - lasting)
        self.accepted = self.judged * begins

    @property
    def overall(self) -> Tensor:
        """(), of all classes together."""
        lasting = self.lasting * self.begins
        return ((self.accepted + lasting).sum()
                / (self.judged.sum() + self.lasting * len(self.begins)))

    def learn(self, judged: Tensor, accepted: Tensor, classes: Tensor) -> None:
        """A round is over. All three have one shape: of each draft token, or of several of a class
        together, how many were judged, how much of them was accepted, and the class.
        """
        self.judged, self.accepted = (
            (MEMORY * known).index_add(0, classes.flatten(), new.flatten().to(known))
            for known, new in ((self.judged, judged), (self.accepted, accepted)))
        # Now, so that whoever reads it when the next round begins does not wait for the device.
        self.share = (self.accepted + self.lasting * self.begins) / (self.judged + self.lasting)


def by_sureness(device: torch.device | str = "cpu") -> Acceptance:
    """By the probability that the draft model gave: class i of 8 is from i / 8 to (i + 1) / 8.

    Half of what a draft model says of itself is believed at first: (1 + sure) / 2 of its draft
    tokens are accepted.
    """
    sure = (torch.arange(SURENESS, device=device) + 0.5) / SURENESS
    return Acceptance((1 + sure) / 2)


def sureness(sure: Tensor) -> Tensor:
    """Probabilities (...) -> their classes (...), int64; NaN is of the first."""
    return (sure.nan_to_num() * SURENESS).long().clamp(max=SURENESS - 1)
