"""Why is mine slow? What a round is made of on this machine, what each part would have to be, and
what to change first.

    nanospec why                                        # the pair that ships
    nanospec why --weights FOLDER --gamma 8 --temperature 0
    nanospec why --weights model.gguf --drafter suffix  # a target without a draft model
    nanospec why --counters FILE                        # what an engine printed: why so few?

One text at a time. Plain decoding and speculation take turns, and the parts are those of `nanospec
bench speed`: calls are measured alone, and what a round takes beyond them is its overhead. A draft
model whose weights the target's call drives out of the processor's caches has a share in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean

import torch
from rich.console import Console
from rich.text import Text

from nanospec.cli import options
from nanospec.cli.acceptance_curve import NONE, wilson
from nanospec.cli.bench.measure import busy, measure, measure_costs
from nanospec.cli.prepared import DEFAULTS, WORDS, Prepared, settled
from nanospec.cli.launch import Parser, command
from nanospec.cli.quantities import accepted_lengths, tokens_of_call
from nanospec.cli.show.terminal import note, show_table
from nanospec.cli.why_low import answer
from nanospec.errors import RequestError
from nanospec.methods.trees.tree_draft import ancestors_of
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import Round
from nanospec.theory import break_even, needed, speedup

GAMMA = 4               # draft tokens of a round, where the user asks for no other number
TEXTS, NEW = 4, 64      # texts, and tokens of each
TRIED = 8               # draft lengths of a chain that are compared: up to this, and its own
APART = 1.3             # times: parts and measurement that differ more were of other moments
FREE = 1.1              # another length that gains so much more comes first: it costs nothing
GAINS = (1, 2)          # what each part would have to be for these speed-ups
LESSONS = {"tokens": "Good where it matters", "c": "A state that reads its draft",
           "v": "Ten for the price of one", "overhead": "How fast", "gamma": "How fast"}


@dataclass(frozen=True)
class Parts:
    """What a round brings and takes, on average, in target steps.

    tokens: what it brings; most: if all its draft tokens, of a tree those of its longest path, were
    accepted. steps: of drafting. nodes: tokens of the target's call. overhead: what it takes beyond
    its calls. gamma, v_of: of a chain its draft tokens, and {gamma: v(gamma + 1)} of the lengths to
    compare it with. rounds: how many there were.
    """

    tokens: float
    most: float
    steps: float
    c: float
    v: float
    overhead: float
    nodes: float
    gamma: int = 0
    v_of: dict[int, float] = field(default_factory=dict)
    rounds: int = 0

    @property
    def gain(self) -> float:
        """The speed-up that follows."""
        return self.tokens / (self.steps * self.c + self.v + self.overhead)

    @property
    def alpha(self) -> float:
        """Of a chain: the one alpha that brings these tokens by Eq. 1."""
        return break_even(min(self.tokens, self.gamma + 1), self.gamma, 0)

    def needed(self, gain: float) -> dict[str, float | None]:
        """As theory's; of a chain with "alpha", inf if none is enough."""
        found = needed(gain, self.tokens, self.most, self.steps, self.c, self.v, self.overhead)
        if self.gamma:
            found["alpha"] = break_even(gain, self.gamma, self.c, self.v + self.overhead)
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
def main(argv: Sequence[str]) -> None:
    parser = Parser(prog="nanospec why", description=__doc__)
    parser.add_argument("--counters", type=options.FILE, metavar="FILE", help="what an engine "
                        "printed: vLLM's metrics or log, SGLang's or llama.cpp's log, or a list of "
                        "accepted draft tokens; nothing is measured then")
    parser.add_argument("--c", type=options.TEMPERATURE, metavar="C", help="of --counters: the "
                        "time of a draft step / of a target step; default: several")
    parser.add_argument("--bonus", choices=["with", "without"], help="of --counters: whether a "
                        "list counts the bonus token")
    options.add_options(parser, DEFAULTS, WORDS | {
        "gamma": str(GAMMA), "max_new_tokens": f"{NEW}, or those of a few rounds"})
    found = parser.parse_args(argv)
    counters, c, bonus = (vars(found).pop(name) for name in ("counters", "c", "bonus"))
    if counters:
        if others := [name for name, default in DEFAULTS.items()
                      if name != "gamma" and getattr(found, name) != default]:
            raise RequestError("--counters goes with --gamma, --c and --bonus, not "
                               f"--{others[0].replace('_', '-')}")
        answer(counters, found.gamma or 0, bonus or "", c)
        return
    if c is not None or bonus:
        raise RequestError("--c and --bonus are for --counters FILE")
    args = settled(found)
    few_rounds = 4 * ((args.gamma or GAMMA) + 1)           # if all is accepted
    show(*run(Prepared(args, max(NEW, few_rounds), GAMMA)))


