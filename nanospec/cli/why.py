"""Why is mine slow? What a round is made of on this machine, what each part would have to be, and
what to change first.

    nanospec why                                        # the pair that ships
    nanospec why --weights FOLDER --gamma 8 --temperature 0
    nanospec why --weights model.gguf --drafter suffix  # a target without a draft model

One text at a time. Plain decoding and speculation take turns, and the parts are those of `nanospec
bench speed`: calls are measured alone, and what a round takes beyond them is its overhead. A draft
model whose weights the target's call drives out of the processor's caches has a share in it.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean

from rich.console import Console
from rich.text import Text

from nanospec.cli import options
from nanospec.cli.bench.measure import busy, measure, measure_costs
from nanospec.cli.bench.method_options import chosen_drafters, options_of, read_pair
from nanospec.cli.demo_options import PROMPT, WORDS
from nanospec.cli.launch import command
from nanospec.cli.parser import Parser
from nanospec.cli.quantities import rows_of_call
from nanospec.cli.show.terminal import note, show_table
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import setups_of
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.sources import source_of
from nanospec.methods.index import DRAFTERS, method_of, most_drafted
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import Round
from nanospec.theory import break_even, needed, speedup

DEFAULTS = {"prompt": PROMPT, "draft": "gpt", "drafter": None, "gamma": None, "temperature": 0.8,
            "weights": WEIGHTS, "threads": None, **options.SAMPLING}
GAMMA = 4               # draft tokens of a round, where the user asks for no other number
TEXTS, NEW = 4, 64      # texts, and tokens of each
TRIED = 8               # draft lengths of a chain that are compared: up to this, and its own
FREE = 1.1              # another length that gains so much more comes first: it costs nothing
GAINS = (1, 2)          # what each part would have to be for these speed-ups
LESSONS = {"tokens": "Good where it matters", "c": "A state that reads its draft",
           "v": "Ten for the price of one", "overhead": "How fast", "gamma": "How fast"}


@dataclass(frozen=True)
class Parts:
    """What a round brings and takes, on average, in target steps.

    tokens: what it brings; most: if all its draft tokens, of a tree those of its longest path, were
    accepted. steps: of drafting. rows: tokens of the target's call. overhead: what it takes beyond
    its calls. gamma, v_of: of a chain its draft tokens, and {gamma: v(gamma + 1)} of the lengths to
    compare it with.
    """

    tokens: float
    most: float
    steps: float
    c: float
    v: float
    overhead: float
    rows: float
    gamma: int = 0
    v_of: dict[int, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The speed-up that follows."""
        return self.tokens / (self.steps * self.c + self.v + self.overhead)

    @property
    def alpha(self) -> float:
        """Of a chain: the one alpha that brings these tokens by Eq. 1."""
        return break_even(min(self.tokens, self.gamma + 1), self.gamma, 0)

    def needed(self, gain: float) -> dict[str, float | None]:
        """As theory's; of a chain with "alpha"."""
        found = needed(gain, self.tokens, self.most, self.steps, self.c, self.v, self.overhead)
        if self.gamma:
            alpha = break_even(gain, self.gamma, self.c, self.v + self.overhead)
            found["alpha"] = None if alpha == inf else alpha
        return found

    def of_gammas(self) -> dict[int, float]:
        """gamma -> the speed-up by the formula, with this alpha, c and overhead."""
        return {gamma: speedup(self.alpha, gamma, self.c, v + self.overhead)
                for gamma, v in self.v_of.items()}

    def ideal(self) -> dict[str, float]:
        """Part -> the speed-up if it were as good as can be, and the others as they are."""
        best: dict = {"tokens": self.most, "c": 0.0, "v": min(self.v, 1.0),
                      "overhead": min(self.overhead, 0.0)}
        return {part: replace(self, **{part: value}).gain for part, value in best.items()}


@command("why")
def main(argv: Sequence[str] | None = None) -> None:
    show(*run(parsed(argv)))


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for. RequestError for what cannot be."""
    parser = Parser(prog="nanospec why", description=__doc__)
    options.add_options(parser, DEFAULTS, WORDS | {"gamma": str(GAMMA)})
    asked = parser.parse_args(argv)
    asked.weights = source_of(asked.weights)
    named = [asked.drafter] if asked.drafter else []
    asked.drafter, = chosen_drafters(named, asked.weights, [asked.draft], "--drafter")
    if asked.gamma and DRAFTERS[asked.drafter].sized_by != "gamma":
        raise RequestError(f"--drafter {asked.drafter} takes no --gamma")
    return asked


def run(asked: argparse.Namespace) -> tuple[dict, Parts]:
    """The bench's row of numbers, and what a round is made of; with a line of what was measured."""
    target, draft, tokenizer = read_pair(asked.weights, asked.device, asked.draft)
    ids = tokenizer.begin + tokenizer.encode(asked.prompt)
    sampling = options.sampling_of(asked)
    gamma = asked.gamma or most_drafted(asked.drafter, draft, GAMMA)
    method = method_of(target, draft, asked.drafter, asked.rule, gamma=gamma)
    new = max(NEW, 4 * (method.gamma + 1))                  # a few rounds, if all is accepted
    if asked.gamma and len(ids) + new > target.config.context:
        raise RequestError(f"--gamma {asked.gamma} is too many here: after a prompt of {len(ids)} "
                           f"tokens {new} are measured, and the context is "
                           f"{target.config.context}")
    check_request(target, ids, new, **sampling, seed=asked.seed, rows=method.gamma + 1)
    setups, where = setups_of(target, draft, asked.dtype, asked.threads)
    target, draft, _ = setups[-1]
    chosen = options_of(target, draft, [ids], [asked.drafter], {}, gamma, **sampling)
    method = method_of(target, draft, asked.drafter, asked.rule, gamma=gamma, **chosen)
    note(f"{where}; {method.name}, temperature {asked.temperature:g}, {TEXTS} texts of {new} "
         "tokens, three times")
    with announced("measuring plain decoding, rounds and their parts, in turns"):
        list(method.run(ids, max_new_tokens=new, **sampling))           # the first is slower
        (row, rounds), = measure(target, draft, [ids] * TEXTS, [method], seed=asked.seed,
                                 max_new_tokens=new, **sampling)
        v_of: dict[int, float] = {}
        if asked.drafter == "chain":
            lengths = sorted({*range(1, 1 + longest_chain(draft, TRIED)), gamma})
            v = measure_costs(target, None, [length + 1 for length in lengths], len(ids),
                              **sampling).v
            v_of = {length: v[length + 1] for length in lengths}
    return row, parts_of(row, rounds, v_of)


