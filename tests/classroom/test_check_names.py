"""Known mistakes as a learner would write them, each made from its sentence: the check knows it by its name.

The functions in lessons/check make the same mistakes. Were one of them another mistake than its sentence says, a
learner would be told something that is not so, or nothing.
"""

import pytest

from tests.classroom.answers_told import PATHS, changed, of_verdicts
from tests.classroom.test_check_answers import ZERO, accept, copy, counted, pick, residual, warp, weights
from tests.classroom.test_check_told import HEAD3


def returning(head: str, **bodies: str) -> dict[str, str]:
    return {name.replace("_", "-"): f"import torch\n\n\n{head}\n    {body}\n" for name, body in bodies.items()}


def with_changes(number: int, **changes: tuple[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): changed(number, *zip(change[::2], change[1::2])) for name,
            change in changes.items()}


PICKED = "return int((ends > u * ends[-1]).nonzero()[0])"
ONE = with_changes(
    1, zero_weight_at_zero=("ends > u", "ends >= u"), epsilon_at_the_end=("* ends[-1]", "* ends[-1] + 1e-12"),
    total_forgotten=("u * ends[-1]", "u"), not_cumulative=("ends >", "weights >"),
    always_the_likeliest=(PICKED, "return int(weights.argmax())"), all_alike=(PICKED, "return int(u * len(weights))"),
    one_too_late=(PICKED, "return min(int((ends <= u * ends[-1]).sum()) + 1, len(weights) - 1)"),
    one_too_early=(PICKED, "return max(int((ends <= u * ends[-1]).sum()) - 1, 0)"),
    weights_softmaxed=("weights.cumsum", "weights.softmax(0).cumsum"))
TWO = returning(
    "def total_variation(one, other):", greatest_difference="return (one - other).abs().max()",
    signs_kept="return (one - other).sum() / 2", mean="return (one - other).abs().mean() / 2",
    hellinger="return (one.sqrt() - other.sqrt()).norm() / 2 ** .5",
    cosine="return 1 - one @ other / (one.norm() * other.norm())",
    of_cumulative_sums="return (one - other).cumsum(0).abs().max()",
    tokens_counted="return sum(p != q for p, q in zip(one, other)) / len(one)",
    jensen_shannon="m = (one + other) / 2\n    return ((one * (one / m).log()).nansum() + (other * (other / m).log()"
                   ").nansum()) / 2",
    overlap="return sum(map(min, one, other))", float32="return (one.float() - other.float()).abs().sum() / 2",
    not_halved="return sum(abs(p - q) for p, q in zip(one, other))")
RATIO, LEFT = "p_target[x] / q_draft[x]", "(p_target - q_draft).clamp(min=0)"
THREE = {
    "residual-is-target": accept(left="p_target"),
    "residual-reversed": accept(left="(q_draft - p_target).clamp(min=0)"),
    "residual-absolute": accept(left="(p_target - q_draft).abs()"),
    "residual-softmaxed": accept(left="(p_target - q_draft).softmax(0)"),
    "residual-unclamped": accept(left="p_target - q_draft"), "replaced-from-draft": accept(left="q_draft"),
    "residual-pointwise": accept(left="torch.tensor([0 if i == x else p for i, p in enumerate(p_target)])"),
    "residual-argmax": accept().replace(f"dice.pick({LEFT})", f"int({LEFT}.argmax())"),
    "ratio-flipped": accept("q_draft[x] / p_target[x]"), "coin-inverted": accept().replace("if ", "if not "),
    "accept-everything": HEAD3 + "    return x\n", "coin-is-target": accept("p_target[x]"),
    "ratio-without-a-coin": accept().replace("dice.flip(min(1, " + RATIO + "))", f"{RATIO} > .5"),
    "lenience": accept("p_target[x] / q_draft[x] / .8"), "coin-too-strict": accept(f".9 * min(1, {RATIO})"),
    "threshold-acceptance": accept().replace("if ", "if p_target[x] > .5 or "),
    "greedy-acceptance": accept().replace(f"dice.flip(min(1, {RATIO}))", "x == p_target.argmax()"),
    "accepted-if-likelier": accept().replace(f"dice.flip(min(1, {RATIO}))", "p_target[x] >= q_draft[x]"),
    "accepted-if-likelier-else-redrawn": accept(left="p_target").replace(
        f"dice.flip(min(1, {RATIO}))", "p_target[x] >= q_draft[x]"),
    "sample-and-match": HEAD3 + "    y = dice.pick(p_target)\n    return x if y == x else y\n"}
TOTAL = "left.sum(-1, keepdim=True)"
FOUR = {
    "zero-residual-nan": residual(TOTAL, "left / total"), "zero-row": residual(TOTAL, "left / (total + (total == 0))"),
    "residual-not-normalised": residual(TOTAL, "left.where(total > 0, p_target)"),
    "one-sum-for-all": residual("left.sum()"), "residual-is-target": residual(TOTAL, "p_target"),
    "uniform-row": residual(TOTAL, "torch.where(total > 0, left / total, 1 / left.shape[1])"),
    "residual-reversed": residual(TOTAL).replace("(p_target - q_draft)", "(q_draft - p_target)"),
    "residual-absolute": residual(TOTAL).replace(".clamp(min=0)", ".abs()"),
    "residual-softmaxed": residual(TOTAL, "torch.where(total > 0, left.softmax(-1), p_target)")}
