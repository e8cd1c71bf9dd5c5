"""`nanospec why --counters`: each shape is made by a fault that is planted in a drafter of ours, and named from what
engines would print of its rounds. Numbers are by hand.
"""

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from nanospec.cli import why
from nanospec.cli.acceptance_curve import SHAPES, best_length, curve_of, places_of, shape_of, wilson
from nanospec.cli.counters import Counters
from nanospec.proof.tables import TableModel
from nanospec.speculate import ModelDrafter, speculate

GAMMA, VOCABULARY, TEXTS, NEW, ROUNDS = 5, 50, 12, 80, 33      # new tokens or rounds of each text, at most
TARGET = TableModel(VOCABULARY, 8)


class Faulty:
    """The target as its own draft model, through a reader with a fault. spoilt: (place, text, dice) -> whether this
    draft token is another one than the likeliest. deaf: it does not read its own draft tokens.
    """

    def __init__(self, reader, text, spoilt=None, deaf=False):
        self.reader, self.text, self.spoilt, self.deaf = reader, text, spoilt or (lambda *_: False), deaf
        self.place, self.dice = 0, random.Random(text)

    def __getattr__(self, name):
        return getattr(self.reader, name)

    def start(self, *its):
        self.place = 1
        return self.answer(self.reader.start(*its))

    def step(self, tokens, *its):
        self.place += 1
        return self.answer(self.reader.step(tokens * (not self.deaf), *its))

    def answer(self, logits):
        return logits.roll(1, -1) if self.spoilt(self.place, self.text, self.dice) else logits


FAULTS = {
    "1.00 everywhere": {},                                                              # the target drafts for itself
    "near 0 from the first place on": {"spoilt": lambda *_: True},                      # ids are shifted by one
    "near 0 from the second place on": {"deaf": True},
    "a cliff at one place": {"spoilt": lambda place, *_: place > 3},                    # made for three tokens
    "low at the first place alone": {"spoilt": lambda place, text, dice: text % 5 == 0},     # some texts fail
    "worse from place to place": {"spoilt": lambda place, text, dice: dice.random() < .14 * place},
    "falls by the same factor at each place": {"spoilt": lambda place, text, dice: dice.random() < .5}}


def rounds_with(fault: dict) -> list[int]:
    """How many draft tokens each round accepts, at temperature 0; without those that the end of a text cuts."""
    lengths = []
    for text in range(TEXTS):
        drafter = ModelDrafter(TARGET, GAMMA)
        drafter.reader = Faulty(drafter.reader, text, **fault)
        done = list(islice(speculate(TARGET, drafter, [text, 1], NEW, temperature=0), ROUNDS))
        lengths += [len(its.path) for its in done[:-1]]
    return lengths


def at_least(lengths: list[int]) -> list[int]:
    return [sum(length >= place for length in lengths) for place in range(1, GAMMA + 1)]


def as_metrics(lengths: list[int]) -> str:
    name, labels = "vllm:spec_decode_num", 'engine="0",model_name="m"'
    totals = {"drafts": len(lengths), "draft_tokens": GAMMA * len(lengths), "accepted_tokens": sum(lengths)}
    lines = [f"{name}_{what}_total{{{labels}}} {count}.0" for what, count in totals.items()]
    return "\n".join(lines + [f'{name}_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}.0'
                              for place, count in enumerate(at_least(lengths))])


def as_vllm_log(lengths: list[int]) -> str:
    lines = []
    for start in range(0, len(lengths), 100):                       # a line every ten seconds
        some = lengths[start:start + 100]
        shares = ", ".join(f"{count / len(some):.3f}" for count in at_least(some))
        lines.append(f"(APIServer pid=1) INFO 05-30 07:49:31 [metrics.py:101] SpecDecoding metrics: Mean acceptance "
                     f"length: {1 + sum(some) / len(some):.2f}, Accepted throughput: 20.60 tokens/s, Drafted "
                     f"throughput: 60.90 tokens/s, Accepted: {sum(some)} tokens, Drafted: {GAMMA * len(some)} tokens, "
                     f"Per-position acceptance rate: {shares}, Avg Draft acceptance rate: 41.2%")
    return "\n".join(lines)


def as_statistics(lengths: list[int]) -> str:
    """llama.cpp lists places up to the last one that was ever accepted."""
    shares = ", ".join(f"{count / len(lengths):.3f}" for count in at_least(lengths)[:max(lengths)])
    return (f"0.06.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    1   {len(lengths)}   {len(lengths)}, #gen "
            f"drafts = {len(lengths):6}, #acc drafts = {at_least(lengths)[0]:5}, #gen tokens = {GAMMA * len(lengths):6}"
            f", #acc tokens = {sum(lengths):5}, #mean acc len = {1 + sum(lengths) / len(lengths):.2f}, #acc rate/pos = "
            f"({shares}), dur(b,g,a) = 0.005, 325.555, 0.114 ms")


