"""Tokenizers as others keep them, in a file tokenizer.json: ours written so, and theirs with our
interface.

The library `tokenizers` encodes. Its byte-pair encoding orders its pairs, where tiktoken's has
ranks of what they become; transformers puts the one in terms of the other. Left to us is that its
engine for patterns has another \\w.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from nanospec.errors import PairError, RequestError, one_line, quoted
from nanospec.files.chat_template import ChatTemplate, Message
from nanospec.files.control_tokens import check_growth, mark, read_added, written_by
from nanospec.files.extra import extra
from nanospec.files.paths import TABLE, read_file, read_json, write_json
from nanospec.files.tokenizer import END_OF_TEXT, PATTERN, Tokenizer, refusing, text_of, unheard

LARGEST = 2 ** 26       # bytes of a tokenizer.json: twice those of the largest vocabularies
SPARSE = 100            # ids to a token; where there are more, one is a mistake or meant badly
# tiktoken's \w, character by character: Unicode's definition, which has also a few marks that join
# words.
WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}"
# Bytes as printable characters, GPT-2's way: those that can be printed stand for themselves.
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {byte: chr(byte) for byte in PRINTED}
LETTERS |= {byte: chr(256 + i) for i, byte in enumerate(sorted(set(range(256)) - set(PRINTED)))}
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def spelling_of(token: str, decoder: str) -> bytes | None:
    """The bytes of a token as the file has it; None where that cannot be known. decoder: the
    file's, as JSON.

    Examples: to a byte-level decoder "\u0120def" is b" def". To Llama 2's "\u2581def" is, and
    "<0x0A>" is a line's end.
    """
    if '"ByteLevel"' in decoder:
        return bytes(BYTES[letter] for letter in token) if BYTES.keys() >= set(token) else None
    if "\u2581" in decoder:
        one = re.fullmatch("<0x([0-9A-F]{2})>", token) if '"ByteFallback"' in decoder else None
        return bytes.fromhex(one[1]) if one else token.replace("\u2581", " ").encode()
    return None


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json. OSError when they cannot be written.

    Any text gets the ids it has here. Before it stands end of text, as Llama's begin of text does;
    and what looks like it in a text is ordinary text.
    """
    tokenizers, converters = extra("tokenizers"), extra("transformers.convert_slow_tokenizer")
    pattern = PATTERN.replace(r"[^\W\d_]", rf"[{WORD}&&[^\d_]]").replace(r"\w", WORD)
    converter = converters.TikTokenConverter("", pattern, extra_special_tokens=[END_OF_TEXT])
    converter.load_tiktoken_bpe = lambda _: tokenizer.ranks         # they are in no file so far
    engine = converter.converted()
    engine.post_processor = tokenizers.processors.TemplateProcessing(
        single=[END_OF_TEXT, "$A"], special_tokens=[(END_OF_TEXT, tokenizer.end_of_text)])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END_OF_TEXT,
                "eos_token": END_OF_TEXT, "pad_token": END_OF_TEXT,
                "model_input_names": ["input_ids", "attention_mask"],
                "clean_up_tokenization_spaces": False, "split_special_tokens": True}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tokenizer.json", json.loads(engine.to_str()))
    write_json(folder / "tokenizer_config.json", settings)


