"""A deep target grown from a shallow one: what is dealt out adds up to what was there; the first layer is fitted."""

from dataclasses import replace

import pytest
import torch

from nanospec.errors import PairError
from nanospec.model import GPT, Block, Config
from training.grow import deal_out, fit_first, grown

SHALLOW = Config(31, 24, layers=2, channels=16, heads=4, kv_heads=2, hidden=21)


def made(config, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(config)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.4)
    return model.requires_grad_(False)


def thin_blocks(config, count, seed=5):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.ModuleList(Block(config) for _ in range(count)).requires_grad_(False)


def test_the_parts_of_an_mlp_add_up_to_it():
    """On the same input. 21 hidden units are dealt out as 7, 7 and 7; in layers of 9 the last two add nothing."""
    block = made(SHALLOW, 1).blocks[0]
    for hidden in 7, 9:
        thin = thin_blocks(replace(SHALLOW, hidden=hidden), 3)
        deal_out(block, thin)
        x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(2))
        torch.testing.assert_close(sum(new.mlp(x) for new in thin), block.mlp(x))
        assert all(torch.equal(new.mlp_norm.weight, block.mlp_norm.weight) for new in thin)


def test_the_smallest_hidden_units_are_dropped():
    """Of four units two fit: those with the greatest products of norms, here numbers 3 and 1, the greatest first."""
    config = Config(31, 24, layers=1, channels=2, heads=1, kv_heads=1, hidden=4)
    block = made(config, 1).blocks[0]
    block.mlp.gate_up.weight.copy_(torch.tensor([[1., 0], [2, 0], [1, 0], [3, 0], [1, 1], [1, 1], [1, 1], [1, 1]]))
    block.mlp.down.weight.copy_(torch.tensor([[1., 1, 2 ** -1, 1], [0, 0, 0, 0]]))
    thin = thin_blocks(replace(config, hidden=1), 2)
    deal_out(block, thin)
    assert [new.mlp.gate_up.weight[0, 0].item() for new in thin] == [3, 2]


def test_attention_is_the_first_of_the_new_layers_alone():
    deep, shallow = grown(made(SHALLOW, 1), replace(SHALLOW, layers=6, hidden=7)), made(SHALLOW, 1)
    for i in range(6):
        attention, old = deep.blocks[i].attention, shallow.blocks[i // 3].attention
        if i % 3:
            assert not attention.out.weight.any() and attention.qkv.weight.any()
        else:
            assert torch.equal(attention.out.weight, old.out.weight)
            assert torch.equal(attention.qkv.weight, old.qkv.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_where_the_stream_is_large_the_deep_model_says_what_the_shallow_one_says(tied):
    """Embeddings a thousand times as large as what the layers add: their order no longer matters."""
    config = replace(SHALLOW, tied=tied)
    shallow = made(config, 3).double()
    shallow.embedding.weight.mul_(1e3)
    deep = grown(shallow, replace(config, layers=4, hidden=11)).double()        # 22 units: one is new
    x = torch.tensor([[3, 30, 7, 1, 12]])
    ours, theirs = deep(x).log_softmax(-1), shallow(x).log_softmax(-1)
    assert (ours.exp() - theirs.exp()).abs().max() < 1e-2 and not torch.equal(ours, theirs)
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("wrong, words", [(dict(layers=5), "5 layers cannot grow from one of 2"),
                                          (dict(channels=32), "other channels, head_size"),
                                          (dict(heads=2, kv_heads=1), "other heads, kv_heads, head_size")])
def test_what_cannot_grow_is_refused(wrong, words):
    with pytest.raises(PairError, match=words):
        grown(made(SHALLOW, 1), replace(SHALLOW, **{"layers": 4} | wrong))


def test_the_first_layers_are_fitted_and_no_other():
    shallow = made(SHALLOW, 4)
    deep = grown(shallow, replace(SHALLOW, layers=6, hidden=7))
    before = {name: weight.clone() for name, weight in deep.named_parameters()}
    texts = torch.randint(31, (40, 4, 12), generator=torch.Generator().manual_seed(6))
    errors = fit_first(deep, shallow, lambda step: texts[step], steps=40)
    changed = {name for name, weight in deep.named_parameters() if not torch.equal(weight, before[name])}
    assert changed and all(name.startswith(("blocks.0.", "blocks.1.", "blocks.2.")) for name in changed)
    assert errors[-1] < errors[0] / 2, (errors[0], errors[-1])
    assert not any(weight.grad is not None for weight in shallow.parameters())
