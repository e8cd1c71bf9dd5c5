"""More text than the standard library: the Python sources of installed packages, those that
nanospec needs or those that a file lists.

Left out besides what corpus.py leaves out: copies of other packages, tables, what a program wrote,
copies of what is held out, and files under a licence that asks the same of all that is made of
them. Nothing is installed here.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from nanospec.errors import TextError
from nanospec.files.corpus import SKIPPED_FOLDERS, to_ids
from nanospec.files.paths import read_file
from nanospec.files.tokenizer_json import AnyTokenizer

# What nanospec needs, but for what has no permissive licence (certifi).
DEPENDENCIES = """torch numpy tiktoken matplotlib rich regex requests urllib3 idna
    charset-normalizer pillow contourpy cycler fonttools packaging pyparsing python-dateutil six
    markdown-it-py mdurl pygments filelock typing-extensions sympy mpmath networkx jinja2
    markupsafe fsspec""".split()
# Copies of other packages, tests by a name, and scripts: pip writes into their first line where
# they were installed.
LEFT_OUT = {"_vendor", "vendored", "extern", "third_party", "_distutils", "testing", ".."}
COPYLEFT = re.compile(r"General Public Licen[cs]e|\b[AL]?GPL|Mozilla Public|\bMPL\b|Eclipse Public")
MOST = 6_000_000            # characters of one package: three packages teach more than a big one
LONGEST = 200_000           # characters of one file: a longer one is mostly a list
AGAIN = 3                   # how often the texts to write like are read where others are, once
LONG_LINE = 40              # characters of a line by which a copied file is known


def read_packages(names: Iterable[str], held: Sequence[str],
                  step: Callable[[], object] = lambda: None) -> list[str]:
    """The sources of these packages, of those installed, one string a file.

    held: the texts that models are judged on. step: called after each package.
    """
    judged_on, found = {line for text in held for line in long_lines(text)}, list[str]()
    for name in names:
        found += read_sources(name, judged_on)
        step()
    return found


def read_sources(name: str, judged_on: set[str]) -> Iterator[str]:
    """Of one package, up to MOST characters, in an order that is by chance, and always the same."""
    files = []
    with suppress(metadata.PackageNotFoundError):
        files = [file for file in metadata.files(name) or [] if file.suffix == ".py"
                 and not (LEFT_OUT | SKIPPED_FOLDERS) & set(file.parts)]
    left = MOST
    for file in sorted(files, key=lambda file: hashlib.sha256(file.as_posix().encode()).digest()):
        with suppress(OSError, UnicodeDecodeError):
            text = Path(str(file.locate())).read_text(encoding="utf-8")
            if len(text) <= left and worth_reading(text, judged_on):
                left -= len(text)
                yield text


def worth_reading(text: str, judged_on: set[str]) -> bool:
    lines = long_lines(text)
    return (0 < len(text) <= LONGEST and "generated" not in text[:600].lower()
            and sum(map(text.count, "0123456789")) <= len(text) / 10
            and sum(line in judged_on for line in lines) <= len(lines) / 20
            and not COPYLEFT.search(text[:4000]))


def long_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if len(line) >= LONG_LINE]


def in_tokens(first: Sequence[str], more: Sequence[str], tokenizer: AnyTokenizer,
              step: Callable[[], object] = lambda: None) -> Tensor:
    """The texts to learn from (N,), the first AGAIN times if there are more. step: called after
    each.
    """
    return torch.cat([to_ids(first, tokenizer, step).int()] * (AGAIN if more else 1)
                     + [to_ids(more, tokenizer, step).int()])


class Listed:
    """A file of packages that pip reads, NAME==VERSION in each line, in which comments say by which
    Python and to which tokens they were read: `# python VERSION`, `# tokens COUNT DIGEST`.

    names: of the packages. TextError if there is none, or if one is not installed here.
    differs: in words, what is of another version here.
    """

    def __init__(self, path: Path):
        try:
            text = read_file(path).decode()
        except UnicodeDecodeError as error:
            raise TextError(f"{path} is no list of packages: it is no UTF-8") from error
        wanted = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
        if not wanted:
            raise TextError(f"{path} lists no package: its lines are NAME==VERSION")
        self.path, self.names = path, list(wanted)
        of_comments = dict(re.findall(r"^# (python|tokens) (.+)$", text, re.MULTILINE))
        self.tokens = of_comments.pop("tokens", "")
        wanted |= of_comments
        installed = {name: installed_version(name) for name in wanted}
        missing = [name for name in wanted if not installed[name]]
        if missing:
            raise TextError(f"{path} lists {len(missing)} packages that are not installed here, "
                            f"{', '.join(missing[:3])}{', ...' * (len(missing) > 3)}: pip install "
                            f"--no-deps -r {path} gets them, in an environment of their own")
        self.differs = [f"{name} is {installed[name]} here and {version} in {path}"
                        for name, version in wanted.items() if installed[name] != version]

    def compared(self, ids: Tensor) -> list[str]:
        """In words, how these tokens differ from those that the file names, if they do."""
        found = f"{len(ids)} {hashlib.sha256(ids.cpu().numpy()).hexdigest()[:16]}"
        return [f"# tokens {found} is not what {self.path} names"] * (found != self.tokens)


def installed_version(name: str) -> str:
    """Of what is installed here, without the name of a build; "" if it is not."""
    with suppress(metadata.PackageNotFoundError):
        return sys.version.split()[0] if name == "python" else metadata.version(name).split("+")[0]
    return ""