def run(prepared: Prepared) -> tuple[dict, Parts]:
    """The bench's row of numbers, and what a round is made of; with a line of what is measured."""
    target, draft_model, compiler = prepared.setups[-1]
    method, ids = prepared.method(target, draft_model), prepared.ids
    request = prepared.request | {"stop": (), "compiler": compiler}
    note(f"{prepared.how}; {method.name}, temperature {request['temperature']:g}, {TEXTS} texts of "
         f"{request['max_new_tokens']} tokens, three times")
    list(method.run(ids, **request))                        # the first is slower
    (row, rounds), = measure(target, draft_model, [ids] * TEXTS, [method], **request)
    v_of = {}
    if method.drafter == "chain":
        lengths = sorted({*range(1, 1 + longest_chain(draft_model, TRIED)), method.gamma})
        v = measure_costs(target, None, [length + 1 for length in lengths], len(ids),
                          compiler=compiler, **prepared.sampling).v
        v_of = {length: v[length + 1] for length in lengths}
    return row, parts_of(row, rounds, v_of)


def parts_of(row: Mapping, rounds: Sequence[Round], v_of: dict[int, float]) -> Parts:
    """Of a row of `measure`. v_of: of a chain, as in Parts."""
    calls = row["steps"] * row["c"] + row["v"]
    paths = [ancestors_of(torch.tensor([done.parents], device="cpu")).sum(-1).max().item()
             for done in rounds]
    return Parts(row["acceptance_length"], mean(paths), row["steps"], row["c"], row["v"],
                 (row["overhead"] - 1) * calls, tokens_of_call(row), row["gamma"] if v_of else 0,
                 v_of, len(rounds))


def show(row: dict, parts: Parts) -> None:
    """A table: each quantity, here and as GAINS need it. Then both speed-ups, and the advice."""
    size, alphas = f"{parts.nodes:.3g}", row["alpha_by_position"]
    values = {"tokens": ("acceptance length", parts.tokens,
                         f"tokens per target call, of {parts.most:.3g} if all were accepted"),
              "alpha": ("alpha", parts.alpha if parts.gamma else None,
                        "by position: " + " ".join(f"{alpha:.2f}" for alpha in alphas)),
              "c": ("c", parts.c if parts.steps else None, "a draft step / a target step"),
              "v": (f"v({size})", parts.v, f"a target call on {size} tokens / on one"),
              "overhead": ("overhead", parts.overhead, "beyond its calls, in target steps")}
    limits, cells = [parts.needed(gain) for gain in GAINS], []
    for name, (words, value, what) in values.items():
        if value is not None:
            sign = "≥" if name in ("tokens", "alpha") else "≤"
            for_gains = ["—" if limit[name] in (None, inf) else f"{sign} {limit[name]:.2f}"
                         for limit in limits]
            cells.append([words, f"{value:.2f}", *for_gains, what])
    show_table(["", "here", *(f"for {gain}" for gain in GAINS), ""], cells,
               "for 1, for 2: what this speed-up needs, the others as they are; —: not reachable\n"
               "draft tokens accepted in a round: "
               + accepted_lengths(row["accepted_lengths"]))
    both = (f"speed-up: {parts.gain:.2f} by these parts, {row['speedup']:.2f} measured, where "
            "reading the prompt counts" + (busy([row]) or unsure(parts.gain, row["speedup"])))
    Console().print(Text(both), Text(advice(parts), "bold"), sep="\n")


def unsure(by_parts: float, measured: float) -> str:
    """A warning, where the parts were measured in other moments than the whole."""
    return (max(by_parts, measured) > APART * min(by_parts, measured)) * (
        f"\nThese differ more than {APART:g} times: this machine was busy, or the text is too "
        "short or its prompt too long to tell.")


def advice(parts: Parts) -> str:
    """One sentence: what to change first. It is what would gain most at its best; but another draft
    length, which costs nothing, comes before it if it gains a tenth or more. Where no length gains,
    a sentence before it says so, and a draft model that is hardly ever right comes first.
    """
    gammas, ideal = parts.of_gammas(), parts.ideal()
    gamma = max(gammas, key=gammas.__getitem__, default=0)
    plain = ""
    if gammas and gammas[gamma] <= 1:
        plain = "As it is, plain decoding (no drafts) is best: no draft length tried gains. "
        if wilson(parts.alpha, parts.rounds)[1] < NONE:
            return (f"{plain}Hardly any draft token is accepted (alpha is {parts.alpha:.2f}): look "
                    "at the draft model first, for another tokenizer or template, no training, or "
                    f"wrong weights (lesson: {LESSONS['tokens']}).")
    if gammas and not plain and gammas[gamma] >= FREE * gammas[parts.gamma]:
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
            "v": f"Your target's calls grow: one on {parts.nodes:.3g} tokens takes {parts.v:.2f} "
                 "times as long as one on a single token, and if it took as long",
            "overhead": f"A round takes {parts.overhead:.2f} target steps besides its calls, and "
                        "without them"}[first]
    return (f"{plain}{words}, the speed-up would be {best:.2f} instead of {parts.gain:.2f} "
            f"(lesson: {LESSONS[first]}).")
