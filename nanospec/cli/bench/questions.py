"""Questions of the user's: read from a file in the form of SPEED-Bench or of Spec-Bench, answered
turn by turn, and counted as Spec-Bench counts.

SPEED-Bench (arXiv 2604.09557) has 880 questions in eleven categories, and sets of prompts of 1,000
to 32,000 tokens in three; Spec-Bench (Xia et al. 2024, arXiv 2401.07851) has six tasks of 80
questions. The files are not ours, and do not come with us. A line is one of

    {"question_id": 81, "category": "writing", "turns": ["...", "..."]}
    {"question_id": "a1", "category": "qa", "messages": [{"role": "user", "content": "..."}]}
    {"prompt": "..."}

and more keys do no harm. Before a turn stand the earlier ones with their answers, in the model's
chat template if it has one, otherwise line by line. A row is a category, but the eight of MT-Bench,
questions 81 to 160 of Spec-Bench, are one; the last row is all of them. In the columns:

    acceptance length   tokens that a call of the target wrote: the mean over all calls
    plain, fast         tokens a second, all tokens over all seconds, and their quotient, the
                        speed-up
    Spec-Bench's        the speed-up that its evaluation/speed.py prints for these answers: on
                        either side the mean over questions of their tokens a second, where plain
                        decoding's tokens are counted again from its text, so that the token that
                        ends an answer counts on one side only
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter, time
from typing import Any

from rich.console import Console
from rich.progress import track

from nanospec.cli.bench.question_file import Question, Questions, parse_lines
from nanospec.cli.quantities import per_second
from nanospec.cli.show.terminal import ShownTable, show_table
from nanospec.errors import SEEDS, RequestError, one_line
from nanospec.files.checkpoint import Pair
from nanospec.files.paths import read_file, write_atomically
from nanospec.generate import generate
from nanospec.methods.index import Method
from nanospec.model import GPT
from nanospec.speculate import Round

Writer = Callable[[list[int], int], list[list[int]]]
"""(prompt, seed) -> the new tokens of each call of the target."""
Others = Callable[[Pair, dict], tuple[dict[str, Writer], dict[str, str]]]
"""(a pair, as it runs here, and a request) -> more writers, and the data types of their weights."""
MOST = 10 ** 9          # tokens, or seconds, of an answer
COLUMNS = {"method": ("method", ""), "T": ("temperature", "g"), "task": ("task", ""),
           "questions": ("questions", "d"), "accept-\nance\nlength": ("acceptance_length", ".2f"),
           "plain\nper s": ("baseline_tokens_per_s", ",.1f"),
           "fast\nper s": ("tokens_per_s", ",.1f"), "speed-up": ("speedup", ".2f"),
           "Spec-\nBench's": ("spec_bench_speedup", ".2f")}


def ids_of(tokenizer: Any, turns: Sequence[str], answers: Sequence[str] = ()) -> list[int]:
    """The prompt of the last of these turns. answers: to those before it."""
    if getattr(tokenizer, "template", None) is None:
        ids = tokenizer.begin + tokenizer.encode(turns[0])
        for answer, turn in zip(answers, turns[1:]):
            ids = ids + tokenizer.continued(f"{answer}\n{turn}")
        return ids
    messages = [{"role": "user", "content": turn} for turn in turns]
    for at, answer in enumerate(answers):
        messages.insert(2 * at + 1, {"role": "assistant", "content": answer})
    return tokenizer.chat(messages)


def prompts_within(questions: Questions, tokenizer: Any, context: int, new: int) -> list[list[int]]:
    """The first turns' prompts. RequestError, before any work, for a question that with answers of
    up to `new` tokens is longer than the context.
    """
    for one in questions.each:
        answers = ["."] * (len(one.turns) - 1)          # a template may refuse an empty one
        tokens = len(ids_of(tokenizer, one.turns, answers)) + len(one.turns) * new
        if tokens > context:
            raise RequestError(f"{questions.path}, line {one.line}: with answers of up to {new} "
                               f"tokens this takes {tokens}, and the context is {context}")
    return [ids_of(tokenizer, one.turns[:1]) for one in questions.each]


def make_writers(target: GPT, methods: Iterable[Method], tokenizer: Any,
                 request: dict) -> dict[str, Writer]:
    """Plain decoding and these methods by name. request: as `generate` takes it, besides stop."""
    request = request | {"stop": sorted(tokenizer.ends)}

    def plain(ids: list[int], seed: int) -> list[list[int]]:
        return [[token] for token in generate(target, ids, seed=seed, **request)]

    def writer(run: Callable[..., Iterable[Round]]) -> Writer:
        return lambda ids, seed: [done.emitted for done in run(ids, seed=seed, **request)]

    return {"plain": plain, **{method.name: writer(method.run) for method in methods}}


def answered(write: Writer, question: Question, tokenizer: Any, seed: int) -> dict:
    """All turns, in Spec-Bench's terms: what stands under "choices"."""
    texts: list[str] = []
    calls: list[list[list[int]]] = []
    seconds: list[float] = []
    for turn in range(len(question.turns)):
        ids = ids_of(tokenizer, question.turns[:turn + 1], texts)
        began = perf_counter()
        calls.append(write(ids, (seed + question.before + turn) % SEEDS))
        seconds.append(perf_counter() - began)
        tokens = sum(calls[-1], [])
        texts.append(tokenizer.decode(tokens[:-1] if tokens[-1] in tokenizer.ends else tokens))
    lengths = [[len(tokens) for tokens in of_turn] for of_turn in calls]
    return {"index": 0, "turns": texts, "decoding_steps": [len(of_turn) for of_turn in lengths],
            "new_tokens": [sum(of_turn) for of_turn in lengths], "wall_time": seconds,
            "accept_lengths": sum(lengths, [])}


