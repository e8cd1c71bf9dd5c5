"""Two texts at temperature 0: a table of planted bugs and of engines that only round, each with its right verdict; a
worked example by hand; and files that are refused.
"""

import json
import math
import re
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from nanospec.cli.judge import main
from nanospec.errors import LogitsError, RequestError
from nanospec.fast.autotune import copy_of
from nanospec.files import checkpoint
from nanospec.files.checkpoint import load_pair
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.generate import generate
from nanospec.judge import kinds, texts
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.ends import ended
from nanospec.judge.given import answers, certain, cleaned, given_in, prompt_of, without_half
from nanospec.judge.given import tokens_of as tokens_given
from nanospec.judge.kinds import (Case, drawn_at, likeliest, penalised, prompts, seen_before, shifted, spelled,
                                  subtracted)
from nanospec.judge.rounding import Compared, Moved, Read, compared, exact_type, in_type, moved, read
from nanospec.judge.texts import Task, judge_texts
from nanospec.proof.tables import TableModel
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.tools.right_servers import running
from tests.tools.test_endpoint import Server

SHIPPED = load_pair()
TARGET, TOKENIZER = SHIPPED.draft_model, SHIPPED.tokenizer      # small, and trained: not equally sure everywhere
NEW = 32
PROMPTS = [TOKENIZER.begin + TOKENIZER.encode(text) for text in
           ("if not name:", "def __init__(", "yield from", "raise ValueError(")]        # five tokens each
FEW = PROMPTS[2:]       # of so few tokens a bug is harder to find and to name


def noisy(share: float):
    """The target with some noise on its weights: a draft model that often agrees with it."""
    made, dice = copy_of(TARGET, torch.float64), torch.Generator().manual_seed(1)
    for weight in made.parameters():
        weight.data += share * weight.std() * torch.randn(weight.shape, generator=dice).double()
    return made.float()


def with_twins(noise: float):
    """The target, but every second token is nearly the one before: greedy texts are full of close calls."""
    made, dice = copy_of(TARGET, torch.float64), torch.Generator().manual_seed(2)
    weight = made.embedding.weight.data
    weight[1::2] = weight[::2] + noise * weight.std() * torch.randn(weight[::2].shape, generator=dice).double()
    return made.float()


DRAFT, TWINS = noisy(.2), with_twins(.003)


def test_of_a_long_text_every_part_is_changed_at_its_own_place():
    """A penalty sees the tokens before a place. A text is read in calls of 64 tokens."""
    table, seen = TableModel(5, 1), []
    text = [place * place % 5 for place in range(70)]
    found = read(table, [1, 2, 3], text, (), lambda logits, place: seen.append((place, len(logits))) or logits)
    assert seen == [(0, 64), (64, 6)] and len(found.behind) == 70


# Right programs

@torch.inference_mode()
def written(model, prompt, choose):
    """choose: (text, its logits (T, V), number of the place) -> token."""
    ids = [*prompt]
    for place in range(NEW):
        ids.append(int(choose(ids, model(torch.tensor([ids]))[0], place)))
    return ids[len(prompt):]


def one(model):
    """A token in a call, with a cache."""
    return [list(generate(model, prompt, NEW, 0)) for prompt in PROMPTS]


def several(model):
    """Chains are verified."""
    return [tokens_of(speculate(model, ModelDrafter(DRAFT, 4), prompt, NEW, 0)) for prompt in PROMPTS]


@torch.inference_mode()
def batch(model):
    """All prompts at once, and no cache."""
    ids = torch.tensor(PROMPTS)
    for _ in range(NEW):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids[:, len(PROMPTS[0]):].tolist()


def threads(model):
    """Two, for the first prompt: on a busy machine they wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = written(model, PROMPTS[0], lambda ids, logits, place: logits[-1].argmax())
    finally:
        torch.set_num_threads(before)
    return [first, *one(model)[1:]]


def parts(model):
    """Other kernels: each product is a sum of four parts, each of which is rounded."""
    def product(layer, given, _):
        return sum(x @ weight.T for x, weight in zip(given[0].chunk(4, -1), layer.weight.chunk(4, -1)))

    hooks = [part.register_forward_hook(product) for part in model.modules() if isinstance(part, torch.nn.Linear)]
    texts = one(model)
    for hook in hooks:
        hook.remove()
    return texts


@cache
def right(dtype, way):
    return way(in_type(TWINS, dtype))


MOVED: dict[tuple, Moved] = {}


def moved_once(exact, rounded, prompt, tokens, first):
    """Many cases have texts in common. A model in one data type is one model here."""
    key = exact.dtype, rounded, *map(tuple, (prompt, tokens)), first
    if key not in MOVED:
        MOVED[key] = moved(exact, rounded, prompt, tokens, first)
    return MOVED[key]


in_type_once = cache(in_type)


def judged(a, b, dtype, target=TARGET, draft_model=DRAFT, prompts=PROMPTS):
    tasks = [Task(*each) for each in zip(prompts, a, b)]
    with patch.multiple(texts, in_type=in_type_once, moved=moved_once):
        return judge_texts(target, TOKENIZER, tasks, dtype, draft_model)


WAYS = [(one, several), (one, batch), (one, parts), (one, threads), (several, batch), (several, parts),
        (batch, parts), (batch, threads), (parts, threads), (None, several)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(way.__name__ if way else "float32" for way in ways))
def test_rounding_is_no_bug(ways, dtype):
    """30 of them."""
    a, b = (right(dtype, way) if way else right("float32", one) for way in ways)
    found = judged(a, b, dtype, TWINS)
    assert found.status == 0, str(found)


# Planted bugs

def unverified(prompt, gamma):
    """Each token that is not the bonus is the draft model's."""
    def choose(ids, logits, place):
        return (logits if place % (gamma + 1) == gamma else DRAFT(torch.tensor([ids]))[0])[-1].argmax()
    return written(TARGET, prompt, choose)


def row_before(every):
    def choose(ids, logits, place):
        return logits[-2 if place % every == every - 1 else -1].argmax()
    return lambda prompt: written(TARGET, prompt, choose)


def stale(every):
    """Every few tokens it has a rejected one in its cache."""
    def of(prompt):
        dirty, made = [*prompt], []
        for place in range(NEW):
            if place % every == every - 1:
                dirty.append(77)
            made.append(next(generate(TARGET, dirty, 1, 0)))
            dirty.append(made[-1])
        return made
    return of


@cache
def greedy(prompt):
    return list(generate(TARGET, prompt, NEW, 0))


def reads(change):
    return lambda prompt: list(generate(TARGET, change(prompt), NEW, 0))


def drawn(temperature, top_k=None):
    return lambda prompt: list(generate(TARGET, prompt, NEW, temperature, top_k=top_k, seed=sum(prompt)))


def lost(at, count):
    return lambda prompt: greedy(tuple(prompt))[:at] + greedy(tuple(prompt))[at + count:]


def twice(at, count):
    return lambda prompt: greedy(tuple(prompt))[:at] + greedy(tuple(prompt))[at - count:]


def front(words):
    return lambda ids: TOKENIZER.begin + TOKENIZER.encode(words) + ids[1:]


