"""The idea: one round of speculative decoding, for one text, without a cache.

A model is a function here, from a text to the distribution after each of its tokens, (T, V). `dice`
makes the random decisions: `pick` draws a token in proportion to weights, and `flip` flips a coin.
The tests walk this function, and measure `verify` of speculate.py by it, which does the same for B
texts at once (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1).

Left out: a cache, batches, and what to do where the text ends.
"""


def speculative_round(target, draft_model, text, gamma, dice):
    draft, q_draft = [], []
    for _ in range(gamma):                                  # the draft model drafts gamma tokens
        q_draft.append(draft_model(text + draft)[-1])
        draft.append(dice.pick(q_draft[-1]))
    p_target = target(text + draft)[-gamma - 1:]            # ONE call of the target checks them all
    for x, p, q in zip(draft, p_target, q_draft):
        if not dice.flip(p[x] / q[x]):                      # kept with probability min(1, p/q)
            return text + [dice.pick((p - q).clamp(min=0))]     # rejected: from what q leaves of p
        text = text + [x]
    return text + [dice.pick(p_target[-1])]                 # all kept: one token more, a bonus