def encoded_by(engine: Any, text: str) -> list[int]:
    """Half a character is read as U+FFFD."""
    text = text_of(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    with refusing("this text cannot be encoded"):
        return engine.encode(text, add_special_tokens=False).ids


class FolderTokenizer:
    """The tokenizer of a Hugging Face folder: text <-> token ids, as `Tokenizer`.

    begin: what stands before a text. ends: what ends it: all that the files name, and what the chat
    template writes after an answer; end_of_text is the first of these. template: of a chat, where
    the model knows what that is. What the engine's file, the template or `special` take for a
    special token is one.
    """

    def __init__(self, engine, ends: Sequence[int], template: ChatTemplate | None = None,
                 special: Sequence[str] = ()):
        """engine: of the library `tokenizers`."""
        engine.no_truncation()
        engine.no_padding()
        if hasattr(engine.model, "dropout"):
            engine.model.dropout = None     # of a training: a text would have other ids each time
        written, after = written_by(template)
        mark(engine, [*special, *(engine.id_to_token(end) for end in ends)], written)
        # What looks like a special token in a text is ordinary text.
        engine.encode_special_tokens = True
        self.engine, self.end_of_text, self.template = engine, ends[0], template
        self.vocab = engine.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocab.values()) + 1
        self.before = self.encode("a")
        self.decode([])                     # an engine may give up on that, too
        # With what stands before the text, and after it.
        encoded = engine.encode("a", add_special_tokens=True)
        self.begin = encoded.ids[:next((i for i, part in enumerate(encoded.sequence_ids)
                                        if part is not None), None)]
        found = [(len(name), i) for name, i in self.added.items() if after.startswith(name)]
        # The special token that the template writes right after an answer, if it does.
        self.ends = {*ends, *(i for _, i in sorted(found)[-1:])}

    @property
    def spellings(self) -> list[bytes | None]:
        """The bytes of every id; None for a special token, and where they cannot be known."""
        decoder = json.dumps(json.loads(self.engine.to_str())["decoder"], ensure_ascii=False)
        added = self.engine.get_added_tokens_decoder()
        found = list[bytes | None]([None] * self.vocab_size)
        for token, i in self.vocab.items():
            found[i] = spelling_of(token, decoder)
        for i, token in added.items():          # these stand in the file as they stand in a text
            found[i] = None if token.special else token.content.encode()
        return found

    @property
    def special(self) -> dict[str, int]:
        """The special tokens by name."""
        return {token.content: i for i, token in self.engine.get_added_tokens_decoder().items()
                if token.special}

    @property
    def added(self) -> dict[str, int]:
        """The tokens besides the model's own by name, special or not."""
        return {token.content: i for i, token in self.engine.get_added_tokens_decoder().items()}

    @cached_property
    def in_chats(self) -> Any:
        """The engine for texts in which special tokens are such. It is another one, since threads
        may encode plain texts meanwhile.
        """
        made = type(self.engine).from_str(self.engine.to_str())
        made.encode_special_tokens = False
        return made

    def encode(self, text: str) -> list[int]:
        """As Tokenizer.encode."""
        return encoded_by(self.engine, text)

    def continued(self, text: str) -> list[int]:
        """As `encode`, of a text that goes on: some put a blank before what begins."""
        line, both = self.encode("\n"), self.encode("\n" + text)
        return both[len(line):] if both[:len(line)] == line else self.encode(text)

    def encode_special(self, text: str) -> list[int]:
        """Ids of a text in which special tokens are such, as a chat template writes it."""
        return encoded_by(self.in_chats, text)

    def chat(self, messages: Sequence[Message], answer: bool = True) -> list[int]:
        """Ids of a conversation, by the model's chat template; with `answer`, up to where the
        assistant's begins.

        RequestError where the model has no template, or it does not take these messages.
        Example: chat([{"role": "user", "content": "Hello"}]).
        """
        if self.template is None:
            raise RequestError("this model has no chat template: it was not made for conversations")
        return self.encode_special(self.template(messages, answer))

    def decode(self, ids: Sequence[int]) -> str:
        """As Tokenizer.decode: the text that `ids` add to one that is there. (Alone, a first blank
        may be left out.)
        """
        text = "".join(self._decoded(list(some)) if known else "\ufffd" * len(list(some))
                       for known, some in groupby([*self.before, *ids],
                                                  lambda i: 0 <= i < self.vocab_size))
        return text[len(self._decoded(self.before)):]

    def _decoded(self, ids: list[int]) -> str:
        with refusing("these tokens cannot be decoded"):
            return self.engine.decode(ids, skip_special_tokens=False)

    def fingerprint(self) -> str:
        """Two tokenizers have different ones if a token of one has another id in the other."""
        return hashlib.sha256(json.dumps(sorted(self.vocab.items())).encode()).hexdigest()[:16]

    @classmethod
    def load(cls, folder: Path) -> "FolderTokenizer":
        """FileNotFoundError, or PairError for no tokenizer, or where nothing ends a text."""
        tokenizers, path = extra("tokenizers"), folder / "tokenizer.json"
        data = read_file(path, LARGEST)
        config, special = named_in(folder)
        with unheard(), refusing(f"{path} is cut short, or is no tokenizer", PairError):
            check_growth(json.loads(data))              # before the engine obeys it
            engine = tokenizers.Tokenizer.from_buffer(data)
            read_added(engine, folder, config)
        of_tokenizer = engine.token_to_id(special.get("eos_token", ""))
        if of_tokenizer is None and special.get("eos_token"):
            raise PairError(f"{folder} names the token {quoted(special['eos_token'])}, "
                            "which ends a text, and its tokenizer has no such token")
        ends = read_ends(folder) + [of_tokenizer] * (of_tokenizer is not None)
        if not ends:
            raise PairError(f"{folder} does not say which token ends a text: no eos_token_id in "
                            "its config.json")
        ids = engine.get_vocab().values()
        if not ids:
            raise PairError(f"{path} has no tokens")
        if max(ids) > SPARSE * (len(ids) + 1):
            raise PairError(f"{path} has {len(ids):,} tokens, and one of them the id {max(ids):,}")
        names = [*special.values(), *more_special(config),
                 *more_special(read_json(folder / "special_tokens_map.json"))]
        try:
            with unheard(), refusing(f"{path} cannot be used", PairError):
                return cls(engine, ends, read_template(folder, config, special), names)
        except RequestError as error:                   # it cannot encode the shortest text
            raise PairError(f"{path} cannot be used: {error}") from error