BUGS = {
    "no BOS": (reads(lambda ids: ids[1:]), "without its BOS"),
    "two BOS": (reads(lambda ids: ids[:1] + ids), "one BOS more"),
    "three BOS": (reads(lambda ids: ids[:1] * 2 + ids), "likeliest kind"),       # it depends on the target
    "no last token": (reads(lambda ids: ids[:-1]), "without its last token"),
    "a line more": (reads(lambda ids: ids + TOKENIZER.encode("\n")), "line's end"),
    "twice": (reads(lambda ids: ids + ids), "twice"),
    "a template": (reads(front("### User:\n")), "template"),
    "another template": (reads(lambda ids: front("Q: ")(ids) + TOKENIZER.encode("\nA:")), "template"),
    "a third": (reads(lambda ids: front("[INST]")(ids) + TOKENIZER.encode("[/INST]")), "template"),
    **{f"{count} lost at {at}": (lost(at, count), "shifted by") for at, count in [(3, 1), (9, 1), (17, 1), (6, 2)]},
    **{f"{count} twice at {at}": (twice(at, count), "shifted by") for at, count in [(3, 1), (9, 1), (17, 1), (6, 2)]},
    **{f"the row before, every {every}": (row_before(every), "the place before") for every in (3, 5, 7)},
    **{f"unverified, gamma {gamma}": (lambda prompt, gamma=gamma: unverified(prompt, gamma), "unverified")
       for gamma in (1, 2, 4, 8)},
    "drawn at .7": (drawn(.7), "not greedy at all"), "drawn at 1": (drawn(1.0), "not greedy at all"),
    "drawn at 1.3": (drawn(1.3), "not greedy at all"), "drawn, top-k 20": (drawn(1.0, 20), "not greedy at all"),
    **{f"stale every {every}": (stale(every), "") for every in (3, 6)},
}


def greedy_texts(prompts=PROMPTS):
    return [greedy(tuple(prompt)) for prompt in prompts]


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_named(name):
    """30 of them, in B. A is right."""
    write, words = BUGS[name]
    found = judged(greedy_texts(FEW), [write(prompt) for prompt in FEW], "float16", prompts=FEW)
    assert found.status == 1 and found.verdict.startswith("A BUG in B") and words in found.verdict, found.verdict


def test_it_is_said_which_of_the_two_is_off_and_where_nothing_can_be_said():
    good, drawn_ones = greedy_texts(), [drawn(1.0)(prompt) for prompt in PROMPTS]
    assert judged(drawn_ones, good, "float16").verdict.startswith("A BUG in A")
    assert judged(good, good, "float16").status == 0
    neither = judged(drawn_ones, [reads(lambda ids: ids[1:])(prompt) for prompt in PROMPTS], "float16")
    assert neither.status == 2 and "neither A nor B" in neither.verdict
    assert "B: it reads the prompt without its BOS" in neither.verdict
    alone = judged(good, [unverified(prompt, 2) for prompt in PROMPTS], "float16", draft_model=None)
    assert alone.status == 1 and "a TARGET that is a folder with a pair would tell" in alone.verdict
    one_text = judged(good[:1], drawn_ones[:1], "float16")          # 32 tokens
    assert one_text.status == 1 and "not greedy at all (more tokens would tell)" in one_text.verdict
    assert "1 pair of texts: 1 where one is off" in str(one_text)


def test_a_coarser_data_type_and_a_penalty_are_no_bugs():
    texts = one(in_type(TWINS, "int8")), one(TWINS)
    coarser = judged(*texts, "float32", TWINS)
    assert coarser.status == 2 and "float32 rounds, and less than" in coarser.verdict

    def penalised(ids, logits, place):
        row = logits[-1].clone()
        row[ids] = torch.where(row[ids] > 0, row[ids] / 1.2, row[ids] * 1.2)
        return row.argmax()

    # In float16 it is off, in bfloat16 some of it is not so far off that it must be a bug.
    for dtype, found in (("float16", {"bug"}), ("bfloat16", {"bug", "close"}), ("int8", {"close"})):
        one_of = judged(greedy_texts(), [written(TARGET, prompt, penalised) for prompt in PROMPTS], dtype)
        assert one_of.status == 2 and re.search(r"a repetition penalty of 1\.(15|2)\b", one_of.verdict)
        assert {compared.verdict for compared in one_of.each} == found


@pytest.mark.parametrize("name, number, of_prompt", [
    ("frequency", .5, False), ("frequency", 1.25, True), ("presence", 1.5, False), ("presence", 1.0, True)])
def test_a_penalty_that_is_subtracted_is_no_bug(name, number, of_prompt):
    """Though it may be less than a coarser type rounds. Of the prompt's tokens it counts some programs do."""
    def penalised(ids, logits, place):
        had = torch.tensor(ids if of_prompt else ids[len(ids) - place:], dtype=torch.long).bincount(minlength=1024)
        return (logits[-1] - number * (had.clamp(max=1) if name == "presence" else had)).argmax()

    written_so = [written(TARGET, prompt, penalised) for prompt in PROMPTS]
    for dtype in "float32", "float16":
        found = judged(greedy_texts(), written_so, dtype, draft_model=None)
        words = re.search(rf"No verdict: B .* but .*a {name} penalty of ([\d.]+).* would do it, too", found.verdict)
        assert found.status == 2 and words and abs(float(words[1]) - number) < .3, found.verdict


def repeats(ids, count):
    """The tokens with which a run of `count` would stand there twice."""
    last = ids[len(ids) - count + 1:]
    return [ids[i + count - 1] for i in range(len(ids) - count + 1) if ids[i:i + count - 1] == last]


@pytest.mark.parametrize("change", [
    lambda row, ids: row.index_fill(0, torch.tensor(ids[-6:]), -1e9),                           # in a window
    lambda row, ids: row.where(torch.tensor([i not in ids for i in range(1024)]), row - row.abs()),     # of 2
    lambda row, ids: row.index_fill(0, torch.tensor(repeats(ids, 3), dtype=torch.long), -1e9)])
def test_a_setting_against_repetition_that_nobody_has_a_name_for_is_no_bug(change):
    texts_of = [written(TARGET, prompt, lambda ids, logits, place: change(logits[-1], ids).argmax())
                for prompt in PROMPTS]
    found = judged(greedy_texts(), texts_of, "float32", draft_model=None)
    assert found.status == 2 and "stands there already" in found.verdict, found.verdict


def test_what_a_coarser_type_moves_is_measured_on_the_texts_that_are_off(monkeypatch):
    """The second and the fourth of them."""
    asked, real = [], texts.measured
    monkeypatch.setattr(texts, "measured", lambda target, exact, tasks, ids, dtype: asked.append(
        ([task.prompt for task in tasks], [b for _, b in ids], dtype)) or real(target, exact, tasks, ids, dtype))
    a, b = greedy_texts(), greedy_texts()
    b = [[*ids[:4], (ids[4] + 500) % 1000, *ids[5:]] if number in (1, 3) else ids for number, ids in enumerate(b)]
    assert judged(a, b, "bfloat16", draft_model=None).status == 1
    assert asked[1:] == [([PROMPTS[1], PROMPTS[3]], [b[1], b[3]], "int8")]


def test_no_temperature_is_named_at_which_a_text_is_impossible():
    """Greedy, but for one token, the least likely one."""
    text = [*generate(TARGET, PROMPTS[0], 100, 0)]
    wrong = int(TARGET(torch.tensor([PROMPTS[0] + text[:50]]))[0, -1].argmin())
    its = text[:50] + [wrong]
    its += generate(TARGET, PROMPTS[0] + its, 49, 0)
    assert drawn_at(TARGET, [Case(PROMPTS[0], SimpleNamespace(tokens=its), [])]) is None
    assert drawn_at(TARGET, [Case(PROMPTS[0], SimpleNamespace(tokens=text), [])]) is not None


@pytest.mark.parametrize("tokens, known", [(63, False), (64, True)])
def test_of_few_tokens_no_temperature_is_named(tokens, known):
    drawn = list(generate(TARGET, PROMPTS[0], tokens, 1.0, seed=3))
    case = Case(PROMPTS[0], SimpleNamespace(tokens=drawn), [])
    assert (drawn_at(TARGET, [case]) is not None) == known


# By hand

EXACT = torch.tensor([[0, 3, 2.75, -1], [5, 1, 4.75, 2], [1, 0, -2, 4], [6, 2, 1, 0]])


class Given:
    """Logits that depend on the last token alone. After token 0 that of token 2 is `more[0]` more in a call on one
    token, and `more[1]` more in a call on several.
    """

    config, device = SimpleNamespace(vocab_size=4, context=64), torch.device("cpu")

    def __init__(self, *more):
        self.more = more

    def new_cache(self, rows, slots):
        return SimpleNamespace(length=torch.zeros(rows, dtype=torch.int64))

    def __call__(self, tokens, cache, kv_length, scored=None):
        logits = EXACT[tokens].clone()
        logits[..., 2] += torch.where(tokens == 0, self.more[tokens.shape[1] > 1], 0.0)
        return logits


