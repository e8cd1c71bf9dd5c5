"""The zoo's wing for trees: bugs that shipped in implementations of tree drafting and verification."""

from nanospec.proof.zoo import _bug

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
         ("    if path:", "    if False:"), file="rules.tree"),
    _bug("positions-ignore-parent", "TensorRT-LLM#12962", "a row's position is its slot, not its depth", "tree caches",
         ("length - 1 + depth for depth in tree.depths()", "length - 1 + row for row in range(n)"), file="rules.tree"),
    _bug("draft-path-not-gathered", "generic; vllm#14649", "the draft's cache keeps another branch: only speed is lost",
         "tree caches", ("        if read:", "        if False:"), file="drafters.tree"),
]
