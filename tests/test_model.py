import pytest
import torch

from nanospec.model import GPT, Config, rope_table, rotate
from nanospec.proof.tables import small_gpt


@pytest.fixture(scope="module")
def gpt():
    return small_gpt(11, 3, 0)


def tokens(*shape):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("cuts", [(1,) * 12, (5, 1, 6), (12,), (3, 4, 1, 4)])
def test_cached_logits_are_the_recomputed_ones(gpt, cuts):
    text, cache, out = tokens(2, 12), gpt.new_cache(2, 20), []
    for part in text.split(cuts, 1):
        out.append(gpt(part, cache))
        cache.length += part.shape[1]
    assert (torch.cat(out, 1) - gpt(text)).abs().max() < 1e-12


@pytest.mark.parametrize("upto", [9, 15, 20])
def test_rolling_back_is_lowering_the_length(gpt, upto):
    """Stale slots are never seen, however many are read."""
    text, cache = tokens(1, 9), gpt.new_cache(1, 20)
    gpt(tokens(1, 20).flip(1), cache)               # fills every slot with another text
    cache.length += 6
    cache.length = torch.zeros_like(cache.length)
    gpt(text[:, :5], cache, upto)
    cache.length = cache.length + 5
    assert (gpt(text[:, 5:], cache, upto) - gpt(text)[:, 5:]).abs().max() < 1e-12


def test_rows_of_different_lengths(gpt):
    texts = [tokens(9)[:n] for n in (2, 9, 5)]
    cache, feed = gpt.new_cache(3, 12), torch.zeros(3, 8, dtype=torch.int64)
    for row, text in enumerate(texts):
        feed[row, :len(text) - 1] = text[:-1]
    gpt(feed, cache)
    cache.length = torch.tensor([len(text) - 1 for text in texts])
    logits = gpt(torch.stack([text[-1:] for text in texts]), cache)
    for row, text in enumerate(texts):
        assert (logits[row, 0] - gpt(text[None])[0, -1]).abs().max() < 1e-12


def test_a_text_of_one_token_can_be_fed_twice(gpt):
    cache = gpt.new_cache(1, 4)
    cache.length -= 1
    logits = gpt(torch.tensor([[3, 3]]), cache, 2)
    assert (logits[0, 1] - gpt(torch.tensor([[3]]))[0, 0]).abs().max() < 1e-12


def test_a_tree_scores_like_each_of_its_paths(gpt):
    """One contract for chains and trees: position = depth, slot = row, sees its ancestors."""
    prefix, parents = tokens(1, 4), [-1, 0, 0, 1, 2]        # rows 1 and 2 are siblings, 3 and 4 their children
    node = torch.tensor([[7, 2, 9, 5, 5]])
    depth, ancestors = [], torch.zeros(5, 5, dtype=torch.bool)
    for i, parent in enumerate(parents):
        depth.append(0 if parent < 0 else depth[parent] + 1)
        ancestors[i] = (ancestors[parent] if parent >= 0 else False)
        ancestors[i, i] = True
    cache = gpt.new_cache(1, 9)
    gpt(prefix, cache)
    cache.length += 4
    sees = torch.cat([torch.ones(5, 4, dtype=torch.bool), ancestors], 1)[None]
    logits = gpt(node, cache, 9, positions=4 + torch.tensor([depth]), sees=sees)
    for path in ([0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]):
        alone = gpt(torch.cat([prefix, node[:, path]], 1))[0, -1]
        assert (logits[0, path[-1]] - alone).abs().max() < 1e-12


def test_rotation_turns_pairs_half_a_head_apart():
    """Position t turns (x_i, x_{i+D/2}) by t * 10000^(-2i/D); at t = 1, i = 0 by one radian."""
    rope = rope_table(3, 4, 1e4, torch.float64, "cpu")
    x = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64).expand(1, 1, 3, 4)
    turned = rotate(x, rope)[0, 0]
    t = torch.arange(3, dtype=torch.float64)
    assert torch.allclose(turned, torch.stack([t.cos(), t * 0, t.sin(), t * 0], 1))
    exact = rope_table(9, 4, 1e4, torch.float32, "cpu")
    assert torch.equal(rope_table(9, 4, 1e4, torch.bfloat16, "cpu"), exact.bfloat16())


def test_grouped_heads_are_the_same_with_and_without_a_cache():
    """Folding a group's heads into the queries must not mix them up: 4 heads, 2 of keys."""
    torch.manual_seed(0)
    gpt = GPT(Config(11, 32, layers=2, channels=32, heads=4, kv_heads=2, hidden=48)).double()
    text, cache = tokens(2, 7), gpt.new_cache(2, 8)
    assert (gpt(text, cache) - gpt(text)).abs().max() < 1e-12