LETTERS = SimpleNamespace(decode=lambda ids: "abcd"[ids[0]], ends=set(), begin=[], spellings=[b"a", b"b", b"c", b"d"],
                          continued=lambda text: [max(0, "abcd".find(letter)) for letter in text], special={})


@pytest.mark.parametrize("more, most, calls, said, status", [
    ((.125, -.125), "0.25", "0.25", "rounding", 0),                 # just as far as the gap
    ((.1875, -.125), "0.31", "0.31", "rounding", 0),                # .3125, and the gap is .25
    ((.125, -.0625), "0.19", "0.19", "too close to call", 3),       # .1875 is less, and 8 times that is not
    ((.015625, .03125), "0.031", "0.016", "too close to call", 3),  # 8 x .03125 is .25, and no more
    ((.015625, -.0078125), "0.023", "0.023", "more than rounding", 1)])      # 8 x .0234375 = .1875
def test_the_numbers_that_a_person_reads(more, most, calls, said, status, monkeypatch):
    """A goes on d, a, b, a, ...; B has c at place 2, whose logit is 2.75, beside 3 of b. No penalty explains it: b has
    not come before.
    """
    monkeypatch.setattr(texts, "finer", lambda target, dtype: Given(0.0, 0.0))
    monkeypatch.setattr(texts, "in_type", lambda target, dtype: Given(*(x * (dtype == "float16") for x in more)))
    a, b = [3, 0, *[1, 0] * 19], [3, 0, 2, 3, *[0, 1] * 18]
    found = judge_texts(Given(), LETTERS, [Task([0, 2], a, b), Task([2], a, a)], "float16")
    lines = str(found).splitlines()
    off = "; B is off at token 2: 'c' (2) is 0.25 below the best" * (status == 1)
    assert lines[0] == ("prompt 1: they part at new token 2, 'b' (1) in A and 'c' (2) in B. The target's two best "
                        "there, by a call in float32: 'b' (1) and 'c' (2), 0.25 apart. A's is 0 below the best, "
                        f"B's 0.25{off}: {said}")
    # A's three places up to there and 32 of B's, and 32 twice of the two that are alike.
    assert lines[1].startswith(f"float16 moves the gap between two logits of this model by up to {most} ({calls} "
                               "between calls on 1 and on 5 tokens; 99 places measured).")
    assert found.status == status and found.each[0].behind == (0, .25) and len(lines) == 4
    assert lines[2] == "2 pairs of texts: 1 alike, 1 " + {0: "parted by rounding", 1: "where one is off",
                                                         3: "too close to call"}[status] + "."


END = SimpleNamespace(**{**vars(LETTERS), "ends": {1}, "special": {"<end>": 1}, "spellings": [b"a", None, b"c", b"<"]})


@pytest.fixture
def by_hand(monkeypatch):
    """Given, in float16; b is <end>, and what may be said of it is said beside 40 tokens that are alike."""
    monkeypatch.setattr(texts, "finer", lambda target, dtype: Given(0.0, 0.0))
    monkeypatch.setattr(texts, "in_type", lambda target, dtype: Given(*(x * (dtype == "float16")
                                                                        for x in (.015625, -.0078125))))
    alike = Task([0], [2, 3, 0] * 14, [2, 3, 0] * 14)
    return lambda *tasks, told=False: judge_texts(Given(), END, [*tasks, alike], "float16", told=told)


@pytest.mark.parametrize("a, b, said", [
    ([0, 1], [0, 1, 0, 2], "A BUG in B: in 1 of 2 texts it goes on after the end of text, where A stops"),
    ([0, 1, 0], [0, 1], "A BUG in A: in 1 of 2 texts it goes on after the end of text, where B stops"),
    ("a<end>", "a<end>cab", "A BUG in B: in 1 of 2 texts it goes on after the end of text, where A stops"),
    ([0, 1, 1, 1], [0, 1, 0, 2], "A BUG in B: in 1 of 2 texts it goes on after the end of text, where A stops"),
    ([0, 1], [0, 1, 1], "No difference"), ([0, 1], [0, 1, 1, 1], "No difference"),      # as in a batch
    ([0, 1, 2, 2], [0, 1], "No difference"),
    ([0, 1, 0, 1], [0, 1, 0, 1, 0], "No difference"),       # both are told to ignore the end
    ([0, 1], [0], "No difference"), ("a<end>", "a", "No difference")])      # it may be left out
def test_a_text_that_goes_on_after_the_other_ones_end_has_a_bug(a, b, said, by_hand):
    found = by_hand(Task([1], a, b))
    assert found.verdict.startswith(said), str(found)
    assert found.status == said.startswith("A BUG")
    if found.status and not isinstance(a, str):
        assert f"(tokens: {len(a)} in A, {len(b)} in B)" in str(found)              # as they were given


def test_who_goes_on_after_an_end_elsewhere_does_not_stop_at_one(by_hand):
    """Its text was cut there."""
    found = by_hand(Task([1], [0, 1], [0, 1, 0]), Task([3], [0, 1, 0, 2], [0, 1, 0, 2]))
    assert found.status == 0 and "alike as far as both go (tokens: 2 in A, 3 in B)" in str(found)


def test_fillings_are_taken_off_a_text_whose_end_was_taken_out():
    """2 ends a text, and 9 fills it up."""
    assert ended([[[5, 6, 9, 9, 9], [5, 6]]], {2}, {2, 9}, False) == [("same", 0, [[5, 6], [5, 6]])]


def test_who_writes_each_end_twice_has_a_bug(by_hand):
    """In texts of even and of odd length. Where one has a single end, or all lengths are even, it fills them up."""
    stops = {0: [1], 1: [0, 1], 2: [3, 0, 1], 3: [0, 1]}
    twice = [Task([prompt], text, [*text, 1]) for prompt, text in stops.items()]
    said = "A BUG in B: in 4 of 5 texts it writes the end of text twice, where A stops."
    assert by_hand(*twice).verdict.startswith(said) and by_hand(*twice, told=True).status == 0
    even = [Task([prompt], text, text + [1] * (2 - len(text) % 2)) for prompt, text in stops.items()]
    for tasks in twice[:3], [*twice[:3], Task([3], [0, 1], [0, 1])], even:
        assert by_hand(*tasks).verdict.startswith("No difference")


def test_an_end_may_stand_twice_in_a_batch_or_be_ignored_or_be_ordinary_text(by_hand):
    """The second text of B fills up the first. After c comes <, which may begin <end>."""
    batch = by_hand(Task([3], [0, 1, 0], [0, 1, 0]), Task([1], [0, 1], [0, 1, 1]))
    assert batch.status == 0 and str(batch).splitlines()[-2] == "3 pairs of texts: 3 alike."
    told = by_hand(Task([1], [0, 1], [0, 1, 0]), told=True)
    assert told.status == 0 and "prompt 1: alike as far as both go (tokens: 2 in A, 3 in B): no diff" in str(told)
    ordinary = by_hand(Task([2], "<end>", "<end>a"))
    assert ordinary.status == 3 and "Give token ids" in ordinary.verdict


def test_a_bug_besides_is_told_too(by_hand):
    """After a, < is 3.75 below c."""
    found = by_hand(Task([3], [0, 1], [0, 1, 0]), Task([1], [0, 2, 3], [0, 3, 0]))
    assert found.status == 1 and found.verdict.count("A BUG in B") == 2, found.verdict


