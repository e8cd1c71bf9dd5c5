"""Bugs of rules that judge draft tokens together: block verification of chains, traversal of trees."""

from nanospec.proof.zoo.plant import bug

LONGEST = "F.pad(coins * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)"
COVERED = "covered = (w[:, :, None] * p_target - q_after).clamp(min=0).sum(-1)"
WEIGHT, LEFT = "weight = w[b, accepted, None]", "residual(weight * p_target[b, accepted], q_after[b, accepted])"
CHANCE, MISSING = "chance[node] * left[node][x] / q_draft[child][x]", "(chance[node] * left[node] - q_draft[rejected])"
LEFT_OVER, CHANCE_LEFT = "left[node] = missing / total", "(total / (total + (1 - chance[node]))).nan_to_num(1.0)"
CHILDREN = "[child for child, parent in enumerate(parents) if parent == old]"


def block(name: str, source: str, what: str, *edits: tuple[str, str], by: str = "rules agree"):
    return bug(f"block-{name}", source, what, by, *edits, file="methods.rules.block")


def traversal(name: str, source: str, what: str, *edits: tuple[str, str], by: str = "rules agree"):
    return bug(f"traversal-{name}", source, what, by, *edits, file="methods.rules.traversal")


BUGS = [
    block("first-failure-ends-it", "vllm-ascend#11985, a review", "the first coin that falls ends the draft, though a "
          "later one may stand", (LONGEST, "coins.long().cumprod(-1).sum(-1)")),
    block("shortest-cut", "generic", "the shortest length whose coin stands is accepted, not the longest",
          (LONGEST, "(coins.long().argmax(-1) + 1) * coins.any(-1)"), by="exact: chain, block"),
    block("coin-is-the-weight", "generic", "the coin of every length is its weight, as the last one's is",
          ("covered / reached)", "w)")),
    block("coin-is-the-total", "generic", "the coin forgets how often no later one stands",
          ("covered / reached)", "covered)")),
    block("coin-unweighted", "generic", "the coin's total is that of max(0, p - q), without the weight", (COVERED,
          "covered = torch.where(q_after.sum(-1) > 0, (p_target - q_after).clamp(min=0).sum(-1), w)")),
    block("no-inner-minimum", "generic", "the product of the ratios is cut at 1 once, at the end",
          ("0.0).clamp(max=1))", "0.0))"),
          ("w = torch.stack(ws, 1)", "w = torch.stack(ws, 1).clamp(max=1)")),
    block("residual-unweighted", "vllm-ascend#7807", "the replacement is drawn from max(0, p - q), without the weight",
          (LEFT, LEFT.replace("weight * ", ""))),
    block("weight-of-the-last", "generic", "the replacement is drawn with the weight of the whole draft",
          (WEIGHT, "weight = w[:, -1:]")),
    block("draft-after-the-last", "generic", "after the last draft token its q_draft is taken away once more",
          ("F.pad(draft.q_draft[:, 1:], (0, 0, 0, 1))", "torch.cat([draft.q_draft[:, 1:], draft.q_draft[:, -1:]], 1)")),
    block("row-before", "generic", "the replacement comes from the node before the cut",
          (WEIGHT, "at = torch.where(accepted < coins.shape[1], (accepted - 1).clamp(min=0), accepted); "
                   + WEIGHT.replace("accepted", "at")), (LEFT, LEFT.replace("accepted", "at"))),
    traversal("chance-not-inherited", "generic", "a child's chance is its own ratio, whatever its parent's is",
              (CHANCE, CHANCE.replace("chance[node] * ", ""))),
    traversal("chance-above-one", "generic", "what a draft token has above 1 is handed on to its children",
              (f"({CHANCE}).clamp(max=1)", f"({CHANCE})")),
    traversal("residual-unweighted", "generic", "what is missing is max(0, p - q), without the chance",
              (MISSING, MISSING.replace("chance[node] * ", ""))),
    traversal("distribution-unweighted", "vllm-ascend#7807, on a tree", "the distribution left lacks the chance, its "
              "total does not",
              (LEFT_OVER, "left[node] = (left[node] - q_draft[rejected]).clamp(min=0); "
                          "left[node] /= left[node].sum()")),
    traversal("chance-not-lowered", "generic", "a node whose child fell keeps its chance",
              (CHANCE_LEFT, "chance[node]")),
    traversal("chance-is-the-total", "generic", "the chance left forgets how often the child stood",
              (CHANCE_LEFT, "total")),
    traversal("distribution-not-lowered", "generic", "a node whose child fell keeps its distribution",
              (LEFT_OVER, "pass")),
    traversal("coins-for-leaves-only", "generic", "a node whose children all fell stands for sure",
              ("node == 0 or", "node == 0 or node in parents or"), by="exact: tree, block"),
    traversal("bonus-from-the-parent", "SafeAILab/EAGLE#47, with another rule", "the token after a node is drawn from "
              "its parent's distribution", ("return node, left[node]", "return node, left[max(parents[node], 0)]")),
    traversal("siblings-sorted", "generic", "siblings are tried by their probability, not as they were drawn",
              (CHILDREN, f"sorted({CHILDREN}, key=lambda child: -float(p_target[old][tokens[child]]))"),
              by="exact: tree, block"),
]
