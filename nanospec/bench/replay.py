"""Two ways to guess, compared without luck: both write the same text, and guesses stand or fall at the same places.

Given the text, keep or replace is a coupling: its token y was a guess of the draft with probability
min(1, q_draft(y) / p_target(y)); else the guess was another token, from max(0, q_draft - p_target). So a text can be
written first, and then how it was guessed is drawn behind it, place by place, with one uniform for each place whoever
guesses. Everything has the law that it has in `speculate`, and two lengths of a draft differ only by what they cost.

Left out: trees, and rules that do not judge guess by guess; there a place has more than one coin.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.methods import Method
from nanospec.model import GPT
from nanospec.probs import probs
from nanospec.speculate import Round


class Script(Dice):
    """Dice for a draft of which it is known what becomes of it, and that say so when the rule is asked.

    text: the new tokens; p_target (N, V): the law that each was drawn from.
    """

    def __init__(self, text: Sequence[int], p_target: Tensor, seed: int):
        super().__init__([seed], p_target.device)
        self.text, self.p_target, self.at = text, p_target.to(self.dtype), 0
        super().refill(len(text))
        self.coins = self._take(len(text))[0].tolist()                      # of every place, whoever guesses there

    def refill(self, columns: int) -> None:
        """A round begins behind the first `at` tokens of the text."""
        super().refill(columns)
        self.kept, self.on_script = 0, True

    def pick(self, weights: Tensor) -> Tensor:
        """The draft's next guess, from its law `weights` (1, V)."""
        place = self.at + self.kept
        if not self.on_script or place >= len(self.text) - 1:               # behind a wrong guess, or behind the text
            self.on_script = False
            return super().pick(weights)
        y, p_target, q_draft = self.text[place], self.p_target[place], weights[0].to(self.p_target)
        if self.coins[place] * p_target[y] < q_draft[y]:
            self.kept += 1
            return torch.tensor([y], device=weights.device)
        self.on_script = False
        return super().pick((q_draft - p_target).clamp(min=0)[None])

    def decide(self) -> tuple[int, int]:
        """How many of the guesses stand, and the token behind them."""
        self.at += self.kept + 1
        return self.kept, self.text[self.at - 1]


def scripted(drafted: Tensor, q_draft: Tensor, p_target: Tensor, dice: Script) -> tuple[Tensor, Tensor]:
    """In place of `verify`."""
    kept, token = dice.decide()
    return torch.tensor([kept], device=drafted.device), torch.tensor([token], device=drafted.device)


@torch.inference_mode()
def replay(target: GPT, ids: Sequence[int], methods: Sequence[Method], new: int = 128, seed: int = 0,
           **law) -> list[list[Round]]:
    """The rounds in which each method writes what `generate` writes behind `ids` with that seed."""
    text = list(generate(target, ids, new, seed=seed, **law))
    p_target = probs(target(torch.tensor([[*ids, *text]], device=target.device))[0, len(ids) - 1:-1], **law)
    return [list(method.run(ids, max_new_tokens=new, dice=Script(text, p_target, seed),
                            rule=scripted, **law)) for method in methods]