NUMBER = "n = coins.long().cumprod(-1).sum(-1)\n    return "
FIVE = {name.replace("_", "-"): counted(body) for name, body in dict(
    accept_after_a_rejection="return coins.sum(-1)", rejected_kept="return [coins.shape[1] for _ in coins]",
    one_too_few=NUMBER + "n - 1", new_token_counted=NUMBER + "n + 1", lockstep=NUMBER + "n.min() + 0 * n",
    last_index_where_none_is_rejected=NUMBER + "n.clamp(max=coins.shape[1] - 1)",
    from_the_end="return coins.flip(1).long().cumprod(-1).sum(-1)",
    longest_run="return [max(map(len, ''.join('x' if one else ' ' for one in row).split(' '))) for row in coins]",
    last_product_only="return coins.long().cumprod(-1)[:, -1]", only_first_test_counts="return coins[:, 0].long()",
    up_to_the_last_accept="return [max([i + 1 for i, one in enumerate(row) if one], default=0) for row in coins]",
    rejections_counted="return (~coins).sum(-1)", all_or_nothing="return [len(row) * bool(row.all()) for row in coins]",
    wrong_dimension="return coins.long().cumprod(0).sum(-1)",
    counter_not_reset=NUMBER + "n.cumsum(0)").items()}
IF_ALL, SIX_HEAD = "    if accepted == len(q_draft):\n", "def next_weights(accepted, p_target, q_draft):"
SIX = {
    "bonus-from-draft": weights("accepted", "min(accepted, len(q_draft) - 1)", "False"),
    "bonus-is-the-drafts": weights("accepted", "accepted").replace("return p_target[accepted]\n",
                                                                   "return q_draft[-1]\n"),
    "residual-is-target": changed(6, (LEFT.replace("t -", "t[accepted] -").replace("t)", "t[accepted])"),
                                      "p_target[accepted]")),
    "residual-reversed": changed(6, ("(p_target[accepted] - q_draft[accepted])", "(q_draft[accepted] - "
                                                                                 "p_target[accepted])")),
    "residual-argmax": "import torch\n" + changed(6, (
        "return (p_target[accepted] - q_draft[accepted]).clamp(min=0)",
        "left = p_target[accepted] - q_draft[accepted]\n    return torch.eye(len(left))[left.argmax()]")),
    "replaced-from-draft": changed(6, ("(p_target[accepted] - q_draft[accepted]).clamp(min=0)", "q_draft[accepted]")),
    "residual-unclamped": changed(6, (".clamp(min=0)", "")),
    "residual-softmaxed": changed(6, (".clamp(min=0)", ".clamp(min=0).softmax(0)")),
    "resample-from-last-row": changed(6, ("(p_target[accepted] - q_draft[accepted]).clamp(min=0)", "p_target[-1]")),
    "draft-place-before": weights("accepted", "max(accepted - 1, 0)"),
    "bonus-less-the-first-draft": weights("accepted", "accepted % len(q_draft)", "False"),
    "bonus-too-early": weights("accepted", "accepted", "accepted == len(q_draft) - 1").replace(
        "return p_target[accepted]\n", "return p_target[-1]\n"),
    "replacement-from-the-last-place": weights("-1", "accepted"), "next-place": weights("accepted + 1", "accepted"),
    "bonus-one-place-early": weights("accepted", "accepted").replace("return p_target[accepted]\n",
                                                                     "return p_target[accepted - 1]\n")}
SEVEN = {name.replace("_", "-"): f"def valid_slots(n, gamma, k):\n    return {both}\n" for name, both in dict(
    target_not_rolled_back="n + gamma, n + min(k, gamma - 1)",
    rolled_back_one_too_few="n + k + 1, n + min(k, gamma - 1)", new_token_counted_in_both="n + k + 1, n + k + 1",
    new_token_counted_once="n + k + 1, n + k", draft_not_rolled_back="n + k, n + gamma - 1",
    neither_rolled_back="n + gamma, n + gamma - 1", caches_swapped="n + min(k, gamma - 1), n + k",
    one_slot_too_few="n + k - 1, n + min(k, gamma - 1)",
    everything_again="n - 1, n - 1", accepted_again="n, n").items()}

EIGHT = with_changes(
    8, temperature_multiplied=("logits / temp", "logits * temp"),
    temperature_forgotten=("logits / temperature", "logits"),
    top_k_forgotten=("if top_k is not None", "if False"), top_k_one_more=("topk(top_k)", "topk(top_k + 1)"),
    top_k_one_less=("logits < logits.topk", "logits <= logits.topk"), logarithms=("softmax", "log_softmax"),
    top_k_least_likely=("logits < logits.topk(top_k)", "logits > logits.topk(top_k, largest=False)"),
    top_k_beyond_the_vocabulary=(" and top_k < len(logits)", ""), temperature_twice=("/ temp", "/ temperature / temp"),
    zero_temperature_is_one=("if temperature == 0:", "temperature = temperature or 1\n    if False:"),
    uniform_over_the_kept=(" and top_k < len(logits):",
                           ":\n        kept = logits.topk(min(top_k, len(logits))).indices\n"
                           "        return torch.zeros_like(logits).index_fill(0, kept, 1 / len(kept))"))
