"""1.1 billion random weights and simulated acceptance: what speculation gains against alpha and the number of texts.

    python -m tests.release.large

Rounds are really run. Only the coins are loaded, so that a draft token is accepted with probability alpha. Beside them
stands the floor of each step: a token of plain decoding reads every weight once, so it cannot take less than their
bytes over the bandwidth (the memory side of the roofline, Williams et al. 2009).
"""

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median

import torch

from lessons.machine import Coins, bandwidth, matrix_rate, weight_bytes
from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.launch import Parser, command, quiet
from nanospec.cli.quantities import per_second
from nanospec.cli.options import COUNT, GAMMA, HERE, device, file, option
from nanospec.cli.show.terminal import show_table
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.fast.autotune import described
from nanospec.fast.announce import announced
from nanospec.fast.clock import median_seconds
from nanospec.fast.compiled import compiler_for
from nanospec.fast.packed import can_pack, pack
from nanospec.generate import plain_step
from nanospec.model import GPT, Config
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter, one_round, verify
from nanospec.text import Text
from nanospec.theory import expected_tokens

# A target of 1.1 billion parameters and a draft model of a twentieth: with these, weights and not calls set the pace.
LARGE = (Config(32_000, 2048, layers=24, channels=2048, heads=32, kv_heads=8, hidden=5504),
         Config(32_000, 2048, layers=2, channels=1024, heads=16, kv_heads=4, hidden=2816))
MOST = 64               # draft tokens; the distributions of more, for 32 texts, take gigabytes
ROUND = 4               # draft tokens of the round whose floor is told
ALPHA = option("a number between 0 and 1", float, lambda number: 0 < number < 1)


@command("large")
def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m tests.release.large", description=__doc__)
    add = parser.add_argument
    add("--gammas", type=GAMMA, nargs="+", default=(2, 4, 8))
    add("--rows", type=COUNT, nargs="+", default=(1, 8, 32), help="how many texts at once")
    add("--alphas", type=ALPHA, nargs="+", default=(0.5, 0.6, 0.7, 0.8, 0.9))
    add("--device", type=device, default=HERE)
    add("--compile", action="store_true")
    add("--json", type=file(), metavar="FILE", help="the rows")
    options = vars(parser.parse_args(argv))
    into, rows = options.pop("json"), run(**options)
    if into:
        into.write_text(json.dumps(rows, indent=1) + "\n")


def run(gammas: Sequence[int], rows: Sequence[int], alphas: Sequence[float], device: str, compile: bool) -> list[dict]:
    """The machine's limits, and a line for each number of texts, gamma and alpha."""
    if max(gammas) > MOST:
        raise RequestError(f"--gammas: at most {MOST} here, got {max(gammas)}")
    target, draft_model = large_pair(device)
    with announced("measuring this machine's limits"):
        near = roofline(target, draft_model)
    compiler = compiler_for(target.device) if compile else None
    alphas = sorted({*alphas})
    found = simulated(target, draft_model, alphas=alphas, gammas=gammas, rows=rows, compiler=compiler)
    gains = {(row["rows"], row["gamma"], row["alpha"]): f"{row['speedup']:.2f}" for row in found}
    show_table(["rows", "gamma", "plain, ms", "round, ms", *(f"alpha {alpha:g}" for alpha in alphas)],
               [[str(row["rows"]), str(row["gamma"]),
                 *(f"{1e3 * row[what]:.1f}" for what in ("plain", "round")),
                 *(gains[row["rows"], row["gamma"], alpha] for alpha in alphas)]
                for row in found if row["alpha"] == alphas[-1]],
               f"{device}, {torch.get_num_threads()} threads, {described(target)}; speed-up over plain decoding. A "
               f"plain step reads {near['bytes'] / 1e9:.2f} GB, "
               f"{per_second(near['bytes'], [near['seconds']['target step']]) / 1e9:.0f} GB/s; measured for that many "
               f"bytes: {near['bandwidth'] / 1e9:.0f}")
    return [near, *found]


