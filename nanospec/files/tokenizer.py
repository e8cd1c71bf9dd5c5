"""Byte-pair encoding: train the ranks here, hand them to tiktoken to encode with.

`train` learns which neighbouring pieces of text to glue together (Sennrich et al. 2016, arXiv
1508.07909); `Tokenizer` puts the learnt ranks into a `tiktoken.Encoding`, so that encoding runs in
compiled code and nothing is ever downloaded. The file is tiktoken's own format: one line a token,
`base64(bytes) rank`.

Left out: special tokens other than end of text, and any clean-up of the text. Bytes in, the same
bytes out.
"""

import base64
import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from numbers import Integral
from pathlib import Path
from threading import Lock
from typing import Any

import tiktoken

from nanospec.errors import (NanospecError, PairError, RequestError, TextError, check_numbers,
                             one_line, quoted)
from nanospec.files.paths import TABLE, read_file, write_atomically

END_OF_TEXT = "<|endoftext|>"
ONE_AT_A_TIME = Lock()  # of those that turn the error stream away

# Tokens never cross the borders this pattern draws: a run of letters with one mark before it ("
# return", ".append", "_name"), up to three digits, a run of other marks, blank space. It is written
# without \p classes so that `re` (training) and tiktoken's engine (encoding) both read it; where
# the two disagree about a rare letter, only the learnt ranks differ a little, never what comes back
# out: every character matches one of the branches.
PATTERN = r"(?:_|[^\w\r\n])?[^\W\d_]+|\d{1,3}| ?(?:_|[^\w\s])+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


def train(text: str, vocab_size: int, step: Callable[[], object] = lambda: None
          ) -> dict[bytes, int]:
    """Learn `vocab_size` ranks from `text`: the 256 bytes, then the most frequent merges in order.

    Words are counted once and each merge touches only the words it occurs in. A candidate is
    counted by the bytes it would become, not by its two halves: `ab+c` and `a+bc` are one token to
    tiktoken, so they are one here. Ties go to the candidate whose bytes sort last, so the same text
    always gives the same ranks.

    step: called after each merge.
    Example: train("aaab aaab", 257) learns b"aa" as rank 256.
    """
    check_numbers(Integral, vocab_size=vocab_size)
    if not isinstance(text, str):
        raise TextError(f"ranks are learnt from a text, got {quoted(text)}")
    if vocab_size < 256:
        raise ValueError("vocab_size must be at least 256 (one rank for each byte), got "
                         f"{vocab_size}")
    words = Counter(re.findall(PATTERN, text))
    # Each word as its pieces so far.
    pieces = [[bytes([b]) for b in word.encode()] for word in words]
    times = list(words.values())                                           # and how often it occurs
    count: Counter[bytes] = Counter()                                      # of every candidate
    where: defaultdict[bytes, set[int]] = defaultdict(set)              # in which words it occurs
    for w, word in enumerate(pieces):
        for left, right in zip(word, word[1:]):
            count[left + right] += times[w]
            where[left + right].add(w)

    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < vocab_size and count:
        new = max(count, key=lambda piece: (count[piece], piece))
        if count[new] < 2:                                              # nothing repeats any more
            break
        ranks[new] = len(ranks)
        for w in where.pop(new):
            old, merged = pieces[w], merge(pieces[w], new)
            for left, right in zip(old, old[1:]):
                count[left + right] -= times[w]
            for left, right in zip(merged, merged[1:]):
                count[left + right] += times[w]
                where[left + right].add(w)
            pieces[w] = merged
        del count[new]                                      # every place it stood in is merged now
        step()
    return ranks


def merge(word: list[bytes], new: bytes) -> list[bytes]:
    """Glue all neighbours that spell `new`, from the left: ["a","a","a"], "aa" -> ["aa","a"]."""
    out, i = [], 0
    while i < len(word):
        pair = i + 1 < len(word) and word[i] + word[i + 1] == new
        out.append(new if pair else word[i])
        i += 2 if pair else 1
    return out


def check_ranks(where: str, ranks: dict[bytes, int]) -> None:
    """PairError unless the ranks are 0 to n - 1, and each of the 256 bytes has one."""
    if not all(type(rank) is int for rank in ranks.values()):
        raise PairError(f"{where} is altered: a rank is no whole number")
    missing = {*range(max(256, len(ranks)))} - {*ranks.values()}
    if missing:
        raise PairError(f"{where} is cut short or altered: no token has the rank {min(missing)}, "
                        "and each rank is one token's id here")
    missing = {byte for byte in range(256) if bytes([byte]) not in ranks}
    if missing:
        raise PairError(f"{where} is altered: the byte {min(missing)} has no rank, so not every "
                        "text can be encoded")


