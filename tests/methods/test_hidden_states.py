"""The target's hidden states reach a drafter: for the prompt and for every committed token, and for no other. The
drafter here computes the target's own distribution from them, so one that is wrong, late or missing shows at once."""

import pytest
import torch

from nanospec.attention import Call
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.model import rope_table
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from nanospec.speculate import speculate
from nanospec.theory import acceptance
from tests.proof.compare import Batch

TARGET = small_gpt(5, 3, 7)
CHAIN, PAIR, TREE = [-1, 0, 1, 2], [-1, 0], [-1, 0, 0, 1, 1, 2, 2]
CLOSE = 1e-10


def hidden_of(layer, ids):
    """(T, C): what `layer` computes for a whole text, without a cache."""
    return TARGET(torch.tensor([ids]), layers=[layer])[1][0, :, 0]


class Oracle(Drafter):
    """Drafts what the target would write, by the target's layers after `layer`, on the hidden states that it was told.
    For tokens that the target has not read it computes them. careless: these nodes are drawn from even odds, and are
    often rejected.
    """

    rule = staticmethod(verify_tree)

    def __init__(self, topology, layer=1, careless=()):
        self.topology, self.most, self.layers, self.careless = topology, len(topology) - 1, (layer,), careless
        self.told = {}                                      # of every row of the batch: (tokens read, C)

    def begin(self, text):
        self.text = text

    def read(self, text, rows, hidden):
        for b, told in zip(rows, hidden):
            self.told[b] = told[:int(text.length[b]) - 1, 0]

    def propose(self, text, sampling, dice, kv_length, lag=0):
        texts = text.ids()
        nodes, q_draft = [texts], [torch.zeros(len(texts), text.vocab_size, dtype=torch.float64)]
        for node in range(1, self.most + 1):
            parents = nodes[self.topology[node]]
            q_draft.append(sampling(torch.stack([self.logits(b, ids) for b, ids in enumerate(parents)])))
            if node in self.careless:
                q_draft[node] = torch.ones_like(q_draft[node]) / text.vocab_size
            nodes.append([[*ids, token] for ids, token in zip(parents, dice.pick(q_draft[node]).tolist())])
        tokens = torch.tensor([[ids[-1] for ids in path] for path in zip(*nodes)])
        if self.topology in (CHAIN, PAIR):
            return Draft(tokens, torch.stack(q_draft, 1), 1)
        return TreeDraft(tokens, torch.stack(q_draft, 1), torch.tensor([self.topology] * len(texts)), 1)

    def logits(self, b, ids):
        x = hidden_of(self.layers[0], ids)[None]
        known = min(len(ids), len(self.told[b]))
        x[0, :known] = self.told[b][:known]
        config = TARGET.config
        call = Call(rope_table(len(ids), config.head_size, config.rope_theta, x.dtype, x.device))
        for layer in range(self.layers[0] + 1, config.layers):
            x = TARGET.blocks[layer](x, call, layer)
        return TARGET.head(TARGET.norm(x))[0, -1]

    def commit(self, draft, path, count, p_target, hidden, logits):
        for b in self.told:
            self.told[b] = torch.cat([self.told[b], hidden[b, path[b, :count[b] + 1], 0]])

    def error(self):
        """How far what it was told is from the hidden states of the text, whose last token has not been read."""
        texts = [hidden_of(self.layers[0], ids[:-1]) for ids in self.text.ids()]
        return max((told - own).abs().max().item() if told.shape == own.shape else float("inf")
                   for told, own in zip(self.told.values(), texts))


def played(drafter, prompts, late=None, rounds=8, **settings):
    """The prompts as rows of one batch, round after round; before the fifth, `late` takes the place of row 0."""
    batch, dice = Batch(TARGET, drafter, prompts, rounds * (drafter.most + 1) + 9), Dice(range(len(prompts)))
    for number in range(rounds):
        if late and number == 4:
            batch.begin_anew(0, late)
        yield batch.round(dice, Sampling(**settings))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("topology, path", [(PAIR, [1]), (CHAIN, [1, 2, 3]), (TREE, [1, 3])])
def test_a_drafter_that_knows_the_hidden_states_is_always_right(topology, path, layer):
    """q_draft = p_target, so every first child is accepted: after a prompt of one token, too."""
    for ids in ([3], [1, 2, 0, 4]):
        for done in speculate(TARGET, Oracle(topology, layer), ids, 24, 0.8, seed=1):
            parents = torch.tensor(done.parents[1:])
            assert (acceptance(done.p_target[parents], done.q_draft[1:]) - 1).abs().max() < CLOSE
            assert done.path == path


CASES = {"chain": Oracle(CHAIN, careless=(1, 3)), "tree": Oracle(TREE, careless=(1, 3, 5)),
         "lower layer": Oracle(TREE, 0, careless=(1, 3, 5))}


@pytest.mark.parametrize("oracle", CASES.values(), ids=CASES)
def test_after_every_round_it_holds_the_hidden_states_of_the_committed_text(oracle):
    """Two ragged texts, and one that begins anew; what was rejected is forgotten, what was accepted stands in order."""
    ends = set()
    for _, _, path, count, _ in played(oracle, [[3], [1, 2, 0, 4, 4, 1]], [2, 2, 0], temperature=0.8):
        assert oracle.error() < CLOSE
        ends |= set(path.gather(1, count[:, None])[:, 0].tolist())
    assert len(ends) > 2 and (len(oracle.topology) < 5 or ends & {2, 5, 6})         # through a second child too


class KeepsRejected(Oracle):
    """Takes every node's hidden states for the text's, accepted or not."""

    def commit(self, draft, path, count, p_target, hidden, logits):
        super().commit(draft, path, torch.full_like(count, self.most), p_target, hidden, logits)


class OneLate(Oracle):
    """Takes a node's hidden states for those of the next token."""

    def commit(self, draft, path, count, p_target, hidden, logits):
        super().commit(draft, path, count, p_target, hidden.roll(1, 1), logits)


@pytest.mark.parametrize("wrong", [KeepsRejected, OneLate])
def test_a_wrong_hidden_state_is_seen(wrong):
    """By what it holds; and, had that not been looked at, by draft tokens that are rejected."""
    oracle = wrong(CHAIN, careless=(3,))
    assert max(oracle.error() for _ in played(oracle, [[1, 2, 0, 4]], temperature=0.8)) > 0.1
    rounds = speculate(TARGET, wrong(CHAIN, careless=(3,)), [1, 2, 0, 4], 24, 0.8)
    assert min(acceptance(done.p_target[0], done.q_draft[1]) for done in rounds) < 0.99
