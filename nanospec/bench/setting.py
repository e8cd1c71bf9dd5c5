"""What a method is made of, where nobody says: the shape of a tree, and the costs of calls, measured here."""

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from nanospec.bench.measure import measure_costs
from nanospec.draft import check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.learned import Learned, before_tokens
from nanospec.draft_models.medusa import Medusa
from nanospec.draft_models.reader import longest_chain
from nanospec.drafters.tree import TreeDrafter
from nanospec.generate import generate
from nanospec.methods import DRAFTERS, GAMMA
from nanospec.model import GPT
from nanospec.speculate import speculate
from nanospec.topology import Topology, best_size, grown_tree, shape

CHILDREN = 4                    # of a row, at most, in the trees that are compared
SIZES = range(2, 13)            # rows of these trees


def measure_accepted(target: GPT, draft: DraftModel, prompts: Iterable[Sequence[int]], **settings) -> list[float]:
    """How often the i-th of CHILDREN is the one that is accepted: what Sequoia makes its tree from."""
    drafter, accepted, rounds = TreeDrafter(draft, shape(CHILDREN)), Counter(), 0
    for seed, ids in enumerate(prompts):
        for done in speculate(target, drafter, ids, seed=seed, **settings):
            accepted.update(done.path)
            rounds += 1
    return [accepted[row] / rounds for row in range(1, CHILDREN + 1)]


@torch.inference_mode()
def measure_ranks(target: GPT, draft: Learned, prompts: Iterable[Sequence[int]], **settings) -> list[list[float]]:
    """How often the i-th best draft token of each depth is the right one, in what the target writes: what Medusa makes
    its tree from. The tokens before it are taken to be right.
    """
    hits, count = torch.zeros(draft.steps, CHILDREN), 0
    for seed, ids in enumerate(prompts):
        text = torch.tensor([[*ids, *generate(target, ids, seed=seed, **settings)]], device=target.device)
        before = before_tokens(target(text, layers=draft.layers)[1]).to(draft.dtype)
        for k, logits in enumerate(draft(text, before, draft.steps)[:, 0, len(ids) - 1:-1]):        # (places, V)
            right = text[0, len(ids) + k:][:len(logits), None]
            hits[k] += (logits.topk(CHILDREN).indices == right).sum(0).cpu()
        count += len(logits)
    return (hits / count).tolist()


def best_topology(target: GPT, draft: GPT | Learned, prompts: Sequence[Sequence[int]], **sampling) -> Topology:
    """The best tree for this pair on this machine: Sequoia's, or for Medusa's heads, which know less the farther they
    look, Medusa's. Acceptances counted, seconds measured.
    """
    room = target.config.context - max(map(len, prompts))
    settings = {"max_new_tokens": min(96, max(room, draft.steps if isinstance(draft, Medusa) else 1))} | sampling
    costs = measure_costs(target, draft, SIZES, len(prompts[0]), **sampling)
    seconds = {size: costs.seconds * costs.v[size] for size in SIZES}
    if isinstance(draft, Medusa):
        ranks, step = measure_ranks(target, draft, prompts, **settings), costs.seconds * costs.c
        grown = {size: grown_tree(ranks, size) for size in SIZES}
        return max(grown.items(), key=lambda of: of[1][0] / (draft.steps * step + seconds[of[0]]))[1][1]
    accepted = measure_accepted(target, draft, prompts, **settings)
    depths = range(2, 2 + longest_chain(reader_of(draft), 6))
    return best_size(accepted, seconds, costs.seconds * costs.c, depths)[0]


def setting_of(target: GPT, draft: GPT | Learned, prompts: Sequence[Sequence[int]], drafters: Iterable[str],
               given: dict, most: int = GAMMA, **sampling) -> dict:
    """What drafters of these names are made of besides a gamma, for `method_of`: what is given, and what is not is
    measured if one of them wants it. most: draft tokens a round, up to which calls are timed.
    """
    setting = dict(given)
    if "topology" not in given and any(DRAFTERS[name].size == "shape" for name in drafters):
        setting["topology"] = best_topology(target, draft, prompts, **sampling)
    if any(DRAFTERS[name].costs for name in drafters):
        costs = measure_costs(target, draft, range(1, most + 2), max(map(len, prompts)), **sampling)
        setting["costs"] = costs.c, costs.v
    return setting


def tree_setting(branches: Sequence[int] | None) -> dict:
    """Of a tree whose rows at depth d have branches[d] children, counted before they are built; {} where none is given.
    """
    level = rows = 1
    for branch in branches or ():
        level *= branch
        rows = check_size(rows + level, "--shape")
    return {"topology": shape(*branches)} if branches else {}
