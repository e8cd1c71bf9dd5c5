"""Two ways to draft, compared without luck: both write the same text, and are accepted and rejected at the same places.

Accept or reject is a coupling. Given that the target has written y, the draft token was y too with probability
min(1, q_draft(y) / p_target(y)); else it was another token, from the residual distribution of q_draft without p_target.
So a text can be written first, and how it was drafted is drawn behind it, place by place, with one uniform for each
place whoever drafts. Draft tokens, accepted tokens and text have the joint distribution that they have in `speculate`,
and two draft lengths differ only by what they cost.

Left out: trees, and rules that do not judge token by token; there a place has more than one coin.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.generate import generate
from nanospec.methods import Method
from nanospec.model import GPT
from nanospec.probs import probs, residual
from nanospec.speculate import Round


class Script(Dice):
    """Dice for a drafter of whose draft tokens it is known what becomes of them, and that tell the rule.

    text: the new tokens; p_target (N, V): the distribution that each was drawn from.
    """

    def __init__(self, text: Sequence[int], p_target: Tensor, seed: int):
        super().__init__([seed], p_target.device)
        self.text, self.p_target, self.at = text, p_target.to(self.dtype), 0
        super().refill(len(text))
        self.coins = self._take(len(text))[0].tolist()                      # of every place, whoever drafts there

    def refill(self, columns: int) -> None:
        """A round begins behind the first `at` tokens of the text."""
        super().refill(columns)
        self.accepted, self.on_script = 0, True

    def stands(self, place: int, probability: float) -> bool:
        """Whether the draft token at this place of the text was the text's own."""
        return self.coins[place] < probability

    def pick(self, weights: Tensor) -> Tensor:
        """The next draft token, from its distribution `weights` (1, V)."""
        place = self.at + self.accepted
        if not self.on_script or place >= len(self.text) - 1:               # behind a rejected token, or the text's end
            self.on_script = False
            return super().pick(weights)
        y, p_target, q_draft = self.text[place], self.p_target[place], weights[0].to(self.p_target)
        if self.stands(place, (q_draft[y] / p_target[y]).item()):
            self.accepted += 1
            return torch.tensor([y], device=weights.device)
        self.on_script = False
        return super().pick(residual(q_draft, p_target)[None])


def scripted(draft: Draft, p_target: Tensor, dice: Script) -> tuple[Tensor, Tensor]:
    """In place of `verify`: how many of the draft tokens are the text's, and the token behind them."""
    dice.at += dice.accepted + 1
    return (torch.tensor([dice.accepted], device=p_target.device),
            torch.tensor([dice.text[dice.at - 1]], device=p_target.device))


@torch.inference_mode()
def drawn_from(target: GPT, ids: Sequence[int], text: Sequence[int], **sampling) -> Tensor:
    """(N, V): the target's distribution of each of the N tokens that it has written behind `ids`."""
    return probs(target(torch.tensor([[*ids, *text]], device=target.device))[0, len(ids) - 1:-1], **sampling)


def replay(target: GPT, ids: Sequence[int], methods: Sequence[Method], new: int = 128, seed: int = 0,
           **sampling) -> list[list[Round]]:
    """The rounds in which each method writes what `generate` writes behind `ids` with that seed."""
    text = list(generate(target, ids, new, seed=seed, **sampling))
    p_target = drawn_from(target, ids, text, **sampling)
    return [list(method.run(ids, max_new_tokens=new, dice=Script(text, p_target, seed), rule=scripted, **sampling))
            for method in methods]
