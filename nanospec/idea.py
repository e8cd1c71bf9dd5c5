"""The idea: one round of speculative decoding, for one text, without a cache.

This is Algorithm 1 of Leviathan et al. (2023, arXiv 2211.17192). A model is a function here, from a
text to the distribution after each of its tokens: (T, V), for T tokens and a vocabulary of V.
`dice.pick(w)` draws token i with probability w[i] / sum(w), and `dice.flip(a)` is true with
probability min(1, a). `verify` in speculate.py decides for a batch; the tests compare the two.

Left out: the end of the text.
"""


def speculative_round(target, draft_model, text, gamma, dice):
    draft, q_draft = [], []
    for _ in range(gamma):                                  # the draft model drafts gamma tokens
        q_draft.append(draft_model(text + draft)[-1])
        draft.append(dice.pick(q_draft[-1]))
    p_target = target(text + draft)[-gamma - 1:]            # ONE call of the target checks them all
    for x, p, q in zip(draft, p_target, q_draft):
        if not dice.flip(p[x] / q[x]):                      # kept with probability min(1, p/q)
            return text + [dice.pick((p - q).clamp(min=0))]     # rejected: draw from max(0, p - q)
        text = text + [x]
    return text + [dice.pick(p_target[-1])]                 # all kept: one token more, a bonus
