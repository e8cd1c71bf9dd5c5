"""Why is mine slow? What a round is made of on this machine, what each part would have to be, and
what to change first.

    nanospec why                                        # the pair that ships
    nanospec why --weights FOLDER --gamma 8 --temperature 0
    nanospec why --weights model.gguf --drafter suffix  # a target without a draft model

One text at a time. Plain decoding and speculation take turns.
"""

import argparse
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from nanospec.cli import options
from nanospec.cli.bench.method_options import chosen_drafters, options_of, read_pair
from nanospec.cli.bench.parts import Found, Parts, parts_of, turn
from nanospec.cli.demo_options import PROMPT, WORDS
from nanospec.cli.parser import Parser
from nanospec.cli.show.terminal import note, show_table, status_of
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import setups_of
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.sources import source_of
from nanospec.methods.index import DRAFTERS, method_of, most_drafted

DEFAULTS = {"prompt": PROMPT, "draft": "gpt", "drafter": None, "gamma": None, "temperature": 0.8,
            "weights": WEIGHTS, "threads": None, **options.SAMPLING}
GAMMA = 4               # draft tokens of a round, where the user asks for no other number
TURNS, NEW = 8, 64      # texts, and tokens of each
FREE = 1.1              # a draft length that gains so many times more comes first: it costs nothing to change
GAINS = (1, 2)          # what each part would have to be for these speed-ups
LESSONS = {"tokens": "Good where it matters", "c": "A state that reads its draft", "v": "Ten for the price of one",
           "overhead": "How fast", "gamma": "How fast"}


def main(argv: Sequence[str] | None = None) -> int:
    return status_of("why", lambda: show(run(parsed(argv))))


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for. RequestError for what cannot be."""
    parser = Parser(prog="nanospec why", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_options(parser, DEFAULTS, WORDS | {"gamma": str(GAMMA)})
    asked = parser.parse_args(argv)
    asked.weights = source_of(asked.weights)
    named = [asked.drafter] if asked.drafter else []
    asked.drafter, = chosen_drafters(named, asked.weights, [asked.draft], "--drafter")
    if asked.gamma and DRAFTERS[asked.drafter].sized_by != "gamma":
        raise RequestError(f"--drafter {asked.drafter} takes no --gamma")
    return asked


def run(asked: argparse.Namespace) -> Found:
    """Measured, after what cannot be done was refused; with a line of what was measured."""
    target, draft, tokenizer = read_pair(asked.weights, asked.device, asked.draft)
    ids = tokenizer.begin + tokenizer.encode(asked.prompt)
    sampling = options.sampling_of(asked)
    gamma = asked.gamma or most_drafted(asked.drafter, draft, GAMMA)
    method = method_of(target, draft, asked.drafter, asked.rule, gamma=gamma)
    new = max(NEW, 4 * (method.gamma + 1))                  # a few rounds, if all is accepted
    if asked.gamma and len(ids) + new > target.config.context:
        raise RequestError(f"--gamma {asked.gamma} is too many here: after a prompt of {len(ids)} tokens {new} are "
                           f"measured, and the context is {target.config.context}")
    check_request(target, ids, new, **sampling, seed=asked.seed, rows=method.gamma + 1)
    setups, where = setups_of(target, draft, asked.dtype, asked.threads)
    target, draft, _ = setups[-1]
    chosen = options_of(target, draft, [ids], [asked.drafter], {}, gamma, **sampling)
    method = method_of(target, draft, asked.drafter, asked.rule, gamma=gamma, **chosen)
    note(f"{where}; {method.name}, temperature {asked.temperature:g}, {TURNS} texts of {new} tokens")
    with announced("measuring plain decoding, rounds and their parts, in turns"):
        turn(target, method, ids, seed=asked.seed, max_new_tokens=new, **sampling)      # the first is slower
        return parts_of(target, draft, method, ids, asked.seed, TURNS, max_new_tokens=new, **sampling)


def show(found: Found) -> None:
    """A table: each quantity, what it is here, and what it would have to be for GAINS. Then both
    speed-ups, and the advice.
    """
    parts, size = found.parts, f"{found.parts.rows:.3g}"
    values = {"tokens": ("tokens per target call", parts.tokens, f"of {parts.most:.3g} if all were accepted"),
              "alpha": ("alpha", parts.alpha if parts.gamma else None,
                        "by position: " + " ".join(f"{alpha:.2f}" for alpha in found.alphas)),
              "c": ("c", parts.c if parts.steps else None, "a draft step / a target step"),
              "v": (f"v({size})", parts.v, f"a target call on {size} tokens / on one"),
              "overhead": ("overhead", parts.overhead, "what else a round takes, in target steps")}
    limits, cells = [parts.needed(gain) for gain in GAINS], []
    for name, (words, value, what) in values.items():
        if value is not None:
            sign = "≥" if name in ("tokens", "alpha") else "≤"
            cells.append([words, f"{value:.2f}", *("—" if limit[name] is None else f"{sign} {limit[name]:.2f}"
                                                   for limit in limits), what])
    show_table(["", "here", *(f"for {gain}" for gain in GAINS), ""], cells,
               "for 1, for 2: what this speed-up needs, the others as they are; —: not reachable")
    Console().print(Text(verdict(found)), Text(advice(parts), "bold"), sep="\n")


def verdict(found: Found) -> str:
    """The expected and the measured speed-up, and whether they agree."""
    words = "they agree within" if found.apart <= found.noise else "they differ by more than"
    return (f"speed-up: {found.parts.gain:.2f} expected, {median(found.measured):.2f} measured; {found.apart:.0%} "
            f"apart, {words} the noise of the clock and the coins ({found.noise:.0%})"
            + "; this machine is busy: measure again" * found.busy)


def advice(parts: Parts) -> str:
    """One sentence: what to change first. It is what would gain most at its best; but another draft
    length, which costs nothing, comes before it if it gains a tenth or more.
    """
    gammas, ideal = parts.of_gammas(), parts.ideal()
    gamma = max(gammas, key=gammas.__getitem__, default=0)
    if gammas and gammas[gamma] >= FREE * gammas[parts.gamma]:
        first, best = "gamma", gammas[gamma]
        words = f"Your drafts are too {'long' if gamma < parts.gamma else 'short'}: with gamma {gamma}"
    else:
        first = max(ideal, key=ideal.__getitem__)
        best, accepted = ideal[first], (f"alpha is {parts.alpha:.2f}" if parts.gamma else
                                        f"a round brings {parts.tokens:.2f} tokens")
        words = {
            "tokens": f"Too few draft tokens are accepted: {accepted}, and if all were",
            "c": f"Your draft model is too slow: c is {parts.c:.2f}, and if its steps took no time",
            "v": f"Your target's calls grow: one on {parts.rows:.3g} tokens takes {parts.v:.2f} times as long as one "
                 "on a single token, and if it took as long",
            "overhead": f"A round takes {parts.overhead:.2f} target steps besides its calls, and without them"}[first]
    return f"{words}, the speed-up would be {best:.2f} instead of {parts.gain:.2f} (lesson: {LESSONS[first]})."