def parts_of(row: Mapping, rounds: Sequence[Round], v_of: dict[int, float]) -> Parts:
    """Of a row of `measure`. v_of: of a chain, as in Parts."""
    calls = row["steps"] * row["c"] + row["v"]
    return Parts(row["tokens_per_target_call"], mean(longest(done.parents) for done in rounds),
                 row["steps"], row["c"], row["v"], (row["overhead"] - 1) * calls,
                 rows_of_call(row), row["gamma"] if v_of else 0, v_of)


def longest(parents: Sequence[int]) -> int:
    """Rows of the longest path of a draft. parents: of each row, which stand before it.

    Example: [-1, 0, 0, 2] gives 3.
    """
    rows: list[int] = []
    for parent in parents:
        rows.append(1 + (rows[parent] if parent >= 0 else 0))
    return max(rows)


def show(row: dict, parts: Parts) -> None:
    """A table: each quantity, here and as GAINS need it. Then both speed-ups, and the advice."""
    size, alphas = f"{parts.rows:.3g}", row["alpha_by_position"]
    values = {"tokens": ("tokens per target call", parts.tokens,
                         f"of {parts.most:.3g} if all were accepted"),
              "alpha": ("alpha", parts.alpha if parts.gamma else None,
                        "by position: " + " ".join(f"{alpha:.2f}" for alpha in alphas)),
              "c": ("c", parts.c if parts.steps else None, "a draft step / a target step"),
              "v": (f"v({size})", parts.v, f"a target call on {size} tokens / on one"),
              "overhead": ("overhead", parts.overhead, "beyond its calls, in target steps")}
    limits, cells = [parts.needed(gain) for gain in GAINS], []
    for name, (words, value, what) in values.items():
        if value is not None:
            sign = "≥" if name in ("tokens", "alpha") else "≤"
            for_gains = ["—" if limit[name] is None else f"{sign} {limit[name]:.2f}"
                         for limit in limits]
            cells.append([words, f"{value:.2f}", *for_gains, what])
    show_table(["", "here", *(f"for {gain}" for gain in GAINS), ""], cells,
               "for 1, for 2: what this speed-up needs, the others as they are; —: not reachable")
    both = (f"speed-up: {parts.gain:.2f} by these parts, {row['speedup']:.2f} measured, where "
            "reading the prompt counts" + busy([row]))
    Console().print(Text(both), Text(advice(parts), "bold"), sep="\n")


def advice(parts: Parts) -> str:
    """One sentence: what to change first. It is what would gain most at its best; but another draft
    length, which costs nothing, comes before it if it gains a tenth or more.
    """
    gammas, ideal = parts.of_gammas(), parts.ideal()
    gamma = max(gammas, key=gammas.__getitem__, default=0)
    if gammas and gammas[gamma] >= FREE * gammas[parts.gamma]:
        first, best = "gamma", gammas[gamma]
        too = "long" if gamma < parts.gamma else "short"
        words = f"Your drafts are too {too}: with gamma {gamma}"
    else:
        first = max(ideal, key=ideal.__getitem__)
        best = ideal[first]
        accepted = (f"alpha is {parts.alpha:.2f}" if parts.gamma else
                    f"a round brings {parts.tokens:.2f} tokens")
        words = {
            "tokens": f"Too few draft tokens are accepted: {accepted}, and if all were",
            "c": f"Your draft model is too slow: c is {parts.c:.2f}, and if its steps took no time",
            "v": f"Your target's calls grow: one on {parts.rows:.3g} tokens takes {parts.v:.2f} "
                 "times as long as one on a single token, and if it took as long",
            "overhead": f"A round takes {parts.overhead:.2f} target steps besides its calls, and "
                        "without them"}[first]
    return (f"{words}, the speed-up would be {best:.2f} instead of {parts.gain:.2f} "
            f"(lesson: {LESSONS[first]}).")
