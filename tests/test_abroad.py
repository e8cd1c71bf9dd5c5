"""The judge abroad: transformers' own speculation as it is, and with bugs planted in it; functions by their names."""

import pytest
import torch

from nanospec.proof.judge import abroad, judge
from nanospec.proof.judge.__main__ import main
from nanospec.proof.judge.abroad import SINGLE, Recomputed, of_transformers, recomputed
from nanospec.proof.walk import distance, target_distribution
from nanospec.proof.zoo import samplers
from nanospec.proof.zoo.samplers import OF_A_CHAIN

COOL = {"temperature": 0.7, "top_k": 2}
MISSING = "transformers is not installed (the extra 'hf')"
FEW = ("accept-everything", "residual-is-target", "ratio-flipped", "bonus-unwarped")


@pytest.fixture(scope="module")
def hf():
    """transformers, a target and a draft of 8 tokens and a target of 32: random Llamas in double precision."""
    transformers = pytest.importorskip("transformers", reason=MISSING)
    transformers.logging.set_verbosity_error()

    def llama(vocab_size, layers, seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                vocab_size=vocab_size, hidden_size=16, intermediate_size=24, num_hidden_layers=layers,
                num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, bos_token_id=None,
                eos_token_id=2))
        for weight in model.parameters():
            weight.data *= 20.0 if weight.dim() == 2 else 1.0
        return model.double().eval()
    return llama(8, 2, 1), llama(8, 1, 2), llama(32, 2, 3), llama(32, 1, 4)


def verdict_on(target, draft=None, ids=(1, 4), new=3, gamma=2, samples=40, lookup=None, **settings):
    sampler = of_transformers(target, ids, new, draft, gamma, lookup, **settings)
    return judge(sampler, recomputed(target), draft and recomputed(draft), ids, new, gamma, samples,
                 tolerance=SINGLE, **settings)


def test_what_it_is_compared_with_is_the_models_own(hf):
    """By hand: softmax of the two greatest logits over 0.7, a plain call for every text, multiplied."""
    target = hf[0]
    truth = target_distribution(recomputed(target), [1, 4], 2, **COOL)
    by_hand = {}
    with torch.inference_mode():
        for a in range(8):
            first = target(torch.tensor([[1, 4]])).logits[0, -1]
            second = target(torch.tensor([[1, 4, a]])).logits[0, -1]
            for b in range(8):
                by_hand[a, b] = 1.0
                for logits, token in (first, a), (second, b):
                    best = logits.sort(descending=True).values[:2]
                    by_hand[a, b] *= float(logits[token] >= best[1]) * float(
                        (logits[token] / 0.7).exp() / (best / 0.7).exp().sum())
    assert distance(truth, by_hand)[1] < 1e-12 and len(truth) == 4


def test_its_assisted_generation_is_right_every_path_walked(hf):
    verdict = verdict_on(*hf[:2], **COOL)
    assert not verdict.wrong and verdict.distance < 1e-6 and verdict.p_value > 0.001


def test_its_assisted_generation_is_right_at_temperature_1(hf):
    """Two tokens walked; and texts of a larger vocabulary, token by token."""
    verdict = verdict_on(*hf[:2], new=2, samples=10)
    assert not verdict.wrong and verdict.distance < 1e-6
    verdict = verdict_on(*hf[2:], new=16, gamma=3, samples=25)
    assert not verdict.wrong and verdict.samples == 400 and verdict.visible < .3


def test_its_prompt_lookup_is_right(hf, monkeypatch):
    """Walked, behind a prompt in which there is something to copy."""
    read = []
    monkeypatch.setattr(hf[0], "forward", lambda *args, forward=hf[0].forward, **kwargs: (
        read.append(kwargs["input_ids"].shape[1] if "input_ids" in kwargs else 0) or forward(*args, **kwargs)))
    verdict = verdict_on(hf[0], ids=(7, 3, 7, 3, 7), lookup=2, **COOL)
    assert not verdict.wrong and verdict.distance < 1e-6 and read.count(3) + read.count(7) > 40


def test_plain_generate_is_right_and_temperature_0_too(hf):
    assert verdict_on(hf[0], **COOL).distance < 1e-6
    greedy = verdict_on(*hf[:2], temperature=0, samples=10)
    assert not greedy.wrong and greedy.most_off.expected == greedy.most_off.found == 1


def test_a_bug_planted_in_transformers_is_named(hf, monkeypatch):
    from transformers.generation import utils

    def kept_whole(p_minus_q, min, clamp=torch.clamp):
        """p, where max(0, p - q) belongs: what was subtracted is added again."""
        return p_minus_q + kept_whole.q

    def speculative(ids, candidate_logits, length, new_logits, **more):
        q, p = candidate_logits.softmax(-1), new_logits.softmax(-1)
        drafted = ids[0, -length:]
        accepted = (torch.rand_like(p[0, :length, 0]) <= (p / torch.cat([q, q[:, -1:]], 1))[
            0, torch.arange(length), drafted]).long().cumprod(-1).sum()
        return torch.cat([drafted[None, :accepted], torch.multinomial(p[:, accepted], num_samples=1)], 1), accepted

    monkeypatch.setattr(utils, "_speculative_sampling", speculative)
    monkeypatch.setattr(samplers, "OF_A_CHAIN", [bug for bug in OF_A_CHAIN if bug.name in FEW])
    verdict = verdict_on(*hf[:2], **COOL)
    assert verdict.wrong and verdict.distance > 0.01 and verdict.bugs == ["residual-is-target"]
    assert verdict.most_off.found != pytest.approx(verdict.most_off.expected, abs=1e-3)
