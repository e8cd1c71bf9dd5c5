"""What models continue in the bench: questions, held-out texts, texts that repeat themselves."""

from pathlib import Path

from nanospec.cli.bench.question_file import Questions
from nanospec.cli.bench.questions import prompts_within
from nanospec.errors import RequestError
from nanospec.files.checkpoint import Pair
from nanospec.files.corpus import opening, read_texts, to_ids

# Twenty requests of five kinds, from what is hard to foresee to what can mostly be copied.
CHAT = Path(__file__).with_name("chat.jsonl")
# A model goes on with these, and drafts that copy are right.
REPETITIVE = {
    "assertions": "".join(f"        self.assertEqual(convert({value!r}), {value!r})\n"
                          for value in range(10, 24)),
    "dispatch": "HANDLERS = {\n" + "".join(f"    '{name}': self.handle_{name},\n" for name in (
        "open", "close", "read", "write", "seek", "tell", "flush", "reset", "start", "stop",
        "send", "next")),
}


def held_out_prompts(pair: Pair, count: int, tokens: int = 64) -> list[list[int]]:
    """Beginnings cut from `count` places of the standard library's held-out files here."""
    ids = to_ids(read_texts()[1], pair.tokenizer).tolist()
    if count * tokens > len(ids):
        raise RequestError(f"the held-out files have {len(ids)} tokens: too few for {count} "
                           f"prompts of {tokens}")
    starts, first = range(0, len(ids) - tokens + 1, len(ids) // count), opening(pair.tokenizer)
    return [[*first, *ids[start:start + tokens]][:tokens] for start in starts][:count]


def repetitive_prompts(pair: Pair) -> list[list[int]]:
    return [pair.tokenizer.begin + pair.tokenizer.encode(text) for text in REPETITIVE.values()]


def prompts_of(pair: Pair, which: str | Questions, new: int) -> tuple[list[list[int]], str]:
    """The prompts, and what to call them. which: "repetitive", the number of held-out texts, or
    questions, whose first turns these are. new: the most tokens of an answer to a question.
    """
    if isinstance(which, Questions):
        prompts = prompts_within(which, pair.tokenizer, pair.target.config.context, new)
        return prompts, f"{len(prompts)} question{'s' * (len(prompts) > 1)} of {which.path.name}"
    if which == "repetitive":
        return repetitive_prompts(pair), f"{len(REPETITIVE)} repetitive prompts"
    count = int(which)
    return held_out_prompts(pair, count), f"{count} held-out prompt{'s' * (count > 1)}"
