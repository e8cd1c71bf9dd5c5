"""Is a drafter behind the gate as fast as the better of plain decoding and the drafter alone? Twenty settings of the
shipped pair, by the clock. To be run by hand, on a machine that does nothing else; some forty minutes on one thread.

    python -m tests.release.never_slower [--turns 4] [--rows 1 4]
    python -m tests.release.never_slower --priced

The three write the same prompts in turns; who begins changes from turn to turn. A useless draft model is one whose
weights are random. At temperatures above 0 the three write different texts, and luck is a part of every ratio. So the
last column compares the gate with itself: its tokens a second with those of its rounds with a draft alone, or of its
plain steps if these are more. (At 0, where the texts are the same, it has drafts where they bring most, and this would
be held against it.) --priced, of one text at once: the clock that the gate sees moves by what each call
costs, measured once, and by nothing else. So the table is the same on a machine that others use; what the gate's own
code takes is not in it.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.cli.bench.serve import NoDraft
from nanospec.files.checkpoint import load_pair
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.lengths import never_slower
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


class Counted(NeverSlower):
    """A gate, and of all its like the tokens, the seconds and the number of rounds, without a draft and with one."""

    found = torch.zeros(2, 3, dtype=torch.float64)

    def commit(self, draft: Any, path: Any, count: torch.Tensor, *its: Any) -> None:
        super().commit(draft, path, count, *its)
        seconds = never_slower.perf_counter() - self.began
        Counted.found[int(self.drafts)] += torch.tensor([float((count + 1).sum()), seconds, 1.0], dtype=torch.float64)


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


class Priced:
    """A target, and drafters (by `of`), whose calls move a clock by what they cost, in plain steps: c and v."""

    def __init__(self, target: Any, c: float, v: dict[int, float]):
        self.target, self.c, self.v, self.now = target, c, v, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def __call__(self, tokens: torch.Tensor, *its: Any, scored: int | None = None, **more: Any) -> Any:
        self.now += 0 if scored == 0 else self.v[tokens.shape[1]]       # reading a prompt is the same for all
        return self.target(tokens, *its, scored=scored, **more)

    def of(self, make: Callable) -> Any:
        drafter = make()
        propose = drafter.propose

        def priced(*its: Any, **more: Any) -> Any:
            draft = propose(*its, **more)
            self.now += draft.steps * self.c
            return draft
        drafter.propose = priced
        return drafter

    def spent(self, drafter: Any, ids: list[int], temperature: float, seed: int) -> float:
        """Plain steps that this text's calls cost."""
        began = self.now
        seconds_of(self, drafter, [ids], temperature, seed)
        return self.now - began


def of_its_own(found: torch.Tensor) -> float:
    """The tokens a second of all rounds, over those of the better kind alone."""
    tokens, seconds, _ = found.T
    return float(tokens.sum() / seconds.sum() / (tokens / seconds).nan_to_num().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16], help="texts at once")
    parser.add_argument("--priced", action="store_true", help="by what calls cost, and not by the clock")
    args = parser.parse_args()
    torch.set_num_threads(1)
    gpt, prefix = load_pair(), load_pair(draft_model="prefix")
    torch.manual_seed(1)
    useless = GPT(gpt.draft_model.config).requires_grad_(False).eval()
    models = {"gpt": gpt.draft_model, "prefix": prefix.draft_model, "useless": useless, "none": None}
    print("| draft model | drafter | texts | T | plain, tokens/s | drafter alone | behind the gate | of the better | "
          "rounds without a draft | of its own better rounds |\n" + "|---" * 10 + "|")
    for name, drafter, gamma, rows, temperature in SETTINGS:
        if rows not in ([1] if args.priced else args.rows):
            continue
        target = (prefix if name == "prefix" else gpt).target
        make = method_of(target, models[name], drafter, **{"gamma": gamma} if gamma else {}).make
        if args.priced:
            most = make().most
            costs = measure_costs(target, models[name] or gpt.draft_model, range(2, 18) if most < 17 else [most + 1])
            target = Priced(target, costs.c, costs.v | {1: 1.0})
            never_slower.perf_counter = lambda target=target: target.now
        of = target.of if args.priced else lambda make: make()
        makers = [lambda: None, lambda make=make, of=of: of(make), lambda make=make, of=of: Counted(of(make))]
        prompts = held_out_prompts(gpt, rows * args.turns, PROMPT)
        spent = [0.0] * 3
        seconds_of(target, make(), [ids[:4] for ids in prompts[:rows]], temperature, 0)         # warms up
        Counted.found.zero_()
        for turn in range(args.turns):
            texts = prompts[turn * rows:(turn + 1) * rows]
            for i in [0, 1, 2][turn % 3:] + [0, 1, 2][:turn % 3]:
                spent[i] += (target.spent(makers[i](), texts[0], temperature, 100 * turn) if args.priced else
                             seconds_of(target, makers[i](), texts, temperature, 100 * turn))
        speeds = plain, alone, gated = [args.turns * rows * NEW / seconds for seconds in spent]
        shown = " | ".join(f"{speed:{'.2f' if args.priced else '.0f'}}" for speed in speeds)
        print(f"| {name} | {drafter} {gamma or ''} | {rows} | {temperature} | {shown} | "
              f"{gated / max(plain, alone):.3f} | {Counted.found[0, 2]:.0f} of {Counted.found[:, 2].sum():.0f} | "
              f"{f'{of_its_own(Counted.found):.3f}' if temperature else ''} |", flush=True)


if __name__ == "__main__":
    main()
