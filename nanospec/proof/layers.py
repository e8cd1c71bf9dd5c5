"""The layers of the proof for the chain of drafts (README, "how we know"): each one walks the shipped `verify`,
`chain_round` or `speculate` and compares what comes out with what `generate` would have written.

T0  one node: whatever the two laws, the token that comes out has the target's
T1  one round, completed by the target: the law of gamma + 1 tokens
T2  several rounds with the loop itself, settings on: what is carried from round to round; end of text inside a block
T3  the real GPT with its real cache and masks; cached logits against recomputed ones; a ragged batch of two
T6  temperature 0: token for token what greedy decoding writes
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch

from nanospec.generate import Text, generate, prefill
from nanospec.methods import Run, method_of
from nanospec.model import GPT, Config
from nanospec.probs import probs
from nanospec.proof.walk import (TableModel, completed, distance, plain_law, product_law, walk,
                                  walk_by_prefix)
from nanospec.speculate import ModelDrafter, chain_round, speculate, tokens_of, verify

TOLERANCE = 1e-12


@dataclass
class Result:
    """What a check found. error: the greatest difference of any probability (T3 cache: of any law; T6: of tokens)."""

    layer: str
    setting: str
    paths: int
    error: float
    tv: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.error <= TOLERANCE and self.tv <= TOLERANCE         # a nan passes neither


def small_gpt(vocab_size: int, layers: int, seed: int) -> GPT:
    """A random GPT in float64 whose laws are far from uniform, and from those of another seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(Config(vocab_size, context=96, layers=layers, channels=16, heads=2, kv_heads=1, hidden=24))
    for weight in model.parameters():
        weight.data *= 12.0 if weight.dim() == 2 else 1.0
    return model.double().requires_grad_(False).eval()


def node_cases() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, p_target, q_draft): random laws of 5 tokens with zeros among them, and the edges."""
    made = torch.Generator().manual_seed(0)
    for i in range(60):
        laws = torch.rand(2, 5, generator=made, dtype=torch.float64) ** 3
        laws = laws * (torch.rand(2, 5, generator=made) > 0.3)
        laws[:, i % 5] += 0.01
        p_target, q_draft = laws / laws.sum(-1, keepdim=True)
        yield "random", p_target, q_draft
    yield "equal", p_target, p_target
    noise = 1 + 1e-16 * torch.tensor([1.0, -3, 2, 0, 5], dtype=torch.float64)
    yield "equal up to rounding", p_target, p_target * noise
    yield "a hair above everywhere", p_target, torch.nextafter(p_target, torch.ones(5, dtype=torch.float64))
    eye = torch.eye(5, dtype=torch.float64)
    yield "disjoint", (eye[0] + eye[1]) / 2, (eye[2] + eye[3]) / 2
    yield "one-hot target", eye[2], q_draft
    yield "one-hot draft", p_target, eye[0] if p_target[0] else eye[1]
    yield "one-hot, the same", eye[4], eye[4]
    yield "one-hot, different", eye[4], eye[1]


def node() -> tuple[int, float, float]:
    """T0. Every law's second token is a bonus from a one-hot, so that the first can be told apart."""
    paths, error, tv = 0, 0.0, 0.0
    for _, p_target, q_draft in node_cases():
        rows = torch.stack([p_target, torch.eye(5, dtype=torch.float64)[0]])[None]

        def play(dice):
            drafted = dice.pick(q_draft[None])
            kept, token = verify(drafted[:, None], q_draft[None, None], rows, dice)
            return int(drafted) if kept else int(token)

        law, walked = walk(play)
        off = distance(law, dict(enumerate(p_target.tolist())))
        paths, error, tv = paths + walked, max(error, off[0]), max(tv, off[1])
    return paths, error, tv


def one_round(target, draft, ids, gamma, **settings) -> tuple[int, float, float]:
    """T1. One round, whatever its length, completed to gamma + 1 tokens by the target."""
    def play(dice):
        return tuple(next(speculate(target, ModelDrafter(draft), ids, gamma, gamma + 1, dice=dice, **settings)).emitted)
    law, paths = walk(play)
    law = completed(law, target, ids, gamma + 1, **settings)
    return paths, *distance(law, plain_law(target, ids, gamma + 1, **settings))


