"""Chains of different lengths in one batch: the last nodes of the shorter ones are lacking, with a q_draft of zeros.
Under every rule a text is judged as its own chain alone would be.
"""

import pytest
import torch

from lessons.cascade import DEFERRALS, cascade
from lessons.lossy_rules import lenient, typical
from nanospec.draft import Draft
from nanospec.methods.index import RULES as OF_INDEX
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify

EVERY = {"verify": verify, "node rule": verify_tree, **{name: rule for name, rule in OF_INDEX.items() if rule}}
RULES = EVERY | {"typical": typical} | {
    f"lenient, {name}": lenient(0.7, EVERY[name]) for name in ("verify", "node rule")} | {
    f"{deferral}, {name}": cascade(deferral, 0.3, rule) for deferral in DEFERRALS for name, rule in EVERY.items()
    if name == "verify" or deferral in ("chow", "v3")}
LENGTHS = [(3, 0), (3, 1), (3, 2), (2, 1), (1, 0), (3, 3), (0, 0)]         # of the draft, and of the text's own chain


def chain_of(longest: int, own: int, seed: int) -> tuple[Draft, torch.Tensor]:
    """A chain of `own` draft tokens in a draft of `longest`. In what is lacking stand tokens that the target likes."""
    made = torch.Generator().manual_seed(seed)
    p_target, q_draft = torch.rand(2, 1, longest + 1, 3, generator=made, dtype=torch.float64) ** 2
    if seed % 2:
        p_target[0, :, seed % 3] = q_draft[0, :, (seed // 2) % 3] = 0
    p_target, q_draft = p_target / p_target.sum(-1, keepdim=True), q_draft / q_draft.sum(-1, keepdim=True)
    tokens = torch.cat([torch.zeros(1, 1, dtype=torch.int64),
                        q_draft[:, 1:].flatten(0, 1).multinomial(1, generator=made).view(1, -1)
                        if longest else torch.zeros(1, 0, dtype=torch.int64)], 1)
    for node in range(own + 1, longest + 1):
        tokens[0, node] = p_target[0, node - 1].argmax()
    q_draft[:, 0] = q_draft[:, own + 1:] = 0
    return Draft(tokens, q_draft), p_target


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("longest, own", LENGTHS)
def test_what_a_chain_lacks_is_never_accepted_and_changes_nothing(longest, own, name):
    """The distribution of (last accepted node, token that follows), walked, of the chain with nodes that it lacks and
    of the chain without them.
    """
    seen = set()
    for seed in range(8):
        draft, p_target = chain_of(longest, own, seed)
        cut = Draft(draft.tokens[:, :own + 1], draft.q_draft[:, :own + 1]), p_target[:, :own + 1]
        whole, alone = (walk(lambda dice: tuple(map(int, RULES[name](*of, dice))))[0]
                        for of in ((draft, p_target), cut))
        assert max(distance(whole, alone)) < 1e-14
        seen |= {accepted for accepted, _ in whole}
    assert max(seen) <= own and (max(seen) == own or name not in EVERY)     # all of it can be accepted


@pytest.mark.parametrize("name", RULES)
def test_texts_of_one_batch_are_judged_each_for_itself(name):
    """Walked together: the joint distribution is the product of their own."""
    texts = [chain_of(2, own, 10 + own) for own in (2, 1, 0)]
    draft = Draft(torch.cat([draft.tokens for draft, _ in texts]), torch.cat([draft.q_draft for draft, _ in texts]))
    p_target = torch.cat([p_target for _, p_target in texts])
    joint, _ = walk(lambda dice: tuple(torch.stack(RULES[name](draft, p_target, dice), 1).flatten().tolist()))
    alone = [walk(lambda dice: tuple(map(int, RULES[name](*text, dice))))[0] for text in texts]
    product = {(*a, *b, *c): p * q * r for a, p in alone[0].items() for b, q in alone[1].items()
               for c, r in alone[2].items()}
    assert max(distance(joint, product)) < 1e-13
