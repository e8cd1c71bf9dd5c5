"""Plain decoding against speculation, in turns: any drafters, draft models, rules and lengths.

What stands in the columns:

    alpha               how often a draft token is accepted
    c                   the time of a draft step / of a target call on one token
    v                   the time of a target call on a whole draft / on one token
    acceptance length   tokens for each target call: the engines' word, bonus token included
    plain, fast         tokens a second: the target alone, and speculation
    speed-up            the second over the first; below 1, speculation has lost
    theory              the speed-up that alpha, c and v predict
    overhead            the time of a round / the sum of its parts, each measured alone

`--drafters all` takes every drafter that goes with the draft model, `--draft-models all` every
draft model beside the target of --weights. Drafters that copy need no draft model: they run once,
beside the first one.

--prompts FILE.jsonl asks questions, and has a table of its own, which is explained at the end.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from nanospec.cli.bench import questions
from nanospec.cli.bench.measure import busy, measure, measure_setups
from nanospec.cli.bench.prompts import prompts_of
from nanospec.cli.bench.question_file import read_questions
from nanospec.cli.bench.questions import Others
from nanospec.cli.method_options import (check_fixed, chosen_drafters, options_of, read_pair,
                                         takes_shape, topology_of)
from nanospec.cli.show.terminal import ShownTable, show_table
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import setups_of, weights_of
from nanospec.files.checkpoint import WEIGHTS, find_draft_model
from nanospec.files.model_file import fingerprint
from nanospec.files.sources import find_source
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, WITHOUT_DRAFT_MODEL, Method, method_of, most_drafted

COLUMNS = {"T": ("temperature", "g"), "draft model": ("draft_model", "s"),
           "drafter": ("drafter", "s"),
           "gamma": ("gamma", "d"), "rule": ("rule", "s"), "alpha": ("alpha", ".2f"),
           "c": ("c", ".3f"), "v": ("v", ".2f"),
           "accept-\nance\nlength": ("acceptance_length", ".2f"),
           "plain\nper s": ("baseline_tokens_per_s", ",.0f"),
           "fast\nper s": ("tokens_per_s", ",.0f"), "speed-up": ("speedup", ".2f"),
           "theory": ("predicted_speedup", ".2f"), "over-\nhead": ("overhead", ".2f")}
SPARE = ("predicted_speedup", "overhead")       # left out where others need the 80 characters


def run(temperatures: Sequence[float] = (0.0, 0.8, 1.0), drafters: Sequence[str] = (),
        draft_models: Sequence[str] = ("gpt",), rules: Sequence[str] = ("token",),
        gammas: Sequence[int] = (2, 3, 4), shape: Sequence[int] | None = None,
        prompts: int | str | Path = 8, answers: Path | None = None, max_new_tokens: int = 128,
        seed: int = 0, weights: Path | str = WEIGHTS, device: str = "cpu", dtype: str = "auto",
        threads: int | None = None, compile: bool = False,
        others: Others | None = None) -> tuple[list[dict], ShownTable]:
    """One row for each draft model, temperature and method; its `text` is what was written after
    all prompts together.

    drafters: none is "chain", or "suffix" where there is no draft model. compile: each method runs
    eagerly and compiled, and a row is the faster one's, over the faster baseline. others: who is
    asked the same questions.
    """
    asked = read_questions(prompts) if isinstance(prompts, Path) else None
    if answers and not asked:
        raise RequestError("--answers is for questions that --prompts FILE.jsonl asks")
    if asked and compile:
        raise RequestError("--prompts FILE.jsonl goes without --compile")
    source = find_source(weights)
    if "all" in draft_models:
        files = {find_draft_model(source, name): name for name in ("gpt", *LEARNED)}  # none twice
        draft_models = [name for file, name in files.items() if file] or ["gpt"]
    named = chosen_drafters(drafters, source, draft_models, "--drafters")
    if shape and not any(takes_shape(drafter, shape) for drafter in named):
        raise RequestError("--shape is a tree's, and none of --drafters drafts one of a given "
                           "shape")
    if compile:
        check_fixed(named, rules)
    by_gamma = not shape and any(DRAFTERS[drafter].takes == "gamma" for drafter in named)
    several = max(map(len, (temperatures, draft_models, rules, named))) > 1
    if answers and (several or by_gamma and len(gammas) > 1):
        raise RequestError("--answers is for one method, of one gamma, at one temperature")
    if answers:                 # what is no file of answers is refused before anything is measured
        for method in named[0], "plain":
            questions.read_answers(questions.kept_in(answers, method))
    given = topology_of(shape)
    pairs = {name: read_pair(source, device, name) for name in draft_models}
    texts, what = prompts_of(pairs[draft_models[0]], asked or str(prompts), max_new_tokens)
    drafters_of = {name: [drafter for drafter in named
                          if drafter not in WITHOUT_DRAFT_MODEL or name == draft_models[0]]
                   for name in pairs}
    making = {name: partial(methods, drafters_of[name], gammas, rules, "all" in drafters)
              for name in pairs}
    for name, pair in pairs.items():
        first = making[name](given, pair.target, pair.draft_model)
        check_request(pair.target, max(texts, key=len), max_new_tokens, 0,
                      max((method.gamma for method in first), default=0))
    rows, where = [], ""
    for name, pair in pairs.items():
        # As they were read: what they are converted to may be another thing the next time.
        digests = [fingerprint(model) for model in pair[:2] if asked and model is not None]
        setups, where = setups_of(pair.target, pair.draft_model, dtype, threads, compile)
        theirs: dict[str, str] = {}
        for temperature in temperatures:
            request: dict = {"max_new_tokens": max_new_tokens, "temperature": temperature}
            options = options_of(pair.target, pair.draft_model, texts, drafters_of[name], given,
                                 max(gammas), temperature=temperature)
            made = partial(making[name], options)
            eager = made(pair.target, pair.draft_model)
            if asked:
                writers = questions.make_writers(pair.target, eager, pair.tokenizer, request)
                settings = {"weights": source.path.name, "draft_model": name, "digests": digests,
                            "dtype": weights_of(pair.target), "threads": torch.get_num_threads(),
                            "shape": options.get("topology", options.get("grown")), **request}
                more, theirs = others(pair, request) if others else ({}, {})
                rows += questions.ask(asked, writers | more, pair.tokenizer, seed,
                                      settings | theirs, answers)
                continue
            measure(pair.target, pair.draft_model, texts[:1], eager, repeats=1,
                    max_new_tokens=min(16, max_new_tokens), what="warming up")
            measuring = f"measuring {name} and plain decoding at T = {temperature:g}, in turns"
            done = measure_setups(setups, pair.tokenizer, texts, made, seed=seed, what=measuring,
                                  **request)
            rows += [row | {"draft_model": ("none" if row["drafter"] in WITHOUT_DRAFT_MODEL
                                            else name)} for row in done]
        where += "".join(f"; {who} in {kind}" for who, kind in theirs.items())
    caption = f"{where}; {what}, {max_new_tokens} tokens each"
    return rows, (questions.show(rows, f"{caption} at most") if asked else
                  show(rows, caption, len(pairs) > 1))


def methods(drafters: Sequence[str], gammas: Sequence[int], rules: Sequence[str], possible: bool,
            options: dict, target: Any, draft_model: Any) -> list[Method]:
    """One of each name: some drafters are as long as they are, whatever gamma is. possible: those
    that go with this draft model; else a RequestError for one that does not, as a stack with a
    learned one.
    """
    found = {}
    for drafter, gamma, rule in product(drafters, gammas, rules):
        most = most_drafted(drafter, draft_model, gamma)
        try:
            method = method_of(target, draft_model, drafter, rule, gamma=most, **options)
            found[method.name] = method
        except RequestError:
            if not possible:
                raise
    return [*found.values()]


def show(rows: Sequence[dict], caption: str, several: bool = False) -> ShownTable:
    """A table; the best row of each temperature is bold. several: of several draft models."""
    both = "tokens_per_s_compiled" in rows[0]
    columns: dict[str, tuple[str, str]] = {}
    for name, (key, form) in COLUMNS.items():
        if key in SPARE and (both or several) or key == "draft_model" and not several:
            continue
        if key + "_compiled" in rows[0]:
            columns |= {f"{name}\n{how}": (f"{key}_{how}", form) for how in ("eager", "compiled")}
        else:
            columns[name] = key, form
    best = {row["temperature"]: row["speedup"]                      # of several the last one stays
            for row in sorted(rows, key=lambda row: row["speedup"])}
    cells = [[format(row[key], form) + " lost" * (key == "speedup" and row[key] < 1)
              for key, form in columns.values()] for row in rows]
    return show_table(columns, cells, caption + busy(rows),
                      [row["speedup"] == best[row["temperature"]] for row in rows])
