"""The page that `nanospec demo --html` writes: a run replayed round by round, the formulas, and one
place in a text to play with.

It is one file, opens in any browser and loads nothing. All that is the same on every page stands in
web/: the HTML, its style, and a script for each view. Python adds the run, which is the rounds' own
numbers as JSON. What a model wrote is data there and never markup: `page_of` says how.
Left out: all but the likeliest tokens of a distribution, and whatever was never judged.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from nanospec.cli.show.steps import judged
from nanospec.cli.show.terminal import Decode, ShownRound, visible
from nanospec.fast.announce import printable
from nanospec.probs import residual

WEB = Path(__file__).parent / "web"
SCRIPTS = ("base.js", "replay.js", "formulas.js", "exact.js")
BARS = 6            # tokens of a distribution that are shown; the others are one bar together
DIGITS = 4          # of a probability
NUMBERS = ("alpha", "gamma", "c", "v", "speedup", "acceptance_length", "busy", "drafter",
           "method", "temperature", "setting", "command")


def run_of(prompt: str, plain_seconds: Sequence[float], rounds: Sequence[ShownRound],
           decode: Decode, numbers: Mapping) -> dict:
    """All that the page knows of a run.

    plain_seconds: of each token of plain decoding, the first one's with reading the prompt, as the
    first round's. numbers: a row of `measure`, and in words method, setting (how the models run)
    and command (what made the page).
    """
    played = [_round(it, decode) for it in rounds]
    tokens = {token for it in rounds for token in (*it.done.tokens, it.done.token)}
    tokens |= {token for data in played for place in (*data["judged"].values(), data["last"])
               for token, *_ in place["bars"]}
    return {"prompt": printable(prompt),
            "names": {token: visible(decode([token])) for token in sorted(tokens)},
            "vocabulary": rounds[0].done.p_target.shape[-1],
            "numbers": {name: numbers[name] for name in NUMBERS},
            "rounds": played, "plain": [_ms(seconds) for seconds in plain_seconds]}


def _round(it: ShownRound, decode: Decode) -> dict:
    """judged: of every node that was, its coin u, the threshold, and bars [token, what it was
    judged by, q_draft], with the residual of the two after them where it was rejected. last: the
    replacement or bonus token, and what it was drawn from. text: what was written, the accepted
    tokens and the last one, which is "" where the limit cut it off.
    """
    done, nodes, left, accepted = it.done, {}, it.done.p_target[0], len(it.done.path)
    for node, judge in judged(done).items():
        u, threshold = it.coins[node - len(done.tokens)]            # the last coins are the rule's
        shown, also = [judge, done.q_draft[node]], {done.tokens[node]}
        if node in done.path:
            left = done.p_target[node]
        else:
            left = residual(*shown)
            shown, also = [*shown, left], also | {done.token}
        nodes[node] = {"u": round(u, DIGITS), "threshold": round(threshold, DIGITS),
                       "bars": _bars(shown, also)}
    return {"tokens": done.tokens, "parents": done.parents, "path": done.path, "judged": nodes,
            "last": {"token": done.token, "bars": _bars([left], {done.token})}, "steps": done.steps,
            "text": [printable(decode(part))
                     for part in (done.emitted[:accepted], done.emitted[accepted:])],
            "written": len(done.emitted), "ms": [_ms(it.drafting), _ms(it.rest)]}


def _bars(shown: Sequence[Tensor], also: Iterable[int]) -> list[list]:
    """[token, a probability for each of `shown`], of the likeliest possible ones, and of `also`."""
    both = torch.stack(list(shown)[:2]).sum(0)
    tokens = [token for token in both.topk(min(BARS, len(both))).indices.tolist() if both[token]]
    tokens += sorted(set(also) - set(tokens))
    columns = torch.stack(list(shown))[:, tokens].T.tolist()
    return [[token, *(round(prob, DIGITS) for prob in probs)]
            for token, probs in zip(tokens, columns)]


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def page_of(run: dict) -> str:
    """The page, whole.

    The run stands in a script element that is not run. A "<" of a model's could end that element,
    so each is written as an escape, and so is all that is not ASCII. The scripts put text in place
    as text, never as markup. And the page names the two pieces that the browser may obey, the style
    and the script, by their hashes. It obeys nothing else, and loads nothing.
    """
    style = (WEB / "page.css").read_text(encoding="utf-8")
    script = "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS)
    policy = (f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
              "base-uri 'none'")
    page = (WEB / "page.html").read_text(encoding="utf-8")
    data = json.dumps(run, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    for name, content in (("policy", policy), ("style", style), ("script", script), ("run", data)):
        page = page.replace(f"<!-- {name} -->", content)
    return page


def _hash(content: str) -> str:
    return "sha256-" + b64encode(sha256(content.encode()).digest()).decode()
