"""Questions of the user's: read from a file in Spec-Bench's format, answered turn by turn, and counted as it counts.

Spec-Bench (Xia et al. 2024, arXiv 2401.07851; github.com/hemingkx/Spec-Bench, data/spec_bench/question.jsonl) has six
tasks of 80 questions. The file is not ours, and does not come with us. A line is

    {"question_id": 81, "category": "writing", "turns": ["...", "..."]}    or    {"prompt": "..."}

and more keys do no harm. Before a turn stand the earlier ones with their answers, in the model's chat template if it
has one, otherwise line by line. A row is a category, but MT-Bench's eight are one; the last row is all of them. In the
columns:

    accepted        tokens that a call of the target wrote: the mean over all calls
    plain, fast     tokens a second, all tokens over all seconds, and their quotient, the speed-up
    Spec-Bench's    the speed-up that its evaluation/speed.py prints for these answers: on either side the mean over
                    questions of their tokens a second, where plain decoding's tokens are counted again from its text,
                    so that the token that ends an answer counts on one side only
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter, time
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from nanospec.cli.quantities import per_second, times_as_fast
from nanospec.cli.show.terminal import show_table
from nanospec.errors import SEEDS, RequestError, one_line
from nanospec.files.paths import write_atomically

Writer = Callable[[list[int], int], tuple[list[int], list[int]]]
"""(prompt, seed) -> the new tokens, and how many of them each call of the target brought."""
MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
COLUMNS = {"method": ("method", ""), "T": ("temperature", "g"), "task": ("task", ""), "questions": ("questions", "d"),
           "accepted": ("accepted", ".2f"), "plain\nper s": ("baseline_tokens_per_s", ",.1f"),
           "fast\nper s": ("tokens_per_s", ",.1f"), "speed-up": ("speedup", ".2f"),
           "Spec-\nBench's": ("spec_bench_speedup", ".2f")}


class Question(NamedTuple):
    """line: its number in the file. before: how many turns stand in the questions before it."""

    line: int
    id: int | str
    category: str
    turns: list[str]
    before: int

    @property
    def task(self) -> str:
        return "mt_bench" if self.category in MT_BENCH else self.category


class Questions(NamedTuple):
    """The questions of a file. digest: of what it holds."""

    path: Path
    digest: str
    each: list[Question]


def lines_of(path: Path) -> list[tuple[int, dict]]:
    """The objects of a file with one JSON object a line, and the numbers of their lines. RequestError for others."""
    found = []
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            thing = json.loads(line.decode()) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{path}, line {number} is no JSON in UTF-8: {one_line(error)}") from error
        if not isinstance(thing, dict):
            raise RequestError(f"{path}, line {number} is no JSON object, but {one_line(repr(thing))}")
        found += [(number, thing)] if line.strip() else []
    return found


def read_questions(path: Path) -> Questions:
    """RequestError, which names the line, for one that is no question or whose question_id stands there twice."""
    each: list[Question] = []
    for number, thing in lines_of(path):
        turns = thing["turns"] if "turns" in thing else [thing.get("prompt")]
        if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
            raise RequestError(f'{path}, line {number}: a question has "turns", a list of texts, or a "prompt"')
        name, category = thing.get("question_id", number), thing.get("category", "prompts")
        if type(name) not in (int, str) or not isinstance(category, str):
            raise RequestError(f"{path}, line {number}: question_id is a whole number or a text, and category a text")
        if name in [question.id for question in each]:
            raise RequestError(f"{path}, line {number}: the question_id {one_line(repr(name))} stands there twice")
        each.append(Question(number, name, category, turns, sum(len(question.turns) for question in each)))
    if not each:
        raise RequestError(f"{path} has no question")
    return Questions(path, hashlib.sha256(path.read_bytes()).hexdigest()[:16], each)


def ids_of(tokenizer: Any, turns: Sequence[str], answers: Sequence[str]) -> list[int]:
    """The prompt of the last of these turns. answers: to those before it."""
    if getattr(tokenizer, "template", None) is None:
        ids = tokenizer.begin + tokenizer.encode(turns[0])
        for answer, turn in zip(answers, turns[1:]):
            ids = ids + tokenizer.continued(f"{answer}\n{turn}")
        return ids
    said = [{"role": "user", "content": turn} for turn in turns]
    for at, answer in enumerate(answers):
        said.insert(2 * at + 1, {"role": "assistant", "content": answer})
    return tokenizer.chat(said)


def prompts_within(questions: Questions, tokenizer: Any, context: int, new: int) -> list[list[int]]:
    """The first turns' prompts. RequestError, before any work, for a question that with answers of up to `new` tokens
    is longer than the context.
    """
    for one in questions.each:
        some = ["."] * (len(one.turns) - 1)             # a template may refuse an answer that is empty
        tokens = len(ids_of(tokenizer, one.turns, some)) + len(one.turns) * new
        if tokens > context:
            raise RequestError(f"{questions.path}, line {one.line}: with answers of up to {new} tokens this takes "
                               f"{tokens}, and the context is {context}")
    return [ids_of(tokenizer, one.turns[:1], []) for one in questions.each]


def answered(write: Writer, question: Question, tokenizer: Any, seed: int) -> dict:
    """All turns, in Spec-Bench's terms: what stands under "choices"."""
    found: dict[str, list] = {key: [] for key in ("turns", "decoding_steps", "new_tokens", "wall_time",
                                                  "accept_lengths")}
    for turn in range(len(question.turns)):
        ids = ids_of(tokenizer, question.turns[:turn + 1], found["turns"])
        began = perf_counter()
        tokens, calls = write(ids, (seed + question.before + turn) % SEEDS)
        found["wall_time"].append(perf_counter() - began)
        found["turns"].append(tokenizer.decode(tokens[:-1] if tokens[-1] in tokenizer.ends else tokens))
        found["decoding_steps"].append(len(calls))
        found["new_tokens"].append(len(tokens))
        found["accept_lengths"] += calls
    return {"index": 0, **found}


