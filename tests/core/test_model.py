"""One forward for texts, pieces of texts, batches and trees: whatever is cached is what is recomputed."""

import math
from contextlib import contextmanager

import pytest
import torch

from nanospec.model import GPT, Config, rope_table, rotate
from nanospec.proof.tables import small_gpt


@pytest.fixture(scope="module")
def gpt():
    return small_gpt(11, 3, 0)


def tokens(*shape):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


@contextmanager
def put_out_by(gpt):
    """[(block, what it put out)] in the order of the calls."""
    seen = []
    hooks = [block.register_forward_hook(lambda _, __, out, i=i: seen.append((i, out)))
             for i, block in enumerate(gpt.blocks)]
    yield seen
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("cuts", [(1,) * 12, (5, 1, 6), (12,), (3, 4, 1, 4)])
def test_cached_logits_are_the_recomputed_ones(gpt, cuts):
    text, cache, out = tokens(2, 12), gpt.new_cache(2, 20), []
    for part in text.split(cuts, 1):
        out.append(gpt(part, cache))
        cache.length += part.shape[1]
    assert (torch.cat(out, 1) - gpt(text)).abs().max() < 1e-12


@pytest.mark.parametrize("kv_length", [9, 15, 20])
def test_rolling_back_is_lowering_the_length(gpt, kv_length):
    """Stale slots are never seen, however many are read."""
    text, cache = tokens(1, 9), gpt.new_cache(1, 20)
    gpt(tokens(1, 20).flip(1), cache)               # fills every slot with another text
    cache.length += 6
    cache.length = torch.zeros_like(cache.length)
    gpt(text[:, :5], cache, kv_length)
    cache.length = cache.length + 5
    assert (gpt(text[:, 5:], cache, kv_length) - gpt(text)[:, 5:]).abs().max() < 1e-12


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


# Nodes 1 and 2 follow node 0, nodes 3 and 5 follow node 1, node 4 follows node 2.
PATHS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 1, 5]]


def of_a_tree(gpt, nodes, prefix, layers=(), at_once=6):
    """Node i's logits, and hidden states, after a prefix that is in the cache: position = depth, slot = node, and it
    attends to the prefix and its ancestors."""
    n, old = nodes.shape[1], prefix.shape[1]
    mask = torch.zeros(1, n, old + n, dtype=torch.bool)
    mask[:, :, :old] = True
    for node, path in enumerate(PATHS):
        mask[0, node, [old + ancestor for ancestor in path]] = True
    cache = gpt.new_cache(1, old + n + 3)
    gpt(prefix, cache)
    cache.length += old
    depth = torch.tensor([[len(path) - 1 for path in PATHS]])
    parts = []
    for part in torch.arange(n).split(at_once):
        parts.append(gpt(nodes[:, part], cache, old + n, old + depth[:, part], mask[:, part], layers))
        cache.length += len(part)
    return parts[0] if layers else torch.cat(parts, 1)


@pytest.mark.parametrize("at_once", [6, 4, 1])
def test_a_tree_scores_like_each_of_its_paths(gpt, at_once):
    """One contract for chains and trees, however many nodes a call is on."""
    prefix, nodes = tokens(1, 4), torch.tensor([[7, 2, 9, 5, 5, 1]])
    logits = of_a_tree(gpt, nodes, prefix, at_once=at_once)
    for path in PATHS:
        alone = gpt(torch.cat([prefix, nodes[:, path]], 1))[0, -1]
        assert (logits[0, path[-1]] - alone).abs().max() < 1e-12


LAYERS = [(0,), (2,), (0, 1, 2), (2, 0), (1, 2, 1)]


