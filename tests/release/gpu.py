"""Everything that is to be measured on a GPU, in one command of at most ten minutes; JSON, logs and a page in OUT.

    python -m tests.release.gpu OUT            # again with the same OUT: what is missing

Each step is a command of its own in a process of its own, and has a part of the time. What takes longer is ended, what
fails is noted, and the next step runs all the same. A step that has ended is not repeated: delete its line in OUT's
steps.json to have it once more. Send the folder back, and its page.md first.

On a CPU it runs, too, to be tried out.
"""

if __name__ == "__main__":              # Ctrl-C may come while torch is being imported
    from nanospec.cli.launch import quiet
    quiet()

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nanospec.cli.bench.markdown import table
from nanospec.cli.launch import Parser, command
from nanospec.cli.options import HERE, NEW_FOLDER, device, option
from nanospec.cli.show.terminal import note, show_table
from nanospec.errors import one_line
from nanospec.files.paths import write_atomically, write_json

ROOT = Path(__file__).parents[2]
MINUTES = option("a number above 0", float, lambda number: 0 < number < 1e6)


class Step(NamedTuple):
    """seconds: its part of the ten minutes.  command: what follows `python`.

    writes: whether it writes its numbers into a file that --json names.
    """

    name: str
    seconds: int
    command: str
    writes: bool = False


# In the order of what one would know first. A bench measures its plain decoding beside it. (On an H200 the demo took
# 15 s, one temperature of the speeds 30 s, and 100 s were too few for `compiled`, 45 for `serve`.)
STEPS = (
    Step("tests", 120, "-m pytest -p no:cacheprovider -q -n 0 -m cuda tests/device/test_cuda.py"),
    Step("demo", 20, "-m nanospec demo --device {device}", True),
    Step("large", 40, "-m tests.release.large --device {device} --gammas 4 8", True),
    Step("large-compiled", 80, "-m tests.release.large --device {device} --gammas 4 --rows 1 --alphas 0.8 --compile",
         True),
    Step("speed", 70, "-m nanospec bench speed --device {device} --gammas 4 --temperatures 0 1 --prompts 2", True),
    Step("compiled", 170, "-m nanospec bench speed --device {device} --gammas 4 --temperatures 1 --prompts 2 --compile",
         True),
    Step("serve", 100, "-m nanospec bench serve --device {device} --rows 1 4 16 64 256 --drafters chain "
         "--temperature 0 --max-new-tokens 32", True),
)


@command("gpu")
def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m tests.release.gpu", description=__doc__)
    parser.add_argument("out", type=NEW_FOLDER, metavar="OUT", help="the folder to write to; an earlier run in it is "
                        "continued")
    parser.add_argument("--minutes", type=MINUTES, default=10.0, metavar="M", help="of the device for all steps "
                        "together; default: 10")
    parser.add_argument("--device", type=device, default=HERE, help=f"default: {HERE}")
    run(**vars(parser.parse_args(argv)))


def run(out: Path, minutes: float, device: str) -> None:
    """Every step that has not ended yet; the page is written anew after each."""
    out.mkdir(parents=True, exist_ok=True)
    done = ended(out)
    for step in STEPS:
        left = 60 * minutes - sum(one["seconds"] for one in done)
        if step.name in {one["step"] for one in done}:
            continue
        if left <= 0:
            note(f"{minutes:g} minutes are over: {step.name} and what follows did not run")
            break
        note(f"{step.name}: {min(step.seconds, left):.0f} seconds at most ...")
        done.append({"step": step.name} | launched(argv_of(step, out, device), min(step.seconds, left),
                                                   out / f"{step.name}.log"))
        saved(out / "steps.json", done)
        write_atomically(out / "page.md", lambda file: file.write(page(out, done, device).encode()))
    show_table(["", "seconds", "ended"], [[one["step"], f"{one['seconds']:.0f}", one["how"]] for one in done],
               f"{out / 'page.md'} has all of it")


