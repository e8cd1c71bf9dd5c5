"""Exercise 22: one seed, one text: target and draft model draw with the same noise, and the target's draw is written.

difficulty 2 of 5, about 20 minutes, about 9 lines; after the lesson *How close a rule can come*
check: python -m lessons.check 22
"""

import torch


def propose(text, draft_model, gamma, noise):
    """gamma draft tokens, a list of ints, each drawn from the draft model's distribution with the noise of its place.

    text: list of ints. Its first token stands at place 0, so the next one will stand at place len(text).
    draft_model(tokens) -> (V,) float64 tensor: the distribution of the token after these, a list of ints.
    noise(place) -> (V,) float64 tensor: the noise of that place of the text, the same whenever it is asked for.
    A token is drawn from p (V,) with the noise g (V,) as the argmax of log p + g.

    Worked: text [0], the noise of places 1 to 3 is [.5, 0], [0, .5], [0, .1], and q_draft is [.8, .2] everywhere. With
    gamma 2, the draft tokens are [0, 0].
    """
    raise NotImplementedError


def judge(text, drafted, p_target, noise):
    """The tokens that the round writes, a list of ints: what the target alone would write with this noise.

    drafted: gamma tokens, for the places after the text.  p_target: (gamma + 1, V) float64 tensor, the target's
    distribution at the place of each draft token and one further.  text, noise: as above.
    A draft token is accepted if it is the one that the target draws at its place with the noise of that place. The
    round ends with the target's first token that is another one, or with the bonus token.

    Worked: with the noise from above and p_target [.5, .5] everywhere the target draws 0, 1, 1. Of the draft [0, 0] the
    first token is accepted, and the round writes [0, 1]. Of [0, 1] both are, and it writes [0, 1, 1].
    """
    raise NotImplementedError