def test_lengths_are_a_fact_and_an_empty_answer_a_finding(by_hand):
    shorter = by_hand(Task([1], [0], [0, 1, 0]))
    assert shorter.status == 0 and shorter.verdict.startswith("No difference")
    assert "prompt 1: alike as far as both go (tokens: 1 in A, 3 in B): no difference" in str(shorter)
    for a, b in ([], [0, 1, 0]), ("aaa", ""):
        empty = by_hand(Task([1], a, b))
        assert empty.status == 3 and "a text is empty" in empty.verdict, str(empty)
    assert by_hand(Task([0], [], [1])).status == 0                          # its end alone, left out
    assert by_hand(Task([1], "", [0, 0, 0])).verdict.startswith("A BUG in B")
    with pytest.raises(RequestError, match="prompt 2 is empty"):
        by_hand(Task([1], [0], [0]), Task([], [0], [0]))
    with pytest.raises(RequestError, match="in each pair a text is empty"):
        judge_texts(Given(), END, [Task([1], "", [0])])


@pytest.mark.parametrize("coarser, status", [("bfloat16", 2), ("int8", 2), ("float32", 1)])
def test_what_any_coarser_type_would_explain_is_no_bug(coarser, status, monkeypatch):
    """B's c is .25 below the best: 10 times what float16 moves, and twice what the other type does."""
    moves = {"float16": (.015625, -.0078125), coarser: (.0625, -.0625)}
    monkeypatch.setattr(texts, "finer", lambda target, dtype: Given(0.0, 0.0))
    monkeypatch.setattr(texts, "in_type", lambda target, dtype: Given(*moves.get(dtype, (0.0, 0.0))))
    a, b = [3, 0, *[1, 0] * 19], [3, 0, 2, 3, *[0, 1] * 18]
    assert judge_texts(Given(), LETTERS, [Task([0, 2], a, b), Task([2], a, a)], "float16").status == status


def test_what_says_too_little():
    """A few tokens, whatever they are; an end of text that is likelier than a text that goes on; what is no character,
    and blanks at the end of a file.
    """
    drawn_ones = [drawn(1.0)(prompt)[:2] for prompt in PROMPTS]
    found = judged([text[:2] for text in greedy_texts()], drawn_ones, "float16")
    assert found.status == 3 and found.moved.places < texts.FEW and "too short" in found.verdict
    for ends, behind in ([], .25), ([1], 0), ([2], .25):                # of c, at 2.75 beside 3 of b
        assert read(Given(0.0, 0.0), [0], [2], ends).behind.tolist() == [behind]
    assert [cleaned(text) for text in ("a b\ufffdc", "a b \n", "a\ud800b", [1, 2])] == ["a b", "a b", "a", [1, 2]]


def test_a_text_is_read_as_far_as_its_tokens_are_certain():
    """Of ab, abc and abd the second is spelled by ab and c, too; and it may be the beginning of abcd."""
    spellings = [b"ab", b"abc", b"c", b"d", b" abc", b"x"]

    def upto(text, tokens, *near):
        best = torch.tensor([[*one, *(token for token in range(6) if token not in one)] for one in near])[:, :5]
        gaps = torch.tensor([[0.0] * len(one) + [9.0] * (5 - len(one)) for one in near])
        return certain(text, Read(tokens, torch.zeros(len(tokens)), best, gaps), spellings, 1.0, {})

    assert upto("abcd", [1, 3], [1], [3]) == 2
    assert upto("abcd", [1, 3], [1, 0], [3]) == 0           # ab, and then c
    assert upto("dabc", [3, 1], [3], [1, 0]) == 1
    assert upto("dab", [3, 0], [3], [1]) == 1               # cut in the middle of abc
    assert upto("abcd", [1, 3], [4], [3]) == 0              # whoever wrote it down left the blank out
    assert upto("dx", [3, 5], [3], [1]) == 2                # off, and no likely token is spelled so
    near = Read([4], torch.zeros(1), torch.tensor([[4, 2, 0]]), torch.tensor([[0, .25, .5]])).near
    assert [near(0, gap) for gap in (0, .125, .25)] == [[4], [4], [4, 2]]


def test_what_a_text_has_lost_at_its_end_parts_nobody():
    """A text without its last blank, beside the ids; but not where the other goes on with another token."""
    spellings = [b"a", b"]\n", b"]", b"b"]

    def cut(text, tokens, other):
        own, its = (Read(one, torch.zeros(len(one)), *torch.zeros(2, len(one), 2)) for one in (tokens, other))
        return len(without_half(text, own, its, spellings).tokens)

    assert cut("a]", [0, 2], [0, 1]) == 1 and cut("ab", [0, 3], [0, 1]) == 2 and cut("]", [2], [1]) == 1
    assert cut([0, 2], [0, 2], [0, 1]) == 2 and cut("b]", [3, 2], [0, 1]) == 2      # ids are whole; they part before
    assert cut("a]", [0, 2], [0]) == 2                                              # the other has ended before
    texts = greedy_texts()
    short = [TOKENIZER.decode(text).rstrip() for text in texts]
    assert judged(texts, short, "float16").status == 0


def test_nobody_is_accused_of_tokens_that_are_not_certain():
    """What rounding moves is .25 here, so 3 is off: at place 1 of three. At its last place a token may lack a part."""
    def at(place, token):
        behind = torch.tensor([3.0 * (i == place) for i in range(3)])
        return Read([0, token, 0], behind, torch.zeros(3, 2), torch.zeros(3, 2))

    good = at(None, 1)
    for sure, said in (2, "bug"), (1, "spelling"), (0, "spelling"):
        assert compared((good, at(1, 2)), .25, (3, sure)).verdict == said
        assert compared((at(1, 2), good), .25, (sure, 3)).verdict == said
    assert compared((at(1, 2), at(1, 3)), .25, (3, 3)).verdict == "neither"
    assert compared((good, at(2, 2)), .25, (3, 2)).verdict == "rounding"
    assert compared((at(1, 1), at(1, 1)), .25, (1, 1)).verdict == "same"


# What is given