SUM, SPEED = "sum(alpha ** i for i in range(gamma + 1))", " / (gamma * c + v(gamma + 1))"
BEST = "return max(range(1, most + 1), key=lambda gamma: expected_tokens(alpha, gamma) / (gamma * c + v(gamma + 1)))"
NINE = with_changes(
    9, one_draft_token_too_many=("gamma + 1))\n", "gamma + 2))\n"), draft_tokens_independent=(SUM, "1 + gamma * alpha"),
    all_or_nothing=(SUM, "1 + gamma * alpha ** gamma"), last_draft_token_forgotten=("range(gamma + 1)", "range(gamma)"),
    zero_over_zero=(SUM, "(1 - alpha ** (gamma + 1)) / (1 - alpha)"),
    endless_draft=(SUM, "1 / (1 - alpha) if alpha != 1 else gamma + 1"),
    first_peak=(BEST, "gamma, speed = 1, lambda n: expected_tokens(alpha, n) / (n * c + v(n + 1))\n    while gamma < "
                      "most "
                      "and speed(gamma + 1) > speed(gamma):\n        gamma += 1\n    return gamma"),
    one_draft_step_too_many=("(gamma * c", "((gamma + 1) * c"), one_draft_step=("(gamma * c", "(c"),
    a_call_for_each_token=("v(gamma + 1)))", "(gamma + 1) * v(1)))"), v_of_gamma=("v(gamma + 1)))", "v(gamma)))"),
    verification_is_free=("v(gamma + 1)))", "v(1)))"), cost_forgotten=(SPEED, ""),
    last_gamma_left_out=("most + 1)", "most)"))
TEN = {
    "earliest-match": copy(places="range(len(text) - n)"),
    "matches-itself": copy(places="range(len(text) - n, -1, -1)"),
    "match-included": copy("text[s:s + gamma]"), "padded": copy("(text[s + n:s + n + gamma] + gamma * [0])[:gamma]"),
    "copied-on-into-itself": copy("[text[s + n + i % (len(text) - s - n)] for i in range(gamma)]"),
    "any-order": copy(same="sorted(text[s:s + n]) == sorted(text[-n:])"), "too-many": copy("text[s + n:]"),
    "most-frequent": copy("text[(e := max(t + n for t, x in f if x == max(b, key=b.count))):e + gamma]",
                          "(f := [(t, text[t + n]) for t in range(len(text) - n) if text[t:t + n] == text[-n:]]) and "
                          "(b := [x for _, x in f])"),
    "digits-for-tokens": """def propose(text, gamma, longest):
    printed = ", ".join(map(str, text))
    for n in range(min(longest, len(text) - 1), 0, -1):
        at = printed.rfind(", ".join(map(str, text[-n:])), 0, len(printed) - 1)
        if at >= 0:
            return text[printed[:at].count(",") + n:][:gamma]
    return []
""",
    "only-where-gamma-follow": copy(places="range(len(text) - n - gamma, -1, -1)"),
    "no-overlap": copy(places="range(len(text) - 2 * n, -1, -1)"), "one-too-few": copy("text[s + n:s + n + gamma - 1]"),
    "first-place-left-out": copy(places="range(len(text) - n - 1, 0, -1)"),
    "one-token-left-out": copy().replace("0, -1):\n        for", "1, -1):\n        for"),
    "longest-left-out": copy().replace("min(longest,", "min(longest - 1,"),
    "one-too-late": copy("text[s + n + 1:s + n + 1 + gamma]"),
    "no-shorter-match": copy().replace("range(min(longest, len(text) - 1), 0, -1)", "[longest]"),
    "shortest-first": copy().replace("range(min(longest, len(text) - 1), 0, -1)", "range(1, longest + 1)"),
    "last-place-left-out": copy(places="range(len(text) - n - 2, -1, -1)")}
ELEVEN = {name: of_verdicts(11, what) for name, what in {
    "slow-called-wrong": "{name: ('wrong' if word == 'slow' else word, off) for name, (word, off) in right().items()}",
    "slow-called-exact": "{name: ('exact' if word == 'slow' else word, off) for name, (word, off) in right().items()}",
    "judged-by-acceptance": "{f'rule_{x}': ('slow' if x in 'bef' else 'exact', 0) for x in 'abcdef'}",
    "not-halved": "{name: (word, 2 * off) for name, (word, off) in right().items()}"}.items()}
DISTANCE = "return distance(found, truth)[0] < 1e-9"
TWELVE = with_changes(
    12, always_yes=(DISTANCE, "return True"), always_no=(DISTANCE, "return False"),
    answer_inverted=("< 1e-9", "> 1e-9"),
    first_token_only=(DISTANCE, "first = [sum(p for text, p in of.items() if text[0] == x) - sum(p for text, p in "
                                "truth."
                                "items() if text[0] == x) for of in (found,) for x in range(9)]\n    return "
                                "max(map(abs, "
                                "first)) < 1e-9"),
    exact_equality=(DISTANCE, "return all(found.get(text, 0) == p for text, p in truth.items())"),
    support_only=(DISTANCE, "return {*found} == {text for text, p in truth.items() if p}"))