def ended(out: Path) -> list[dict]:
    """The steps of an earlier run into this folder."""
    file = out / "steps.json"
    return json.loads(file.read_text()) if file.exists() else []


def argv_of(step: Step, out: Path, device: str) -> list[str]:
    argv = [part.format(out=out.absolute(), device=device) for part in step.command.split()]
    if step.writes:
        argv += ["--json", str(out.absolute() / f"{step.name}.json")]
    return argv


def launched(argv: Sequence[str], seconds: float, log: Path) -> dict[str, Any]:
    """Run `python` with these arguments in a process of its own, its output in `log`: how it ended, and after how long.

    It is ended after `seconds`: first asked to, then made to.
    """
    began = time.monotonic()
    with open(log, "w") as file:
        process = subprocess.Popen([sys.executable, *argv], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=os.environ | {"COLUMNS": "100", "PYTHONUNBUFFERED": "1"})
        try:
            how = process.wait(seconds)
        except BaseException as error:
            for number in signal.SIGTERM, signal.SIGKILL:
                os.killpg(process.pid, number)
                try:
                    process.wait(5)
                    break
                except subprocess.TimeoutExpired:
                    pass
            if not isinstance(error, subprocess.TimeoutExpired):
                raise                       # Ctrl-C: this step will run again
            how = None
    words = "ended after its time" if how is None else "well" if how == 0 else f"with status {how}"
    return {"argv": list(argv), "how": words, "seconds": time.monotonic() - began}


def saved(path: Path, what: Any) -> None:
    write_json(path, what)


def machine(device: str) -> str:
    """The device, and what runs it, in words."""
    words = [platform.machine(), f"torch {torch.__version__}", f"Python {platform.python_version()}"]
    if torch.device(device).type == "cuda":
        found = torch.cuda.get_device_properties(device)
        words = [f"{found.name}, {found.total_memory / 2 ** 30:.0f} GiB, CUDA {torch.version.cuda}", *words]
    return "; ".join([*words, time.strftime("%Y-%m-%d")])


def page(out: Path, done: Sequence[dict], device: str) -> str:
    """Markdown: the device, what was to be reached, how every step ended, and the last lines of its log."""
    parts = [f"# nanospec on {device}", machine(device), "## What was to be reached",
             table(["", "wanted", "found"], reached(out)), "## The steps",
             table(["step", "seconds", "ended", "command"],
                   [[one["step"], f"{one['seconds']:.0f}", one["how"], f"`python {' '.join(one['argv'])}`"]
                    for one in done])]
    for one in done:
        log = out / f"{one['step']}.log"
        last = log.read_text(errors="replace").splitlines()[-40:] if log.exists() else []
        parts.append(f"### {one['step']}\n\n```\n" + "\n".join(last) + "\n```")
    return "\n\n".join(parts).replace(str(out.absolute()), "OUT") + "\n"


def written_by(step: str, out: Path) -> list[dict]:
    """What a step has written; nothing where it has not."""
    file = out / f"{step}.json"
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        return [] if isinstance(error, FileNotFoundError) else [{"error": one_line(error)}]


def reached(out: Path) -> list[list[str]]:
    """Three figures, each with what was hoped for; "-" where its step has brought none."""
    compiled = [row["overhead"] for row in written_by("compiled", out) if "overhead" in row]
    large = {step: written_by(step, out) for step in ("large", "large-compiled")}
    near = [rows[0]["bytes"] / rows[0]["seconds"]["target step"] / rows[0]["bandwidth"]
            for rows in large.values() if rows and "bandwidth" in rows[0]]
    gains = [row["speedup"] for rows in large.values() for row in rows
             if (row.get("rows"), row.get("alpha")) == (1, 0.8)]
    return [["a compiled round's time over that of its parts", "at most 1.11", shown(min(compiled, default=None))],
            ["plain decoding of 1.1 billion weights, part of the memory's bandwidth", "0.6",
             shown(max(near, default=None))],
            ["the same, speed-up at acceptance 0.8", "3", shown(max(gains, default=None))]]


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


if __name__ == "__main__":
    sys.exit(main())