def roofline(target: GPT, draft_model: GPT) -> dict:
    """Rates of this machine, and each step's seconds beside its floor. A round's floor is that of its parts."""
    device, size = target.device, weight_bytes(target)
    near, far = bandwidth(size, device), bandwidth(512 * 2 ** 20, device)
    floors = {"target step": size / near, "draft step": weight_bytes(draft_model) / near, "verification": size / near}
    floors["round"] = ROUND * floors["draft step"] + floors["verification"]
    costs = measure_costs(target, draft_model, [ROUND + 1])
    took = {"target step": costs.seconds, "draft step": costs.c * costs.seconds,
            "verification": costs.v[ROUND + 1] * costs.seconds, "round": costs.seconds * costs.round(ROUND, ROUND + 1)}
    return {"bytes": size, "bandwidth": near, "bandwidth_of_512_MiB": far,
            "matrix_rate": matrix_rate(target.dtype, device), "gamma": ROUND, "floor_seconds": floors, "seconds": took}


def large_pair(device: torch.device | str) -> tuple[GPT, GPT]:
    """A pair of sizes LARGE with random weights, in bfloat16 and the fastest layout."""
    with torch.device(device):
        pair = [GPT(config).to(torch.bfloat16).requires_grad_(False) for config in LARGE]
    target, draft_model = (pack(model) if can_pack(model.embedding.weight) else model for model in pair)
    return target, draft_model


def pace(step: Callable[[int], object], kv_length: int, text: Text, dice: Dice, uniforms: int, repeats: int,
         compiler: Callable | None) -> tuple[float, float]:
    """Seconds that step(kv_length) takes, and the tokens it adds to each row of `text`."""
    before, step = text.length.clone(), compiler(step, text, dice) if compiler else step

    def once():
        dice.refill(uniforms)
        step(kv_length)

    seconds = median_seconds(once, dice.device, repeats, warm_up=3)
    return seconds, (text.length - before).double().mean().item() / (repeats + 3)


@torch.inference_mode()
def simulated(target: GPT, draft_model: GPT, alphas: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9),
              gammas: Sequence[int] = (2, 4, 8), rows: Sequence[int] = (1, 8, 32), context: int = 256,
              repeats: int = 5, compiler: Callable | None = None) -> list[dict]:
    """Speed-up over plain decoding if draft tokens were accepted with probability alpha.

    Rounds and plain steps are run in turns. The target's cache holds zeros instead of a prompt. A round has no branch
    and takes as long whatever is accepted, so that its cost in plain steps is one median.
    """
    out, room = [], (repeats + 4) * (max(gammas) + 1)

    def begin(count: int, alpha: float = 0.0) -> tuple:
        text = Text([[0] * context] * count, room, target.config.vocab_size, target.device)
        return target.new_cache(*text.tokens.shape), text, Coins(range(count), target.device, alpha)

    for count, gamma in product(rows, gammas):
        plain, took, tokens = [], [], []
        for alpha in alphas:
            with announced(f"measuring {count} texts, gamma {gamma}, alpha {alpha:g}"):
                cache, text, dice = begin(count)
                step: Callable = partial(plain_step, target, cache, text, Sampling(), dice)
                plain.append(pace(step, context + room, text, dice, 1, repeats, compiler)[0])
                (cache, text, dice), drafter = begin(count, alpha), ModelDrafter(draft_model, gamma)
                drafter.begin(text)
                drafter.read(text, range(count), None)
                step = partial(one_round, target, cache, drafter, verify, text, Sampling(), dice)
                uniforms = drafter.uniforms + drafter.most + 1
                seconds, written = pace(step, context + room, text, dice, uniforms, repeats, compiler)
            took.append(seconds)
            tokens.append(written)
        cost = median(seconds / alone for seconds, alone in zip(took, plain))
        out += [{"rows": count, "gamma": gamma, "alpha": alpha, "plain": median(plain), "round": median(took),
                 "acceptance_length": written, "speedup": expected_tokens(alpha, gamma) / cost}
                for alpha, written in zip(alphas, tokens)]
    return out


if __name__ == "__main__":
    quiet()
    sys.exit(main())
