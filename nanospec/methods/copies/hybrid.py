"""Copy where the text repeats itself, or ask the draft model: what promises more tokens a second.

Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975): in its hybrid a draft model drafts where the
copy's score is below a threshold. Here the two are compared in tokens a second, and both sides
learn from the rounds before.

A copied token costs no draft step, but the target has to verify it. How often is it accepted? That
depends most on how many tokens before it agree with the place that it is copied from:

    ... for i in range(n):  ...  for i in range(        `n` is copied, and the tokens before it
                                                        agree. If it is right, one token more
                                                        agrees for what is copied after it.

So the matches are put into classes: 1, 2, 3-4, 5-8, 9-16 tokens, and more. chance(class) is how
often such tokens were accepted in this request. m copied tokens after a match of n tokens are
expected to bring

    1 + chance(n) + chance(n) chance(n + 1) + ...     (m + 1 terms)

tokens, and cost v(m + 1). The draft model's chain is expected to bring theory.py's expected_tokens,
and costs gamma c + v(gamma + 1). The better m is compared with that.

Claim: the text is lossless.
Proof.
1. Who drafts, and how much, follows from the committed text and from how earlier rounds ended. No
   token of this round was drawn before.
2. A copied token is not drawn: its q_draft is one-hot. What the draft model drafts has a q_draft of
   its own.
3. Both are lossless. So it does not matter which of them was chosen.

Step 1 is needed. Who drafts first and then throws away a chain that the copy contradicts has chosen
by the draw.
With `remember` it copies from earlier requests, too (memory.py), where more tokens agree there.
Left out: trees of copies; both at once, as branches of one tree (Miao et al. 2023, SpecInfer),
which would pay for both in every round.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import check_has
from nanospec.methods.copies.memory import Memory
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.lengths.by_load import ByLoad, nothing_drafted
from nanospec.methods.lengths.stopping import check_calls
from nanospec.methods.trees.tree_draft import padded_tensor
from nanospec.text import Text
from nanospec.theory import acceptance


class Hybrid(Drafter):
    """A copy, as long as it pays, or what `other` drafts: the chain of a draft model.

    v: a call on 2, 3, ... tokens, in the other's unit of seconds; a copy is no longer than v goes.
    remember: how many tokens of earlier requests are kept.
    copied: of every text, how many tokens before the copy agree, and the copy; 0 and none where the
    other drafts.
    acceptance: of copied tokens, by classes of matches; read, as by ByLoad, when the next round
    begins. chances: its shares, as numbers.
    classes, exist (B, m): of this round's copied tokens, and which there are.
    copies (B,): which texts have any.
    since: of texts that have copied since the draft model last read them, how many tokens they had
    then.
    """

    LONGEST, CLASSES = 16, 6                    # how many tokens are compared; classes of matches
    PRIOR = 0.8                                 # PRIOR n / (n + 1) of a match of n, at first

    learns, looks_around, remembers = "length", True, True
    per_row = ("other", "since", "memory")

    def __init__(self, other: ByLoad, v: Mapping[int, float], remember: int = 0):
        check_has("the drafter beside the copies", other, "one that says what it brings",
                  "goodput", "skip")
        self.other, self.v, self.layers = other, check_calls(v), other.layers
        self.most = max(max(v) - 1, other.most)
        self.since: dict[int, int] = {}
        self.memory = Memory(remember)

    def begin(self, text: Text) -> None:
        """A batch begins. What is known of acceptance holds for one."""
        # tokens, the fewest of a class.
        matches = 2.0 ** torch.arange(self.CLASSES, device=text.tokens.device)
        self.acceptance = Acceptance(self.PRIOR * matches / (matches + 1))
        self.since.clear()
        self.other.begin(text)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests."""
        self.other.read(text, rows, hidden)
        for b in rows:
            self.since.pop(b, None)
            self.memory.begin(b)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """A copy or not for each text. If one wants none, the draft model drafts for all."""
        rate, texts = max(self.other.goodput(len(text.tokens))), text.ids()
        self.chances = self.acceptance.share.tolist()           # the device has them by now
        self.memory.read_all(texts, dice, sampling)
        self.copied = [self._copy(b, rate) for b in range(len(texts))]
        classes = [[self._class(n + k) for k in range(len(copy))] for n, copy in self.copied]
        # All that the device has to know of the copies, (B, m) each, before the draft model gives
        # it work.
        tokens, self.classes = padded_tensor(text.tokens.device,
                                             ([copy for _, copy in self.copied], -1), (classes, 0))
        drafted = (nothing_drafted(text) if all(copy for _, copy in self.copied) else
                   self._drafted(texts, text, sampling, dice, kv_length, lag))
        for b, (_, copy) in enumerate(self.copied):
            if copy:
                self.since.setdefault(b, len(texts[b]))
        self.exist = tokens >= 0
        self.copies = self.exist.any(-1)
        return self._either(tokens.clamp(min=0), drafted)

    def _either(self, copied: Tensor, drafted: Draft) -> Draft:
        """Of every text the copied tokens (B, m), or where there are none what was drafted."""
        m, n = copied.shape[1], drafted.tokens.shape[1]
        one_hot = F.one_hot(copied, drafted.q_draft.shape[2]) * self.exist[:, :, None]  # (B, m, V)
        copy = torch.cat([drafted.tokens[:, :1], copied], 1)
        shorter, longer = max(0, n - 1 - m), max(0, m + 1 - n)
        tokens = torch.where(self.copies[:, None], F.pad(copy, (0, shorter)),
                             F.pad(drafted.tokens, (0, longer)))
        # Before what was copied come the zeros of node 0.
        q_draft = torch.where(self.copies[:, None, None],
                              F.pad(one_hot, (0, 0, 1, shorter)).to(drafted.q_draft),
                              F.pad(drafted.q_draft, (0, 0, 0, longer)))
        return Draft(tokens, q_draft, drafted.steps)

    def _drafted(self, texts: list[list[int]], *rest) -> Draft:
        """The draft model first reads what was copied since it last drafted."""
        self.other.skip(max((len(texts[b]) - length
                             for b, length in self.since.items()), default=0))
        self.since.clear()
        return self.other.propose(*rest)

    def _copy(self, b: int, rate: float) -> tuple[int, list[int]]:
        """Of text b: how many tokens before the copy agree, and as many copied tokens as pay best,
        if that is better than `rate`.
        """
        most = max(self.v) - 1
        n, copy = max(self.memory.seen[b].copy(most, self.LONGEST),
                      self.memory.copy(b, self.LONGEST, most), key=lambda found: found[0])
        expected, stands, best = 1.0, 1.0, 0
        for length in range(1, len(copy) + 1):
            i = self._class(n + length - 1)
            stands *= self.chances[i]
            expected += stands
            if expected / self.v[length + 1] > rate:
                rate, best = expected / self.v[length + 1], length
        return (n, copy[:best]) if best else (0, [])

    def _class(self, n: int) -> int:
        """Of a match of n tokens: 1, 2, 3-4, 5-8, 9-16, more."""
        return min((n - 1).bit_length(), self.CLASSES - 1)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Both learn how often their tokens are accepted."""
        of_the_other = Draft(draft.tokens, draft.q_draft * ~self.copies[:, None, None], draft.steps)
        self.other.commit(of_the_other, path, count, p_target, hidden, logits)
        m = self.exist.shape[1]
        betas = acceptance(p_target[:, :m], draft.q_draft[:, 1:m + 1])                      # (B, m)
        # What was accepted, and the first that was rejected.
        judged = (self.exist & (torch.arange(m, device=count.device) <= count[:, None])).to(betas)
        self.acceptance.learn(judged, judged * betas.nan_to_num(), self.classes)