def rounds(target, run: Run, ids, new, **settings) -> tuple[int, float, float]:
    """T2, T3. The loop itself, from the prompt to the last of `new` tokens, everything carried along."""
    law, paths = walk(lambda dice: tuple(tokens_of(run(ids, max_new_tokens=new, dice=dice, **settings))))
    return paths, *distance(law, plain_law(target, ids, new, **settings))


def rounds_by_prefix(target, draft, ids, gamma, new, **settings) -> tuple[int, float, float]:
    """T2. Larger: every round starts afresh from what is committed."""
    def play(prefix, left, dice):
        return tuple(next(speculate(target, ModelDrafter(draft), [*ids, *prefix], gamma, left, dice=dice,
                                    **settings)).emitted)
    law, paths = walk_by_prefix(play, new)
    return paths, *distance(law, plain_law(target, ids, new, **settings))


def ragged(target, draft, prompts, gamma, new, **settings) -> tuple[int, float, float]:
    """T2, T3. Prompts of different lengths as rows of one batch: the joint law is the product of the rows' own."""
    law_of = partial(probs, **settings)

    def play(dice):
        text = Text(prompts, room=(gamma + 1) * new + gamma + 1, device=target.device)
        drafter, cache = ModelDrafter(draft), prefill(target, text)
        drafter.begin(text, target.config.vocab_size)
        starts = [len(ids) for ids in prompts]
        while min(n - start for n, start in zip(text.length.tolist(), starts)) < new:
            chain_round(target, cache, drafter, text, gamma, law_of, dice, int(text.length.max()) + gamma)
        return tuple(tuple(row[start:start + new]) for row, start in zip(text.tokens.tolist(), starts))

    law, paths = walk(play)
    return paths, *distance(law, product_law(*(plain_law(target, ids, new, **settings) for ids in prompts)))


def caches(target: GPT, draft: GPT, prompts, gamma, new, **settings) -> tuple[int, float, float]:
    """T3. In every round of a long run, both models' laws from the cache against those recomputed from the text.

    This is the only check that sees a draft cache which misses a token: the text stays exact, only speed is lost.
    """
    seen, error, all_kept = 0, 0.0, False
    for seed, ids in enumerate(prompts):
        text = list(ids)
        for one in speculate(target, ModelDrafter(draft), ids, gamma, new, seed=seed, **settings):
            whole = torch.tensor([text + one.drafted])
            p_target, q_draft = (probs(model(whole)[0, len(text) - 1:], **settings) for model in (target, draft))
            error = max(error, (p_target - one.p_target).abs().max().item(),
                        (q_draft[:-1] - one.q_draft).abs().max().item())
            text, seen, all_kept = text + one.emitted, seen + 1, all_kept or one.kept == gamma
    if not all_kept:
        raise LookupError("no round kept all its guesses: what it would leave behind was not seen")
    return seen, error, error


def greedy(target, runs: Sequence[Run], prompts, new) -> tuple[int, float, float]:
    """T6. The share of texts that differ from plain greedy decoding; 0 or nothing. `paths` counts texts."""
    wrong = sum(tokens_of(run(ids, max_new_tokens=new, temperature=0)) != list(generate(target, ids, new, 0))
                for run, ids in zip(cycle(runs), prompts))
    return len(prompts), wrong / len(prompts), wrong / len(prompts)


def chain(target, draft, gamma: int) -> Run:
    return method_of(target, draft, gamma=gamma).run


def prompts_of(vocab_size: int, count: int, longest: int) -> list[list[int]]:
    """Random prompts of 1 to `longest` tokens."""
    made = torch.Generator().manual_seed(count)
    return [torch.randint(vocab_size, (1 + i % longest,), generator=made).tolist() for i in range(count)]


