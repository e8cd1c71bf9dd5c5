"""Bugs of draft trees: how they are drawn and verified, the mask and the positions that make them one pass."""

from nanospec.proof.zoo.plant import bug

DRAWN = "drawn, q = self._draw(left, parents, dice)"
TRIED = "tried = accepted == parents[i]"
SCAN = "for i in range(1, n):"
REJECTED = "residual(left, q[i])"
STANDS = "left = torch.where(coin, p[i], rejected)"
MASK = "tree_mask(cache, cache.length, self.ancestors, kv_length)"
DEPTH = "self.ancestors.sum(-1) - 1"

BUGS = [
    bug("sibling-q-not-updated", "SafeAILab/EAGLE@2f982e2", "drawn without replacement, reported as if with it",
        "exact: tree, token",
        (DRAWN, f"first = left.clone() if parents is level.draws[0] else first; {DRAWN}; q = first[:, parents]"),
        file="methods.trees.drawn"),
    bug("bonus-from-parent-residual", "SafeAILab/EAGLE#47",
        "after a leaf the token is drawn from what its rejected siblings left", "exact: tree, token",
        (STANDS, "left = torch.where(coin, p[i] if i in draft.parents else left, rejected)"),
        file="methods.trees.node_rule"),
    bug("token-0-is-padding", "SafeAILab/EAGLE@b09a256", "a real token 0 is skipped", "exact: tree, token",
        (TRIED, f"{TRIED}; tried = tried & (x[i] != 0)"), file="methods.trees.node_rule"),
    bug("rejected-sibling-forgotten", "generic", "the next sibling is tried as if none had been rejected",
        "exact: tree, token", (REJECTED, "left"), file="methods.trees.node_rule"),
    bug("sibling-residual-not-normalised", "generic", "what is left is no distribution, and the next coin takes it for "
        "one", "exact: tree, token", (REJECTED, "(left - q[i]).clamp(min=0)"), file="methods.trees.node_rule"),
    bug("siblings-sorted", "generic", "siblings are tried by their probability, not as they were drawn",
        "settings: independent, token",
        (SCAN, "for i in sorted(range(1, n), key=lambda row: (int(draft.parents[0, row]), -float(p_target[0, "
               "int(draft.parents[0, row]), draft.tokens[0, row]]))):"),
        file="methods.trees.node_rule"),
    bug("duplicates-dropped", "generic", "a token that two siblings drew is tried once", "settings: independent, token",
        (TRIED, f"{TRIED}; tried = tried & ~((draft.parents[:, 1:i] == parents[i]) & (draft.tokens[:, 1:i] == x[i]))"
                ".any(-1, keepdim=True)"), file="methods.trees.node_rule"),
    bug("siblings-see-each-other", "generic", "the mask of a chain on a tree", "exact: tree, token",
        (MASK, MASK.replace("self.ancestors,", "torch.ones_like(self.ancestors).tril(),")),
        file="methods.trees.tree_draft"),
    bug("path-not-gathered", "generic", "the accepted path stays where its nodes were", "exact: tree, token",
        ("cache.length[:, None] + path", "cache.length[:, None] + count"), file="methods.trees.tree_draft"),
    bug("positions-ignore-parent", "TensorRT-LLM#12962", "a node's position is its slot, not its depth", "tree caches",
        (DEPTH, "torch.ones_like(self.tokens).cumsum(-1) - 1"), file="methods.trees.tree_draft"),
    bug("draft-path-not-gathered", "generic; vllm#14649", "the draft model keeps another branch: only speed is lost",
        "tree caches", ("self.lag = depth + 1", "self.lag = 2"), file="methods.trees.tree_reader"),
]
