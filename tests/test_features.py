"""The target's features reach a drafter: for the prompt and for every committed token, and for no other. The drafter
here computes the target's own distribution from them, so a feature that is wrong, late or missing shows at once."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.merged import MergedDrafter
from nanospec.model import Call, rope_table
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from nanospec.speculate import one_round, speculate, verify
from nanospec.text import Text, prefill
from nanospec.theory import acceptance

TARGET = small_gpt(5, 3, 7)
CHAIN, PAIR, TREE = [-1, 0, 1, 2], [-1, 0], [-1, 0, 0, 1, 1, 2, 2]
CLOSE = 1e-10


def features_of(layer, ids):
    """(T, C): what `layer` puts out for a whole text, without a cache."""
    return TARGET(torch.tensor([ids]), layers=[layer])[1][0, :, 0]


class Oracle(Drafter):
    """Drafts what the target would write, by the target's layers behind `layer`, on the features that it was told. For
    tokens that the target has not read it computes them. careless: these rows are drawn from even odds, and fall often.
    """

    def __init__(self, topology, layer=1, careless=()):
        self.topology, self.size, self.layers, self.careless = topology, len(topology), (layer,), careless
        self.told = {}                                      # of every row of the batch: (tokens read, C)

    def begin(self, text, rows, features):
        self.text = text
        for b, told in zip(rows, features):
            self.told[b] = told[:int(text.length[b]) - 1, 0]

    def propose(self, text, sampling, dice, upto):
        texts = text.ids()
        rows, q_draft = [texts], [torch.zeros(len(texts), text.vocab_size, dtype=torch.float64)]
        for row in range(1, self.size):
            behind = rows[self.topology[row]]
            q_draft.append(sampling(torch.stack([self.logits(b, ids) for b, ids in enumerate(behind)])))
            if row in self.careless:
                q_draft[row] = torch.ones_like(q_draft[row]) / text.vocab_size
            rows.append([[*ids, token] for ids, token in zip(behind, dice.pick(q_draft[row]).tolist())])
        tokens = torch.tensor([[ids[-1] for ids in path] for path in zip(*rows)])
        parents = None if self.topology == CHAIN else torch.tensor([self.topology] * len(texts))
        return Draft(tokens, torch.stack(q_draft, 1), parents, 1)

    def logits(self, b, ids):
        x = features_of(self.layers[0], ids)[None]
        known = min(len(ids), len(self.told[b]))
        x[0, :known] = self.told[b][:known]
        config = TARGET.config
        call = Call(rope_table(len(ids), config.head_size, config.rope_theta, x.dtype, x.device))
        for layer in range(self.layers[0] + 1, config.layers):
            x = TARGET.blocks[layer](x, call, layer)
        return TARGET.head(TARGET.norm(x))[0, -1]

    def commit(self, draft, accepted, p_target, features):
        path, count = draft.path(accepted, draft.ancestors())
        for b in self.told:
            self.told[b] = torch.cat([self.told[b], features[b, path[b, :count[b] + 1], 0]])

    def error(self):
        """How far what it was told is from the features of the committed text, whose last token nobody has read."""
        texts = [features_of(self.layers[0], ids[:-1]) for ids in self.text.ids()]
        return max((told - own).abs().max().item() if told.shape == own.shape else float("inf")
                   for told, own in zip(self.told.values(), texts))


def batch(drafter, prompts, late=None, rounds=8, **settings):
    """The prompts as rows of one batch, round after round; before the fifth, `late` takes the place of row 0."""
    text = Text(prompts, rounds * drafter.size + 9, 5)
    cache, features = prefill(TARGET, text, layers=drafter.layers)
    drafter.begin(text, range(len(prompts)), features)
    dice = Dice(range(len(prompts)))
    for number in range(rounds):
        if late and number == 4:
            text.tokens[0, :len(late)], text.length[0] = torch.tensor(late), len(late)
            cache, features = prefill(TARGET, text, [0], cache, drafter.layers)
            drafter.begin(text, [0], features)
        dice.refill(drafter.columns + drafter.size)
        yield one_round(TARGET, cache, drafter, verify, text, Sampling(**settings), dice,
                        int(text.length.max()) + drafter.size - 1)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("topology, path", [(PAIR, [1]), (CHAIN, [1, 2, 3]), (TREE, [1, 3])])
def test_a_drafter_that_knows_the_features_is_always_right(topology, path, layer):
    """q_draft = p_target, so every first child is accepted: behind a prompt of one token, too."""
    for ids in ([3], [1, 2, 0, 4]):
        for done in speculate(TARGET, Oracle(topology, layer), ids, 24, 0.8, seed=1):
            behind = torch.tensor(done.parents[1:])
            assert (acceptance(done.p_target[behind], done.q_draft[1:]) - 1).abs().max() < CLOSE
            assert done.path == path


CASES = {"chain": Oracle(CHAIN, careless=(1, 3)), "tree": Oracle(TREE, careless=(1, 3, 5)),
         "lower layer": Oracle(TREE, 0, careless=(1, 3, 5))}


@pytest.mark.parametrize("oracle", CASES.values(), ids=CASES)
def test_after_every_round_it_holds_the_features_of_the_committed_text(oracle):
    """Two ragged texts, and one that begins anew; what was rejected is forgotten, what was accepted stands in order."""
    ends = set()
    for _, _, accepted, _ in batch(oracle, [[3], [1, 2, 0, 4, 4, 1]], [2, 2, 0], temperature=0.8):
        assert oracle.error() < CLOSE
        ends |= set(accepted.tolist())
    assert len(ends) > 2 and (len(oracle.topology) < 5 or ends & {2, 5, 6})         # through a second child too


class KeepsRejected(Oracle):
    """Takes every row's features for the text's, accepted or not."""

    def commit(self, draft, accepted, p_target, features):
        super().commit(draft, torch.full_like(accepted, self.size - 1), p_target, features)


class OneLate(Oracle):
    """Takes a row's features for those of the next token."""

    def commit(self, draft, accepted, p_target, features):
        super().commit(draft, accepted, p_target, features.roll(1, 1))