@pytest.mark.parametrize("names_ids", [True, False])
def test_a_server_is_asked(names_ids, tmp_path, monkeypatch, capsys):
    """For ids, and for a text where it does not name them; at temperature 0, for every prompt. It drops the BOS."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("nanospec.cli.judge.load_pair", lambda *_: (TARGET, DRAFT, TOKENIZER))

    def answer(body):
        assert body["temperature"] == 0 and body["max_tokens"] == NEW
        ids = [*generate(TARGET, body["prompt"][1:], NEW, 0)]
        tokens = [f"token_id:{token}" if names_ids else TOKENIZER.decode([token]) for token in ids]
        return {"text": TOKENIZER.decode(ids), "logprobs": {"tokens": tokens, "top_logprobs": [{}] * NEW}}

    for name, lines in ("a", greedy_texts(FEW)), ("p", FEW):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with running(Server) as start:
        url = start(answer).url
        status = main(["texts", str(checkpoint.WEIGHTS), str(tmp_path / "a.jsonl"), url, "--prompts",
                       str(tmp_path / "p.jsonl"), "--new", str(NEW), "--at-once", "2", "--timeout", "3600"])
        said = answers(Endpoint(url, FEW[0], NEW, {"temperature": 0.0}, timeout=3600.0), FEW)
    ids = [[*generate(TARGET, prompt[1:], NEW, 0)] for prompt in FEW]
    assert said == (ids if names_ids else [*map(TOKENIZER.decode, ids)])
    assert status == 1 and "A BUG in B" in (out := capsys.readouterr().out) and "without its BOS" in out


def test_a_server_that_stops_early_has_its_texts_in_a_file(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running(Server) as start, pytest.raises(EndpointError, match="Give its texts in a file"):
        url = start(lambda body: {"text": "a", "finish_reason": "stop"}).url
        answers(Endpoint(url, PROMPTS[0], NEW, {"temperature": 0.0}), PROMPTS)


def test_a_server_is_asked_and_judged_as_told(tmp_path, monkeypatch):
    """Each option unlike its default and all others."""
    heard = []
    for name, result in (("load_pair", (TARGET, DRAFT, TOKENIZER)), ("Endpoint", "b"), ("answers", [[7]]),
                         ("judge_texts", SimpleNamespace(status=3))):
        monkeypatch.setattr(f"nanospec.cli.judge.{name}",
                            lambda *its, result=result, **more: heard.append((*its, *more.values())) or result)
    (tmp_path / "a.txt").write_text("c")
    assert main(["texts", str(checkpoint.WEIGHTS), str(tmp_path / "a.txt"), "http://b", "--prompt", "def", "--dtype",
                 "float16", "--new", "9", "--model", "tiny", "--at-once", "3", "--timeout", "2.5"]) == 3
    asked, answered, _, judged = heard
    assert asked == ("http://b", "def", 9, {"temperature": 0.0}, "tiny", 2.5, 3) and answered == ("b", ["def"])
    assert judged == (TARGET, TOKENIZER, [Task(TOKENIZER.begin + TOKENIZER.encode("def"), "c", [7])], "float16", DRAFT,
                      True)
    main(["texts", str(checkpoint.WEIGHTS), str(tmp_path / "a.txt"), "http://b", "--prompt", "def"])
    assert heard[4][2:] == (128, {"temperature": 0.0}, None, 60.0, 8) and heard[7][3] == "bfloat16"
    monkeypatch.setattr("nanospec.cli.judge.load_pair", lambda *_: (TARGET, "of other tokens", TOKENIZER))
    main(["texts", str(checkpoint.WEIGHTS), str(tmp_path / "a.txt"), "http://b", "--prompt", "def"])
    assert heard[-1][4:] == (None, True)                # what such a draft model would write is not known


def test_from_the_command_line(tmp_path, capsys, monkeypatch):
    """A text, ids and objects, and many prompts; each refusal is one line."""
    monkeypatch.setattr("nanospec.cli.judge.load_pair", cache(load_pair))
    folder = Path(checkpoint.WEIGHTS)
    ids = [*generate(SHIPPED.target, PROMPTS[0], 8, 0)]
    (tmp_path / "a.txt").write_text(TOKENIZER.decode(ids) + "\n\n")
    (tmp_path / "a.jsonl").write_text(f"{ids}\n" + json.dumps({"tokens": ids}) + "\n")
    (tmp_path / "p.jsonl").write_text(f'"if not name:"\n{{"prompt": {PROMPTS[0]}}}\n')

    def run(a, b, *more):
        status = main(["texts", str(folder), str(tmp_path / a), str(tmp_path / b), *more])
        return status, *capsys.readouterr()

    assert run("a.jsonl", "a.jsonl", "--prompts", str(tmp_path / "p.jsonl"))[0] in (0, 3)
    assert run("a.txt", "a.txt", "--prompt", "if not name:")[0] in (0, 3)
    (tmp_path / "no.txt").write_bytes(b"\xff\xfe\0")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "huge.txt").write_bytes(b"a" * (2 ** 24 + 1))
    (tmp_path / "long.txt").write_text("ab " * 30_000)
    for name, line in {"out": "[1, 1024]", "negative": "[-1]", "half": "[0.5]", "null": "null", "other": '{"x": 1}',
                       "deep": "[" * 10 ** 5, "cut": '"ab', "many": "[1" + ", 1" * 600 + "]", "none": "\n"}.items():
        (tmp_path / f"{name}.jsonl").write_text(line)
    for b, said in {"no.txt": "UTF-8", "empty.txt": "empty", "huge.txt": "bytes", "long.txt": "too long",
                    "out.jsonl": "token 1024 is not one", "negative.jsonl": "token -1", "half.jsonl": "token ids",
                    "null.jsonl": "token ids", "other.jsonl": "token ids", "deep.jsonl": "no JSON",
                    "cut.jsonl": "no JSON", "many.jsonl": "context", "none.jsonl": "empty", "gone.txt": "gone.txt",
                    "a.jsonl": "1 prompts, 1 texts in A and 2 in B"}.items():
        status, out, err = run("a.txt", b, "--prompt", "if not name:")
        assert status == 2 and not out and err.count("\n") == 1 and said in err, (b, err)


def test_a_type_is_compared_with_a_finer_one():
    assert {name: exact_type(name) for name in ("float64", "float32", "float16", "bfloat16", "int8")} == {
        "float64": "float64", "float32": "float64", "float16": "float32", "bfloat16": "float32", "int8": "float32"}


def test_in_8_bits_what_weights_are_multiplied_with_is_rounded_too():
    """To the next whole number where the greatest is 127; alone, to itself."""
    part, (one, other, alone) = in_type(TARGET, "int8").head, torch.zeros(3, 1, TARGET.config.channels).bfloat16()
    one[0, :3], other[0, :3], alone[0, 2] = *torch.tensor([[127, 5.75, .375], [127, 6, 0]]).bfloat16(), .375
    assert torch.equal(part(one), part(other)) and part(alone).any()


# Corners

@pytest.mark.parametrize("tail", [0.0, 9.0])
def test_what_may_be_another_token_says_nothing_about_how_far_off_a_text_is(monkeypatch, tail):
    """The last token of A is not sure: its text may be spelt by others. One that is sure is half a logit off, and
    bfloat16 moves .3."""
    def reading(*behind):
        many = len(behind)
        return Read([*range(2, 2 + many)], torch.tensor(behind).double(), torch.zeros(many, 16, dtype=torch.long),
                    torch.zeros(many, 16).double())

    monkeypatch.setattr(texts, "measured", lambda target, exact, tasks, ids, coarser:
                        Moved(.3, .3, 64) if coarser == "bfloat16" else Moved(.05, .05, 64))
    one = compared((reading(0, .5, 0, tail), reading(0, 0, 0, 0)), .001, (3, 4))
    its = texts.Judged(0, "", Moved(.001, .001, 64), [one], "float32", TOKENIZER)
    status, words = texts.verdict(its, TARGET, TARGET, [Task([0], "text", [1])], [[[1], [1]]], None)
    assert status == 2 and words.startswith("No verdict: what is off in A is more than float32 rounds")


def test_a_coarser_type_must_explain_what_is_furthest_off(monkeypatch):
    """It moves .3, and twice that may be its. The kind is looked for by the finer model, beside the other text."""
    asked = []
    monkeypatch.setattr(texts, "measured", lambda *_: Moved(.3, .3, 64))
    monkeypatch.setattr(texts, "likeliest", lambda model, cases, *more: asked.append(
        (model, [(case.text.tokens, case.other) for case in cases], *more)) or kinds.Kind("unknown"))
    for furthest, status in (.7, 1), (.55, 2):
        pairs = [[Read(tokens, torch.tensor([0, far]), torch.zeros(2, 2), torch.zeros(2, 2))
                  for tokens, far in (([2, 3], 0.0), ([2, other], off))] for other, off in ((5, furthest), (6, .5))]
        each = [compared(pair, .001, (2, 2)) for pair in (*pairs, pairs[0][:1] * 2)]        # the third is alike
        its = texts.Judged(0, "", Moved(.001, .001, 64), each, "float32", TOKENIZER)
        found = texts.verdict(its, "target", "exact", [Task([0], [2, 3], [2, 5])] * 3, [[[2], [2]]] * 3, "draft model")
        assert found[0] == status and ("in 2 of 3 texts" in found[1]) == (status == 1)
        assert asked[-1] == ("exact", [([2, 5], [2, 3]), ([2, 6], [2, 3])], .008, TOKENIZER, "draft model")


@pytest.mark.parametrize("most, places, parted", [(1_024, 40, 13), (8, 8, 7), (3, 4, 2)])
def test_on_how_many_places_rounding_is_measured(most, places, parted, monkeypatch):
    """Of two pairs, each of twice ten tokens: of all; of as many as there is time for; of one each at least. Of a pair
    that parts at its third token, the first is measured up to there.
    """
    monkeypatch.setattr(texts, "PLACES", most)
    monkeypatch.setattr(texts, "in_type", lambda target, dtype: Given(.125, -.125))
    ids, exact = [2, 3, 0, 1, 2, 3, 0, 1, 2, 3], Given(0.0, 0.0)
    assert texts.measured(exact, exact, [Task([0], ids, ids)] * 2, [[ids, ids]] * 2, "float16").places == places
    other = [2, 3, 1, *ids[3:]]
    assert texts.measured(exact, exact, [Task([0], ids, other)], [[ids, other]], "float16").places == parted
    one, another = Moved(.5, .125, 3), Moved(.25, .375, 4)
    assert one | another == another | one == Moved(.5, .375, 7)


def test_logits_that_are_no_numbers_measure_nothing():
    good, bad = Given(0.0, 0.0), Given(math.nan, math.inf)
    for measure in (lambda: read(bad, [0], [2]), lambda: moved(good, bad, [0], [2, 3], 0),
                    lambda: moved(bad, good, [0], [2, 3], 0)):
        with pytest.raises(LogitsError):
            measure()


def test_a_token_may_be_another_up_to_four_times_what_rounding_moves(by_hand, monkeypatch):
    heard = []
    monkeypatch.setattr(texts, "certain", lambda text, found, spellings, gap, names: heard.append(
        (text, gap, names)) or 0)
    assert heard == [("a", 4 * by_hand(Task([1], "a", [0])).moved.most, {1: "<end>"})]


def test_what_is_measured_on_fewer_than_32_places_says_too_little():
    its = [texts.Judged(0, "", Moved(.25, .125, places), [], "float32", TOKENIZER) for places in (31, 32)]
    assert [texts.verdict(one, None, None, [], [], None)[0] for one in its] == [3, 0]


def test_a_setting_is_looked_for_in_the_text_that_parts_further_more_often(monkeypatch):
    """In A twice, in B once, though that is the furthest."""
    monkeypatch.setattr(texts, "likeliest", lambda *_: kinds.Kind("it was asked so", asked=True))
    reading = Read([2], torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 2))
    each = [Compared("close", (reading, reading), (1, 1), (None, None), 0, behind=behind)
            for behind in ((.5, .25), (.75, .625), (.125, 1.5))]
    its = texts.Judged(0, "", Moved(.25, .125, 64), each, "float32", TOKENIZER)
    assert texts.verdict(its, None, None, [Task([0], [1], [1])] * 3, [], None) == (
        2, "No verdict: where A parts, rounding hardly explains it, but it was asked so.")


def test_each_number_of_a_line_stands_in_its_place():
    """All of them differ."""
    a, b = (Read([4, token], torch.tensor(behind), torch.zeros(2, 2), torch.zeros(2, 2))
            for token, behind in ((5, [1.5, .0625]), (6, [.375, .75])))
    one = Compared("neither", (a, b), (2, 2), (0, 1), 1, (7, 8), .125, (.25, .5))
    letters = SimpleNamespace(decode=lambda ids: "abcdefghi"[ids[0]])
    assert texts.Judged(2, "", Moved(), [one], "float16", letters).line(3, one) == (
        "prompt 3: they part at new token 1, 'f' (5) in A and 'g' (6) in B. The target's two best there, by a "
        "call in float32: 'h' (7) and 'i' (8), 0.12 apart. A's is 0.25 below the best, B's 0.5; A is off at token 0: "
        "'e' (4) is 1.5 below the best; B is off at token 1: 'g' (6) is 0.75 below the best: more than rounding, "
        "in both")


def test_the_last_token_of_a_text_is_judged_too(by_hand):
    """After b the best is a, and d is 3 below it. (by_hand: with its logits.)"""
    alike = [3, 0, *[1, 0] * 19]
    for a, b, side in ("ba", "bd", "B"), ("bd", "ba", "A"), ("ba", [1, 3], "B"):
        found = judge_texts(Given(), LETTERS, [Task([0], a, b), Task([2], alike, alike)], "float16")
        assert found.status == 1 and found.verdict.startswith(f"A BUG in {side}: in 1 of 2 texts"), found.verdict


def test_of_several_ends_none_is_what_a_text_that_goes_on_should_have(by_hand):
    """After a b and c are the best, and then a."""
    ends = SimpleNamespace(**{**vars(LETTERS), "ends": {1, 2}, "special": {"<1>": 1, "<2>": 2}})
    assert judge_texts(Given(), ends, [Task([1], [0] * 40, [0] * 40)], "float16").status == 0


def test_eight_differences_are_shown():
    reading = Read([2], torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 2))
    one = Compared("rounding", (reading, reading), (1, 1), (None, None))
    eight, nine = (str(texts.Judged(0, "", Moved(), [one] * many, "float32", TOKENIZER)) for many in (8, 9))
    assert eight.count("prompt ") == nine.count("prompt ") == 8
    assert "more." not in eight and "... and 1 more." in nine


def test_from_how_many_tokens_on_a_kind_is_named(monkeypatch):
    """Four of five that are off are the draft model's, not three. In the first four places another prompt shows. Of
    63 tokens no temperature is known.
    """
    penalties = dict.fromkeys([(name, which) for name in ("frequency", "presence") for which in (False, True)], (2, 1))
    for name, result in ("subtracted", penalties), ("prompts", []), ("seen_before", [False]), ("drawn_at", None):
        monkeypatch.setattr(kinds, name, lambda *_, result=result: result)

    def words(behind, hits=0, draft_model=None):
        text = Read([*range(1, len(behind) + 1)], torch.tensor(behind), torch.zeros(len(behind), 1), torch.zeros(0))
        drafts = torch.tensor([[token * (token <= hits)] for token in text.tokens])
        monkeypatch.setattr(kinds, "read", lambda *_: Read([], torch.ones(1), drafts, torch.zeros(0)))
        tokenizer = SimpleNamespace(begin=[], ends=set())
        return likeliest(None, [Case([0], text, [])], .1, tokenizer, draft_model).words

    for hits in 4, 3:
        assert words([1.0] * 5, hits, "a draft model").startswith("draft tokens unverified") == (hits == 4)
    for first in 3, 4:
        assert ("another prompt" in words([0.0] * first + [1.0])) == (first == 3)
    for many in 63, 64:
        assert ("more tokens would tell" in words([0.0] * (many - 1) + [1.0])) == (many == 63)


@pytest.fixture
def unexplained(monkeypatch):
    """The likeliest kind where no penalty, prompt or temperature explains a text, every token of which is off; and what
    was asked on the way.
    """
    heard, bounds = [], dict.fromkeys(((name, which) for name in ("frequency", "presence") for which in (False, True)),
                                      (2, 1))

    def words(tokens, other, seen=(False,), draft_model=None):
        heard.clear()
        for name, result in (("read", Read([], torch.ones(1), torch.zeros(2, 1), torch.zeros(0))),
                             ("subtracted", bounds),
                             ("prompts", []), ("seen_before", seen), ("drawn_at", None)):
            monkeypatch.setattr(kinds, name, lambda *its, name=name, result=result: heard.append((name, its)) or result)
        text = Read(tokens, torch.ones(len(tokens)), torch.zeros(len(tokens), 1), torch.zeros(0))
        return likeliest("target", [Case([0, 1], text, other)], .25, SimpleNamespace(begin=[], ends={7, 3}),
                         draft_model).words
    return words, heard


@pytest.mark.parametrize("places, said", [(1, "one place"), (2, "2 places"), (4, "4 places"), (5, None)])
def test_up_to_four_places_are_a_shift(places, said, unexplained):
    whole = [*range(1, 20)]
    part = whole[:3] + whole[3 + places:]
    for (own, other), how in (((part, whole), "lost"), ((whole, part), "written twice")):
        words = unexplained[0](own, other)
        assert (words == f"shifted by {said}: tokens are {how}") == (said is not None)
        assert words.startswith("shifted") == (said is not None)


@pytest.mark.parametrize("seen, setting", [([], False), ([True], False), ([True, True], True), ([True, False], False)])
def test_one_token_may_have_passed_over_another_by_chance(seen, setting, unexplained):
    assert ("stands there already" in unexplained[0]([4, 5], [4, 6], seen)) == setting


def test_whatever_may_explain_a_text_is_asked_with_its_ends(unexplained):
    """A penalty must leave no token half as far off as is called off."""
    words, heard = unexplained
    words([4, 5], [4, 6], draft_model="draft model")
    (_, first), *_, (_, last) = [each for each in heard if each[0] == "read"]
    asked = dict(heard)
    assert first[:4] == ("target", [0, 1], [4, 5], [3, 7]) and last == ("draft model", [0, 1], [4, 5])
    assert asked["subtracted"][2:] == (.125, [3, 7]) and asked["seen_before"][2:] == (.25, [3, 7])


def test_a_prompt_of_one_token_is_one_where_nothing_begins_it():
    case = Case([5], Read([5, 7], *torch.zeros(3, 2)), [])
    found = likeliest(TARGET, [case], .1, SimpleNamespace(begin=[], ends=set()))
    assert found.words.startswith("it begins with its prompt")


def test_texts_that_are_the_same_are_not_shifted():
    assert shifted([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 0, 3, 4, 5, 6, 7, 8], 1)
    assert shifted([1, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], 1) and not shifted([1, 3, 4, 5], [1, 2, 3, 4, 5], 1)
    assert not shifted([1, 2, 3], [1, 2, 3], 1) and not shifted([], [], 1)


def test_a_prompt_that_the_chat_template_refuses_is_no_other_prompt():
    def refuses(messages):
        raise RequestError("only tools may speak")

    tokenizer = SimpleNamespace(begin=[0], template="a template", chat=refuses, decode=str, continued=lambda text: [3])
    ways = dict(prompts(tokenizer))
    assert ways["in another template, that of its chats"]([0, 5]) == [] and ways["twice"]([5]) == [5, 5]


def test_how_a_prompt_may_have_been_read_by_hand():
    """After the BOS 0. A user's message has none: the template has that itself."""
    tokenizer = SimpleNamespace(begin=[0], special={"<b>": 0}, template="a template", chat=lambda messages: messages,
                                decode=lambda ids: " ".join(map(str, ids)), continued={"\n": [3], "<b>": [8, 9]}.get)
    bare, more, spelled_out, line, short, again, chat = (way for _, way in prompts(tokenizer))
    message = [{"role": "user", "content": "5 6"}]
    for way, with_bos, without in ((bare, [5, 6], []), (more, [0, 0, 5, 6], [0, 5, 6]), (spelled_out, [], []),
                                   (line, [0, 5, 6, 3], [5, 6, 3]), (short, [0, 5], [5]),
                                   (again, [0, 5, 6] * 2, [5, 6] * 2), (chat, message, message)):
        assert (way([0, 5, 6]), way([5, 6])) == (with_bos, without)


