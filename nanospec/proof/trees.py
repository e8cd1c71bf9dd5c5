"""The layers of the proof for trees of guesses: the same walks through `speculate_tree`, and its caches."""

import torch

from nanospec.drafters.tree import TreeDrafter
from nanospec.methods import DRAFTERS, Run, method_of
from nanospec.probs import probs
from nanospec.proof.walk import TableModel
from nanospec.proof.layers import greedy, prompts_of, rounds, small_gpt
from nanospec.rules.tree import speculate_tree, verify_tree

TWO, TWO_ONE, TWO_TWO = [-1, 0, 0], [-1, 0, 0, 1], [-1, 0, 0, 1, 1, 2, 2]
TABLE, DRAFT = TableModel(3, 1), TableModel(3, 2)
FULL, FULL_DRAFT = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
GPT4, GPT_DRAFT4 = small_gpt(4, 2, 3), small_gpt(4, 1, 4)
WARM = {"temperature": 0.7}


def tree(target, draft, topology, independent=False, rule="token") -> Run:
    return method_of(target, draft, "independent" if independent else "tree", rule, topology=topology).run


def caches(target=GPT4, draft=GPT_DRAFT4, topology=TWO_TWO, new=30, rule=verify_tree, **settings) -> tuple:
    """T3. In every round of a few long runs, the target's law behind every row of the tree, and the law of every first
    child, against those recomputed from the row's own path: what a mask, a position or a slot could spoil.
    """
    seen, error, deep = 0, 0.0, False
    for seed, ids in enumerate(prompts_of(4, 3, 5)):
        text = list(ids)
        for one in speculate_tree(target, TreeDrafter(draft, topology), ids, new, seed=seed, rule=rule,
                                  **settings):
            tokens, paths = [text[-1], *one.drafted], {0: text}
            for row, parent in enumerate(one.parents):
                if row:
                    paths[row] = paths[parent] + [tokens[row]]
                recomputed = probs(target(torch.tensor([paths[row]]))[0, -1], **settings)
                error = max(error, (recomputed - one.p_target[row]).abs().max().item())
                if row and one.parents.index(parent) == row:
                    recomputed = probs(draft(torch.tensor([paths[parent]]))[0, -1], **settings)
                    error = max(error, (recomputed - one.q_draft[row - 1]).abs().max().item())
            text, seen, deep = text + one.emitted, seen + 1, deep or len(one.path) > 1 and one.path[0] > 1
    if not deep:
        raise LookupError("no round kept a path through a second child: what gathering it does was not seen")
    return seen, error, error


# Drafters beyond a tree's: what they are made of, and new tokens, so many that there are two rounds or more. With the
# dear draft, goodput stops early at times.
WALKED = {"lookup": ({"gamma": 2}, 5), "suffix": ({"gamma": 2}, 4), "suffix-tree": ({"gamma": 3}, 4),
          "lookahead": ({}, 3), "merged": ({"gamma": 2}, 3), "heuristic": ({"gamma": 2}, 3),
          "confidence": ({"gamma": 2}, 3), "entropy": ({"gamma": 2}, 3),
          "goodput": ({"gamma": 3, "costs": (0.3, {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3})}, 3)}

BLOCK, BLOCK_DRAFT = TableModel(3, 238, zeros=0.15), TableModel(3, 338, zeros=0.15)
DEEP, DEEP_DRAFT = TableModel(3, 84, zeros=0.15), TableModel(3, 184, zeros=0.15)

TREE_CATCHERS = {
    "tree": lambda: rounds(TABLE, tree(TABLE, DRAFT, TWO_ONE), [1, 0], 3, **WARM),
    "tree, independent": lambda: rounds(FULL, tree(FULL, FULL_DRAFT, TWO, independent=True), [1, 0], 3, **WARM),
    "tree caches": lambda: caches(**WARM),
    "tree greedy": lambda: greedy(GPT4, [tree(GPT4, GPT_DRAFT4, TWO_TWO)], prompts_of(4, 10, 5), 30),
    "block": lambda: rounds(BLOCK, method_of(BLOCK, BLOCK_DRAFT, rule="block", gamma=2).run, [1, 0], 3),
    "traversal": lambda: rounds(DEEP, tree(DEEP, DEEP_DRAFT, TWO_ONE, rule="traversal"), [1, 0], 3),
    "dynamic": lambda: rounds(TABLE, method_of(TABLE, DRAFT, "confidence", gamma=2).run, [1, 0, 1, 2, 1], 2, **WARM),
}


def tree_checks() -> list[tuple]:
    """(layer, setting, check), as `checks` in layers.py."""
    gpt3, gpt_draft3, table4, draft4 = small_gpt(3, 2, 1), small_gpt(3, 1, 2), TableModel(4, 3), TableModel(4, 4)
    return [
        ("T2", "tree 2, V3, 3 tokens, T 0.7, independent", TREE_CATCHERS["tree, independent"]),
        ("T2", "tree 2-1, V3, 3 tokens, T 0.7, without replacement", TREE_CATCHERS["tree"]),
        ("T2", "tree 3, V4, 3 tokens, T 1.3, top-k 3",
         lambda: rounds(table4, tree(table4, draft4, [-1, 0, 0, 0]), [0, 1], 3, temperature=1.3, top_k=3)),
        ("T2", "tree 2-1, V3, 4 tokens, end of text is token 0",
         lambda: rounds(TABLE, tree(TABLE, DRAFT, TWO_ONE), [1, 2], 3, stop={0}, **WARM)),
        ("T3", "tree 2, GPT V3, 3 tokens, T 0.7", lambda: rounds(gpt3, tree(gpt3, gpt_draft3, TWO), [2, 0], 3, **WARM)),
        ("T3", "tree 2-2, laws of all rows = those of their paths", TREE_CATCHERS["tree caches"]),
        *[("T2", f"{name}, V3, {new} tokens behind 1 0 1 2 1, T 0.7",
           lambda name=name, setting=setting, new=new: rounds(
               TABLE, method_of(TABLE, DRAFT, name, **setting).run, [1, 0, 1, 2, 1], new, **WARM))
          for name, (setting, new) in WALKED.items()],
        ("T2", "block verification of 2, V3, 3 tokens", TREE_CATCHERS["block"]),
        ("T2", "traversal of 2-1, V3, 3 tokens", TREE_CATCHERS["traversal"]),
        ("T6", "every drafter by name, 24 texts in float64", lambda: greedy(
            GPT4, [method_of(GPT4, GPT_DRAFT4, name).run for name in DRAFTERS], prompts_of(4, 24, 8), 30)),
        ("T6", "tree 2-2, greedy, 10 texts in float64", TREE_CATCHERS["tree greedy"]),
    ]
