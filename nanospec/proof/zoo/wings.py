"""The zoo's wings: trees of guesses, rules that judge guesses together, and knowing when to stop."""

from nanospec.proof.zoo import BUGS, CONTROLS, _bug

NODE = "left = p_target[row]"
CHILDREN = "for child in tree.children(row):"
ADD = "rows[row] = tree.add(rows[old], token, q_draft)"

TREE_BUGS = [
    _bug("sibling-q-not-updated", "SafeAILab/EAGLE@2f982e2", "drawn without replacement, reported as if with it",
         "tree",
         (ADD, "q_first = q_draft if not drawn else q_first; rows[row] = tree.add(rows[old], token, q_first)"),
         file="drafters.tree"),
    _bug("bonus-from-parent-residual", "SafeAILab/EAGLE#47",
         "behind a leaf the token is drawn from what its refused siblings left", "tree",
         (NODE, "left = p_target[row] if tree.children(row) else left"), file="rules.tree"),
    _bug("token-0-is-padding", "SafeAILab/EAGLE@b09a256", "a real token 0 is skipped", "tree",
         (CHILDREN, "for child in [child for child in tree.children(row) if tree.tokens[child]]:"), file="rules.tree"),
    _bug("refused-sibling-forgotten", "generic", "the next sibling is judged as if none had been refused", "tree",
         ("left = without(left, q_draft)", "left = left"), file="rules.tree"),
    _bug("sibling-residual-not-normalised", "generic", "what is left is no law, and the next coin takes it for one",
         "tree", ("left / left.sum() if", "left if"), file="rules.tree"),
    _bug("siblings-sorted", "generic", "siblings are tried by their probability, not as they were drawn",
         "tree, independent", (CHILDREN, "for child in sorted(tree.children(row), key=lambda child: "
                               "-float(p_target[row][tree.tokens[child]])):"), file="rules.tree"),
    _bug("duplicates-dropped", "generic", "a token that two siblings drew is tried once", "tree, independent",
         (CHILDREN, "for child in {tree.tokens[child]: child for child in tree.children(row)}.values():"),
         file="rules.tree"),
    _bug("siblings-see-each-other", "generic", "the mask of a chain on a tree", "tree",
         ("tree.sees()]", "torch.ones(n, n, dtype=torch.bool).tril()]"), file="rules.tree"),
    _bug("path-not-gathered", "generic", "the kept path stays where its rows were", "tree",
         ("    if path != [*range(1, len(path) + 1)]:", "    if False:"), file="rules.tree"),
    _bug("positions-ignore-parent", "TensorRT-LLM#12962", "a row's position is its slot, not its depth", "tree caches",
         ("length - 1 + depth for depth in tree.depths()", "length - 1 + row for row in range(n)"), file="rules.tree"),
    _bug("draft-path-not-gathered", "generic; vllm#14649", "the draft's cache keeps another branch: only speed is lost",
         "tree caches", ("        if read != [*range(self.first, self.valid)]:", "        if False:"),
         file="drafters.tree"),
]

LONGEST = "F.pad(stands * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)"
ODDS, COVERED, RESIDUAL = "covered / reached)", "covered = residual.sum(-1)", "residual[row, kept]"
STEP, WEIGHTS = "/ q_guess[:, i]).clamp(max=1)", "w = torch.stack(w, 1)"
CHANCE, MISSING = "chance[row] * law[row][x] / q_draft[x]", "(chance[row] * law[row] - q_draft)"
LAW_LEFT, CHANCE_LEFT = "law[row] = residual / total", "(total / (total + (1 - chance[row]))).nan_to_num(1.0)"
UNTRIED = "tree.children(row) for row"

BLOCK_BUGS = [
    _bug("block-first-failure-ends-it", "vllm-ascend#11985, a review", "the first coin that falls ends the draft, "
         "though a later one may stand", "block", (LONGEST, "stands.long().cumprod(-1).sum(-1)"), file="rules.block"),
    _bug("block-shortest-cut", "generic", "the shortest length whose coin stands is kept, not the longest", "block",
         (LONGEST, "(stands.long().argmax(-1) + 1) * stands.any(-1)"), file="rules.block"),
    _bug("block-coin-is-the-weight", "generic", "the coin of every length is its weight, as the last one's is", "block",
         (ODDS, "w)"), file="rules.block"),
    _bug("block-coin-is-the-total", "generic", "the coin forgets how often no later one stands", "block",
         (ODDS, "covered)"), file="rules.block"),
    _bug("block-coin-unweighted", "generic", "the coin's total is that of max(0, p - q), without the weight",
         "block", (COVERED, "covered = torch.where(q_draft.sum(-1) > 0, (p_target - q_draft).clamp(min=0).sum(-1), w)"),
         file="rules.block"),
    _bug("block-no-inner-minimum", "generic", "the product of the ratios is cut at 1 once, at the end", "block",
         (STEP, "/ q_guess[:, i])"), (WEIGHTS, WEIGHTS + ".clamp(max=1)"), file="rules.block"),
    _bug("block-residual-unweighted", "vllm-ascend#7807", "the replacement is drawn from max(0, p - q), without the "
         "weight", "block", (RESIDUAL, "(p_target - q_draft)[row, kept].clamp(min=0)"), file="rules.block"),
    _bug("block-weight-of-the-last", "generic", "the replacement is drawn with the weight of the whole draft", "block",
         (RESIDUAL, "(w[:, -1:, None] * p_target - q_draft).clamp(min=0)[row, kept]"), file="rules.block"),
    _bug("block-draft-behind-the-last", "generic", "behind the last guess the draft's last law is taken away once more",
         "block", ("F.pad(q_draft, (0, 0, 0, 1))", "torch.cat([q_draft, q_draft[:, -1:]], 1)"), file="rules.block"),
    _bug("block-row-before", "generic", "the replacement comes from the row before the cut", "block",
         (RESIDUAL, "residual[row, torch.where(kept < stands.shape[1], (kept - 1).clamp(min=0), kept)]"),
         file="rules.block"),
]

