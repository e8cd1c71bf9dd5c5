# %% [markdown]
# # 8. Report what you sample
#
# **Hardly anyone samples from the model's own law: it is cooled, cut, or made greedy first. What becomes of the rule?**
#
# Nothing. It needs two laws and does not ask where they come from. *Temperature* T divides the logits: below 1 the
# likely grows likelier, above 1 the law flattens. *Top-k* keeps the k likeliest tokens, *top-p* the fewest that hold
# the share p. One function does it all, and it is the one place to ask, for either model: `probs` in nanospec/probs.py.

# %%
import inspect
from collections import defaultdict

import torch

import kit
from kit import AMBER, BLUE, GREEN, OneRow, bars, picture, save, table
from nanospec import ModelDrafter, load_pair
from nanospec.generate import generate
from nanospec.probs import Sampling, probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import acceptance

torch.set_num_threads(1)                        # tiny calls again, as in lesson 7
for settings in ({}, {"temperature": 0.5}, {"temperature": 2}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0}):
    law = probs(torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), **settings)
    print(f"{str(settings or 'as it is'):20}", *(f"{share:.2f}" for share in law.tolist()))

# %% [markdown]
# *Greedy is T = 0, and that is no division.* Ever lower temperatures put everything on the best token: a *one-hot*
# law, 1 there and 0 elsewhere. `probs` writes it down as it is. Dividing by a tiny number instead, as many do, fails in
# three ways: `exp` of a huge number is infinite, and infinity / infinity is nan; float16 ends at 65,504; bfloat16 has 8
# bits of precision, so now and then two tokens share the first place, and what was meant to be greedy is a coin.

# %%
target, draft, tokenizer = load_pair()
ids = tokenizer.encode(inspect.getsource(kit))[:500]                     # a text neither model has seen
with torch.inference_mode():
    of_target, of_draft = target(torch.tensor([ids]))[0], draft(torch.tensor([ids]))[0]             # logits (500, V)
for name, way in {
        "float32, exp(x / 1e-10) / sum": lambda x: (x / 1e-10).exp() / (x / 1e-10).exp().sum(-1, keepdim=True),
        "float16, softmax(x / 1e-10)": lambda x: (x.half() / 1e-10).softmax(-1),
        "bfloat16, softmax(x / 1e-10)": lambda x: (x.bfloat16() / 1e-10).softmax(-1),
        "bfloat16, probs(x, 0)": lambda x: probs(x.bfloat16(), temperature=0)}.items():
    law = way(of_target)
    nan, best = law.isnan().any(-1).sum(), law.amax(-1)
    print(f"{name:30} of {len(law)} laws {nan:3} are nan, {(best < 1).sum():3} are torn between two tokens")


# %% [markdown]
# With one-hot laws lesson 7's round needs no special case. The draft guesses its best token; the ratio is 1 if that is
# the target's best as well, otherwise 0; and all that is left for the residual is the target's best. The text is the
# greedy one, token for token (in float64: with fewer digits, a pass over five tokens rounds unlike a pass over one).

# %%
def round_by_hand(target, draft, ids, gamma, dice, asked, drawn, told):
    """NEW: logits to the target's law, to the law of the guesses, to the law the rule is told -> (4, 5)."""
    guesses, q_draft = [], []
    for _ in range(gamma):
        logits = draft(torch.tensor([ids + guesses]))[0, -1]
        guesses.append(dice.pick(drawn(logits)))                                # NEW
        q_draft.append(told(logits))                                            # NEW
    p_target = asked(target(torch.tensor([ids + guesses]))[0, -gamma - 1:])     # NEW
    for i, x in enumerate(guesses):
        if not dice.flip(p_target[i, x] / q_draft[i][x]):
            return (*guesses[:i], dice.pick((p_target[i] - q_draft[i]).clamp(min=0)))
    return (*guesses, dice.pick(p_target[gamma]))


def write(target, draft, ids, gamma, new, dice, *ways):
    """Rounds until there are `new` tokens or more, as in lesson 7: ((4, 5), (0,)) is two target calls."""
    rounds, text = [], list(ids)
    while len(text) < len(ids) + new:
        rounds.append(round_by_hand(target, draft, text, gamma, dice, *ways))
        text += rounds[-1]
    return tuple(rounds)


wide_target, wide_draft, _ = load_pair(dtype=torch.float64)
prompt, greedy = tokenizer.encode("def area(radius):\n"), Sampling(temperature=0)
plain = list(generate(wide_target, prompt, 32, temperature=0))
rounds = list(speculate(wide_target, ModelDrafter(wide_draft, 4), prompt, 32, temperature=0))
by_hand = write(wide_target, wide_draft, prompt, 4, 32, OneRow(), greedy, greedy, greedy)
assert plain == tokens_of(rounds) == list(sum(by_hand, ()))[:32]
assert all(done.token == done.p_target[len(done.path)].argmax() for done in rounds)
print(f"\n32 greedy tokens, the same from generate, speculate and by hand: {tokenizer.decode(plain)!r}")

