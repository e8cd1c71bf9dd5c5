"""Texts that a target writes itself, what is kept of them, and a draft model that learns from them."""

import re
import shlex
import shutil
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
import torch

from nanospec.cli import __main__ as commands
from nanospec.dice import Dice
from nanospec.errors import PairError, TextError
from nanospec.files.model_file import load_learned, load_saved
from nanospec.files.checkpoint import load_pair
from nanospec.files.gguf import load_gguf
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.unrolled import before_tokens, some_anchors, unrolled
from nanospec.proof.tables import small_gpt
from tests.small_gguf import PIECES, write
from tests.three_calls import logits
from training import __main__ as command
from training.kept import Kept, KeptTraining
from training.learning import Plan
from training.own_texts import AT_ONCE, OPENINGS, TOKENS, Row, Texts, Turns, openings, read, written

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
LAYERS = [0, 1]
ROWS, LENGTH = 6, 60
SIZES = {"layers": LAYERS, "heads": 2, "kv_heads": 1, "hidden": 16, "spoken": 40}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The path of a GGUF file, the model in it, and its tokenizer."""
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write(path)
    return path, *load_gguf(path)


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """Three parts of random texts, with the hidden states of them."""
    _, target, _ = small
    ids = torch.randint(target.config.vocab_size, (3 * AT_ONCE * TOKENS,), generator=torch.Generator().manual_seed(1))
    texts = Kept(tmp_path_factory.mktemp("kept"), target, LAYERS, "random")
    for _ in range(3):
        texts.add(lambda part: read(target, ids, LAYERS, part))
    return texts


def training(small, kept, out, **more):
    _, target, tokenizer = small
    plan = Plan("lookback", SIZES, target.config, steps=(8,), batch=16)
    return KeptTraining(target, plan, 3, kept, tokenizer, out, **more)


def test_turns_are_those_of_the_chat_template(small):
    _, _, tokenizer = small
    turns = Turns.of(tokenizer)
    pieces = [["".join(PIECES[token] for token in part)] for part in turns]
    assert pieces == [["<|im_start|>userĊ"], ["<|im_end|>Ċ<|im_start|>assistantĊ"], ["<|im_end|>Ċ<|im_start|>userĊ"]]


def test_a_row_goes_from_turn_to_turn():
    """What ends a turn is written once, and what stands between two turns is not drawn."""
    row = Row(Turns([1, 2], [9, 3, 4], [9, 5]), [6], ends={9, 8})
    drawn, answered = [0, 0, 0, 7, 9, 0, 0, 7, 8, 9, 0, 7], []
    took = [(row.next(token), answered.append(row.answered))[0] for token in drawn]
    assert took == [1, 2, 6, 7, 9, 3, 4, 7, 8, 9, 5, 7]
    assert answered == [False] * 7 + [True] * 2 + [False] * 3           # the user's turns, and what stands between two
    other = Row(Turns([1], [9, 3], [9, 5]), [], ends={9, 8})        # another token ended the turn
    drawn, took = [0, 8, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 7], [1, 8, 9, 3, 7, 8, 9, 5, 7, 8, 9, 3, 7]
    assert [other.next(token) for token in drawn] == took


def test_all_kinds_of_openings_come_up(small):
    _, _, tokenizer = small
    found = [tokenizer.decode(ids) for ids in openings(tokenizer, 40, torch.Generator().manual_seed(0))]
    for i, kind in enumerate(OPENINGS.values()):
        assert set(found[i::5]) <= set(kind) and len(set(found[i::5])) > 1


def test_what_is_written_is_the_targets(small, monkeypatch):
    """What is kept is what the target says of the texts. Answers are drawn at two temperatures in turns, the first of
    them 0: there every token is the likeliest one. A user's turns are not.
    """
    _, target, tokenizer = small
    monkeypatch.setattr("training.own_texts.TEMPERATURES", (0.0, 1.0))
    monkeypatch.setattr(tokenizer, "ends", {*tokenizer.ends, *range(0, target.config.vocab_size, 12)})  # short turns
    found = written(target, tokenizer, LAYERS, seed=5, rows=ROWS, tokens=LENGTH)
    texts, answers = found.tokens, found.answers
    assert texts.shape == (ROWS, LENGTH) and found.hidden.shape == (ROWS, LENGTH, 2, target.config.channels)
    logits, whole = target(texts, layers=LAYERS)
    assert (found.hidden - whole).abs().max() < 1e-4 and (found.totals - logits.logsumexp(-1)).abs().max() < 1e-4
    first = Turns.of(tokenizer).first
    assert all(text[:len(first)] == first for text in texts.tolist())
    likeliest = logits[:, :-1].argmax(-1) == texts[:, 1:]
    cold = torch.arange(ROWS)[:, None] % 2 == 0
    assert answers.any() and likeliest[answers[:, 1:] & cold].all()
    assert not likeliest[answers[:, 1:] & ~cold].all() and not likeliest[~answers[:, 1:] & cold].all()
    again = written(target, tokenizer, LAYERS, seed=5, rows=ROWS, tokens=LENGTH)
    other = written(target, tokenizer, LAYERS, seed=6, rows=ROWS, tokens=LENGTH)
    assert torch.equal(again.tokens, texts) and not torch.equal(other.tokens, texts)


def test_a_users_turns_are_drawn_at_temperature_1_whatever_the_answers_are(small, monkeypatch):
    _, target, tokenizer = small
    made, drawn = [], []

    class WatchedRow(Row):
        def __init__(self, *parts):
            super().__init__(*parts)
            made.append(self)

    class WatchedDice(Dice):
        def pick(self, weights):
            drawn.append((weights, [row.answering for row in made]))
            return super().pick(weights)

    monkeypatch.setattr("training.own_texts.Row", WatchedRow)
    monkeypatch.setattr("training.own_texts.Dice", WatchedDice)
    monkeypatch.setattr("training.own_texts.TEMPERATURES", (0.5, 2.0, 0.25))
    monkeypatch.setattr(tokenizer, "ends", {*tokenizer.ends, *range(0, target.config.vocab_size, 12)})
    logits = target(written(target, tokenizer, LAYERS, seed=5, rows=ROWS, tokens=LENGTH).tokens)
    for t, (weights, answering) in enumerate(drawn):
        temperature = torch.tensor([(0.5, 2.0, 0.25)[b % 3] if answers else 1.0 for b, answers in enumerate(answering)])
        assert (weights - (logits[:, t] / temperature[:, None]).softmax(-1)).abs().max() < 1e-4
    assert {answers for _, answering in drawn for answers in answering[:3]} == {False, True}


def test_a_target_without_a_chat_template_writes_none(tmp_path, capsys):
    write(tmp_path / "a.gguf", template=None)
    asked = ["lookback", "--weights", str(tmp_path / "a.gguf"), "--out", str(tmp_path / "it")]
    assert command.main(asked) == 2 and not (tmp_path / "it").exists()
    assert "has no chat template, so it cannot write texts: name files with --text" in capsys.readouterr().err
    (tmp_path / "text").write_text("a few words")
    assert command.main([*asked, "--text", str(tmp_path / "text")]) == 2            # now for its text
    assert "too little text: a part of 24,576 tokens" in capsys.readouterr().err


def test_texts_that_begin_alike_go_on_with_dice_of_their_own(small, monkeypatch):
    _, target, tokenizer = small
    monkeypatch.setattr("training.own_texts.OPENINGS", {"chat": ["What"]})
    monkeypatch.setattr("training.own_texts.TEMPERATURES", (1.0,))
    found = written(target, tokenizer, LAYERS, seed=5, rows=ROWS, tokens=30).tokens
    assert len({tuple(text) for text in found.tolist()}) == ROWS


def test_totals_are_no_coarser_than_the_logits(small):
    """Of a copy in bfloat16, which alone would be off by as much as .03."""
    _, target, tokenizer = small
    copy = deepcopy(target).bfloat16()
    for texts in read(copy, torch.arange(40), LAYERS, 0, 4, 10), written(copy, tokenizer, LAYERS, 5, rows=4, tokens=10):
        assert texts.totals.dtype == torch.float32
    expected = copy(torch.arange(40).view(4, 10)).float().logsumexp(-1)
    assert (read(copy, torch.arange(40), LAYERS, 0, 4, 10).totals - expected).abs().max() < 1e-5


def test_texts_of_others_are_read_in_windows(small):
    _, target, _ = small
    ids = torch.arange(100) % target.config.vocab_size
    texts, hidden, totals, answers = read(target, ids, LAYERS, part=2, rows=3, tokens=10)
    logits, whole = target(texts, layers=LAYERS)
    assert torch.equal(texts, ids[60:90].view(3, 10)) and (hidden - whole).abs().max() < 1e-4
    assert (totals - logits.logsumexp(-1)).abs().max() < 1e-4 and answers.all()
    with pytest.raises(TextError, match="100 tokens are less than 4 x 3 x 10"):
        read(target, ids, LAYERS, part=3, rows=3, tokens=10)


def test_parts_are_found_again_and_others_are_refused(small, kept, tmp_path, monkeypatch):
    """Of each token they have 4 bytes, a mark and a total, and its hidden states in 2 bytes a number."""
    _, target, _ = small
    size = AT_ONCE * TOKENS * (4 + 1 + 4 + 2 * 2 * target.config.channels)
    assert size < (kept.folder / "0001.pt").stat().st_size < size + 10_000
    again = Kept(kept.folder, target, LAYERS, "random")
    assert len(again.parts) == 3 and all(torch.equal(a, b) for a, b in zip(again.rows(1, slice(2, 5)),
                                                                           kept.rows(1, slice(2, 5))))
    for layers, source in ([1], "random"), (LAYERS, ""):
        with pytest.raises(PairError, match="of other texts, or for other draft models"):
            Kept(kept.folder, target, layers, source)
    whole = (kept.folder / "0000.pt").read_bytes()
    (tmp_path / "0000.pt").write_bytes(whole[:len(whole) // 2])
    with pytest.raises(PairError, match="cut short"):
        Kept(tmp_path, target, LAYERS, "random")
    (tmp_path / "0000.pt").write_bytes(whole)
    with ZipFile(tmp_path / "0000.pt", "a") as parts:
        parts.writestr(parts.namelist()[0].partition("/")[0] + "/else", "what torch writes in none")
    with pytest.raises(PairError, match="or holds no texts"):
        Kept(tmp_path, target, LAYERS, "random")
    monkeypatch.setattr("training.kept.check_parts", lambda *_: None)
    torch.save(torch.load(kept.folder / "0000.pt") | {"more": Fraction(3, 7)}, tmp_path / "0000.pt")
    with pytest.raises(PairError, match="or holds no texts"):               # torch makes tensors alone
        Kept(tmp_path, target, LAYERS, "random")
    torch.save({name: its for name, its in torch.load(kept.folder / "0000.pt").items() if name != "totals"},
               tmp_path / "0000.pt")
    with pytest.raises(PairError, match="was made for another target"):
        Kept(tmp_path, target, LAYERS, "random")


@pytest.mark.parametrize("of_others", [False, True])
def test_parts_that_are_made_later_go_on_counting(small, tmp_path, monkeypatch, of_others):
    """Two parts were made before the training was stopped. The next are 2 and 3, with seeds of their own: a part that
    came twice would be learned twice. Of a text of others they are its next windows.
    """
    path, target, tokenizer = small
    short = torch.zeros(2, 3, dtype=torch.int64)
    texts = Texts(short, torch.zeros(2, 3, 2, target.config.channels), torch.zeros(2, 3), short > 0)
    made, stop = [], [2]

    def part(number):
        if len(made) == stop[-1]:
            raise KeyboardInterrupt
        made.append(number)
        return texts

    monkeypatch.setattr(command, "written", lambda writer, tokenizer, layers, seed: part(seed))
    monkeypatch.setattr(command, "read", lambda model, ids, layers, number: part(number))
    monkeypatch.setattr(command, "quick_copy", lambda model, rows: copies.append(rows) or model)
    copies: list[int] = []                                  # what reads a text need not be quick at writing
    (tmp_path / "text").write_text("a text of many words " * 9000)
    monkeypatch.setattr(command, "to_ids", lambda *_: torch.zeros(4 * AT_ONCE * TOKENS))
    asked = ["lookback", "--weights", str(path), "--out", str(tmp_path / "it"), "--tokens", str(4 * AT_ONCE * TOKENS),
             "--seed", "7", "--spoken", "9", *["--text", str(tmp_path / "text")] * of_others]
    assert command.main(asked) == 130
    monkeypatch.setattr(command, "KeptTraining", lambda *_, **__: stop.append("made"))
    stop.append(99)
    for _ in range(2):                                      # the second time nothing is lacking
        with pytest.raises(AttributeError):                 # at once after the texts there is no training
            command.main(asked)
    assert stop[-1] == "made" and made == [number if of_others else 7 * 1_000_003 + number for number in range(4)]
    assert copies == ([] if of_others else [AT_ONCE] * 2)
    assert sorted(file.name for file in (tmp_path / "it" / "texts").iterdir()) == [f"{i:04}.pt" for i in range(4)]


def test_of_texts_of_others_as_much_is_read_as_was_asked_for(small, tmp_path, monkeypatch, capsys):
    """Of all files, what would be held out for our pair, too. They are known by where they lie. Of six parts three are
    asked for, or all by default; that the files got shorter afterwards is no harm. It may draft each of its tokens.
    """
    path, target, _ = small
    short, heard = torch.zeros(2, 3, dtype=torch.int64), []
    texts, parts = Texts(short, torch.zeros(2, 3, 2, target.config.channels), torch.zeros(2, 3), short > 0), [6]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "read_texts", lambda path: ([f"{path.name} 1"], [f"{path.name} 2"]))
    monkeypatch.setattr(command, "to_ids", lambda texts, *_: heard.append(texts) or torch.zeros(parts[0] * 24_576))
    monkeypatch.setattr(command, "read", lambda model, ids, layers, number: heard.append(number) or texts)
    monkeypatch.setattr(command, "KeptTraining", lambda *_, **__: None)

    def asked(*options):
        heard.clear()
        argv = ["lookback", "--weights", path, "--out", tmp_path / "it", "--spoken", target.config.vocab_size, *options]
        try:
            command.main([*map(str, argv)])
        except AttributeError:                              # at once after the texts there is no training
            return heard[1:]
        return capsys.readouterr().err

    assert asked("--text", "a", "b", "--tokens", 3 * 24_576) == [0, 1, 2] and heard[0] == ["a 1", "a 2", "b 1", "b 2"]
    assert asked("--text", tmp_path / "b", "a") == [3, 4, 5]
    for others in ["--text", "else/a", "b"], []:
        assert "of other texts" in asked(*others)
    parts[0] = 1
    assert asked("--text", "a", "b") == []


def test_how_much_it_writes_by_default(small, tmp_path, monkeypatch):
    """And with more tokens than the target has none can be drafted."""
    path, target, _ = small
    short, made = torch.zeros(2, 3, dtype=torch.int64), []
    texts = Texts(short, torch.zeros(2, 3, 2, target.config.channels), torch.zeros(2, 3), short > 0)
    monkeypatch.setattr(command, "written", lambda *its: made.append(its[-1]) or texts)
    monkeypatch.setattr(command, "quick_copy", lambda model, rows: model)
    monkeypatch.setattr(command, "KeptTraining", lambda *_, **__: None)
    asked = ["lookback", "--weights", str(path), "--out", str(tmp_path / "it"), "--spoken"]
    assert command.main([*asked, str(target.config.vocab_size + 1)]) == 2 and made == []
    with pytest.raises(AttributeError):
        command.main([*asked, "9"])
    assert made == list(range(16)) and "default: 393216" in command.options().format_help()


@pytest.mark.parametrize("device, asked, works, compiled", [
    ("cpu", False, True, False), ("cpu", True, True, True), ("cuda", False, True, True), ("cuda", True, False, False)])
def test_what_is_compiled(device, asked, works, compiled, monkeypatch):
    """On CUDA without being asked."""
    monkeypatch.setattr(command, "compiler_for", lambda device: (lambda: None) if works else None)
    assert command.compiles(SimpleNamespace(device=device, compile=asked)) is compiled


def test_the_last_layers_states_are_kept_whichever_a_draft_model_reads(small, tmp_path):
    """The target's probabilities follow from them."""
    _, target, _ = small
    kept = Kept(tmp_path, target, [0])
    kept.add(lambda part: read(target, torch.arange(AT_ONCE * TOKENS) % 9, kept.layers, part))
    assert kept.layers == [0, 1] and kept.parts[0]["hidden"].shape[2] == 2


