"""Which tokens of a stranger's tokenizer are special, and how much longer it may make a text.

A special token is said to be one in many places: tokenizer.json, tokenizer_config.json,
added_tokens.json, GGUF's types, and the chat template, which writes it. Files contradict one
another. A token that one of these calls special is special; otherwise the model would read it
letter by letter, or a user could write it.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nanospec.errors import PairError, one_line
from nanospec.files.chat_template import ANSWER, ChatTemplate
from nanospec.files.extra import extra
from nanospec.files.paths import read_json

LOOKS_SPECIAL = re.compile(r"<[^<>\s'\"{}]+>|\[/?[A-Z_]+\]")
# Those of them that no one writes by accident.
SURELY = re.compile(r"<[|\uff5c].*[|\uff5c]>|<(start|end)_of_\w+>")
# What ends a text, a turn or a message. Many GGUF files name one of them only; llama.cpp knows the
# others by their texts (llama-vocab.cpp).
ENDING = {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>",
          "<end_of_turn>", "</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "[EOT]", "<|return|>",
          "<|call|>", "<|calls|>", "<|flush|>", "<turn|>", "<|tool_response>", "<end_of_utterance>",
          "<\uff5cend\u2581of\u2581sentence\uff5c>"}
INNER = "normalizers", "pretokenizers", "decoders", "processors"        # steps in a Sequence
GROWTH = 1_000          # times: how much longer the steps before and after a model may make a text
MOST_STEPS = 100        # of each kind: a few hundred that add little take minutes, too


def read_added(engine: Any, folder: Path, config: Mapping) -> None:
    """Give the engine the tokens that tokenizer_config.json, whose table `config` is, and
    added_tokens.json know. PairError where they have other ids there. Where the first and
    tokenizer.json contradict one another on the blanks around a token, the first is right, as for
    transformers.
    """
    named = config.get("added_tokens_decoder")
    told = [(i, token) for i, token in named.items() if isinstance(token, dict)
            and isinstance(token.get("content"), str)] if isinstance(named, dict) else []
    known = {token["content"] for _, token in told}
    told += [(i, {"content": name}) for name, i in read_json(folder / "added_tokens.json").items()
             if name not in known]
    if not all(str(i).isdecimal() for i, _ in told):
        raise PairError(f"{folder}: its added tokens have ids that are no numbers")
    added, more = added_to(engine), []
    for _, token in sorted(told, key=lambda item: int(item[0])):
        flags = {name: token[name] for name in ("lstrip", "rstrip", "single_word", "normalized")
                 if type(token.get(name)) is bool}
        name, old = token["content"], added.get(token["content"])
        special = token.get("special") is True or old is not None and old.special
        if old is None or name in known:
            more.append(extra("tokenizers").AddedToken(name, special=special, **flags))
    engine.add_tokens(more)                             # in this order they get the next ids
    wrong = [token["content"] for i, token in told
             if engine.token_to_id(token["content"]) != int(i)]
    if wrong:
        raise PairError(f"{folder}: tokenizer.json lacks tokens that the other files have, or has "
                        f"them under other ids: {one_line(', '.join(wrong))}")


def added_to(engine: Any) -> dict[str, Any]:
    """The engine's added tokens by name."""
    return {token.content: token for token in engine.get_added_tokens_decoder().values()}


def as_special(token: Any) -> Any:
    return extra("tokenizers").AddedToken(
        token.content, lstrip=token.lstrip, rstrip=token.rstrip, single_word=token.single_word,
        normalized=False, special=True)


def written_by(template: ChatTemplate | None) -> tuple[str, str]:
    """What a chat template writes of its own, its source too; and what it writes right after an
    answer.
    """
    if template is None:
        return "", ""
    written, after = template.source, ""
    for text in template.written:
        written += "\n" + text
        if ANSWER in text:
            after = text.rpartition(ANSWER)[2].lstrip()
    return written, after


