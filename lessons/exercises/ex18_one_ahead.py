"""Exercise 18: one ahead: each token goes with the hidden state of the token before it.

difficulty 2 of 5, about 15 minutes, about 7 lines; after the lesson *Drafting hidden states*
check: python -m lessons.check 18
"""

import torch


def propose(layer, tokens, hidden, gamma):
    """Draft gamma tokens with EAGLE's draft layer.

    tokens: the text x_0 ... x_n, a list of two or more ints.  hidden: h_0 ... h_(n-1), a list. h_i is the hidden state
    that the target has computed for the text up to x_i, here a number. The target has not read x_n, so there is no h_n.

    h_2 tells what may come after x_2, but not which token was drawn there. So the layer reads pairs: each token with
    the hidden state of the token before it. x_0 has no hidden state before it and is left out.
    layer(pairs) takes all pairs in order, a list of (hidden state, token). It returns the hidden state that it predicts
    for the last token in the list, and a draft token for the next place. That draft token must then be read as well,
    with the hidden state before it. Call the layer once for each draft token.
    Returns the draft tokens, a list.

    Worked: tokens [5, 7, 2], hidden [40, 41], gamma 2. The layer reads [(40, 7), (41, 2)] and returns (42, 6): 42 is
    predicted for token 2, and 6 is drafted. Then it reads [(40, 7), (41, 2), (42, 6)] and returns (43, 9). The draft is
    [6, 9].

    What is checked: the layer knows the target perfectly. If it reads the right pairs, all its draft tokens are
    accepted, and each wrong or missing pair misleads it. The distribution of the text is right in any case.
    """
    raise NotImplementedError


def keep(hidden, predicted, verified, accepted):
    """The hidden states of the text after a round, which propose gets in the next one.

    hidden: h_0 ... h_(n-1), as before the round.  predicted: the layer's predictions in the round, gamma numbers, for
    x_n and for all draft tokens but the last.  verified: the result of the target's call, gamma + 1 numbers, for x_n
    and for all draft tokens.  accepted: how many draft tokens were accepted. One more new token comes after them, a
    replacement or a bonus token, which the target has not read yet.
    Returns the target's hidden states of every token of the new text but its last, a list.

    Worked: hidden [40, 41], predicted [42, 43], verified [45, 46, 47], accepted 1: two tokens are new, an accepted one
    and a replacement. The result is [40, 41, 45, 46].
    """
    raise NotImplementedError
