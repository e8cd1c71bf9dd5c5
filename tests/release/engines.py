"""vLLM on this CPU, started once with each of its drafters, before the judge. One table: who is right, by which
witness, and what that witness would see.

    python -m tests.release.engines                          # the pair that ships
    python -m tests.release.engines --weights FOLDER         # another; with FOLDER/eagle3.pt, its head, too
    python -m tests.release.engines --mended                 # vLLM's known fault on CPUs mended (vllm_here.py)
    python -m tests.release.engines --planted                # mended, and then with faults that must be found

The pair is exported and served in float32. At temperature 0 the server's tokens must be ours. Above, its samples are
judged by the target's own probabilities (--truth), and at temperature 1 also by the logprobs that the server reports.
Several requests run at once, so drafts of different lengths stand in one batch.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from nanospec.cli.launch import Parser, command
from nanospec.errors import RequestError, one_line
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.files.for_engines import export
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.sequential import LOOKS
from nanospec.judge.verdict import Verdict, check_task, judge
from nanospec.judge.witnesses import against_logprobs
from tests.release.vllm_here import FAULTS, answers, drafted, environment, plugin, running

DRAFTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "draft_model": {"model": "draft", "num_speculative_tokens": 4},
    "draft_model, drawn": {"method": "draft_model", "model": "draft", "num_speculative_tokens": 4,
                           "draft_sample_method": "probabilistic"},
    "ngram": {"num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    "suffix": {"num_speculative_tokens": 8},
    "eagle3": {"model": "eagle3", "num_speculative_tokens": 4}}
SETTINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
                                        {"temperature": 1.0})
WITNESSES = {0: ("our tokens",), 0.7: ("--truth",), 1.0: ("--truth", "logprobs")}
PROMPTS = ("def area(radius):\n", "class Stack:\n    def push(self, item):\n", "import os\n\nfor name in os.listdir(")
# All can draft here, and copies are often wrong: after "if a" comes another sign each time, and another line.
REPEATED = ("    if a < b:\n        a = b + 1\n    if a > b:\n        b = a - 1\n    if a == b:\n        a = 0\n"
            "    if a")
ENVIRON = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


@dataclass
class Row:
    """Of the table. fault: what was put in. right: None where nothing can be said. accepted: at each place of a draft.
    """

    engine: str
    fault: str
    settings: str
    witness: str
    right: bool | None
    found: str
    drafts: int = 0
    accepted: Sequence[int] = ()

    def __str__(self) -> str:
        verdict = {True: "right", False: "WRONG", None: "not judged"}[self.right]
        return (f"{self.engine + f': {self.fault}' * bool(self.fault):38} {self.settings:12} {self.witness:10} "
                f"{verdict:10} {self.found:30} {self.drafts:>6} {sum(self.accepted):>8}  "
                + " ".join(map(str, self.accepted))).rstrip()


def rows_of(engine: str, fault: str, url: str, settings: dict, pair: Pair, draft_model: Any,
            options: Any) -> Iterator[Row]:
    """What the judge says of a server with these settings, by each witness."""
    words = ", ".join(f"{value:g}" for value in settings.values())
    for witness in WITNESSES[settings["temperature"]]:
        (drafts, accepted), right = drafted(url), None
        try:
            if witness == "our tokens":
                right, found = same_tokens(url, pair, options.greedy)
            else:
                verdict = by(witness, url, settings, pair, draft_model, options)
                right = None if not verdict.decided else not verdict.wrong
                found = f"p = {verdict.p_value:.2g}, sees {verdict.visible:.2g}, {verdict.samples:,}"
        except EndpointError as error:
            found = one_line(error) if answers(f"{url}/health") else "it died of this"
        drafts_after, accepted_after = drafted(url)
        yield Row(engine, fault, words, witness, right, found, max(0, drafts_after - drafts),
                  [max(0, after - earlier)
                   for after, earlier in zip_longest(accepted_after, accepted, fillvalue=0)])


def by(witness: str, url: str, settings: dict, pair: Pair, draft_model: Any, options: Any) -> Verdict:
    ids = pair.tokenizer.begin + pair.tokenizer.encode(REPEATED)
    endpoint = Endpoint(url, ids, options.new, settings, timeout=300.0, at_once=options.at_once)
    if witness == "logprobs":
        return against_logprobs(endpoint, options.samples, options.seed)
    return judge(endpoint.ids, pair.target, draft_model, ids, endpoint.new, samples=options.samples, seed=options.seed,
                 looks=LOOKS, at_once=endpoint.at_once, **settings)


def same_tokens(url: str, pair: Pair, new: int) -> tuple[bool, str]:
    """Whether greedy texts of `new` tokens are ours, and how many of them are."""
    same = 0
    for text in PROMPTS:
        ids = pair.tokenizer.begin + pair.tokenizer.encode(text)
        theirs = Endpoint(url, ids, new, {"temperature": 0}, timeout=300.0).named(0, 1)[0]
        same += theirs == list(generate(pair.target, ids, new, temperature=0))
    return same == len(PROMPTS), f"{same} of {len(PROMPTS)} texts of {new} tokens"


def engines(options: Any) -> Iterator[Row]:
    """The rows of the table, as they are found. RequestError for a drafter that is not there."""
    pair = load_pair(options.weights)
    if not isinstance(pair.tokenizer, Tokenizer):
        raise RequestError("engines serve a pair of ours: one that train_tiny.py wrote")
    head = (Path(options.weights) / "eagle3.pt").exists()
    known = [name for name in DRAFTERS if name != "plain" or not options.planted]
    names = options.drafters or [name for name in known if name != "eagle3" or head]
    if not {*names} <= {*known}:
        raise RequestError(f"--drafters are {'; '.join(known)}")
    python = environment()
    with TemporaryDirectory() as temporary:
        room = Path(temporary)
        export(load_pair(options.weights, dtype=torch.float32), room)
        if "eagle3" in names:
            export(load_pair(options.weights, dtype=torch.float32, draft_model="eagle3"), room / "head")
            (room / "head" / "eagle3").rename(room / "eagle3")
        for name, fault in product(names, FAULTS if options.planted else [""]):
            config = {"method": name, **DRAFTERS[name]}
            config |= {"model": str(room / config["model"])} if "model" in config else {}
            command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", room / "target",
                       "--max-model-len", 512, "--dtype", "float32", "--enforce-eager"]
            command += ["--speculative-config", json.dumps(config)] if name != "plain" else []
            mended = name != "plain" and (options.mended or options.planted)
            environ = ENVIRON | (plugin(room / "mended", fault) if mended else {})
            draft_model = pair.draft_model if name.startswith("draft_model") else None
            left = [one for one in SETTINGS if one["temperature"] or not fault]     # greedy texts need no coins
            while left:                                     # another one where it has died
                with running(command, room / "log", environ) as url:
                    while left and answers(f"{url}/health"):
                        yield from rows_of(name + ", mended" * (mended and not fault), fault, url, left.pop(0), pair,
                                           draft_model, options)


def print_table(options: Any) -> int:
    """Row after row, as they are found. 1 if one is wrong; of planted faults, if one is not found by any witness."""
    rows: list[Row] = []
    for row in engines(options):
        if not rows:
            print(f"{'vLLM with':38} {'temperature':12} {'witness':10} {'verdict':10} {'found':30} drafts accepted"
                  "  by place")
        print(row, flush=True)
        rows.append(row)
    if not options.planted:
        return int(any(row.right is False for row in rows))
    planted = {(row.engine, row.fault) for row in rows}
    found = {(row.engine, row.fault) for row in rows if row.right is False}
    print(f"{len(found)} of {len(planted)} planted faults found")
    return int(found < planted)


def parser() -> Parser:
    made = Parser(prog="python -m tests.release.engines", description=__doc__)
    made.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FOLDER", help="default: the pair that ships")
    made.add_argument("--drafters", nargs="+", metavar="NAME", help=f"some of: {'; '.join(DRAFTERS)}; default: all")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--mended", action="store_true", help="with vLLM's known fault on CPUs mended")
    how.add_argument("--planted", action="store_true", help="mended, and then with faults that must be found")
    made.add_argument("--samples", type=int, default=300, metavar="N", help="of each row; default: 300")
    made.add_argument("--new", type=int, default=16, metavar="N", help="tokens of every sample; default: 16")
    made.add_argument("--greedy", type=int, default=128, metavar="N", help="tokens of the greedy texts; default: 128")
    made.add_argument("--at-once", type=int, default=8, metavar="N", help="requests at the same time; default: 8")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the first sample; the next has the next")
    return made


@command("engines")
def main(argv: Sequence[str] | None = None) -> int:
    torch.set_num_threads(1)
    options = parser().parse_args(argv)
    if options.at_once < 1:
        raise RequestError(f"--at-once must be 1 or more, got {options.at_once}")
    check_task(new=options.new, samples=options.samples, seed=options.seed, gamma=1, settings={})
    return print_table(options)


if __name__ == "__main__":
    sys.exit(main())
