"""What the bench continues: texts that the shipped models were not trained on, and texts that repeat themselves."""

from pathlib import Path

from nanospec.cli.bench.chat_prompts import CHAT, chat_prompts
from nanospec.cli.bench.questions import Questions, prompts_within, read_questions
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


def check_answers(prompts: int | str | Path, answers: Path | None) -> Questions | None:
    """The questions of a file, if --prompts is one. RequestError for answers to anything else that would be kept."""
    if isinstance(prompts, Path):
        return read_questions(prompts)
    if answers:
        raise RequestError("--answers is for questions that --prompts FILE.jsonl asks")
    return None


def prompts_of(pair: Pair, which: int | str | Path | Questions, new: int) -> tuple[dict[str, list[list[int]]], str]:
    """The prompts of each kind, and what to call them. which: "repetitive", "chat", the number of held-out texts, or
    questions, whose first turns these are. new: the most tokens of an answer to a question.
    """
    if isinstance(which, Questions):
        prompts = prompts_within(which, pair.tokenizer, pair.target.config.context, new)
        return {"questions": prompts}, f"{len(prompts)} question{'s' * (len(prompts) > 1)} of {which.path.name}"
    if which == "chat":
        return chat_prompts(pair), f"{sum(map(len, CHAT.values()))} requests of {len(CHAT)} kinds"
    if which == "repetitive":
        return {"repetitive": repetitive_prompts(pair)}, f"{len(REPETITIVE)} repetitive prompts"
    count = int(str(which))
    return {"held out": held_out_prompts(pair, count)}, f"{count} held-out prompt{'s' * (count > 1)}"
