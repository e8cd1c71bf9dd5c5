"""What the bench continues: texts that the shipped models were not trained on, and texts that repeat themselves."""

from nanospec.cli.bench.chat_prompts import CHAT, chat_prompts
from nanospec.errors import RequestError
from nanospec.files.checkpoint import Pair
from nanospec.files.corpus import read_texts, to_ids

# A model goes on with these, and drafts that copy are right.
REPETITIVE = {
    "assertions": "".join(f"        self.assertEqual(convert({value!r}), {value!r})\n" for value in range(10, 24)),
    "dispatch": "HANDLERS = {\n" + "".join(f"    '{name}': self.handle_{name},\n" for name in (
        "open", "close", "read", "write", "seek", "tell", "flush", "reset", "start", "stop", "send", "next")),
}


def held_out_prompts(pair: Pair, count: int, tokens: int = 64) -> list[list[int]]:
    """Beginnings cut from `count` places of the standard library's held-out files on this machine."""
    ids = to_ids(read_texts()[1], pair.tokenizer).tolist()
    if count * tokens > len(ids):
        raise RequestError(f"the held-out files have {len(ids)} tokens: too few for {count} prompts of {tokens}")
    return [ids[i:i + tokens] for i in range(0, len(ids) - tokens + 1, len(ids) // count)][:count]


def repetitive_prompts(pair: Pair) -> list[list[int]]:
    return [pair.tokenizer.begin + pair.tokenizer.encode(text) for text in REPETITIVE.values()]


def prompts_of(pair: Pair, which: int | str) -> tuple[dict[str, list[list[int]]], str]:
    """The prompts of each kind, and what to call them. which: "repetitive", "chat", or the number of held-out texts."""
    if which == "chat":
        return chat_prompts(pair), f"{sum(map(len, CHAT.values()))} requests of {len(CHAT)} kinds"
    if which == "repetitive":
        return {"repetitive": repetitive_prompts(pair)}, f"{len(REPETITIVE)} repetitive prompts"
    count = int(which)
    return {"held out": held_out_prompts(pair, count)}, f"{count} held-out prompt{'s' * (count > 1)}"