def mark(engine: Any, named: Iterable[str | None], written: str) -> None:
    """Make special what is: the tokens `named`, and those that a template has `written`, where the
    engine has them.
    """
    added, more = added_to(engine), []
    found = {match[0] for match in LOOKS_SPECIAL.finditer(written)}
    # One that was added and is not special, as <think>, is a single token in a text of a user's.
    found = {name for name in found if name not in added or SURELY.fullmatch(name)}
    found |= {name for name in named if name and (name in added or LOOKS_SPECIAL.fullmatch(name))}
    for name in sorted(found):
        if name in added and not added[name].special:
            more.append(as_special(added[name]))
        elif name not in added and engine.token_to_id(name) is not None:
            more.append(extra("tokenizers").AddedToken(name, normalized=False, special=True))
    engine.add_tokens(more)


def check_growth(file: Mapping) -> None:
    """PairError if what comes before or after the model of a tokenizer.json could make a text more
    than GROWTH times as long: a few steps that double it would take all memory. Or if it puts more
    than GROWTH tokens around every text.
    """
    for part in "normalizer", "pre_tokenizer", "decoder", "post_processor":
        times, steps = 1.0, steps_of(file.get(part))
        if len(steps) > MOST_STEPS:
            raise PairError(f"the tokenizer's {part} has {len(steps):,} steps")
        for step in steps:
            in_bytes = part in ("normalizer", "pre_tokenizer") and step["type"] == "ByteLevel"
            times *= 4.0 if in_bytes else growth_of(step)       # a character has up to four
        if times > GROWTH:
            raise PairError(f"the tokenizer's {part} could make a text {times:,.0f} times as long")
    for step in steps_of(file.get("post_processor")):
        if (count := added_by(step)) > GROWTH:
            raise PairError(f"the tokenizer puts {count:,} tokens around every text")


def added_by(step: Mapping) -> int:
    """How many tokens a step after the model puts around a text or two."""
    if step["type"] != "TemplateProcessing":
        return 0
    try:
        names = [what["id"] for form in ("single", "pair") for piece in step.get(form) or ()
                 for kind, what in piece.items() if kind == "SpecialToken"]
        return sum(len(step["special_tokens"][name]["ids"]) for name in names)
    except (LookupError, TypeError, AttributeError) as error:   # the engine takes other forms, too
        raise PairError(f"the tokenizer's template is none: {one_line(error)}") from error


def steps_of(step: Any) -> list[dict]:
    """One after the other. Only a Sequence has steps; in another step such a key means nothing.
    PairError for one without a type: the engine guesses what it is.
    """
    if step is None:
        return []
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        raise PairError("a step of the tokenizer has no type")
    if step["type"] != "Sequence":
        return [step]
    inner = [step[name] for name in INNER if isinstance(step.get(name), list)]
    return [one for part in sum(inner, []) for one in steps_of(part)]


def growth_of(step: Mapping) -> float:
    """How many times as long a step makes a text, at most."""
    kind, content = step["type"], str(step.get("content", ""))
    if kind == "Replace":
        pattern = step.get("pattern", {})
        text = pattern.get("String") if isinstance(pattern, dict) else None
        return max(1.0, len(content) / len(text)) if text else 1.0 + len(content)
    if kind == "TemplateProcessing":                    # the text itself may stand there often
        forms = [step[form] for form in ("single", "pair") if isinstance(step.get(form), list)]
        return float(max([1, *(sum("Sequence" in piece for piece in form
                                   if isinstance(piece, dict)) for form in forms)]))
    if kind == "Precompiled":
        table = b64decode(str(step.get("precompiled_charsmap", "")))    # a trie, then the texts
        begin = 4 + int.from_bytes(table[:4], "little")
        if begin > len(table):
            raise PairError("its table of characters claims to be longer than it is")
        texts = table[begin:].split(b"\0")
        return float(max(1, *map(len, texts)))
    replaced = {"CTC": "word_delimiter_token", "BPEDecoder": "suffix"}.get(kind)
    if replaced and not step.get(replaced):         # nothing: it is between any two characters
        return 3.0
    return {"Prepend": 1.0 + len(str(step.get("prepend", ""))), "NFKD": 18.0, "NFKC": 18.0,
            "NFD": 4.0, "NFC": 3.0}.get(str(kind), 1.0)
