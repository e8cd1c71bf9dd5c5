"""What a training reads in slices is what the GPT reads at once: logits and gradients."""

import pytest
import torch

from nanospec.fast.whole_texts import QUERIES, Sliced, read_whole
from nanospec.model import GPT, Config


@pytest.mark.parametrize("length", [1, QUERIES, 2 * QUERIES + 41])
@pytest.mark.parametrize("heads, kv_heads", [(6, 1), (6, 2), (6, 6)])
def test_slices_of_queries_give_the_same_logits_and_gradients(heads, kv_heads, length):
    torch.manual_seed(3)
    model = GPT(Config(23, 64, layers=2, channels=24, heads=heads, kv_heads=kv_heads,
                       hidden=20)).double()
    for weight in model.parameters():       # far from even attention
        weight.data.mul_(8)
    tokens, upstream = torch.randint(23, (2, length)), torch.randn(2, length, 23).double()
    found = []
    for read in (model, lambda x: read_whole(model, x)):
        model.zero_grad()
        logits = read(tokens)
        (logits * upstream).sum().backward()
        found.append([logits, *(weight.grad for weight in model.parameters())])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)


def test_slices_are_what_is_learnt_from(monkeypatch):
    read, attend = [], Sliced.attend
    monkeypatch.setattr(Sliced, "attend", lambda call, layer, *rest: read.append(layer) or attend(call, layer, *rest))
    read_whole(GPT(Config(23, 64, layers=2, channels=8, heads=2, kv_heads=1, hidden=12)), torch.tensor([[5, 11, 7]]))
    assert read == [0, 1]


def test_where_nothing_is_learnt_the_model_reads_by_itself():
    model = GPT(Config(23, 64, layers=1, channels=8, heads=2, kv_heads=1, hidden=12))
    tokens = torch.randint(23, (2, 9))
    with torch.no_grad():
        assert read_whole(model, tokens).equal(model(tokens))
