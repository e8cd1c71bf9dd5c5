"""What people do wrong in exercise 8: temperature and top-k in parts, each of them changed."""

from functools import partial

import torch

from lessons.check.engine import wrong
from nanospec.probs import probs

EPSILON = ("you divide by a little number where the temperature is 0: logits that nearly tie then share the "
           "probability, and other temperatures may be off; temperature 0 needs an answer of its own, a one-hot")
TINY = [10.0 ** -n for n in range(2, 13)]


def warped(logits, temperature, top_k, warm=lambda x, t: x / t, kept=lambda k: k, last=lambda x: x.softmax(-1),
           zero=lambda x, k: probs(x, 0)):
    if temperature == 0 and zero:
        return zero(logits, top_k)
    logits = warm(logits, temperature)
    if top_k is not None and kept(top_k) < len(logits):
        logits = logits.masked_fill(logits < logits.topk(kept(top_k)).values[-1], float("-inf"))
    return last(logits)


def not_renormalised(logits, temperature, top_k):
    plain = warped(logits, temperature, None)
    return plain * (warped(logits, temperature, top_k) > 0)


def zero_logits(logits, temperature, top_k, zeros):
    if temperature and top_k is not None and top_k < len(logits):
        logits = zeros(logits, logits.topk(top_k))
    return warped(logits, temperature, None)


def masked(logits, temperature, top_k, mask, first=False):
    """A number in place of -inf; before the division, or after it."""
    if temperature == 0:
        return probs(logits, 0)
    scale = (1, temperature) if first else (temperature, 1)
    logits = logits / scale[0]
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], mask)
    return (logits / scale[1]).softmax(-1)


def warped_uniformly(warped, logits, temperature, top_k):
    if temperature == 0 or top_k is None:
        return warped(logits, temperature, None)
    return torch.zeros_like(logits).index_fill(0, logits.topk(min(top_k, len(logits))).indices, 1).div(
        min(top_k, len(logits)))


def ties(logits, top_k=None):
    return (logits == logits.max()).double()