LOOP13 = "    for i, (x, q_draft) in enumerate(children):\n"
JUDGED = "p_target[x] / q_draft[x]"
NORMAL = "left / left.sum()"
WHOLE = "    whole = p_target\n" + LOOP13
DRAWN13 = "dice.pick(p_target)"
LEFT13 = "left = (p_target - q_draft).clamp(min=0)"
THIRTEEN = with_changes(
    13, rejected_sibling_forgotten=(f"p_target = {NORMAL}", "pass"), residual_not_normalised=(NORMAL, "left"),
    coins_forget_the_rejections=(LOOP13, WHOLE, JUDGED, "whole[x] / q_draft[x]"),
    last_rejection_alone=(LOOP13, WHOLE, JUDGED, "whole[x] / q_draft[x]", "(p_target - q_draft)", "(whole - q_draft)"),
    taken_from_the_whole_target=(LOOP13, WHOLE, "(p_target - q_draft)", "(whole - q_draft)"),
    normalised_for_the_coin_only=(JUDGED, "p_target[x] / p_target.sum() / q_draft[x]", NORMAL, "left"),
    residual_pointwise=(LEFT13, "left = p_target.clone()\n        left[x] = 0"),
    residual_absolute=(".clamp(min=0)", ".abs()"), residual_reversed=("(p_target - q_draft)", "(q_draft - p_target)"),
    residual_softmaxed=(NORMAL, "left.softmax(0)"), residual_unclamped=(".clamp(min=0)", "", NORMAL, "left"),
    residual_is_target=(LOOP13, WHOLE, DRAWN13, "dice.pick(whole)"),
    bonus_from_first_residual=(LOOP13, "    first = []\n" + LOOP13, f"p_target = {NORMAL}",
                               f"p_target = {NORMAL}\n        first = first or [p_target]", DRAWN13,
                               "dice.pick(first[0] if first else p_target)"),
    last_rejection_forgotten=(LOOP13, "    before = p_target\n" + LOOP13, f"p_target = {NORMAL}",
                              f"before, p_target = p_target, {NORMAL}", DRAWN13, "dice.pick(before)"),
    replaced_from_draft=(DRAWN13, "dice.pick(children[-1][1] if children else p_target)"),
    residual_argmax=(DRAWN13, "int(p_target.argmax()) if children else dice.pick(p_target)"),
    siblings_sorted_by_target=("enumerate(children):",
                               "sorted(enumerate(children), key=lambda one: -whole[one[1][0]]):",
                               LOOP13[:8], "    whole = p_target\n    for "),
    siblings_sorted_by_draft=("enumerate(children):",
                              "sorted(enumerate(children), key=lambda one: -one[1][1][one[1][0]]):"),
    best_of_the_children=("enumerate(children):", "sorted(enumerate(children), key=lambda one: -p_target[one[1][0]] / "
                                                  "one[1][1][one[1][0]])[:1]:"),
    duplicates_dropped=(LOOP13, LOOP13 + "        if x in [y for y, _ in children[:i]]:\n            continue\n"),
    token_0_is_padding=(LOOP13, LOOP13 + "        if x == 0:\n            continue\n"),
    only_the_first_child=("enumerate(children)", "enumerate(children[:1])"),
    first_distribution_for_all=(LOOP13, LOOP13 + "        q_draft = children[0][1]\n"),
    distribution_changed_again=(LOOP13, LOOP13 + "        q_draft = q_draft.clone()\n        q_draft[[y for y, _ in "
                                                 "children"
                                                 "[:i]]] = 0\n        q_draft = q_draft / q_draft.sum()\n"),
    one_coin_for_all=(LOOP13, "    import torch\n    odds = torch.tensor([min(1, p_target[x] / q[x]) for x, q in "
                              "children])\n"
                              "    if children and dice.flip(1 - (1 - odds).prod()):\n        i = dice.pick(odds)\n"
                              "        return i, children[i][0]\n" + LOOP13, f"dice.flip(min(1, {JUDGED}))", "False"),
    children_ignored=(LOOP13, "    children = []\n" + LOOP13), accept_everything=(f"min(1, {JUDGED})", "1"),
    ratio_flipped=(JUDGED, "q_draft[x] / p_target[x]"), coin_is_target=(JUDGED, "p_target[x]"),
    lenience=(JUDGED, JUDGED + " / .8"), greedy_acceptance=(f"dice.flip(min(1, {JUDGED}))", "x == p_target.argmax()"),
    sample_and_match=(LOOP13, "    y = dice.pick(p_target)\n    drawn = [x for x, _ in children]\n"
                              "    return (drawn.index(y) if y in drawn else None), y\n" + LOOP13))
ALL = "    if dice.flip(w[gamma]):\n        return gamma, dice.pick(p_target[gamma])\n"
CUT = "dice.pick(missing)"
Z = "missing.sum()"
ODDS, WEIGHED, DOWN = f"{Z} / ({Z} + 1 - w[i])", "(w[i] * p_target[i] - q_draft[i])", "range(gamma - 1, -1, -1)"
COINS = """    def left(i):
        return (w[i] * p_target[i] - q_draft[i]).clamp(min=0) if i < gamma else p_target[gamma]

    def coin(i):
        return dice.flip(left(i).sum() / (left(i).sum() + 1 - w[i]) if i < gamma else w[gamma])

    n = {n}
    return n, dice.pick(left(n))
"""


