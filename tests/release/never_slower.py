"""Is a drafter behind the gate as fast as the better of plain decoding and the drafter alone? Twenty settings of the
shipped pair, by the clock. To be run by hand, on a machine that does nothing else; some forty minutes on one thread.

    python -m tests.release.never_slower [--turns 4] [--rows 1 4]

The three write the same prompts in turns; who begins changes from turn to turn. A useless draft model is one whose
weights are random.
"""

import argparse
from time import perf_counter

import torch

from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.cli.bench.serve import NoDraft
from nanospec.files.checkpoint import load_pair
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.lengths.never_slower import NeverSlower
from nanospec.model import GPT
from nanospec.serving.server import Server
from nanospec.speculate import speculate

PROMPT, NEW = 16, 470
SETTINGS = [(model, drafter, gamma, rows, temperature)
            for model, drafter, gamma, rows, temperatures in [
                ("gpt", "chain", 4, 1, (0, 1)), ("prefix", "chain", 4, 1, (0, 0.8, 1)),
                ("prefix", "chain", 16, 1, (1,)), ("prefix", "hybrid", 16, 1, (0, 1)),
                ("none", "suffix", 16, 1, (0, 1)),
                ("gpt", "dynamic-tree", None, 1, (1,)), ("prefix", "tree", None, 1, (0,)),
                ("useless", "chain", 4, 1, (0, 1)), ("useless", "dynamic-tree", None, 1, (1,)),
                ("prefix", "chain", 4, 4, (0, 1)), ("prefix", "chain", 4, 16, (0, 1)), ("useless", "chain", 4, 4, (1,))]
            for temperature in temperatures]


def seconds_of(target, drafter, prompts: list[list[int]], temperature: float, seed: int) -> float:
    """Of all tokens of these texts; drafter None: plain decoding."""
    began = perf_counter()
    if len(prompts) > 1:
        server = Server(target, drafter or NoDraft(), len(prompts))
        for number, ids in enumerate(prompts):
            server.submit(ids, max_new_tokens=NEW, temperature=temperature, seed=seed + number)
        while server.running or server.waiting:
            server.step()
    elif drafter:
        list(speculate(target, drafter, prompts[0], NEW, temperature, seed=seed))
    else:
        list(generate(target, prompts[0], NEW, temperature, seed=seed))
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16], help="texts at once")
    args = parser.parse_args()
    torch.set_num_threads(1)
    gpt, prefix = load_pair(), load_pair(draft_model="prefix")
    torch.manual_seed(1)
    useless = GPT(gpt.draft_model.config).requires_grad_(False).eval()
    models = {"gpt": gpt.draft_model, "prefix": prefix.draft_model, "useless": useless, "none": None}
    print("| draft model | drafter | texts | T | plain, tokens/s | drafter alone | behind the gate | of the better |\n"
          "|---|---|---|---|---|---|---|---|")
    for name, drafter, gamma, rows, temperature in SETTINGS:
        if rows not in args.rows:
            continue
        target = (prefix if name == "prefix" else gpt).target
        make = method_of(target, models[name], drafter, **{"gamma": gamma} if gamma else {}).make
        makers = [lambda: None, make, lambda make=make: NeverSlower(make())]
        prompts = held_out_prompts(gpt, rows * args.turns, PROMPT)
        spent = [0.0] * 3
        seconds_of(target, make(), [ids[:4] for ids in prompts[:rows]], temperature, 0)         # warms up
        for turn in range(args.turns):
            texts = prompts[turn * rows:(turn + 1) * rows]
            for i in [0, 1, 2][turn % 3:] + [0, 1, 2][:turn % 3]:
                spent[i] += seconds_of(target, makers[i](), texts, temperature, 100 * turn)
        plain, alone, gated = (args.turns * rows * NEW / seconds for seconds in spent)
        print(f"| {name} | {drafter} {gamma or ''} | {rows} | {temperature} | {plain:.0f} | {alone:.0f} | "
              f"{gated:.0f} | {gated / max(plain, alone):.3f} |", flush=True)


if __name__ == "__main__":
    main()