@pytest.mark.parametrize("wrong", [KeepsRejected, OneLate])
def test_a_wrong_feature_is_seen(wrong):
    """By what it holds; and, had nobody looked there, by draft tokens that are rejected."""
    oracle = wrong(CHAIN, careless=(3,))
    assert max(oracle.error() for _ in batch(oracle, [[1, 2, 0, 4]], temperature=0.8)) > 0.1
    rounds = speculate(TARGET, wrong(CHAIN, careless=(3,)), [1, 2, 0, 4], 24, 0.8)
    assert min(acceptance(done.p_target[0], done.q_draft[1]) for done in rounds) < 0.99


JOINED = {"flat": lambda first, second: MergedDrafter([first, PromptLookup(5), second]),
          "one in one": lambda first, second: MergedDrafter([MergedDrafter([first, second]), PromptLookup(5)])}


@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_joined_with_others_it_is_told_of_the_tokens_that_they_drafted(join):
    """An oracle of another layer, and a copier whose tokens are accepted where neither of them has drafted any."""
    oracles, beyond = [Oracle(PAIR, 1), Oracle(PAIR, 0, careless=(1,))], 0
    before = [12, 8]
    for draft, p_target, _, _ in batch(join(*oracles), [[0, 1, 2, 3] * 3, [4, 0] * 4], [3] * 5, temperature=0.3):
        assert max(oracle.error() for oracle in oracles) < CLOSE
        assert (acceptance(p_target[:, 0], draft.q_draft[:, 1]) - 1).abs().max() < CLOSE
        after = oracles[0].text.length.tolist()
        beyond, before = beyond + sum(new - old > 2 for old, new in zip(before, after)), after
    assert beyond > 1