def cut(n: str) -> tuple[str, str]:
    return ALL, COINS.replace("{n}", n)


FOURTEEN = with_changes(
    14, no_inner_minimum=("min(1.0, found[-1] * ratio)", "found[-1] * ratio", "return found",
                          "return [min(1, w) for w in found]"),
    ratios_cut_first=("min(1.0, found[-1] * ratio)", "found[-1] * min(1.0, ratio)"),
    first_failing_coin_ends_it=cut("next((i for i in range(gamma) if not coin(i + 1)), gamma)"),
    shortest_cut_made=cut("next((i for i in range(1, gamma + 1) if coin(i)), 0)"),
    accepting_coins_counted=cut("sum(coin(i) for i in range(1, gamma + 1))"),
    accept_everything=("dice.flip(w[gamma])", "True"),
    all_or_nothing=(DOWN, "[0]"), coin_is_the_weight=(ODDS, "w[i]"), coin_is_the_total=(ODDS, Z),
    one_forgotten=(ODDS, f"{Z} / ({Z} + w[i])"), total_forgotten=(ODDS, f"{Z} / (1 - w[i])"),
    last_coin_as_the_others=("    if dice.flip(w[gamma])",
                             "    z = (w[gamma] * p_target[gamma] - q_draft[-1]).clamp(min=0).sum()"
                             "\n    if dice.flip(z / (z + 1 - w[gamma]))"),
    coin_unweighted=(f"dice.flip({ODDS})",
                     "dice.flip((z := (p_target[i] - q_draft[i]).clamp(min=0).sum()) / (z + 1 - w[i]))"),
    residual_unweighted=(CUT, "dice.pick((p_target[i] - q_draft[i]).clamp(min=0))"),
    both_unweighted=(WEIGHED, "(p_target[i] - q_draft[i])"),
    weight_of_the_last=(CUT, "dice.pick((w[gamma] * p_target[i] - q_draft[i]).clamp(min=0))"),
    residual_is_target=(CUT, "dice.pick(p_target[i])"),
    bonus_one_place_early=("pick(p_target[gamma])", "pick(p_target[gamma - 1])"),
    row_before=(CUT, "dice.pick((w[k] * p_target[k] - q_draft[k]).clamp(min=0) if (k := max(i - 1, 0)) + 1 else 0)"),
    bonus_from_draft=("pick(p_target[gamma])", "pick((w[gamma] * p_target[gamma] - q_draft[-1]).clamp(min=0))"),
    token_by_token=(ALL, "    for i, x in enumerate(drafted):\n        if not dice.flip(p_target[i, x] / q_draft[i, "
                         "x]):\n"
                         "            return i, dice.pick((p_target[i] - q_draft[i]).clamp(min=0))\n"
                         "    return gamma, dice.pick(p_target[gamma])\n"))
FIFTEEN = with_changes(
    15, redraw_after_mismatch=("dice.pick(left)", "dice.pick(p_target)"),
    one_sample_per_path=("dice.flip(left[x])", "dice.flip(p_target[x])", "dice.pick(left)", "dice.pick(p_target)"),
    repeated_tried_again_with_p=("dice.flip(left[x])", "dice.flip(p_target[x] if x in drafted[:i] else left[x])"),
    only_the_last_left_out=("        left[x] = 0", "        left = p_target.clone()\n        left[x] = 0"),
    bonus_missing=("return None, dice.pick(left)",
                   "return (len(drafted) - 1, x) if drafted else (None, dice.pick(left))"),
    residual_argmax=("dice.pick(left)", "int(left.argmax())"),
    greedy_acceptance=("dice.flip(left[x])", "x == p_target.argmax()"),
    residual_softmaxed=("left / left.sum()", "left.softmax(0)"), accept_everything=("dice.flip(left[x])", "True"),
    coin_reversed=("if dice", "if not dice"), even_chances=("flip(left[x])", "flip(1 / len(left))"),
    first_draft_token_only=("enumerate(drafted)", "enumerate(drafted[:1])"),
    judged_by_the_counts=("        if dice.flip(left[x]):",
                          "        import torch\n        q = torch.tensor([drafted.count(y) / len("
                          "drafted) for y in range(len(left))])\n        if dice.flip(left[x] / q[x]):",
                          "        left[x] = 0\n        left = left / left.sum()",
                          "        r = (left - q).clamp(min=0)\n        left = "
                          "r / r.sum() if r.sum() else left"))
SIXTEEN = {name: of_verdicts(16, "right() | " + repr({f"rule_{x}": (word, 0) for x in letters})) for name, word,
           letters in (
    ("every-rule-called-exact", "exact", "cegh"), ("dislike-called-wrong", "wrong", "b"),
    ("coin-before-called-wrong", "wrong", "d"), ("own-coin-called-harmless", "exact", "e"),
    ("product-called-harmless", "exact", "g"), ("asking-the-target-called-wrong", "wrong", "a"),
    ("every-drop-called-wrong", "wrong", "f"))} | {
    "not-halved": of_verdicts(16, "{name: (word, 2 * off) for name, (word, off) in right().items()}")}

