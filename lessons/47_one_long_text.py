# %% [markdown]
# # One long text
#
# **Can a single long text show that its sampler is wrong?**
#
# In *How to test a sampler* we counted short texts. A long text never occurs twice, so there is
# nothing to count. But its tokens can be judged one by one, and together they make a sharp test. It
# needs p_target at every place and nothing else, so it can also be run on texts that another
# program has written.

# %%
from collections import Counter

import torch

import figures
from kit import table
from nanospec.proof.stats import goodness_of_fit, pit
from nanospec.proof.tables import TableModel

torch.set_num_threads(1)                            # tables this small gain nothing from more
chance = torch.Generator().manual_seed(2)

# %% [markdown]
# ## From the token back to u
#
# `pick` turned a uniform number u into a token: the token whose piece of the line is hit. Now we go
# the other way. Take the token, and choose a random point of its piece.
#
# A worked number: p_target is [.2, .5, .3], and token 1 was drawn. Its piece goes from .2 to .7. A
# random number decides where in the piece the point lies: .4 of the way gives .2 + .4 x .5 = .4.
#
# If the target drew the token, this point is uniform on 0 to 1, like the u that drew it. That holds
# for every p_target, so points from different places may be counted together. Statisticians call
# this the *probability integral transform*, or PIT.
#
# *Guess first:* tokens are drawn from [.4, .4, .2] but judged by [.2, .5, .3]. Which of ten bins on
# 0 to 1 get too many?

# %%
def back_to_u(p_target, token, inside):
    """[.2, .5, .3], token 1 and .4 give .4: all pieces below, and .4 of its own piece."""
    return float(p_target[:token].sum() + inside * p_target[token])


p_target = torch.tensor([.2, .5, .3])
assert abs(back_to_u(p_target, 1, 0.4) - 0.4) < 1e-6
shares = {}
for what, drawn_from in ("[.2, .5, .3]", p_target), ("[.4, .4, .2]", torch.tensor([.4, .4, .2])):
    tokens = torch.multinomial(drawn_from, 10_000, replacement=True, generator=chance).tolist()
    parts = torch.rand(10_000, generator=chance).tolist()
    numbers = [back_to_u(p_target, token, inside) for token, inside in zip(tokens, parts)]
    shares[what] = torch.histc(torch.tensor(numbers), 10, 0, 1) / 10_000
table(["drawn from", *(f"{i / 10:.1f}-" for i in range(10))],
      [[what, *(f"{share:.2f}" for share in share_of)] for what, share_of in shares.items()],
      "share of 10,000 numbers in each tenth, all judged by [.2, .5, .3]; 0.10 is right")

# %% [markdown]
# *Answer:* the first two. In the second row, token 0 has the piece from 0 to .2 but comes with
# probability .4, so the first two bins share .4.
#
# ## The order decides what is seen
#
# Now we take 3,000 places of a text over 64 tokens, each with a p_target of its own. The tokens
# come from a planted bug: the replacement is drawn from p_target instead of the residual
# distribution. The next cell computes the distribution that this bug produces at each place, and
# also draws tokens as they should be.

# %%
at_target, at_draft = TableModel(64, seed=1), TableModel(64, seed=2)
places = 3_000
p_target = at_target.logits[:places].softmax(-1)                # (3000, 64)
q_draft = at_draft.logits[:places].softmax(-1)
accepted = p_target.minimum(q_draft)                            # drawn by the draft, and accepted
rejected = 1 - accepted.sum(-1, keepdim=True)
wrong = accepted + rejected * p_target                          # WRONG: the residual belongs here

inside = torch.rand(places, generator=chance)
drawn = {"correct": torch.multinomial(p_target, 1, generator=chance)[:, 0],
         "residual-is-target": torch.multinomial(wrong, 1, generator=chance)[:, 0]}

# %% [markdown]
# Which tokens does the bug write too often? Those that the draft likes more than the target does.
# In the order of the token ids they are scattered over the whole line, and each bin gains a little
# and loses a little. If we first sort the tokens by q_draft - p_target, they all lie at the upper
# end. The library's `pit` takes this order as a *score* for each token.
#
# *Guess first:* which of the three p-values below is tiny?

# %%
ids = torch.arange(64).expand(places, 64)
gap = q_draft - p_target
bins, p_of_order = {}, {}
print()
for which, order, score in [("correct", "q_draft - p_target", gap),
                            ("residual-is-target", "token ids", ids),
                            ("residual-is-target", "q_draft - p_target", gap)]:
    numbers = pit(drawn[which], p_target, score, inside)        # (3000,)
    counts = Counter((16 * numbers).long().tolist())
    p_of_order[which, order] = goodness_of_fit(counts, dict.fromkeys(range(16), 1 / 16)).p_value
    bins[which, order] = [counts[i] for i in range(16)]
    print(f"{places:,} tokens, {which + ',':19} in the order of {order + ':':19} "
          f"p = {p_of_order[which, order]:.1g}")
    if order == "token ids":            # the library's function is ours
        for i in range(100):
            mine = back_to_u(p_target[i], drawn[which][i], inside[i])
            assert abs(mine - numbers[i]) < 1e-5

figures.from_token_to_u(bins, places)

# %% [markdown]
# *Answer:* the third, where the bug is there and the order is the one that shows it.
#
# ## Three things to know
#
# 1. A drawn token can be turned back into a number that is uniform if the sampler is right.
# 2. This works with a different distribution at every place, so one long text is enough.
# 3. The order of the tokens decides which bugs can be seen, so sort by what the bug favours.
#
# ## Change this and run again
#
# 1. Write `places = 300`, then 100. Is the bug still found?
# 2. In the first entry of the list, write `p_target` in place of `gap`. What should a correct
#    sampler show, in whatever order?
# 3. Judge all tokens by `wrong`: write it in place of `p_target` in the calls of `pit` and
#    `back_to_u` in the last cell. Which of the three rows is accused now?
#
# The answers are in the file of the same name in `lessons/answers/`.
#
# *Next:* *Where it loses* asks when speculation is slower than plain decoding.