def test_a_pass_sees_every_text_once_and_none_that_is_held_out(small, kept, tmp_path):
    """Other texts stand together in every pass, and with another seed."""
    learning = training(small, kept, tmp_path)
    every = {tuple(text) for text in kept.tokens().tolist()}
    assert len(every) == 2 * AT_ONCE
    passes = set()
    for learning.seed, first in (3, 0), (3, 8), (4, 0):
        batches = []
        for learning.step in range(first, first + 2 * AT_ONCE // 16):
            batches.append(frozenset(tuple(text) for text in learning.batch().tokens.tolist()))
        assert sum(map(len, batches)) == 2 * AT_ONCE and every == {text for batch in batches for text in batch}
        passes.add(frozenset(batches))
    assert len(passes) == 3
    assert not every & {tuple(text) for text in kept.rows(0, slice(None)).tokens.tolist()}


@pytest.mark.parametrize("layers", [[0], [1]])
def test_a_draft_model_gets_the_states_of_the_layers_that_it_reads(small, kept, tmp_path, layers):
    """Of all that are kept."""
    _, target, tokenizer = small
    plan = Plan("lookback", SIZES | {"layers": layers}, target.config, steps=(8,), batch=16)
    texts = kept.rows(1, slice(2))
    found = KeptTraining(target, plan, 3, kept, tokenizer, tmp_path).known(texts).hidden
    assert torch.equal(found, texts.hidden[:, :, layers].float())


def test_the_frequent_tokens_are_those_of_answers():
    """Of the parts that are learned from; the first one is held out."""
    answers = [[[True, True]], [[False, True], [True, False]], [[True, True]]]
    kept = SimpleNamespace(tokens=lambda: torch.tensor([[1, 2], [3, 4], [5, 6]]),
                           parts=[{"answers": torch.tensor(part)} for part in answers])
    assert KeptTraining.frequent(SimpleNamespace(kept=kept)).tolist() == [2, 3, 5, 6]


def test_probabilities_are_the_targets_own(small, kept, tmp_path):
    """Of the tokens alone that the draft model drafts; what it cannot draft is missing from their sum."""
    _, target, _ = small
    learning = training(small, kept, tmp_path)
    model = learning.model
    x, _, p_target, _ = learning.known(kept.rows(1, slice(3, 5)))
    expected = target(x).log_softmax(-1)[..., model.ids]
    assert len(model.ids) == 40 and (p_target - expected).abs().max() < 0.05     # kept in bfloat16
    assert (p_target.exp().sum(-1) < 0.99).any()
    assert torch.equal(model.head.weight, target.head.weight[model.ids])


def test_a_look_counts_answers_alone(small, kept, tmp_path):
    """1 - alpha, as a plain loop over the held-out places has it; what cannot be drafted is rejected."""
    _, target, _ = small
    answers = torch.rand(AT_ONCE, TOKENS, generator=torch.Generator().manual_seed(2)) < 0.1
    learning = training(small, kept, tmp_path)
    learning.kept.parts[0]["answers"], whole = answers, learning.kept.parts[0]["answers"]
    (off, *accepted), words = learning.look(most=32)
    model = learning.model
    expected = torch.zeros(5, 2)
    for first in (0, 16):
        texts = learning.kept.rows(0, slice(first, first + 16))
        p_target = learning.known(texts).p_target.exp()
        anchors = some_anchors(texts.tokens, 5, model.anchors)
        steps = unrolled(model, texts.tokens, before_tokens(texts.hidden.float()), 5, anchors)
        for k, (_, after) in enumerate(steps):
            for i, anchor in enumerate(anchors.tolist()):
                alpha = p_target[:, anchor + k].minimum(after[:, i].softmax(-1)).sum(-1)
                counts = texts.answers[:, min(anchor + k + 1, TOKENS - 1)]
                expected[k] += torch.stack([(alpha * counts).sum(), counts.sum()])
    learning.kept.parts[0]["answers"] = whole
    assert accepted == pytest.approx((expected[:, 0] / expected[:, 1]).tolist(), abs=2e-3)      # in bfloat16
    assert off == pytest.approx(1 - sum(accepted) / 5, abs=1e-5) and words.startswith("accepted 0.")


@pytest.mark.parametrize("name, loss", [("lookback", "lk-hybrid"), ("eagle", "forward-kl")])
def test_text_by_text_it_is_the_whole_batchs_loss(small, kept, tmp_path, monkeypatch, name, loss):
    """And its gradients, where some tokens count, and none of one text; also of a model with a loss of its states."""
    _, target, tokenizer = small
    monkeypatch.setattr("nanospec.fast.mixed.bfloat16_is_faster", lambda device: False)
    sizes = SIZES if name == "lookback" else LEARNED[name].sizes_for(target.config)
    plan = Plan(name, sizes, target.config, steps=(8,), batch=16)
    learning = KeptTraining(target, plan, 3, kept, tokenizer, tmp_path, loss=loss)
    texts = learning.chosen()
    answers = torch.rand(texts.answers.shape, generator=torch.Generator().manual_seed(4)) < 0.2
    answers[5] = False
    monkeypatch.setattr(learning, "chosen", lambda: texts._replace(answers=answers))
    found = []
    for learning.compiled in (True, False):
        learning.optimizer.zero_grad()
        now = learning.loss()
        now.backward()
        found.append((now.item(), torch.cat([p.grad.flatten() for p in learning.model.parameters()])))
    (whole, expected), (parts, gradients) = found
    assert parts == pytest.approx(whole, rel=1e-5) and (gradients - expected).norm() < 1e-4 * expected.norm()


def test_a_quick_copy_is_the_same_model_and_leaves_it_as_it_is(monkeypatch):
    model, asked = small_gpt(97, 3, 1).float(), set()
    monkeypatch.setattr(command, "step_seconds", lambda copy, rows, repeats, warm_up: (
        asked.add((rows, repeats, warm_up, torch.get_num_threads())) or copy.dtype != torch.bfloat16))
    before = logits(model)
    torch.set_num_threads(2)
    copy = command.quick_copy(model, 7)
    torch.set_num_threads(1)
    assert copy.dtype == torch.bfloat16 and torch.equal(logits(model), before) and asked == {(7, 2, 1, 2)}
    assert 0 < (logits(copy) - before).abs().max() < 0.1 * before.abs().max()


def test_one_part_alone_is_too_little(small, tmp_path):
    _, target, _ = small
    texts = Kept(tmp_path, target, LAYERS)
    texts.add(lambda part: read(target, torch.zeros(AT_ONCE * TOKENS, dtype=torch.int64), LAYERS, part))
    with pytest.raises(TextError, match="a part of 24,576 tokens is held out"):
        training(small, texts, tmp_path)


def test_of_a_target_with_a_long_context_texts_are_as_long_as_they_were_written(small, kept, tmp_path):
    """Else a batch would need more text than there is."""
    _, target, tokenizer = small
    plan = Plan("lookback", SIZES, replace(target.config, context=2 ** 20), steps=(8,), batch=16)
    assert KeptTraining(target, plan, 3, kept, tokenizer, tmp_path).size.target.context == TOKENS


def test_it_is_trained_as_told(small, tmp_path, monkeypatch):
    """Each option unlike its default and all others. The seed is that of the texts, too."""
    path, target, _ = small
    heard, texts = [], read(target, torch.arange(AT_ONCE * TOKENS) % 9, LAYERS, 0)
    monkeypatch.setattr(command, "quick_copy", lambda model, rows: model)
    monkeypatch.setattr(command, "written", lambda model, tokenizer, layers, seed: heard.append(seed) or texts)
    monkeypatch.setattr(command, "compiler_for", lambda device: device)
    monkeypatch.setattr(KeptTraining, "compile", lambda its: None)
    monkeypatch.setattr(command, "run", lambda *its: heard.append(its))
    argv = ["lookback", "--weights", path, "--out", tmp_path, "--tokens", 2 * AT_ONCE * TOKENS, "--spoken", 6,
            "--steps", 7, "--seed", 4, "--minutes", 2.5, "--loss", "reverse-kl", "--compile"]
    assert command.main([*map(str, argv)]) == 0
    *seeds, (its, _, _, minutes) = heard
    assert seeds == [4_000_012, 4_000_013] and len(its.model.ids) == 6
    assert (its.name, its.steps, its.seed, its.out, its.compiled, minutes) == ("lookback", 7, 4, tmp_path, True, 2.5)
    assert its.made_of["loss"] == "reverse-kl"


def test_the_command(small, tmp_path, capsys, monkeypatch, untuned):
    """It writes its texts, learns, and is stopped; then it goes on, and its last line says what to type, which works.
    The draft model is used from where it lies.
    """
    path, target, tokenizer = small
    out = tmp_path / "it"
    asked = ["lookback", "--weights", str(path), "--spoken", "40", "--out", str(out), "--steps", "4", "--tokens",
             str(2 * AT_ONCE * TOKENS)]
    assert command.main([*asked, "--minutes", "0"]) == 0
    told = capsys.readouterr().out
    assert "24,576 tokens to train on; lookback: " in told
    learned_from, drafted = torch.load(out / "texts" / "0001.pt")["tokens"].flatten().tolist(), load_learned(
        out / "lookback.pt", target, "lookback").ids.tolist()
    share = sum(token in drafted for token in learned_from) / 24_576
    assert f"lookback drafts 40 tokens, which are {share:.1%} of these texts" in told and 0 < share < 1
    assert sorted(file.name for file in (out / "texts").iterdir()) == ["0000.pt", "0001.pt"]
    assert command.main(asked) == 2 and "already holds lookback.pt" in capsys.readouterr().err
    assert command.main([*asked, "--resume"]) == 0
    told = capsys.readouterr().out
    assert "step     4/4" in told and (out / "lookback.loss.png").read_bytes().startswith(b"\x89PNG")
    next_one = shlex.split(told.split("Next: nanospec ")[1])
    assert next_one == ["demo", "--weights", str(path), "--draft-model", str(out / "lookback.pt")]
    assert commands.main([*next_one, "--prompt", "a", "--max-new-tokens", "8", "--dtype", "float32", "--threads",
                          "1"]) == 0
    draft_model = load_pair(path, draft_model=out / "lookback.pt").draft_model
    assert draft_model.note == "" and draft_model.ids.tolist() != list(range(40))
    page = (Path(__file__).parents[2] / "docs" / "SCALING.md").read_text()
    lines = re.search(r"```python\n(from nanospec.files import load_pair\n.*?)```", page, re.S)[1]
    exec(lines.replace("FOLDER", str(path)).replace("out/mine", str(out)), found := {})
    assert found["request"].done and len(found["request"].tokens) == 32
    assert found["draft_model"].sizes == draft_model.sizes
    begun = ["--from", str(out / "lookback.pt"), "--out", str(tmp_path / "on"), "--seed", "7",
             "--loss", "kl-and-tv"]
    assert command.main([*asked, "--spoken", "39", *begun]) == 2 and "of other sizes" in capsys.readouterr().err
    assert not (tmp_path / "on").exists()                               # no text is written before
    shutil.copytree(out / "texts", tmp_path / "on" / "texts")
    assert command.main([*asked, *begun, "--minutes", "0"]) == 0
    begun_with = load_learned(tmp_path / "on" / "lookback.pt", target, "lookback").state_dict()
    assert all(torch.equal(weight, begun_with[name]) for name, weight in draft_model.state_dict().items())
    made_of = [load_saved(folder / "lookback.training.pt")["made_of"] for folder in (out, tmp_path / "on")]
    recipes = [made["size"] for made in made_of]
    assert ["rate=(0.003,)" in recipes[0], "rate=(0.001,)" in recipes[1]] == [True, True]   # more gently, if begun with
    assert [made["loss"] for made in made_of] == ["lk-hybrid", "kl-and-tv"]
    monkeypatch.setattr("nanospec.files.checkpoint.WEIGHTS", out)
    (out / "lookback.pt").rename(out / "small_lookback.pt")
    assert type(load_pair(path).draft_model) is type(draft_model)


@pytest.mark.parametrize("options, words", [
    (["--tokens", "99"], "--tokens: must be a whole number from 49152"),
    (["--spoken", "0"], "--spoken: must be a whole number from 1"), (["--spoken", "99999"], "--spoken must be 1 to"),
    (["--from", "short"], "short"), (["--from", "none"], "none"), (["--steps", "0"], "--steps: wants 1 of them"),
    (["--text", "none"], "none"), (["--text", "short"], "too little text"), (["--text", "one"], "there is no other")])
def test_bad_input_is_one_clear_line(small, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("a few words")
    each = len(small[2].encode("a few words " * 1000)) / 1000
    (tmp_path / "one").write_text("a few words " * int(1.5 * AT_ONCE * TOKENS / each))
    assert command.main(["lookback", "--weights", str(small[0]), "--out", str(tmp_path / "it"), *options]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1 and not (tmp_path / "it").exists()


def test_a_draft_model_that_always_drafts_all_tokens(small, tmp_path, capsys):
    assert command.main(["mlp", "--weights", str(small[0]), "--spoken", "9", "--out", str(tmp_path / "it")]) == 2
    assert "--spoken: mlp always drafts the whole vocabulary" in capsys.readouterr().err