GROWN = "    return grown(every, size, lambda path: {value})\n"
SEVENTEEN = with_changes(
    17, first_head_everywhere=("accuracies[depth][rank]", "accuracies[0][rank]"),
    one_node_too_many=("< size", "<= size"),
    least_first=("max(waiting", "min(waiting"), own_accuracy_only=("tree[parent] * acc", "acc")) | {
    "elder-siblings-counted-twice": PATHS + GROWN.replace("{value}",
                                                          "prod(of(path)) * prod(1 - other for head, i in zip("
                                                          "accuracies, path) for other in head[:i])"),
    "breadth-first-only": PATHS + "    return every[:size]\n",
    "a-chain-only": PATHS + "    return [(0,) * n for n in range(min(size, len(heads) + 1))]\n"}
PAIRS, APPENDED, KEPT = "list(zip(hidden, tokens[1:]))", "pairs.append((predicted, token))", "verified[:accepted + 1]"
EIGHTEEN = with_changes(
    18, own_hidden=(PAIRS, "list(zip(hidden[1:], tokens[1:]))"),
    hidden_two_before=(PAIRS, "list(zip(hidden, tokens[2:]))"),
    first_token_read=(PAIRS, "list(zip([0] + hidden, tokens))"),
    last_token_unread=(PAIRS, "list(zip(hidden, tokens[1:-1]))"),
    last_pair_only=(PAIRS, "[(hidden[-1], tokens[-1])]"), new_pair_only=(APPENDED, "pairs = [(predicted, token)]"),
    draft_tokens_unread=(APPENDED, "pass"), last_hidden_again=(APPENDED, "pairs.append((hidden[-1], token))"),
    predicted_with_its_own_token=(APPENDED, "pairs.append((predicted, pairs[-1][1]))"),
    text_turned_round=(PAIRS, "list(zip(tokens[1:], hidden))"),
    pair_turned_round=(PAIRS, "list(zip(tokens[1:], hidden))", "(predicted, token)", "(token, predicted)"),
    predicted_kept=(KEPT, "predicted[:accepted + 1]"), rejected_kept=(KEPT, "verified"),
    one_too_many=(KEPT, "verified[:accepted + 2]"),
    node_0_forgotten=(KEPT, "verified[1:accepted + 1]"), last_accepted_forgotten=(KEPT, "verified[:accepted]"),
    text_before_forgotten=("hidden + verified", "verified"))
CAT = "    written = torch.cat"
PLACES = "length[:, None] + torch"
COMMITTED = "length + accepted + 1"
SLOTS = "length[:, None] - 1"
NINETEEN = with_changes(
    19, longest_for_all=(CAT, "    accepted = accepted.max().expand_as(accepted)\n" + CAT),
    first_text_for_all=(CAT, "    accepted = accepted[:1].expand_as(accepted)\n" + CAT),
    one_length_for_all=(COMMITTED, "(length + accepted + 1).max().expand_as(length)"),
    after_the_longest=(PLACES, "length.max().expand_as(length)[:, None] + torch"),
    first_length_for_all=(PLACES, "length[:1].expand_as(length)[:, None] + torch"),
    token_after_the_whole_draft=("written.scatter(1, accepted[:, None], token[:, None])", "written"),
    rejected_committed=("written.scatter(1, accepted[:, None], token[:, None])", "written", COMMITTED,
                        "length + draft.shape[1]"),
    token_not_counted=(COMMITTED, "length + accepted"), slots_after_the_text=(SLOTS, "length[:, None]"),
    token_at_the_end_of_the_text=("scatter(1, accepted[:, None]", "scatter(1, 0 * accepted[:, None]"),
    slots_of_text_0=(SLOTS, "length[:1].expand_as(length)[:, None] - 1"),
    slots_of_the_longest=(SLOTS, "length.max().expand_as(length)[:, None] - 1"),
    slots_from_0=(SLOTS, "0 * length[:, None]"),
    token_too_early=("return tokens.scatter(1, places, written), length + accepted + 1",
                     "tokens, at = tokens.scatter(1, "
                     "places, written), length + accepted - 1\n    return tokens.scatter(1, at[:, None], token[:, "
                     "None]), at + 1"),
    last_token_twice=(CAT, "    at = torch.arange(tokens.shape[1]) - length[:, None]\n    k, most = accepted[:, "
                           "None], draft.shape[1] - 1"
                           "\n    tokens = torch.where((at >= 0) & (at <= k), draft.gather(1, at.clamp(0, most)), "
                           "tokens)\n"
                           "    return torch.where(at == k + 1, token[:, None], tokens), length + accepted + "
                           "2\n" + CAT))