class Answers:
    """One method's answers, by question_id, and the file that they are kept in, if they are: whole after each answer.

    settings: all that an answer and its time depend on. RequestError if the file has answers of other settings.
    """

    def __init__(self, method: str, settings: Mapping[str, Any], path: Path | None = None):
        self.path, self.settings, self.found = path, {"method": method, **settings}, dict[int | str, dict]()
        for number, line in lines_of(path) if path and path.exists() else []:
            others = line.get("settings")
            if not isinstance(others, dict) or not {"question_id", "choices"} <= line.keys():
                raise RequestError(f"{path}, line {number} is no answer of this bench: name another file")
            differ = [f"{key} {one_line(others.get(key))}, here {value}" for key, value in self.settings.items()
                      if others.get(key) != value]
            if differ:
                raise RequestError(f"{path} has answers of other settings: {'; '.join(differ)}")
            self.found[line["question_id"]] = line

    def add(self, question: Question, choice: dict) -> None:
        name = hashlib.sha256(json.dumps([question.id, self.settings]).encode()).hexdigest()[:22]
        self.found[question.id] = {
            "question_id": question.id, "category": question.category, "answer_id": name,
            "model_id": f"{self.settings['weights']} {self.settings['method']}", "choices": [choice],
            "tstamp": time(), "settings": self.settings}
        if self.path:
            text = "".join(json.dumps(line) + "\n" for line in self.found.values())
            write_atomically(self.path, lambda file: file.write(text.encode()))

    def pick(self, questions: Sequence[Question]) -> list[dict]:
        return [self.found[question.id]["choices"][0] for question in questions]


def files_of(path: Path | None, methods: Sequence[str]) -> dict[str, Path | None]:
    """Where each method's answers are kept: ours in the file of this name; of plain decoding and of others the name
    stands before its suffix.
    """
    others = {name: "-".join(name.replace(",", "").split()) for name in methods
              if name.partition(",")[0] in ("plain", "transformers")}
    return {name: path and (path.with_suffix(f".{others[name]}{path.suffix}") if name in others else path)
            for name in methods}


def ask(questions: Questions, writers: Mapping[str, Writer], tokenizer: Any, seed: int, settings: dict[str, Any],
        path: Path | None = None) -> list[dict]:
    """All questions to all methods, "plain" among them, in turns, but for those that are answered in the files of
    `path` already -> a row for every other method and task. The first question is the warm-up.
    """
    files = files_of(path, list(writers))
    kept = {name: Answers(name, settings | {"seed": seed, "questions": questions.digest}, files[name])
            for name in writers}
    left = [one for one in questions.each if any(one.id not in its.found for its in kept.values())]
    for name, write in writers.items():
        if any(one.id not in kept[name].found for one in left):
            write(ids_of(tokenizer, left[0].turns[:1], []), seed)
    for one in track(left, "questions", console=Console(stderr=True)):
        for name, write in writers.items():
            if one.id not in kept[name].found:
                kept[name].add(one, answered(write, one, tokenizer, seed))
    tasks: dict[str, list[Question]] = {}
    for one in questions.each:
        tasks.setdefault(one.task, []).append(one)
    all_of_them = [("all", questions.each)] * (len(tasks) > 1)
    return [{"method": name, "task": task} | settings | numbers_of(its.pick(some), kept["plain"].pick(some),
                                                                  tokenizer)
            for name, its in kept.items() if name != "plain" for task, some in [*tasks.items(), *all_of_them]]


def numbers_of(ours: Sequence[dict], plain: Sequence[dict], tokenizer: Any) -> dict:
    """A row's numbers, of two answers to each question."""
    def pace(answers: Sequence[dict]) -> float:
        return per_second(sum(sum(its["new_tokens"]) for its in answers), (sum(its["wall_time"]) for its in answers))

    def counted(its: dict) -> int:
        return max(1, sum(len(tokenizer.begin + tokenizer.encode(text)) - 1 for text in its["turns"]))

    theirs = times_as_fast(mean(pace([its]) for its in ours),
                           mean(per_second(counted(its), its["wall_time"]) for its in plain))
    return {"questions": len(ours), "accepted": mean(sum((its["accept_lengths"] for its in ours), [])),
            "tokens_per_s": pace(ours), "baseline_tokens_per_s": pace(plain),
            "speedup": times_as_fast(pace(ours), pace(plain)), "spec_bench_speedup": theirs}


def show(rows: Sequence[dict], caption: str) -> None:
    show_table(COLUMNS, [[format(row[key], form) for key, form in COLUMNS.values()] for row in rows], caption,
               [row["task"] == "all" for row in rows])