def answered(path: Path, capsys, *options: str) -> str:
    assert why.main(["--counters", str(path), *options]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_planted_fault_has_the_shape_that_is_named(shape, tmp_path, capsys):
    lengths = rounds_with(FAULTS[shape])
    assert len(lengths) > 140
    path, named = tmp_path / "counters", shape.replace("one place", "place 4")
    for text, options in ((as_metrics(lengths), ()), (as_vllm_log(lengths), ()), (as_statistics(lengths), ()),
                          (str(lengths), ("--gamma", str(GAMMA), "--bonus", "without"))):
        path.write_text(text)
        out = answered(path, capsys, *options)
        assert f"The shape: {named}. {SHAPES[shape][0]} Look first at {SHAPES[shape][1]}." in out, (text[:300], out)
        assert f"acceptance length {1 + sum(lengths) / len(lengths):.2f} " in out


def test_docs_have_every_shape():
    docs = (Path(__file__).parents[2] / "docs" / "METHODS.md").read_text()
    assert all(f"| {shape} |" in docs for shape in SHAPES)


def test_every_number_by_hand(tmp_path, capsys):
    """1,000 drafts of 4. 1,780 accepted, of 4,000 drafted and 1,000 + 800 + 480 + 300 judged. c = .2: 2.28 / 1.4."""
    lengths = [0] * 200 + [1] * 320 + [2] * 180 + [3] * 100 + [4] * 200
    path = tmp_path / "list"
    path.write_text(" ".join(map(str, lengths)))
    out = answered(path, capsys, "--gamma", "4", "--c", "0.2")
    for words in ("acceptance length 2.78 engines: with the bonus token; here: tokens per target call",
                  " 1.78 without", "acceptance rate 0.445 engines", "0.690 here: accepted of those that were judged",
                  "0.80 0.48 0.30 0.20 engines: of all drafts", "0.80 0.60 0.62 0.67 of drafts that came so far",
                  "accepted lengths 0: 20% 1: 32% 2: 18% 3: 10% 4: 20%", "1,000 drafts, tokens in each: 4 on average",
                  "speed-up 0.2 2 2.28 1.63 c: "):
        assert words in out, words
    assert "speed-up 0 4 2.78 2.78 c: " in answered(path, capsys, "--gamma", "4", "--c", "0").replace(" or more", "")
    path.write_text(str([length + 1 for length in lengths]))
    assert answered(path, capsys, "--gamma", "4", "--c", "0.2", "--bonus", "with") == out


def test_the_best_length():
    """Of three; beyond what was counted nobody knows. Nothing accepted: no draft. Eq. 1 where there is no curve."""
    assert best_length([.8, .48, .3], .2) == (2, pytest.approx(2.28 / 1.4))
    assert best_length([.8, .48, .3], .02) == (3, pytest.approx(2.58 / 1.06))
    assert best_length([.1, .01], .2) == (0, 1)
    its = Counters("SGLang", 1.75)
    assert curve_of(its, 2) == pytest.approx((.5, .25)) and curve_of(its, 0) == ()
    assert curve_of(Counters("SGLang"), 2) == ()                            # nothing was printed
    assert curve_of(counted([.5, .25], 50), 0) == (.5, .25) and curve_of(counted([.5, .25], 49), 0) == ()
    assert curve_of(counted([.5, .25], length=1.9), 0) == ()


def test_bounds():
    """Wilson's for .5 of 4: (.5 + z2 / 2) / (1 + z2) with z2 = 2.6 ** 2 / 4 = 1.69, and z's half-width .3963."""
    low, high = wilson(.5, 4)
    assert low == pytest.approx(.5 - .3963, abs=1e-4) and high == pytest.approx(.5 + .3963, abs=1e-4)
    assert [place.share for place in places_of([.5, .25, 0, 0], 200)] == [.5, .5, 0, 0]
    assert [place.reached for place in places_of([.5, .25, 0, 0], 200)] == [200, 100, 50, 0]
    assert places_of([.5, .51], 10 ** 6)[1].share == 1.02                   # one counter was read before the other


def counted(curve: list[float], drafts: int = 10_000, length: float | None = None) -> Counters:
    drafted = drafts * (length or len(curve))
    return Counters("a list", 1 + sum(curve), sum(curve) * drafts / drafted, tuple(curve), drafts, drafted)


@pytest.mark.parametrize("its, shape", [
    (counted([.9, .81, .73, .66]), "falls by the same factor at each place"),
    (counted([.5, .25, .125]), "falls by the same factor at each place"),
    (counted([.95, .93, .91, .3]), "a cliff at one place"), (counted([.9, .2, .15]), "a cliff at one place"),
    (counted([.8, .4, .35]), "uneven"),                     # down and up again
    (counted([.5, .275]), "falls by the same factor at each place"),        # .55, which is surely more, but not by .1
    (counted([.9, .765]), "falls by the same factor at each place"),        # .85, surely less, but not by .1
    (counted([.04, .03, .001]), "near 0 from the first place on"),          # of its later places one is as low
    (counted([.08, .006], drafts=100), ""),                                 # of 100 it could be .18
    (counted([.9, .63, .315, .063]), "worse from place to place"),      # no cliff: the places before fall, too
    (counted([.9, .02], drafts=40), ""), (counted([.8, .4, .35], drafts=60), ""),       # too few
    (counted([.5, 0], drafts=100), "a cliff at one place"), (counted([.5, 0], drafts=98), ""),      # 50 come there; 49
    (counted([1.0, 1.0, 1.0], drafts=60), ""), (counted([.7]), ""), (counted([.97, .94, .91]),
                                                                      "falls by the same factor at each place"),
    (counted([.6, .3, .1], length=2), "varied"), (counted([1.0, .7, .3], length=2), "1.00 everywhere"),
    (counted([.02, .01], length=1.5), "near 0 from the first place on"),
    (counted([.04, .03, .03]), "low at the first place alone"), (Counters("SGLang", 2.5), "")])
def test_shapes_that_counts_can_tell_and_those_that_they_cannot(its, shape):
    assert shape_of(its)[0] == shape


@pytest.mark.parametrize("its", [.3, .5, .8])
def test_chance_alone_is_not_taken_for_a_fault(its):
    """Drafts of 4 whose tokens are accepted alike: of 300 counts of 200 drafts at most 3 have another shape."""
    dice, wrong = random.Random(int(100 * its)), Counter()
    for _ in range(300):
        lengths = [next((place for place in range(4) if dice.random() > its), 4) for _ in range(200)]
        wrong[shape_of(counted([sum(length > place for length in lengths) / 200 for place in range(4)], 200))[0]] += 1
    del wrong["falls by the same factor at each place"], wrong[""]
    assert sum(wrong.values()) <= 3, wrong


@pytest.mark.parametrize("text, options, words", [
    ("Decode batch. #running-req: 4, accept len: 2.50, ", (),
     "acceptance length 2.50 |no mean can.|no curve, and no --gamma"),
    ("Decode batch. #running-req: 4, accept len: 1.75, ", ("--gamma", "2", "--c", ".2"),
     "acceptance rate 0.375 |no mean can.|0.2 1 1.50 1.25 Every place is taken to be alike."),
    ("draft acceptance = 0.75 ( 300 accepted / 400 generated)", (),
     "acceptance rate 0.750 |is not said, so no length|is not known: no curve."),
    ("0 1 2 1", ("--gamma", "2"), "4 drafts are too few to tell a shape|is not known: too few drafts."),
    (as_metrics([1] * 500 + [0] * 500).replace("5000.0", "3000.0"), (), "at least, of drafts that came so far|Drafts "
     "were of different lengths|is not known: drafts were of different lengths."),
    ("0 1 " * 25, ("--gamma", "1"), "Drafts of one token have one place, 0.50."),
    ("0 1 " * 24 + "1", ("--gamma", "1"), "49 drafts are too few to tell a shape"),
    ("0 1 1 1 " * 50, ("--gamma", "1"), "Drafts of one token have one place, 0.75.|0.4 1 or more 1.75 1.25")])
def test_what_counters_cannot_tell_is_said(text, options, words, tmp_path, capsys):
    (tmp_path / "f").write_text(text)
    out = answered(tmp_path / "f", capsys, *options)
    for part in words.split("|"):
        assert part in out, (part, out)


def test_of_each_drafter_all_that_is_known_is_said(tmp_path, capsys):
    lines = [as_statistics([0, 1] * 30), as_statistics([1, 0, 2] * 9).replace("draft-eagle3", "ngram-mod"),
             "I statistics ngram-map: #calls = 1, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, #acc tokens = 0"]
    (tmp_path / "f").write_text("\n".join(lines))
    out = answered(tmp_path / "f", capsys)
    assert "60 drafts, tokens in each: 5 on average. Drafter draft-eagle3." in out and out.count("ngram-map never") == 2
    assert "27 drafts, tokens in each: 5 on average. Drafter ngram-mod." in out


def test_of_drafts_of_different_lengths_nobody_knows_how_many_were_judged(tmp_path, capsys):
    for drafted, known in ("5000.0", True), ("3000.0", False):
        (tmp_path / "f").write_text(as_metrics([1] * 500 + [0] * 500).replace("5000.0", drafted))
        assert ("accepted of those that were judged, alpha" in answered(tmp_path / "f", capsys)) == known


@pytest.mark.parametrize("options, words", [
    (["--c", ".1"], "--c and --bonus are for --counters"), (["--bonus", "with"], "are for --counters"),
    (["--bonus", "no"], "--bonus: invalid choice"),
    (["--counters", "list", "--temperature", "1"], "goes with --gamma, --c and --bonus, not --temperature"),
    (["--counters", "list", "--seed", "5"], "not --seed"), (["--c", "0"], "--c and --bonus are for --counters"),
    (["--counters", "list", "--max-new-tokens", "5"], "not --max-new-tokens"),
    (["--counters", "nowhere"], "--counters"), (["--counters", "list", "--c", "-1"], "--c")])
def test_what_does_not_go_together(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(why, "Prepared", None)
    Path("list").write_text("0 1 2")
    assert why.main(options) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1