@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_hidden_states_are_what_these_blocks_put_out(gpt, layers):
    """In the order asked for, in one pass, with and without a cache; and the logits are the same as without them."""
    text = tokens(2, 9)
    with put_out_by(gpt) as seen:
        logits, hidden = gpt(text, layers=layers)
    assert [block for block, _ in seen] == [0, 1, 2] and hidden.shape == (2, 9, len(layers), 16)
    assert torch.equal(hidden, torch.stack([seen[layer][1] for layer in layers], 2))
    assert torch.equal(logits, gpt(text))
    if layers[-1] == 2:                                         # the last block's are what the logits are made of
        assert torch.equal(gpt.head(gpt.norm(hidden[:, :, -1])), logits)

    cache, pieces = gpt.new_cache(2, 12), []
    for part in text.split((4, 1, 4), 1):
        with put_out_by(gpt) as seen:
            cached, piece = gpt(part, cache, 12, layers=layers)
        assert [block for block, _ in seen] == [0, 1, 2]
        assert torch.equal(piece, torch.stack([seen[layer][1] for layer in layers], 2))
        assert torch.equal(cached, gpt(part, cache, 12))        # into the same slots once more
        cache.length += part.shape[1]
        pieces.append(piece)
    assert (torch.cat(pieces, 1) - hidden).abs().max() < 1e-12


@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_hidden_states_of_a_tree_are_those_of_its_paths(gpt, layers):
    prefix, nodes = tokens(1, 4), torch.tensor([[7, 2, 9, 5, 5, 1]])
    logits, hidden = of_a_tree(gpt, nodes, prefix, layers)
    assert torch.equal(logits, of_a_tree(gpt, nodes, prefix)) and hidden.shape == (1, 6, len(layers), 16)
    for path in PATHS:
        _, alone = gpt(torch.cat([prefix, nodes[:, path]], 1), layers=layers)
        assert (hidden[0, path[-1]] - alone[0, -1]).abs().max() < 1e-12


@pytest.mark.parametrize("scored", [0, 1, 3])
def test_logits_are_made_of_the_last_tokens_alone_where_no_others_are_read(gpt, scored):
    """What stays in the cache, and the hidden states, are of all tokens."""
    text, cache, other = tokens(2, 7), gpt.new_cache(2, 9), gpt.new_cache(2, 9)
    whole, hidden = gpt(text, cache, 7, layers=(0, 2))
    logits, again = gpt(text, other, 7, layers=(0, 2), scored=scored)
    assert logits.shape == (2, scored, 11) and (logits - whole[:, 7 - scored:]).abs().sum() < 1e-12
    assert torch.equal(again, hidden) and torch.equal(other.kv, cache.kv)
    assert gpt(text, scored=scored).shape == logits.shape


def test_without_layers_there_are_logits_alone(gpt):
    assert isinstance(gpt(tokens(1, 3)), torch.Tensor) and isinstance(gpt(tokens(1, 3), layers=[]), torch.Tensor)


def test_what_is_added_to_the_residual_stream_starts_smaller():
    """Each weight has a standard deviation of .02, what is added one of .02 / sqrt(2 * 3)."""
    weights = dict(GPT(Config(500, 8, 3, channels=128, heads=2, kv_heads=1, hidden=160)).named_parameters())
    for name, std in (("blocks.2.attention.out.weight", .00816), ("blocks.0.mlp.down.weight", .00816),
                      ("blocks.1.mlp.gate_up.weight", .02), ("embedding.weight", .02)):
        assert weights[name].std().item() == pytest.approx(std, rel=.05)


def test_rotation_turns_pairs_half_a_head_apart():
    """Position t turns (x_i, x_{i+D/2}) by t * 10000^(-2i/D); at t = 1, i = 0 by one radian."""
    rope = rope_table(3, 4, 1e4, torch.float64, "cpu")
    x = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64).expand(1, 1, 3, 4)
    turned = rotate(x, rope)[0, 0]
    t = torch.arange(3, dtype=torch.float64)
    assert torch.allclose(turned, torch.stack([t.cos(), t * 0, t.sin(), t * 0], 1))
    angle = 299 * 10_000 ** -.25
    assert rope_table(300, 8, 1e4, torch.float64, "cpu")[0, 299, 1].item() == pytest.approx(math.cos(angle), abs=1e-12)
    exact = rope_table(300, 4, 1e4, torch.float32, "cpu")       # bfloat16 has no 257
    assert torch.equal(rope_table(300, 4, 1e4, torch.bfloat16, "cpu"), exact.bfloat16())


