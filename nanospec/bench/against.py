"""The same weights, the same prompts, in turns: nanospec beside transformers' `generate` and its assisted generation.

    pip install -e '.[bench]'
    python -m nanospec.bench --against hf --pair FOLDER     # FOLDER/target and FOLDER/draft, Llama checkpoints

Left out: other engines. Whoever serves many requests uses one, and none of them is made for one request on one core.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.bench.measure import measure_costs
from nanospec.model import GPT
from nanospec.fast.autotune import name_of
from nanospec.speculate import ModelDrafter, speculate, tokens_of

Method = Callable[[list[int], int], tuple[int, int]]        # prompt, seed -> new tokens, calls of the target


def our_methods(target: GPT, draft: GPT, gamma: int, new: int, temperature: float) -> dict[str, Method]:
    def plain(ids, seed):
        tokens = list(generate(target, ids, new, temperature, seed=seed))
        return len(tokens), len(tokens)

    def speculative(ids, seed):
        rounds = list(speculate(target, ModelDrafter(draft), ids, gamma, new, temperature, seed=seed))
        return len(tokens_of(rounds)), len(rounds)

    return {"plain": plain, "speculative": speculative}


def hf_methods(folder: Path, gamma: int, new: int, temperature: float, dtype: torch.dtype) -> dict[str, Method]:
    """generate; assisted with gamma guesses every round; assisted as the library sets it."""
    try:
        from transformers import LlamaForCausalLM, logging
    except ImportError as error:
        raise RequestError("there is no transformers to compare with: pip install -e '.[bench]'") from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    target, constant, default = (LlamaForCausalLM.from_pretrained(Path(folder) / name, dtype=dtype).eval()
                                 for name in ("target", "draft", "draft"))
    settings = constant.generation_config
    settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = gamma, "constant"
    settings.assistant_confidence_threshold = 0.0
    law = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {
        "do_sample": False}
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    target.register_forward_pre_hook(count)

    def method(**assistant) -> Method:
        def run(ids, seed):
            nonlocal calls
            calls = 0
            torch.manual_seed(seed)
            prompt = torch.tensor([ids])
            with torch.inference_mode():
                text = target.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new,
                                       pad_token_id=0, **law, **assistant)
            return text.shape[1] - len(ids), calls
        return run

    return {"hf generate": method(), "hf assisted": method(assistant_model=constant),
            "hf assisted defaults": method(assistant_model=default)}


def in_turns(methods: dict[str, Method], prompts: Sequence[list[int]], repeats: int, seed: int) -> list[dict]:
    """One row a method: medians over repeats, every method once in each, after a warm-up."""
    speeds = {name: [] for name in methods}
    totals = {name: [0, 0, 0.0] for name in methods}
    for repeat in range(-1, repeats):
        for name, run in methods.items():
            tokens = calls = 0
            began = perf_counter()
            for number, ids in enumerate(prompts):
                wrote, called = run(ids, seed + number)
                tokens, calls = tokens + wrote, calls + called
            seconds = perf_counter() - began
            if repeat >= 0:
                speeds[name].append(tokens / seconds)
                totals[name] = [a + b for a, b in zip(totals[name], (tokens, calls, seconds))]
    return [{"method": name, "tokens_per_s": median(speeds[name]), "tokens_per_target_call": tokens / calls,
             "ms_per_call": 1e3 * seconds / calls} for name, (tokens, calls, seconds) in totals.items()]


def compare(target: GPT, draft: GPT, folder: Path, gamma: int = 4, new: int = 128, temperature: float = 1.0,
            prompts: int = 4, repeats: int = 5, seed: int = 0) -> list[dict]:
    """Rows of all five methods. A row's `parts_ms`: what its round takes by its parts, each measured alone in our
    models: one target step, or gamma draft steps and one verification."""
    texts = [((torch.arange(32) * 37 + 101 * i) % (target.config.vocab_size - 1) + 1).tolist() for i in range(prompts)]
    methods = our_methods(target, draft, gamma, new, temperature) | hf_methods(folder, gamma, new, temperature,
                                                                               target.dtype)
    rows = in_turns(methods, texts, repeats, seed)
    costs = measure_costs(target, draft, [gamma + 1], 32 + new // 2, temperature=temperature)
    parts = {"plain": costs.seconds, "speculative": costs.parts(gamma)}
    common = {"dtype": name_of(target.dtype), "threads": torch.get_num_threads(), "gamma": gamma,
              "temperature": temperature}
    return [row | common | ({"parts_ms": 1e3 * parts[row["method"]]} if row["method"] in parts else {}) for row in rows]