WRONGS = [
    wrong("temperature-multiplied", "you multiply by the temperature; a low one must make the distribution sharper: "
          "divide",
          distribution=partial(warped, warm=lambda x, t: x * t)),
    wrong("temperature-forgotten", "the temperature changes nothing: it must divide the logits before the softmax",
          distribution=partial(warped, warm=lambda x, t: x)),
    wrong("top-k-forgotten", "top_k changes nothing", distribution=partial(warped, kept=lambda k: 99)),
    wrong("top-k-one-more", "you keep one token too many", distribution=partial(warped, kept=lambda k: k + 1)),
    wrong("top-k-not-renormalised", "what is left after top-k must add up to 1 again", distribution=not_renormalised),
    *(wrong("epsilon-in-the-temperature", EPSILON, distribution=partial(
        warped, warm=lambda x, t, epsilon=epsilon: x / (t + epsilon), zero=None)) for epsilon in TINY[:-1]),
    *(wrong("epsilon-in-the-temperature", EPSILON, distribution=partial(
        warped, warm=lambda x, t, epsilon=epsilon: x / max(t, epsilon), zero=None)) for epsilon in TINY),
    *(wrong("masked-with-zero", "you set the other logits to 0; a logit of 0 is no small one: -inf is",
            distribution=partial(zero_logits, zeros=zeros)) for zeros in (
          lambda x, top: x.where(x >= top.values[-1], 0.0), lambda x, top: x * (x >= top.values[-1]),
          lambda x, top: torch.zeros_like(x).scatter(0, top.indices, top.values))),
    *(wrong("ties-shared", "at temperature 0, tokens that tie for the greatest logit all get something: one of them "
            "gets all", distribution=partial(warped, zero=zero)) for zero in (
          ties, lambda x, k: ties(x) / ties(x).sum())),
    wrong("top-k-one-less", "you keep one token too few: the k-th greatest is among the k most likely",
          distribution=partial(warped, kept=lambda k: k - 1 or k)),
    wrong("top-k-one-less", "you leave out the k-th greatest logit: mask what is below it, not what is equal to it",
          distribution=lambda x, t, k: warped(x.masked_fill(
              x <= x.topk(k).values[-1], float("-inf")) if k and k < len(x) and t else x, t, None)),
    wrong("top-k-least-likely", "you count from the smallest logit: the k greatest are kept",
          distribution=lambda x, t, k: warped(x.masked_fill(
              x < x.sort().values[k], float("-inf")) if k and k < len(x) and t else x, t, None)),
    wrong("top-k-beyond-the-vocabulary", "there may be fewer than top_k tokens, and then all are kept",
          distribution=lambda x, t, k: warped(x, t, k) if not k or not t else warped(x, t, len(x.topk(k).values))),
    wrong("logarithms", "you return logarithms of the probabilities: softmax, not log_softmax",
          distribution=partial(warped, last=lambda x: x.log_softmax(-1))),
    wrong("zero-temperature-nan", "at temperature 0 you divide by 0: make it a one-hot at the greatest logit",
          distribution=lambda x, t, k: warped(x / t, 1, k) if t else (x / torch.tensor(0.0)).softmax(-1)),
    wrong("zero-temperature-is-one", "at temperature 0 you leave the distribution as it is: it must be a one-hot",
          distribution=lambda x, t, k: warped(x, t or 1, k)),
    wrong("softmax-twice", "you softmax what is a distribution already: that flattens it",
          distribution=partial(warped, last=lambda x: x.softmax(-1).softmax(-1))),
    wrong("temperature-twice", "you divide by the temperature twice", distribution=partial(
        warped, warm=lambda x, t: x / t / t)),
    *(wrong("temperature-cut", f"you cut the temperature off at {bound:g}: it divides whatever it is, and only 0 "
            "is apart", distribution=partial(warped, warm=lambda x, t, cut=cut, bound=bound: x / cut(t, bound)))
      for cut, bounds in ((max, (1e-3, .01, .05, .1, .2, .3, .5, 1.)), (min, (1., 1.5, 2., 5., 10.)))
      for bound in bounds),
    *(wrong("cold-is-not-zero", "you take a low temperature for 0: it makes the distribution sharp, and still no "
            "one-hot",
            distribution=lambda x, t, k, bound=bound: warped(x, t if t >= bound else 0, k))
      for bound in (*(10.0 ** -n for n in range(2, 10)), .03, .05, .07, .1, .27, .45, .5)),
    *(wrong("masked-with-a-number", "you set the other logits to a number: where the others are as low it hides "
            "nothing; "
            "-inf does", distribution=distribution)
      for mask in (-10., -20., -30., -50., -100., -1e3, -1e4, -1e5, -1e6, -1e8, -1e9)
      for distribution in (partial(masked, mask=mask), partial(masked, mask=mask, first=True))),
    wrong("exp-overflows", "you take exp of the logits without taking their maximum away first: with great ones it is "
          "inf / inf, with low ones 0 / 0", distribution=partial(warped, last=lambda x: x.exp() / x.exp().sum())),
    wrong("uniform-over-the-kept", "you give the k tokens that are kept the same share each: they keep their logits",
          distribution=partial(warped_uniformly, warped)),
    wrong("top-k-least-likely", "you keep the k least likely tokens: the k greatest logits are kept",
          distribution=lambda x, t, k: warped(x.masked_fill(x > x.sort().values[k - 1], float("-inf"))
                                              if k and k < len(x) and t else x, t, None)),
    *(wrong("float32", "you compute in float32, which has seven digits: keep the float64 that you are given",
            distribution=lambda x, t, k, at_0=at_0: warped(x.float() if t or at_0 else x, t, k))
      for at_0 in (True, False))]