def test_whether_all_better_tokens_have_stood_there_by_hand():
    """After a the best are b, c and a: c is written for b, and then d for b, c and a. After c and d it writes what is
    best. The second time c has been written.
    """
    def found(prompt, tokens):
        return [*seen_before(Given(0.0, 0.0), Case(prompt, Read(tokens, *torch.zeros(3, len(tokens))), []), .1, [])]
    assert found([1, 0], [2, 3, 0, 3]) == [True, True] and found([2, 0], [2, 3, 0, 3]) == [False, False]
    assert found([0], [1, 0, 3]) == [False] and found([0], [1, 0, 2]) == [True] and found([0], [1, 0, 1]) == []


def test_special_tokens_of_a_prompt_may_have_been_read_as_ordinary_text():
    tokenizer = SimpleNamespace(begin=[0], special={"<b>": 0, "<e>": 1}, continued={"<b>": [9], "<e>": [7, 8]}.get)
    assert spelled(tokenizer, [0, 5, 1, 6, 0]) == [0, 5, 7, 8, 6, 9] and spelled(tokenizer, [1]) == [7, 8]
    assert spelled(tokenizer, [0, 5, 6]) == []                  # there are none: it is the prompt itself


@pytest.mark.parametrize("tokens, begins", [([5, 6, 7], True), ([0, 5, 6, 7], True), ([5, 7, 6], False), ([5], False)])
def test_a_text_that_begins_with_its_prompt_is_no_bug(tokens, begins, monkeypatch):
    """As transformers returns it, with the BOS 0 or without."""
    monkeypatch.setattr(kinds, "read", lambda *_: 1 / 0)        # nothing else has been asked yet
    monkeypatch.setattr(kinds, "subtracted", lambda *_: 1 / 0)
    case = Case([0, 5, 6], Read(tokens, *torch.zeros(3, len(tokens))), [])
    with nullcontext() if begins else pytest.raises(ZeroDivisionError):
        found = likeliest(TARGET, [case], .1, SimpleNamespace(begin=[0], ends=set()))
        assert found.asked and found.words.startswith("it begins with its prompt")