OWN20 = "(own + table[before])"
SAID20 = "q_draft.append((own + table[before]).softmax(-1))"
SOFTMAX20 = "(own + table[before]).softmax(-1)"
TWENTY = with_changes(
    20, block_marginals_reported=(SAID20, "q_draft.append(own.softmax(-1))", "dice.pick(q_draft[-1])",
                                  f"dice.pick({SOFTMAX20})"),
    table_forgotten=(OWN20, "own"), line_of_the_last_token=(OWN20, "(own + table[last])"),
    table_twice=(OWN20, "(own + 2 * table[before])"),
    table_after_the_draw=(SAID20, f"q = {SOFTMAX20}", "dice.pick(q_draft[-1])",
                          "dice.pick(own.softmax(-1))\n        q_draft.append(q)"),
    first_place_alone=(OWN20, "(own + table[before] if tokens else own)"),
    table_by_columns=(OWN20, "(own + table[:, before])"),
    line_of_its_own_token=(SAID20, f"q = {SOFTMAX20}", "dice.pick(q_draft[-1])",
                           f"dice.pick(q)\n        q_draft.append({SOFTMAX20})"),
    table_times_weights=(OWN20, "(own.softmax(-1) * table[before])"),
    logits_taken_for_weights=(SOFTMAX20, "(own + table[before]).exp()"),
    reported_for_the_token_alone=("    return tokens, q_draft",
                                  "    for x, q in zip(tokens, q_draft):\n        q.zero_()[x] = 1\n"
                                  "    return tokens, q_draft"),
    lines_of_all_before=(OWN20, "(own + table[[last, *tokens]].sum(0))"),
    likeliest_token=("dice.pick(q_draft[-1])", "int(q_draft[-1].argmax())"))
PI = "pi = mixture(p, q, a)"
LESS = "q_draft < p_target.max() - a"
MIXED = "return q_draft - deferred + p_target * deferred.sum()"
DREW21, STANDS = "dice.pick((pi - q).clamp(min=0))", "    return written\n"
TWENTY_ONE = with_changes(
    21, mixture_renormalised=(MIXED, f"w = torch.where({LESS}, p_target, q_draft)\n    return w / w.sum()"),
    deferred_weight_lost=(MIXED, "kept = q_draft - deferred\n    return kept / kept.sum() if kept.any() else p_target"),
    target_compared_with_itself=(LESS, "p_target < p_target.max() - a"),
    drafts_own_maximum=(LESS, "q_draft < q_draft.max() - a"),
    whole_place_deferred=(MIXED, "return p_target if q_draft.max() < p_target.max() - a else q_draft"),
    plus_a=(LESS, "q_draft < p_target.max() + a"), compared_token_by_token=(LESS, "q_draft < p_target - a"),
    bonus_with_the_last_q=(STANDS, "    return [*written, dice.pick(mixture(p_target[-1], q_draft[-1], a))]\n"),
    towards_the_target=(PI, "pi = p"), residual_of_the_target=(DREW21, "dice.pick((p - q).clamp(min=0))"),
    residual_is_pi=(DREW21, "dice.pick(pi)"), replacement_from_target=(DREW21, "dice.pick(p)"),
    coin_of_the_target=("flip(pi[x] / q[x])", "flip(p[x] / q[x])", DREW21,
                        "dice.pick((pi - q).clamp(min=0) if (pi > q).any() else pi)"),
    draft_ignored=("    written = []", "    return [dice.pick(mixture(p_target[0], q_draft[0], a))]\n    written = []"))
PLACE22, OWN22, ENDS22 = "noise(place)", "noise(len(text) + i)", "            return written"
DRAFTED22, TARGET22 = "(q_draft.log() + noise(place)).argmax()", "(p.log() + noise(len(text) + i)).argmax()"
TWENTY_TWO = with_changes(
    22, one_place_off=(PLACE22, "noise(place + 1)", OWN22, "noise(len(text) + i + 1)"),
    everything_greedy=(DRAFTED22, "q_draft.argmax()", TARGET22, "p.argmax()"), argmin=(").argmax", ").argmin"),
    noise_multiplied=(DRAFTED22, "(q_draft * noise(place)).argmax()", TARGET22, "(p * noise(len(text) + i)).argmax()"),
    accept_everything=(" or written[i] != drafted[i]", "", ENDS22, "            return drafted + written[-1:]"),
    mismatch_kept=(ENDS22, ENDS22 + " if i == len(drafted) else written[:-1] + [drafted[i]]"),
    mismatch_kept_and_answered=(ENDS22, ENDS22 + " if i == len(drafted) else written[:-1] + [drafted[i], written[-1]]"),
    later_match_counts=("    written = []",
                        "    own = [int(" + TARGET22 + ") for i, p in enumerate(p_target)]\n    fits = [i for i, x in "
                        "enumerate(drafted) if own[i] == x]\n    end = max(fits, default=-1) + 1\n    return "
                        "drafted[:end] + [own[end]]\n"
                        "    written = []"),
    replacement_greedy=(ENDS22, ENDS22 + " if i == len(drafted) else written[:-1] + [int(p.argmax())]"),
    replacement_of_the_last_place=(ENDS22,
                                   "            p = p_target[-1]\n            return written[:-1] + "
                                   "[int(" + TARGET22 + ")]"),
    next_place=(TARGET22, "(p_target[min(i + 1, len(drafted))].log() + noise(len(text) + i)).argmax()"),
    bonus_greedy=(ENDS22, ENDS22 + " if i < len(drafted) else written[:-1] + [int(p.argmax())]"),
    bonus_with_the_last_noise=(OWN22, "noise(len(text) + min(i, len(drafted) - 1))"),
    draft_forgets_the_text=("draft_model([*text, *drafted])", "draft_model(drafted or text)"))
