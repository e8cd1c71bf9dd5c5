"""Exercise 18: one ahead: each token goes with the hidden state of the token before it.

difficulty 2 of 5, about 15 minutes, about 7 lines; after the lesson *Drafting hidden states*
check: python -m lessons.check 18
"""


def propose(layer, tokens, hidden, gamma):
    """Draft gamma tokens with EAGLE's draft layer.

    tokens: the text x_0 ... x_n, a list of ints, two or more.  hidden: h_0 ... h_(n-1), a list. h_i is the hidden state
    that the target has made of the text up to x_i. Here it is a number. The target has not read x_n: there is no h_n.

    h_2 says what may come after x_2, and not which token was drawn there. So the layer reads pairs: each token with the
    hidden state of the token before it. x_0 has none before it, and is left out.
    layer(pairs) takes all pairs in order, a list of (hidden state, token). It returns two things: the hidden state that
    it predicts for the last token in the list, and a draft token for the next place. This draft token must then be read
    in its turn, with the hidden state before it. Call the layer once for each draft token.
    Returns the draft tokens, a list.

    Worked: tokens [5, 7, 2], hidden [40, 41], gamma 2. The layer reads [(40, 7), (41, 2)] and returns (42, 6): 42 is
    predicted for token 2, and 6 is drafted. Then it reads [(40, 7), (41, 2), (42, 6)] and returns (43, 9). The draft is
    [6, 9].

    What is checked: the layer knows the target by heart. If it reads the right pairs, all its draft tokens are
    accepted. Each wrong or missing pair puts it off. The distribution of the text is right in any case.
    """
    pairs, drafted = list(zip(hidden, tokens[1:])), []
    for _ in range(gamma):
        predicted, token = layer(pairs)
        pairs.append((predicted, token))
        drafted.append(token)
    return drafted


def keep(hidden, predicted, verified, accepted):
    """The hidden states of the text after a round: what propose is given in the next one.

    hidden: h_0 ... h_(n-1), as before the round.  predicted: what the layer predicted in it: gamma numbers, for x_n
    and for all draft tokens but the last.  verified: what the target's call gave: gamma + 1 numbers, for x_n and for
    all draft tokens.  accepted: how many draft tokens were accepted. One more new token comes after them, a
    replacement or a bonus token. The target has not read it yet.
    Returns the target's hidden states of every token of the new text but its last, a list.

    Worked: hidden [40, 41], predicted [42, 43], verified [45, 46, 47], accepted 1: two tokens are new, an accepted one
    and a replacement. Kept are [40, 41, 45, 46].
    """
    return hidden + verified[:accepted + 1]
