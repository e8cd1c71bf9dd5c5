"""What only a GPU can show: its kernels, and CUDA graphs. `pytest -m cuda tests/device/test_cuda.py`."""

from functools import partial

import pytest
import torch

from nanospec.fast.compiled import compiled
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.walk import WalkingDice, distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

pytestmark = [pytest.mark.cuda,
              pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: kernels and graphs not tested")]
FIXED = [name for name, entry in DRAFTERS.items() if entry.kind.fixed]
SETTINGS = {"gamma": 2, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2})}
REQUESTS = [{"temperature": 0}, {"temperature": 0.8, "top_k": 2, "seed": 3}, {"top_p": 0.9, "min_p": 0.1, "seed": 5}]


def models(device="cuda", dtype=torch.float64, learned="gpt"):
    target, draft_model = (small_gpt(3, layers, seed) for layers, seed in ((2, 1), (1, 2)))
    if learned != "gpt":
        draft_model = small_learned(learned, target)
        target, draft_model = target.to(device, dtype), draft_model.to(device, dtype)
        return target, draft_model.attach(target)
    return target.to(device, dtype), draft_model.to(device, dtype)


def text(target, draft_model, drafter, **more):
    return tokens_of(method_of(target, draft_model, drafter, **SETTINGS).run([1, 2, 0], max_new_tokens=40, **more))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_writes_what_it_writes_on_the_cpu(drafter):
    """In float64 nothing is rounded to another token."""
    for request in REQUESTS:
        assert text(*models(), drafter, **request) == text(*models("cpu"), drafter, **request)


@pytest.mark.parametrize("learned", LEARNED)
def test_every_learned_draft_model_too(learned):
    small_learned.cache_clear()                             # the copy for the CPU is not the one that has moved
    ours = text(*models(learned=learned), "chain", seed=3)
    small_learned.cache_clear()
    assert ours == text(*models("cpu", learned=learned), "chain", seed=3)


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("drafter", FIXED)
def test_a_recorded_round_writes_what_an_eager_one_writes(drafter, request_):
    pair = models()
    assert text(*pair, drafter, compiler=compiled, **request_) == text(*pair, drafter, **request_)
    plain = partial(generate, pair[0], [1, 2, 0], 40, **request_)
    assert list(plain(compiler=compiled)) == list(plain())


def test_a_cache_keeps_cudnn_from_planning_anew_for_every_length():
    torch.backends.cuda.enable_cudnn_sdp(True)
    models()[0].new_cache(1, 8)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("drafter", ["chain", "tree"])
def test_in_low_precision_it_writes_forty_tokens_and_again_the_same(drafter, dtype):
    pair = models(dtype=dtype)
    first, second = (text(*pair, drafter, seed=3) for _ in range(2))
    assert len(first) == 40 and first == second


def test_a_walk_on_the_device():
    """Every outcome of a chain's rounds, whose sum is the target's distribution."""
    target, draft_model = models()

    def play(dice: WalkingDice):
        return tuple(tokens_of(speculate(target, method_of(target, draft_model, "chain", **SETTINGS).make(), [1, 2], 2,
                                         dice=dice)))
    found, paths = walk(play)
    assert paths > 50 and distance(found, target_distribution(models("cpu")[0], [1, 2], 2))[0] < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_that_share_keys_are_computed_at_every_width(dtype):
    """Kernels for wide heads in 16 bits lay their answer out in another way, once seen with these sizes."""
    size = Config(64, 32, layers=1, channels=512, heads=8, kv_heads=2, hidden=64)
    torch.manual_seed(3)
    model, tokens = GPT(size).requires_grad_(False), torch.arange(20)[None]
    wanted = model(tokens, model.new_cache(1, 32), kv_length=20)
    model = model.to("cuda", dtype)
    found = model(tokens.cuda(), model.new_cache(1, 32), kv_length=20).cpu().float()
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()