HEAD23, TAIL23 = changed(23).split("def right_round")
RIGHT23 = "def right_round" + TAIL23
TWENTY_THREE = {name: HEAD23 + RIGHT23.replace(old, new) for name, old, new in (
    ("only-first-test-counts", "if not dice.flip(p[i, x] / q[i][x]):",
     "if not dice.flip(p[i, x] / q[i][x]) and i == 0:"),
    ("draft-warped-q-raw", "drafted.append(dice.pick(q[-1]))",
     "drafted.append(dice.pick(q[-1] * (q[-1] >= q[-1].sort().values[-2])))"),
    ("residual-pointwise", "(p[i] - q[i]).clamp(min=0)",
     "torch.tensor([0 if y == x else p[i, y] for y in range(len(p[i]))])"))}

TV = "def total_variation(one, other):\n    return {}\n"
SLOTS_OF = "def valid_slots(n, gamma, k):\n    return {both}\n"
ONCE_MORE = [       # other ways to make the same mistake
    *((7, SLOTS_OF.replace("{both}", both), "one-slot-too-few") for both in (
        "n + k, n + k - 1", "n + k, n + min(k, gamma - 1) - 1", "n + k - 1, n + k - 1",
        "n + k - 1, n + min(k, gamma - 1) - 1")),
    (7, SLOTS_OF.replace("{both}", "n + k, n + k + 1"), "new-token-counted-once"),
    (7, SLOTS_OF.replace("{both}", "n + gamma, n + gamma"), "neither-rolled-back"),
    (7, SLOTS_OF.replace("{both}", "n + k, n"), "accepted-again"),
    (5, counted("return coins.all(1).long()"), "last-product-only"),
    (2, "def total_variation(one, other):\n    return (one - other).abs().max() / 2\n", "greatest-difference"),
    (2, "def total_variation(one, other):\n    return (one - other).abs().mean()\n", "mean"),
    (2, "def total_variation(one, other):\n    return 1 - (one * other).sqrt().sum()\n", "hellinger"),
    (3, accept(left="(p_target - q_draft).clamp(min=0).softmax(0)"), "residual-softmaxed"),
    (4, residual(TOTAL, "left"), "residual-not-normalised"),
    (4, residual("left.sum()", "left / total"), "one-sum-for-all"),
    (8, changed(8, ("    if top_k is", "    top_k = top_k and (top_k - 1 or 1)\n    if top_k is")), "top-k-one-less"),
    (10, copy("text[s:s + n + gamma]"), "match-included"),
    (10, copy("(text[s + n:s + n + gamma] + gamma * text[-1:])[:gamma]"), "padded"),
    (18, changed(18, (KEPT, "predicted[:accepted] + [verified[accepted]]")), "predicted-kept"),
    (22, changed(22, (PLACE22, "noise(place - 1)"), (OWN22, "noise(len(text) + i - 1)")), "one-place-off"),
    *((1, pick(f"return {same}"), "u-ignored") for same in ("0", "len(weights) - 1")),
    *((2, TV.replace("{}", made), name) for made, name in (
        ("(one - other).square().mean().sqrt()", "squares"), ("(one.sqrt() - other.sqrt()).norm()", "hellinger"),
        ("round(float((one - other).abs().sum() / 2), 3)", "rounded"))),
    (3, accept("p_target[x] / (q_draft[x] + 1e-6)"), "epsilon-in-the-coin"),
    (3, accept(left=f"{LEFT} if {LEFT}.sum() > 1e-3 else p_target"), "guard-too-wide"),
    *((8, warp(f"logits / {cut}"), "temperature-cut") for cut in ("max(temperature, .1)", "min(temperature, 2.)")),
    (8, warp(zero=ZERO.replace("== 0", "< .01")), "cold-is-not-zero"),
    (8, warp(mask="-1e9"), "masked-with-a-number"),
    (12, changed(12, ("< 1e-9", "< 1e-3")), "bar-too-wide"),
    (15, "def judge(drafted, p_target, dice):\n    return None, dice.pick(p_target)\n", "draft-ignored")]

NAMED = [(number, source, name) for number, found in {
    1: ONE, 2: TWO, 3: THREE, 4: FOUR, 5: FIVE, 6: SIX, 7: SEVEN, 8: EIGHT, 9: NINE, 10: TEN,
    11: ELEVEN, 12: TWELVE, 13: THIRTEEN, 14: FOURTEEN, 15: FIFTEEN, 16: SIXTEEN,
    17: SEVENTEEN, 18: EIGHTEEN, 19: NINETEEN, 20: TWENTY, 21: TWENTY_ONE, 22: TWENTY_TWO,
    23: TWENTY_THREE}.items() for name, source in found.items()] + ONCE_MORE


@pytest.mark.parametrize("number, source, name", NAMED, ids=[f"{number}-{name}" for number, _, name in NAMED])
def test_a_mistake_as_a_learner_writes_it_has_its_name(told, number, source, name):
    found = told(number, source)
    assert found.named == [name] and f"({name}; " in found.failure[1], found.failure