def text_of(text: Any) -> str:
    """The text as it is, or a RequestError."""
    if not isinstance(text, str):
        raise RequestError(f"this must be a text, got {quoted(text)}")
    return text


@contextmanager
def refusing(what: str, kind: type[NanospecError] = RequestError) -> Iterator[None]:
    """An error of that kind for whatever an engine in another language gives up with, as on a
    million blanks. Some of it is no Exception.
    """
    try:
        yield
    except (NanospecError, OSError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{what}: {one_line(error)}") from error


@contextmanager
def unheard() -> Iterator[None]:
    """What is written to this process's error stream meanwhile is dropped: an engine in another
    language that gives up on a file prints a page about itself.
    """
    with ONE_AT_A_TIME, ExitStack() as afterwards:
        with suppress(OSError):                         # there may be no error stream
            heard, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            afterwards.callback(os.close, heard)
            afterwards.callback(os.close, nowhere)
            afterwards.callback(os.dup2, heard, 2)
            os.dup2(nowhere, 2)
        yield


class Tokenizer:
    """Text <-> token ids. The ranks are ids 0 .. n-1; `end_of_text` is id n, and `vocab_size` is n
    + 1.

    begin: what stands before a text. ends: what ends it. special: tokens that are no text, by name.
    PairError for ranks with which the engine would give up in the middle of a text, and Python with
    it.
    """

    def __init__(self, ranks: dict[bytes, int]):
        if not isinstance(ranks, dict) or not all(isinstance(piece, bytes) for piece in ranks):
            raise PairError(f"a tokenizer is made of ranks, {{bytes: rank, ...}}, got "
                            f"{quoted(ranks)}")
        check_ranks("the table of ranks", ranks)
        self.ranks = ranks
        self.end_of_text = len(ranks)
        self.vocab_size = len(ranks) + 1
        self.begin, self.ends = [self.end_of_text], {self.end_of_text}
        self.special = {END_OF_TEXT: self.end_of_text}
        # The bytes of every id.
        self.pieces = [*sorted(ranks, key=ranks.__getitem__), END_OF_TEXT.encode()]
        self.encoding = tiktoken.Encoding("nanospec", pat_str=PATTERN, mergeable_ranks=ranks,
                                          special_tokens={END_OF_TEXT: self.end_of_text})

    @property
    def spellings(self) -> list[bytes | None]:
        """The bytes of every id; None for end of text, which is no text itself."""
        return [*self.pieces[:-1], None]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`. A literal "<|endoftext|>" in it is ordinary text: no prompt can end a
        document.

        A surrogate that stands alone, which no UTF-8 text has, is read as U+FFFD.
        """
        with refusing("this text cannot be encoded"):
            return self.encoding.encode(text_of(text), disallowed_special=())

    def continued(self, text: str) -> list[int]:
        """As `encode`, of a text that goes on with another one: the same."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`. U+FFFD stands for bytes that are not yet a whole UTF-8 character, and for
        an id that is no token: a model may have more of them than its tokenizer.
        """
        try:
            pieces = [self.pieces[i] if 0 <= i < self.vocab_size else b"\xff" for i in ids]
        except TypeError as error:
            raise RequestError("what is decoded are token ids, got "
                               f"{quoted(ids)}") from error
        return b"".join(pieces).decode(errors="replace")

    def fingerprint(self) -> str:
        """Two tokenizers have the same one if they give the same ids."""
        return hashlib.sha256(self._lines()).hexdigest()[:16]

    def _lines(self) -> bytes:
        return b"".join(b"%b %d\n" % (base64.b64encode(piece), i)
                        for i, piece in enumerate(self.pieces[:-1]))

    def save(self, path: Path) -> None:
        """Write the ranks; whole or not at all. OSError when they cannot be written."""
        write_atomically(path, lambda file: file.write(self._lines()))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """FileNotFoundError, or PairError if the file is not in tiktoken's format, its ranks are
        not 0, 1, 2, ..., or one of the 256 bytes has none.
        """
        data, ranks = read_file(path, TABLE), dict[bytes, int]()
        try:
            for count, line in enumerate(filter(bytes.strip, BytesIO(data))):
                piece, rank = line.split()
                ranks[base64.b64decode(piece, validate=True)] = int(rank)
                if len(ranks) == count:
                    raise ValueError("a token stands in it twice")
        except ValueError as error:
            raise PairError(f"{path} is no tokenizer's file, lines of base64 and a rank: "
                            f"{one_line(error)}") from error
        check_ranks(str(path), ranks)
        return cls(ranks)
