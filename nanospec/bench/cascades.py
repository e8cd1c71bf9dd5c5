"""What a text is worth and what it costs: plain decoding, speculation, and what is not lossless beside it. T = 1.

Each of these writes by a distribution of its own, made of the target's and the draft's. On held-out text it is asked,
without dice, what it gives to the token that really follows:

    right   the mean of that: how often the next token that it writes is the author's
    nats    the mean of minus its logarithm; inf where the author's token was impossible
    TV      the total variation from the target's distribution

What cuts off unlikely tokens is right more often, and so is plain decoding with a top-p: that is the fair comparison.
Speeds are measured in turns with plain decoding of the same top-p.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nanospec.bench.measure import busy, check_texts, measure
from nanospec.bench.prompts import held_out_prompts
from nanospec.draft import Rule
from nanospec.draft_models.learned import Learned
from nanospec.fast.autotune import autotune
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import WEIGHTS, Pair, draft_of, load_pair
from nanospec.files.sources import source_of
from nanospec.methods import drafters_for, method_of
from nanospec.probs import Sampling, residual
from nanospec.rules.cascade import DEFERRALS, cascade
from nanospec.rules.lossy import enough, lenient, typical
from nanospec.show.figures import draw_cascades
from nanospec.show.terminal import show_table
from nanospec.speculate import verify
from nanospec.theory import acceptance
from nanospec.training.whole import before_tokens, whole_texts

Writes = Callable[[Tensor, Tensor], Tensor]     # (q_draft (N, V), p_target (N, V)) -> what is written (N, V)
WINDOWS, PLACES = 32, 256                       # held-out text that is judged
THRESHOLDS = {"chow": (0.2, 0.4, 0.6), "diff": (0.1, 0.3), "opt": (0.3, 0.6, 1.0), "v1": (0.1, 0.3, 0.6),
              "v2": (0.1, 0.3, 0.6), "v3": (0.6, 0.9, 0.97)}


@dataclass
class Contender:
    """rule: of its speculation; None: plain decoding. top_p: of target and draft."""

    family: str
    name: str
    writes: Writes
    rule: Rule | None = None
    top_p: float | None = None


def contenders() -> list[Contender]:
    found = []
    for top_p in (None, 0.9, 0.8):
        cut, named = Sampling(1.0, top_p=top_p), f" top-p {top_p}" if top_p else ""
        writes = partial(lambda cut, q, p: cut(p.log()), cut)
        found += [Contender("target alone", "target alone" + named, writes, None, top_p),
                  Contender("speculation", "speculation" + named, writes, verify, top_p)]
    found += [Contender(deferral, f"{deferral} {a:g}", partial(DEFERRALS[deferral], a=a), cascade(deferral, a, verify))
              for deferral, some in THRESHOLDS.items() for a in some]
    found += [Contender("lenience", f"lenience {lenience:g}", partial(of_lenience, lenience), lenient(lenience, verify))
              for lenience in (0.8, 0.5, 0.25)]
    return [*found, Contender("typical", "typical", of_typical, typical)]


def of_lenience(lenience: float, q: Tensor, p: Tensor) -> Tensor:
    """What lenient acceptance writes in the place of a draft token."""
    kept = torch.minimum(q, p / lenience)
    return kept + (1 - kept.sum(-1, keepdim=True)) * residual(p, q)


def of_typical(q: Tensor, p: Tensor) -> Tensor:
    """The same of typical acceptance: a token that passes is the draft's, any other is drawn from the target."""
    kept = torch.where(p > enough(p)[..., None], q, 0.0)
    return kept + (1 - kept.sum(-1, keepdim=True)) * p


@torch.inference_mode()
def held_out(pair: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """Of held-out text q_draft and p_target (N, V) at every place, and the token that follows (N,)."""
    text = torch.tensor(held_out_prompts(pair, WINDOWS, PLACES + 1), device=pair.target.device)
    tokens = text[:, :-1]
    if isinstance(pair.draft, Learned):
        logits, hidden = pair.target(tokens, layers=pair.draft.layers)
        draft = whole_texts(pair.draft, tokens, before_tokens(hidden), 1)[0]
    else:
        logits, draft = pair.target(tokens), pair.draft(tokens)
    q, p = (of.double().softmax(-1).flatten(0, 1) for of in (draft, logits))
    return q, p, text[:, 1:].flatten()


def quality(written: Tensor, p: Tensor, true: Tensor) -> dict:
    of_true = written.gather(1, true[:, None])[:, 0]
    return {"right": of_true.mean().item(), "nats": -of_true.clamp(min=0).log().mean().item(),
            "off": 1 - acceptance(written, p).mean().item()}


def run(draft: str = "gpt", gamma: int = 4, prompts: int = 6, max_new_tokens: int = 128, seed: int = 0,
        weights: Path | str = WEIGHTS, device: str = "cpu", dtype: str = "auto", threads: int | None = None,
        figure: Path | None = None) -> list[dict]:
    """One row for each contender; the last is the draft model alone, at its own step."""
    source = source_of(weights)
    drafters_for(["chain"], draft != "gpt" or draft_of(source) is not None)
    pair, every = load_pair(source, device, draft=draft), contenders()
    texts = held_out_prompts(pair, prompts)
    chain = method_of(pair.target, pair.draft, gamma=gamma)
    check_texts(pair.target, texts, max_new_tokens, [chain])
    q, p, true = held_out(pair)
    where = autotune(pair.target, pair.draft, dtype, threads)
    speeds: dict[str, dict] = {}
    for top_p in dict.fromkeys(entry.top_p for entry in every):
        some = [entry for entry in every if entry.top_p == top_p and entry.rule]
        methods = [replace(chain, rule=entry.name, run=partial(chain.run, rule=entry.rule)) for entry in some]
        with announced(f"measuring {len(some)} rules at top-p {top_p or 1:g}"):
            for row, _ in measure(pair.target, pair.draft, texts, methods, seed=seed, max_new_tokens=max_new_tokens,
                                  temperature=1.0, top_p=top_p):
                speeds[row["rule"]] = row
    plain = speeds["speculation"]
    rows = [{"family": entry.family, "name": entry.name, **quality(entry.writes(q, p), p, true),
             "speedup": speeds[entry.name]["speedup"] if entry.rule else 1.0,
             "per_call": speeds[entry.name]["tokens_per_target_call"] if entry.rule else 1.0, "busy": plain["busy"]}
            for entry in every]
    rows.append({"family": "draft alone", "name": "draft alone", **quality(q, p, true), "speedup": 1 / plain["c"],
                 "per_call": float("inf"), "busy": plain["busy"]})
    cells = [[row["name"], f"{row['right']:.3f}", f"{row['nats']:.2f}", f"{row['off']:.2f}", f"{row['per_call']:.2f}",
              f"{row['speedup']:.2f}"] for row in rows]
    show_table(["", "right", "nats", "TV", "per call", "speed-up"], cells,
               f"{where}; {prompts} held-out texts, {max_new_tokens} tokens each, gamma {gamma}; right, nats, TV: "
               f"{len(true):,} held-out tokens" + busy(rows))
    if figure:
        draw_cascades(rows, f"{draft}, gamma {gamma}, T = 1", figure)
    return rows