def test_whether_a_penalty_counts_the_prompt_is_said(monkeypatch):
    """The number is the middle one of those that would do: of .5, .55 and .6, and of .95, 1 and 1.05."""
    bounds = {("frequency", False): (2, 1), ("frequency", True): (.48, .62),
              ("presence", False): (.93, 1.07), ("presence", True): (1.3, 1.4)}
    monkeypatch.setattr(kinds, "subtracted", lambda *_: bounds)
    monkeypatch.setattr(kinds, "read", lambda *_: Read([], torch.ones(1), torch.zeros(0), torch.zeros(0)))
    case = Case([0], Read([5, 6], *torch.zeros(3, 2)), [])
    found = likeliest(None, [case], .1, SimpleNamespace(begin=[], ends=set()))
    assert found.asked and found.words.startswith(
        "a frequency penalty of 0.55 that counts the prompt's tokens or a presence penalty of 1 would do it, too")


def test_an_end_of_text_for_which_the_model_has_no_row():
    """A folder may name such a one beside another."""
    found, with_one = (read(TARGET, PROMPTS[0], [7, 8], ends) for ends in ([1], [1, TARGET.config.vocab_size]))
    assert torch.equal(found.behind, with_one.behind)


def test_a_prompt_is_read_without_logits():
    """Of a long one they would be more than the weights."""
    made = []
    with TARGET.head.register_forward_hook(lambda part, given, out: made.append(out.shape[1])):
        read(TARGET, PROMPTS[0], [7, 8, 9])
    assert made == [0, 3]


def test_nothing_to_judge_is_refused():
    with pytest.raises(RequestError, match="no pair of texts"):
        judge_texts(TARGET, TOKENIZER, [])


def test_a_penalty_counts_what_stood_before_the_place():
    """By hand: at place 1 tokens 1 and 2 stand, at place 2 token 3, too; 4, which comes later, at neither."""
    case = Case([1], Read([2, 3, 4], torch.zeros(0), torch.zeros(0), torch.zeros(0)), [])
    found = penalised(case, 2.0, torch.tensor([[1.0, 4, 6, 8, 10]]).expand(2, 5), 1)
    assert found.tolist() == [[1, 2, 3, 8, 10], [1, 2, 3, 4, 10]]


@pytest.mark.parametrize("name, data, found", [
    ("a.txt", "\ufeffone\n", ["one\n"]), ("a.jsonl", '\ufeff"one"\n[5, 6]\n', ["one", [5, 6]])])
def test_a_mark_at_the_beginning_of_a_file_is_no_text(name, data, found, tmp_path):
    (tmp_path / name).write_text(data, encoding="utf-8")
    assert given_in(tmp_path / name, ["text"]) == found