def is_answer(line: dict) -> bool:
    """Whether a line has what is needed of an answer that was kept."""
    choices = line.get("choices")
    one = choices[0] if isinstance(choices, list) and choices else None
    if type(line.get("question_id")) not in (int, str) or not isinstance(one, dict):
        return False
    kinds = {"turns": str, "new_tokens": int, "wall_time": float, "accept_lengths": int}
    lists = all(isinstance(one.get(name), list) and one[name]
                and all(type(value) is kind for value in one[name]) for name, kind in kinds.items())
    return (lists and len(one["new_tokens"]) == len(one["wall_time"]) == len(one["turns"])
            and all(0 < seconds < MOST for seconds in one["wall_time"])
            and all(0 < tokens < MOST for tokens in one["new_tokens"] + one["accept_lengths"]))


def kept_in(path: Path, method: str) -> Path:
    """The file of a method's answers: `path` of ours; the name of another stands before its suffix.
    """
    words = method.replace(",", "").split()
    ours = words[0] not in ("plain", "transformers")
    return path if ours else path.with_suffix(f".{'-'.join(words)}{path.suffix}")


def read_answers(path: Path) -> list[dict]:
    """The lines of a file of answers, if there is one. RequestError for what is none."""
    found = []
    for number, line in parse_lines(path, read_file(path)) if path.exists() else []:
        if not isinstance(line.get("settings"), dict) or not is_answer(line):
            raise RequestError(f"{path}, line {number} is no answer of this bench: name another "
                               "file")
        found.append(line)
    return found