def test_grouped_heads_are_the_same_with_and_without_a_cache():
    """Folding a group's heads into the queries must not mix them up: 4 heads, 2 of keys."""
    torch.manual_seed(0)
    gpt = GPT(Config(11, 32, layers=2, channels=32, heads=4, kv_heads=2, hidden=48)).double().requires_grad_(False)
    text, cache = tokens(2, 7), gpt.new_cache(2, 8)
    assert (gpt(text, cache) - gpt(text)).abs().max() < 1e-12


def test_llama_3s_positions():
    """By the words: fewer turns than `low` in the context, `factor` times slower; more than `high`, as ever."""
    factor, low, high, context, D = 8.0, 2.0, 6.0, 64, 32
    plain, scaled = (rope_table(2, D, 100.0, torch.float64, "cpu", llama3) for llama3 in (
        (), (factor, low, high, context)))
    angles = [torch.atan2(table[1, 1, D // 2:], table[0, 1, D // 2:]) for table in (plain, scaled)]
    kinds = set()
    for before, after in zip(*(angle.tolist() for angle in angles)):
        turns = before * context / (2 * torch.pi)
        kept = 0 if turns < low else 1 if turns > high else (turns - low) / (high - low)
        assert after == pytest.approx(kept * before + (1 - kept) * before / factor)
        kinds.add((kept > 0) + (kept == 1))
    assert kinds == {0, 1, 2}


def test_every_norm_has_the_epsilon_of_the_config():
    gpt = GPT(Config(11, 32, layers=2, channels=32, heads=4, kv_heads=2, hidden=48, qk_norm=True, eps=0.25))
    norms = [part for part in gpt.modules() if isinstance(part, torch.nn.RMSNorm)]
    assert len(norms) == 2 * 4 + 1 and {norm.eps for norm in norms} == {0.25}


@pytest.mark.parametrize("switches", [
    {"head_dim": 12}, {"qkv_bias": True}, {"qk_norm": True}, {"rope_llama3": (4.0, 1.0, 4.0, 8)},
    {"head_dim": 4, "qkv_bias": True, "qk_norm": True}])
def test_every_switch_with_and_without_a_cache(switches):
    """The same logits both ways; and each switch changes them."""
    def made(**switches):
        torch.manual_seed(0)
        gpt = GPT(Config(11, 32, layers=2, channels=32, heads=4, kv_heads=2, hidden=48, **switches))
        for name, weight in gpt.named_parameters():
            weight.data = torch.sin(torch.arange(weight.numel()) * 0.7 + len(name)).view(weight.shape)
        return gpt.requires_grad_(False)

    gpt, text = made(**switches).double(), tokens(2, 9)
    cache = gpt.new_cache(2, 10)
    assert (gpt(text, cache) - gpt(text)).abs().max() < 1e-9
    assert gpt(text).shape == (2, 9, 11) and (made().double()(text) - gpt(text)).abs().max() > 0.01


@pytest.mark.parametrize("wrong", [
    {"head_dim": 0}, {"head_dim": 4.0}, {"head_dim": True}, {"qkv_bias": 1}, {"qk_norm": None}, {"rope_llama3": (8.0,)},
    {"rope_llama3": (8.0, 4.0, 4.0, 64)}, {"rope_llama3": (8.0, 1.0, 4.0, float("inf"))},
    {"rope_llama3": (8.0, 0, 4.0, 64)}, {"rope_llama3": (8.0, 1.0, 4.0, 64, 2)}, {"channels": 30}])
def test_switches_that_are_none(wrong):
    with pytest.raises(ValueError):
        Config(**{"vocab_size": 11, "context": 32, "layers": 1, "channels": 32, "heads": 4, "kv_heads": 2,
                  "hidden": 8} | wrong)