# %% [markdown]
# *Four ways to warp.* We want temperature 0.7 and top-k 2. The rule believes what it is *told*: whether a guess was
# *drawn* from that law, and whether the target's is the one we *asked* for, is our business. Tables over 4 tokens, each
# path to three of them. The second way and the third have shipped (nanospec/proof/zoo says where); the third is
# lossless, for a law nobody asked for. The fourth is right, and as a rule slower. How much so on the pair that ships?
# There alpha, the chance that a guess is kept, is averaged over all places of the text above.

# %%
warped = Sampling(temperature=0.7, top_k=2)
big, small = TableModel(4, seed=33, zeros=0.5), TableModel(4, seed=83, zeros=0.5)
small.logits = (big.logits.softmax(-1) + small.logits.softmax(-1)).log()            # a draft that has learnt half of it
asked, raw = target_distribution(big, [1], 3, temperature=0.7, top_k=2), target_distribution(big, [1], 3)
rows = []
for name, *ways in [("all warped", warped, warped, warped), ("draft drawn warped, told raw", warped, warped, probs),
                    ("target left raw", probs, warped, warped), ("draft left raw, told so", warped, probs, probs)]:
    law, written, calls = defaultdict(float), 0, 0
    for rounds, probability in walk(lambda dice: write(big, small, [1], 1, 3, OneRow(dice), *ways))[0].items():
        law[sum(rounds, ())[:3]] += probability
        written, calls = written + probability * len(sum(rounds, ())), calls + probability * len(rounds)
    off = [distance(law, wanted)[1] for wanted in (asked, raw)]
    rows.append([name, f"{written / calls:.2f}", *("< 1e-12" if d < 1e-12 else f"{d:.3f}" for d in off)])
shipped = walk(lambda dice: tuple(tokens_of(speculate(big, ModelDrafter(small, 1), [1], 3, 0.7, 2, dice=dice))))[0]
assert distance(shipped, asked)[1] < 1e-12
temperatures = [0, 0.25, 0.5, 0.8, 1, 1.5, 2]
both = [acceptance(probs(of_target, T), probs(of_draft, T)).mean().item() for T in temperatures]
only = [acceptance(probs(of_target, T), probs(of_draft)).mean().item() for T in temperatures]
for what, numbers in ("temperature", temperatures), ("alpha, both warped", both), ("alpha, draft at 1", only):
    print(f"{what:18}", *(f"{number:5.2f}" for number in numbers))
table(["what is warped", "tokens per target call", "off from what was asked", "off from the raw law"], rows)

place = (probs(of_target).amax(-1) - 0.35).abs().argmin()               # where the target is neither sure nor lost
best = of_target[place].topk(5).indices
shades = BLUE, "#7b9dd9", "#b0c5e9", "#d2def2"
heights = [probs(of_target[place], T)[best].tolist() for T in (0, 0.5, 1, 2)]
figure, (left, right) = picture("8. report what you sample", 2)
bars(left, [*(repr(tokenizer.decode([token])) for token in best.tolist()), "all others"],
     *(([*high, 1 - sum(high)], shade, f"T = {T}") for high, shade, T in zip(heights, shades, (0, 0.5, 1, 2))))
left.set_ylabel(f"probability behind {tokenizer.decode(ids[place - 7:place + 1])!r}")
right.plot(temperatures, both, color=GREEN, marker="o", linewidth=2, label="both models at T")
right.plot(temperatures, only, color=AMBER, marker="s", linestyle="--", linewidth=2, label="target at T, draft at 1")
right.set(xlabel="temperature T", ylabel="alpha, mean of sum min(p_target, q_draft)", ylim=(0, 1))
right.legend(frameon=False)
save(figure, "08_report_what_you_sample")

# %% [markdown]
# **Change this and run again.** Seeds 15 and 65: now the draft left raw keeps *more* guesses than the warped one. Which
# tokens does top-k 2 forbid it? Add temperatures up to 10: where does alpha go, and would you want the text? So far the
# text was a human's: put `ids = ids[:32] + tokens_of(speculate(target, ModelDrafter(draft), ids[:32], 468, 0.5))`
# below the first `ids`, then 2 for 0.5. How much of the green line is the temperature's doing, how much the text's?
#
# Next: lesson 9 asks how fast all this is. Exercises: 8 (temperature and top-k on both).
