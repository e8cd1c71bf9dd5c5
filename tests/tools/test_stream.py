"""An answer as it appears: whole characters, and no colour where none can be shown."""

from io import BytesIO, StringIO, TextIOWrapper

import pytest
import torch
from rich.console import Console

from nanospec.cli.show.stream import Stream
from nanospec.files.tokenizer import Tokenizer
from nanospec.speculate import Round

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
NOTHING = torch.empty(0)


def round_of(written: str | bytes, accepted: int = 0, rejected: bool = False, drafted: bool = True) -> Round:
    """A round that has written these bytes: `accepted` of them were drafted, and one more where one was rejected."""
    emitted = [*(written.encode() if isinstance(written, str) else written)]
    count = accepted + rejected if drafted else 0
    parents = [-1, *range(count)] + [-1] * (drafted and not count)
    return Round([0] * len(parents), parents, list(range(1, accepted + 1)), emitted[-1], emitted, NOTHING, NOTHING, 0)


def console_of(width: int = 40, terminal: bool = True, **more) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=width, color_system="standard", legacy_windows=False,
                   _environ={}, **more)


def shown(console: Console, *rounds: Round, silent=()) -> str:
    stream = Stream(console, BYTES.decode, silent)
    for done in rounds:
        stream.take(done)
    stream.end()
    return console.file.getvalue()


def test_colours():
    """Accepted green, a replacement amber and underlined, a bonus blue and bold; without a draft none."""
    out = shown(console_of(), round_of("ab ", 2, True), round_of("cd ", 2), round_of("e", drafted=False))
    assert out == ("\x1b[32ma\x1b[0m\x1b[32mb\x1b[0m\x1b[4;33m \x1b[0m\x1b[32mc\x1b[0m\x1b[32md\x1b[0m"
                   "\x1b[1;34m \x1b[0me\n")
    assert shown(console_of(), round_of("ab", 1, True)) == "\x1b[32ma\x1b[0m\x1b[4;33mb\x1b[0m\n"
    assert shown(console_of(), round_of("ab", 1)) == "\x1b[32ma\x1b[0m\x1b[1;34mb\x1b[0m\n"


@pytest.mark.parametrize("console", [console_of(terminal=False), console_of(no_color=True)])
def test_without_colours(console):
    assert shown(console, round_of("ab cd", 2, True), round_of("e")) == "ab cde\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_no_line_is_broken(terminal):
    """It is the terminal's to break."""
    text = "word " * 30
    assert shown(console_of(terminal=terminal), *(round_of(c, drafted=False) for c in text + "end")) == text + "end\n"


@pytest.mark.parametrize("text", ["all:\n\tcc x.c\n", "name\tage\r\nAnn\t7\r\n", "a\rb", "a\fb\vc", "\x1b[1m \x07"],
                         ids=repr)
def test_a_pipe_gets_the_text_as_it_was_written(text):
    """A terminal gets what is safe for it."""
    assert shown(console_of(terminal=False), *(round_of(character) for character in text)) == text + "\n"
    assert not {"\r", "\x07", "\v"} & {*shown(console_of(no_color=True), round_of(text))}


def test_a_pipe_gets_each_round_at_once():
    file = TextIOWrapper(BytesIO())
    Stream(Console(file=file), BYTES.decode).take(round_of("ab", 1))
    assert file.buffer.getvalue() == b"ab"


def test_never_half_a_character():
    """Its bytes are tokens of several rounds. What was shown at any moment is the beginning of the whole."""
    text, console = "é→🙂 a\n", console_of(terminal=False)
    stream = Stream(console, BYTES.decode)
    for byte in text.encode():
        stream.take(round_of(bytes([byte])))
        assert text.startswith(console.file.getvalue()) and "\ufffd" not in console.file.getvalue()
    assert console.file.getvalue() == text
    # Four bytes that begin no character are not held back for ever: the first of them is shown.
    console = console_of(terminal=False)
    stream = Stream(console, BYTES.decode)
    for byte in b"\xff\xff\xff\xff":
        assert not console.file.getvalue()
        stream.take(round_of(bytes([byte])))
    assert console.file.getvalue() == "\ufffd"
    # What never becomes a character is shown in the end, and does not hold up what follows.
    assert shown(console_of(terminal=False), round_of(b"a\xc3")) == "a\ufffd\n"
    assert shown(console_of(terminal=False), round_of(b"\x80" * 9 + b"ab")) == "\ufffd" * 9 + "ab\n"


def test_what_ends_a_text_is_not_shown():
    assert shown(console_of(), round_of("ab", drafted=False), silent={98}) == "a\n"


def test_what_a_terminal_would_obey():
    assert shown(console_of(no_color=True), round_of("a\x1b[2Jb\x9bc", drafted=False)) == "a␛[2Jb\ufffdc\n"
