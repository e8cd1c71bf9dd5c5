"""Calls on the nodes that exist: of these they say what a call on all says, and they compute no others."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence
from nanospec.methods.trees.tree_draft import Tree, TreeDraft, drafts_of
from nanospec.model import GPT
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.serving.ragged import Ragged
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, one_round, verify
from nanospec.text import Text, prefill

TARGET, DRAFT_MODEL = small_gpt(5, 3, 1), small_gpt(5, 1, 2)
PROMPTS = [[1, 2, 3], [4, 0, 1, 1, 2], [0]]


class Given(Drafter):
    """Proposes one draft."""

    fixed = False

    def __init__(self, draft):
        self.draft, self.most = draft, draft.tokens.shape[1] - 1

    def propose(self, text, sampling, dice, kv_length, lag=0):
        return self.draft

    def begin(self, text):
        """Nothing to keep."""

    def read(self, text, rows, hidden):
        """Nor here."""


def chains(*lengths):
    """Chains of so many draft tokens."""
    n = 1 + max(lengths)
    q_draft = torch.full((len(lengths), n, 5), 0.2)
    q_draft *= (torch.arange(n) <= torch.tensor(lengths)[:, None])[:, :, None] & (torch.arange(n) > 0)[:, None]
    return Draft(torch.arange(len(lengths) * n).view(-1, n) % 5, q_draft)


def tokens(*shape):
    return torch.randint(5, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("lengths", [(3, 1, 2), (0, 0, 3), (3, 3, 0)], ids=str)
def test_a_call_on_some_rows_says_of_them_what_a_call_on_all_says(lengths):
    draft, feed = chains(*lengths), tokens(3, 9)
    exist = (torch.arange(4) <= torch.tensor(lengths)[:, None]).flatten()
    whole, some = TARGET.new_cache(3, 16), TARGET.new_cache(3, 16)
    ragged, out = Ragged(TARGET, Given(draft)), []
    ragged.propose(None, None, None, 9)
    assert ragged.exist.tolist() == exist.nonzero()[:, 0].tolist()
    for target, cache in (TARGET, whole), (ragged, some):
        TARGET(feed[:, :5], cache)
        cache.length = torch.tensor([5, 3, 1])
        out.append(target(feed[:, 5:], cache, 9, layers=[0, 2]))
    for of_all, of_some in zip(*out):                       # logits, and hidden states
        assert (of_all - of_some).flatten(0, 1)[exist].abs().max() < 1e-12
        assert (of_some.flatten(0, 1)[~exist] == 0).all()
    assert (out[0][0] - out[1][0]).flatten(0, 1)[~exist].abs().max() > 0.1
    assert torch.equal(ragged(feed[:, 5:], some, 9), out[1][0])                     # without layers: logits alone


def test_a_tree_of_which_texts_lack_rows():
    parents = torch.tensor([[-1, 0, 0, 1, 2], [-1, 0, -1, 1, -1], [-1] * 5])
    q_draft = (parents >= 0)[:, :, None] * torch.full((5,), 0.2)
    draft, feed = TreeDraft(tokens(3, 5), q_draft, parents), tokens(3, 9)[:, :4]
    ragged, out = Ragged(TARGET, Given(draft)), []
    ragged.propose(None, None, None, 9)
    for target in TARGET, ragged:
        cache = TARGET.new_cache(3, 16)
        TARGET(feed, cache)
        cache.length = torch.tensor([4, 3, 1])
        out.append(target(draft.tokens, cache, 9, **draft.placing(cache, 9)))
    exist = (parents >= 0) | (torch.arange(5) == 0)
    assert (out[0] - out[1])[exist].abs().max() < 1e-12 and not out[1][~exist].any()
    assert ragged.exist.tolist() == exist.flatten().nonzero()[:, 0].tolist()


def test_which_rows_exist():
    for draft, exist in (chains(2, 2), None), (chains(0, 2, 1), [0, 3, 4, 5, 6, 7]), (chains(0), None):     # of nine
        ragged = Ragged(TARGET, Given(draft))
        assert ragged.propose(None, None, None, 0) is draft
        assert ragged.exist is None if exist is None else ragged.exist.tolist() == exist
    trees = [Tree(1), Tree(2)]
    trees[1].extend(0, [3, 4])
    ragged = Ragged(TARGET, Given(drafts_of(trees, Text([[1], [2]], 8, 5))))
    ragged.propose(None, None, None, 0)
    assert ragged.exist.tolist() == [0, 3, 4, 5]


def test_what_it_does_not_define_is_the_drafters():
    drafter = BySurvival(DRAFT_MODEL, 4)
    ragged = Ragged(TARGET, drafter)
    assert (ragged.most, ragged.uniforms, ragged.layers, ragged.fixed) == (4, 4, (), False)
    assert ragged.begin == drafter.begin and ragged.commit == drafter.commit


class Doubled(GPT):
    def forward(self, *given, **more):
        return 2 * super().forward(*given, **more)


def test_another_kind_of_target_is_called_as_it_is():
    """And so is a GPT where every node exists, and one that does more than a GPT in its call, as a Steady."""
    table, feed, own = TableModel(5, 1), tokens(2, 3), small_gpt(5, 3, 1)
    own.__class__ = Doubled
    for target, draft in (table, chains(2, 0)), (TARGET, chains(2, 2)), (own, chains(2, 0)):
        ragged = Ragged(target, Given(draft))
        ragged.propose(None, None, None, 3)
        found, right = (which(feed, target.new_cache(2, 8), 3) for which in (ragged, target))
        assert torch.equal(found, right)


MAKE = {"survival": lambda: BySurvival(DRAFT_MODEL, 4),
        "confidence": lambda: DynamicDrafter(DRAFT_MODEL, Confidence(0.5), 4),
        "lookup": lambda: PromptLookup(3)}


@pytest.mark.parametrize("name", MAKE)
def test_the_target_reads_the_rows_that_exist_and_no_others_and_writes_the_same(name):
    """Round after round, beside one that reads all."""
    read, written = [], []

    def watched(module, args, out):
        read.append(args[0].shape[:2].numel())

    for wrapped in False, True:
        drafter, dice = MAKE[name](), Dice([1, 2, 3])
        text = Text(PROMPTS, 90, 5)
        cache, hidden = prefill(TARGET, text)
        drafter.begin(text)
        drafter.read(text, range(3), hidden)
        target, who = (Ragged(TARGET, drafter),) * 2 if wrapped else (TARGET, drafter)
        rows = []
        handle = TARGET.blocks[0].register_forward_hook(watched)
        for _ in range(12):
            dice.refill(who.uniforms + who.most + 1)
            draft, *_ = one_round(target, cache, who, drafter.rule or verify, text, Sampling(), dice,
                                  int(text.length.max()) + who.most)
            rows.append(3 + int(draft.exist.sum()))
        handle.remove()
        written.append(text.ids())
        if wrapped:
            assert read == rows and len(set(rows)) > 1 or name == "survival"
            assert name != "survival" or read == [3 * 3] * 12       # each text's last token and two more
        read.clear()
    assert written[0] == written[1]


def test_a_server_reads_so_where_drafts_have_no_fixed_shape():
    for drafter, wrapped in (ModelDrafter(DRAFT_MODEL, 2), False), (BySurvival(DRAFT_MODEL, 4), True):
        target, who = Server(TARGET, drafter, rows=2).round_of
        assert isinstance(target, Ragged) == wrapped and (target is who) == wrapped and (wrapped or who is drafter)