@pytest.mark.parametrize("prompt", ["<s>a<|im_end|>b", "a<|im_end|>b"])
def test_special_tokens_in_a_prompt_are_such_and_what_begins_it_stands_there_once(prompt, tmp_path, monkeypatch):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra 'hf')")
    engine = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    engine.add_special_tokens(["<s>", "<|im_end|>"])
    engine.post_processor = tokenizers.processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 2)])
    monkeypatch.setattr("nanospec.cli.judge.load_pair", lambda *_: (TARGET, None, FolderTokenizer(engine, [3])))
    heard = []
    monkeypatch.setattr("nanospec.cli.judge.judge_texts", lambda target, tokenizer, tasks, *_, **__:
                        heard.append(tasks[0].prompt) or SimpleNamespace(status=0))
    (tmp_path / "a.txt").write_text("a")
    main(["texts", str(checkpoint.WEIGHTS), str(tmp_path / "a.txt"), str(tmp_path / "a.txt"), "--prompt", prompt])
    assert heard == [[2, 0, 3, 1]]


def test_a_text_in_which_special_tokens_stand_is_cut_into_tokens_there():
    """As those who decode write them; <|endoftext|> of ours, too. A prompt of ours has none."""
    end, ids = TOKENIZER.end_of_text, TOKENIZER.encode("def")
    assert tokens_given([7], "def<|endoftext|>def", TARGET.config, TOKENIZER) == [*ids, end, *ids]
    longer = SimpleNamespace(special={"<e>": 5, "<e>x": 6}, continued=lambda text: [7])        # the longest one stands
    assert tokens_given([8], "a<e>x<e>", TARGET.config, longer) == [7, 6, 5]
    assert prompt_of("<|endoftext|>", TOKENIZER) == TOKENIZER.begin + TOKENIZER.encode("<|endoftext|>")
    named = certain("a<end>b", Read([0, 1, 2], torch.zeros(3), torch.tensor([[0, 3], [1, 3], [2, 3]]),
                                    torch.tensor([[0.0, 9.0]] * 3)), [b"a", None, b"b", b"x"], 1.0, {1: "<end>"})
    assert named == 3                                       # and two, where a blank before x may be lost
    assert certain("a<end>x", Read([0, 1, 3], torch.zeros(3), torch.tensor([[0, 3], [1, 3], [2, 3]]),
                                   torch.tensor([[0.0, 9.0]] * 3)), [b"a", None, b" x", b"x"], 1.0, {1: "<end>"}) == 2


@pytest.mark.parametrize("line, found", [
    ('{"text": "one", "tokens": [5, 6]}', [5, 6]), ('{"text": "one", "token_ids": [7, 5]}', [7, 5]),
    ('{"text": "one", "tokens": null}', "one"), ('{"tokens": [], "text": "one"}', "one"), ('{"output": "two"}', "two"),
    ('{"text": ""}', ""), ("[]", [])])
def test_of_a_line_with_a_text_and_token_ids_the_ids_are_taken(line, found, tmp_path, monkeypatch):
    """As for A and B, and not for a prompt: the ids beside it may be of the answer."""
    heard = []
    monkeypatch.setattr("nanospec.cli.judge.load_pair", lambda *_: (TARGET, None, TOKENIZER))
    monkeypatch.setattr("nanospec.cli.judge.judge_texts", lambda target, tokenizer, tasks, dtype, *_, **__:
                        heard.extend([*tasks, dtype]) or SimpleNamespace(status=0))
    (tmp_path / "a.jsonl").write_text(line)
    (tmp_path / "p.jsonl").write_text('{"prompt": [9], "text": "one", "tokens": [5, 6]}')
    assert main(["texts", str(checkpoint.WEIGHTS), *[str(tmp_path / "a.jsonl")] * 2, "--prompts",
                 str(tmp_path / "p.jsonl")]) == 0
    assert heard == [Task([9], found, found), "bfloat16"]


def test_what_a_text_may_have_at_most():
    """In a context of 2: 256 characters, and one token after a prompt of one. Token 2 is the last of three."""
    config = SimpleNamespace(context=2, vocab_size=3)
    tokenizer = SimpleNamespace(special={}, continued=lambda text: [0])
    assert tokens_given([1], "a" * 256, config, tokenizer) == [0] and tokens_given([2], [2], config, tokenizer) == [2]
    for prompt, text, said in (([1], "a" * 257, "257 characters is too long"), ([1], [3], "token 3 is not one"),
                               ([3], [1], "token 3 is not one"), ([1], [2, 0], "1 prompt tokens and 2 of a text")):
        with pytest.raises(RequestError, match=said):
            tokens_given(prompt, text, config, tokenizer)


def test_what_a_line_lacks_and_how_an_address_begins_is_said(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('"one"\n{"choices": []}\n')
    lacks = "line 2 has no text and no token ids: an object has them as tokens or token_ids or text or output, got {'ch"
    for name, said in (str(tmp_path / "a.jsonl"), lacks), ("127.0.0.1:8000", "begins with http://"):
        assert main(["texts", str(checkpoint.WEIGHTS), name, name, "--prompt", "def"]) == 2
        assert said in (err := capsys.readouterr().err) and err.count("\n") == 1


@pytest.mark.parametrize("argv, said", [
    ([], "are required: {transformers,endpoint,function,texts}"),
    (["texts", str(checkpoint.WEIGHTS), "a", "b"], "--prompt --prompts is required"),
    (["texts", str(checkpoint.WEIGHTS), "a", "b", "--prompt", "c", "--dtype", "int4"], "--dtype: invalid choice"),
    (["function", "module:name"], "are required: --target"),
    (["texts", str(checkpoint.WEIGHTS), "a", "b", "--prompt", "\udcff"], "--prompt: must be UTF-8"),
    (["texts", "nowhere/at/all", "a", "b", "--prompt", "c"], "TARGET: must be a folder or a .gguf file that is there")])
def test_what_the_command_needs_is_said_before_anything_is_read(argv, said, capsys):
    assert main(argv) == 2 and said in (err := capsys.readouterr().err) and err.count("\n") == 1


@pytest.mark.parametrize("block", [64, 1])
def test_from_where_to_where_a_penalty_explains_a_text(block, monkeypatch):
    """By hand: a b a b a, and then c, .25 below b. b has come once or twice by then, a once less without the prompt.
    Where a and b come for the second time c, which has not come, is .25 below them. In one part, or in five.
    """
    monkeypatch.setattr("nanospec.judge.rounding.BLOCK", block)
    case = Case([0], Read([1, 0, 1, 0, 2], *[torch.zeros(0)] * 3), [])
    assert subtracted(Given(0.0, 0.0), case, 0.0, []) == {
        ("frequency", False): (.125, .25), ("frequency", True): (.125, .125),
        ("presence", False): (.25, .25), ("presence", True): (.25, .25)}
    assert subtracted(Given(0.0, 0.0), case, .0625, [])["frequency", False] == (.09375, .3125)
    # With a twice in the prompt, it has come three times where c is a quarter below it.
    assert subtracted(Given(0.0, 0.0), case._replace(prompt=[0, 0]), 0.0, [])["frequency", True] == (.125, .25 / 3)
    never = Case([0], Read([3], *[torch.zeros(0)] * 3), [])     # nothing has come, and b is better
    assert subtracted(Given(0.0, 0.0), never, 0.0, [])["presence", False][1] == float("-inf")


def test_token_ids_are_asked_for_where_they_would_help():
    """One pair is too close to call, and the tokens of another are not sure."""
    reading = Read([2, 3], torch.zeros(2), torch.zeros(2, 16, dtype=torch.long), torch.zeros(2, 16))
    each = [Compared(verdict, (reading, reading), (2, 2), (None, None)) for verdict in ("close", "spelling")]
    its = texts.Judged(0, "", Moved(.001, .001, 64), each, "float32", TOKENIZER)
    tasks = [Task([0], "text", [1])] * 2
    status, words = texts.verdict(its, TARGET, TARGET, tasks, [[[1], [1]]] * 2, None)
    assert status == 3 and words.endswith("Give token ids.")


def test_a_prompt_that_explains_a_text_exactly_goes_before_a_coarser_type():
    """int8 moves as much as lies between them here."""
    found = judged(greedy_texts(PROMPTS[1:2]), [greedy(tuple(PROMPTS[1][1:]))], "float16", prompts=PROMPTS[1:2])
    assert found.status == 1 and "without its BOS" in found.verdict