def checks() -> list[tuple[str, str, Callable[[], tuple[int, float, float]]]]:
    """(layer, setting, check) of everything `python -m nanospec.proof` runs."""
    table3, draft3 = TableModel(3, 1), TableModel(3, 2)
    table4, draft4 = TableModel(4, 3), TableModel(4, 4)
    full3, fuller3 = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
    gpt3, gpt_draft3 = small_gpt(3, 2, 1), small_gpt(3, 1, 2)
    gpt4, gpt_draft4 = small_gpt(4, 2, 3), small_gpt(4, 1, 4)
    warm = {"temperature": 0.7}
    return [
        ("T0", "68 pairs of laws: zeros, equal, disjoint, one-hot", node),
        ("T1", "table V4 gamma 3, prompt of 3", lambda: one_round(table4, draft4, [1, 3, 0], 3, **warm)),
        ("T1", "table V3 gamma 3, prompt of 1, no zeros", lambda: one_round(full3, fuller3, [2], 3)),
        ("T1", "table V4 gamma 3, T 0", lambda: one_round(table4, draft4, [2, 1], 3, temperature=0)),
        ("T2", "table V3 gamma 2, 4 tokens, T 0.7, no zeros",
         lambda: rounds(full3, chain(full3, fuller3, 2), [1, 0], 4, **warm)),
        ("T2", "table V3 gamma 1, 5 tokens, T 1.3",
         lambda: rounds(table3, chain(table3, draft3, 1), [2], 5, temperature=1.3)),
        ("T2", "table V4 gamma 2, 5 tokens, T 0.7, top-k 2",
         lambda: rounds(table4, chain(table4, draft4, 2), [0, 1, 2], 5, top_k=2, **warm)),
        ("T2", "table V4 gamma 2, 4 tokens, T 1.2, top-p 0.7",
         lambda: rounds(table4, chain(table4, draft4, 2), [3, 3], 4, temperature=1.2, top_p=0.7)),
        ("T2", "table V3 gamma 2, 4 tokens, end of text is token 0",
         lambda: rounds(table3, chain(table3, draft3, 2), [1, 2], 4, stop={0}, **warm)),
        ("T2", "table V4 gamma 3, 5 tokens, T 0.7, by prefix",
         lambda: rounds_by_prefix(table4, draft4, [1, 3], 3, 5, **warm)),
        ("T2", "table V3 gamma 1, rows of 1 and 4, 2 tokens",
         lambda: ragged(table3, draft3, [[1], [0, 2, 1, 1]], 1, 2, **warm)),
        ("T3", "GPT V3 gamma 1, 4 tokens, T 0.7", lambda: rounds(gpt3, chain(gpt3, gpt_draft3, 1), [2, 0], 4, **warm)),
        ("T3", "GPT V4 gamma 2, 4 tokens, T 0.7, top-k 2",
         lambda: rounds(gpt4, chain(gpt4, gpt_draft4, 2), [1, 3, 0], 4, top_k=2, **warm)),
        ("T3", "GPT V4 gamma 1, rows of 1 and 3, 2 tokens, top-k 2",
         lambda: ragged(gpt4, gpt_draft4, [[2], [1, 3, 0]], 1, 2, top_k=2, **warm)),
        ("T3", "cached laws = recomputed laws, 10 texts",
         lambda: caches(gpt4, gpt_draft4, prompts_of(4, 10, 5), 3, 60, **warm)),
        *[("T6", f"greedy, 34 texts of {name} in float64",
           lambda target=target, draft=draft: greedy(target, [chain(target, draft, gamma) for gamma in (1, 2, 4, 7)],
                                                     prompts_of(4, 34, 6), 40))
          for name, target, draft in (("a random pair", small_gpt(11, 2, 10), small_gpt(11, 1, 11)),
                                      ("another", small_gpt(11, 2, 20), small_gpt(11, 1, 21)),
                                      ("a model with itself", gpt4, gpt4))],
    ]


def run(layer: str, setting: str, check: Callable[[], tuple[int, float, float]]) -> Result:
    began = time.perf_counter()
    paths, error, tv = check()
    return Result(layer, setting, paths, error, tv, time.perf_counter() - began)