TRAVERSAL_BUGS = [
    _bug("traversal-chance-not-inherited", "generic", "a child's chance is its own ratio, whatever its parent's is",
         "traversal", (CHANCE, "law[row][x] / q_draft[x]"), file="rules.traversal"),
    _bug("traversal-chance-above-one", "generic", "what a guess has above 1 is handed on to its children", "traversal",
         (".clamp(max=1)\n", "\n"), file="rules.traversal"),
    _bug("traversal-residual-unweighted", "generic", "what is missing is max(0, p - q), without the chance",
         "traversal", (MISSING, "(law[row] - q_draft)"), file="rules.traversal"),
    _bug("traversal-law-unweighted", "vllm-ascend#7807, on a tree", "the law left lacks the chance, its total does not",
         "traversal", (LAW_LEFT, "law[row] = (law[row] - q_draft).clamp(min=0); law[row] = law[row] / law[row].sum()"),
         file="rules.traversal"),
    _bug("traversal-chance-not-lowered", "generic", "a row whose child fell keeps its chance", "traversal",
         (CHANCE_LEFT, "chance[row]"), file="rules.traversal"),
    _bug("traversal-chance-is-the-total", "generic", "the chance left forgets how often the child stood", "traversal",
         (CHANCE_LEFT, "total"), file="rules.traversal"),
    _bug("traversal-law-not-lowered", "generic", "a row whose child fell keeps its law", "traversal",
         (LAW_LEFT, "pass"), file="rules.traversal"),
    _bug("traversal-coins-for-leaves-only", "generic", "a row whose children all fell stands for sure", "traversal",
         ("row == 0 or", "row == 0 or not tree.children(row) and"), file="rules.traversal"),
    _bug("traversal-bonus-from-the-parent", "SafeAILab/EAGLE#47, with another rule", "the token behind a row is drawn "
         "from its parent's law", "traversal",
         ("dice.pick(law[row][None])", "dice.pick(law[max(tree.parents[row], 0)][None])"), file="rules.traversal"),
    _bug("traversal-siblings-sorted", "generic", "siblings are tried by their probability, not as they were drawn",
         "traversal", (UNTRIED, "sorted(tree.children(row), key=lambda child: "
                                "-float(p_target[row][tree.tokens[child]])) for row"), file="rules.traversal"),
]

GUESS, DRAWN, MADE = "drafted.append(token)", "token = dice.pick(q_draft)", "self.sure.append(own[0, token].item())"

STOPPING_BUGS = [
    _bug("drop-the-unlikely-sample", "generic; llama.cpp#22506 does it to argmax guesses, where it is exact",
         "a guess that the rule dislikes is thrown away", "dynamic",
         (GUESS, "if not self.when.goes_on([*self.sure, own[0, token].item()]):\n                break\n            "
          + GUESS), file="drafters.dynamic"),
    _bug("draw-until-it-is-likely", "generic", "an unlikely guess is drawn once more, and reported as if it were not",
         "dynamic", (DRAWN, DRAWN + "\n            if own[0, token] < 0.3:\n                " + DRAWN),
         file="drafters.dynamic"),
    _bug("end-of-text-not-guessed", "generic", "a guessed end of text is thrown away: nothing follows it", "dynamic",
         (GUESS, "if token == 0:\n                break\n            " + GUESS), file="drafters.dynamic"),
]

# What looks like it and is exact.
STOPPING_CONTROLS = [
    _bug("stop-behind-an-end-of-text", "generic", "a guessed end of text is kept, and drafting ends behind it", "",
         (MADE, MADE + "\n            if token == 0:\n                break"), file="drafters.dynamic"),
    _bug("stop-before-an-undecided-draw", "generic", "no guess where no token is likely", "",
         ("if not self.when.draws(own[0]):", "if own.max() < 0.6:"), file="drafters.dynamic"),
    _bug("drop-it-for-the-guess-before", "generic", "a guess is thrown away because the one before it was unlikely", "",
         (GUESS, "if self.sure and self.sure[-1] < 0.3:\n                break\n            " + GUESS),
         file="drafters.dynamic"),
    _bug("drop-the-unlikely-argmax", "llama.cpp#22506", "a guess without chance in it is thrown away if it is unlikely",
         "", ("q_draft, own = law(logits), probs(logits)",
              "own = probs(logits); q_draft = (own == own.max()).to(own); q_draft = q_draft / q_draft.sum()"),
         (GUESS, "if own[0, token] < 0.6:\n                break\n            " + GUESS), file="drafters.dynamic"),
]

ALL_BUGS = BUGS + TREE_BUGS + BLOCK_BUGS + TRAVERSAL_BUGS + STOPPING_BUGS
ALL_CONTROLS = CONTROLS + STOPPING_CONTROLS