class Answers:
    """One method's answers, by question_id, and the file that they are kept in, if they are: whole
    after each answer.

    settings: all that an answer and its time depend on. path: as for `kept_in`. RequestError if the
    file has answers of other settings.
    """

    def __init__(self, method: str, settings: Mapping[str, Any], path: Path | None = None):
        self.path, self.settings = path and kept_in(path, method), {"method": method, **settings}
        self.found: dict[int | str, dict] = {}
        for line in read_answers(self.path) if self.path else []:
            others = line["settings"]
            differ = [f"{key} {one_line(others.get(key))}, here {value}"
                      for key, value in self.settings.items() if others.get(key) != value]
            if differ:
                raise RequestError(f"{self.path} has answers of other settings: "
                                   f"{'; '.join(differ)}")
            self.found[line["question_id"]] = line

    def add(self, question: Question, choice: dict) -> None:
        name = hashlib.sha256(json.dumps([question.id, self.settings]).encode()).hexdigest()[:22]
        self.found[question.id] = {
            "question_id": question.id, "category": question.category, "answer_id": name,
            "model_id": f"{self.settings['weights']} {self.settings['method']}",
            "choices": [choice], "tstamp": time(), "settings": self.settings}
        if self.path:
            text = "".join(json.dumps(line) + "\n" for line in self.found.values())
            write_atomically(self.path, lambda file: file.write(text.encode()))

    def pick(self, questions: Sequence[Question]) -> list[dict]:
        return [self.found[question.id]["choices"][0] for question in questions]


def ask(questions: Questions, writers: Mapping[str, Writer], tokenizer: Any, seed: int,
        settings: dict[str, Any], path: Path | None = None) -> list[dict]:
    """All questions to all methods, "plain" among them, in turns, but for those that are answered
    in the files of `path` already -> a row for every other method and task. The first question is
    the warm-up.
    """
    about = settings | {"seed": seed, "questions": questions.digest}
    kept = {name: Answers(name, about, path) for name in writers}
    left = [(one, name) for one in questions.each for name in writers
            if one.id not in kept[name].found]
    console, wanted = Console(stderr=True), len(writers) * len(questions.each)
    if len(left) < wanted:
        console.print(f"{wanted - len(left)} of {wanted} answers were kept, and are not made again")
    for name in dict.fromkeys(name for _, name in left):
        writers[name](ids_of(tokenizer, left[0][0].turns[:1]), seed)
    for one, name in track(left, "answers", console=console):
        kept[name].add(one, answered(writers[name], one, tokenizer, seed))
    tasks: dict[str, list[Question]] = {}
    for one in questions.each:
        tasks.setdefault(one.task, []).append(one)
    rows = [*tasks.items(), *[("all", questions.each)] * (len(tasks) > 1)]
    plain = kept.pop("plain")
    return [{"method": name, "task": task} | settings
            | numbers_of(answers.pick(some), plain.pick(some), tokenizer)
            for name, answers in kept.items() for task, some in rows]


def numbers_of(ours: Sequence[dict], plain: Sequence[dict], tokenizer: Any) -> dict:
    """A row's numbers, of two answers to each question."""
    def pace(answers: Sequence[dict]) -> float:
        return per_second(sum(sum(answer["new_tokens"]) for answer in answers),
                          (sum(answer["wall_time"]) for answer in answers))

    def counted(answer: dict) -> int:
        """The tokens of an answer's text, as Spec-Bench's script counts them."""
        return max(1, sum(len(tokenizer.begin + tokenizer.encode(text)) - 1
                          for text in answer["turns"]))

    theirs = (mean(pace([answer]) for answer in ours)
              / mean(per_second(counted(answer), answer["wall_time"]) for answer in plain))
    return {"questions": len(ours),
            "acceptance_length": mean(sum((answer["accept_lengths"] for answer in ours), [])),
            "tokens_per_s": pace(ours), "baseline_tokens_per_s": pace(plain),
            "speedup": pace(ours) / pace(plain), "spec_bench_speedup": theirs}


def show(rows: Sequence[dict], caption: str) -> ShownTable:
    cells = [[format(row[key], form) for key, form in COLUMNS.values()] for row in rows]
    return show_table(COLUMNS, cells, caption, [row["task"] == "all" for row in rows])