AnyTokenizer = Tokenizer | FolderTokenizer


def read_ends(folder: Path) -> list[int]:
    """The ids that end a text, by generation_config.json and config.json; some say -1 for none."""
    found: list[int] = []
    for name in "generation_config.json", "config.json":
        ends = read_json(folder / name).get("eos_token_id")
        ends = [ends] if type(ends) is int else ends
        if isinstance(ends, list) and all(type(end) is int for end in ends):
            found += [end for end in ends if end >= 0]
    return found


def more_special(table: dict) -> list[str]:
    """The special tokens that such a file lists, besides those with a name of their own."""
    found: list = []
    for key in "additional_special_tokens", "extra_special_tokens":
        listed = table.get(key)
        found += listed.values() if isinstance(listed, dict) else \
            listed if isinstance(listed, list) else []
    return [str(token.get("content") if isinstance(token, dict) else token) for token in found]


def named_in(folder: Path) -> tuple[dict, dict[str, str]]:
    """tokenizer_config.json, and the special tokens that it and special_tokens_map.json name, or
    PairError.
    """
    config = read_json(folder / "tokenizer_config.json")
    special = {name: token.get("content") if isinstance(token, dict) else token
               for name, token in (read_json(folder / "special_tokens_map.json") | config).items()
               if name.endswith("_token")}
    return config, {name: token.encode(errors="replace").decode()       # no half characters
                    for name, token in special.items() if isinstance(token, str)}


def read_template(folder: Path, config: dict, special: dict[str, str]) -> ChatTemplate | None:
    """The chat template of a folder, from chat_template.jinja or tokenizer_config.json, or None.

    config, special: as `named_in` returns them. PairError if it cannot be read.
    """
    alone = folder / "chat_template.jinja"
    try:
        found = (read_file(alone, TABLE).decode("utf-8-sig") if alone.exists()
                 else config.get("chat_template"))
    except UnicodeDecodeError as error:
        raise PairError(f"{alone} is no text in UTF-8: {one_line(error)}") from error
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        # several, each with a name
        found = {one.get("name"): one.get("template") for one in found}.get("default")
    return None if found is None else ChatTemplate(found, special)
