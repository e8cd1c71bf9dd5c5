"""Every number in the figures and on the page: figures by their plotted points, the page as its own scripts show it,
which node runs. The rounds are ones that nobody played; all their numbers differ.
"""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

import train_tiny
from docs import pictures as of_docs
from nanospec.cli.show import figures, page
from nanospec.cli.show.page import ShownRound, run_of
from nanospec.theory import expected_tokens, speedup
from tests.invented import ROUNDS, letters
from training import learning

# Figures

# Rows of `bench speed` and of `bench serve`, as far as they are drawn.
FIELD = [{"drafter": "chain", "draft_model": "gpt", "rule": "token", "temperature": .5, "acceptance_length": 2.4,
          "gamma": 4, "speedup": 1.5}]
SERVED = [{"rows": count, "method": method, "tokens_per_s": pace} for count, its in {
    1: {"plain": 10, "chain 4": 15, "by-load": 14}, 4: {"plain": 20, "chain 4": 26, "by-load": 27},
    16: {"plain": 40, "chain 4": 32, "by-load": 40}}.items() for method, pace in its.items()]


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """drawn(draw, ...) -> the panels of what is drawn so, one beside the other, at 160 dots an inch."""
    made = []
    monkeypatch.setattr(of_docs, "blank", lambda *its, blank=figures.blank: made.append(blank(*its)) or made[-1])

    def of(draw, *its, **more):
        draw(*its, **more, path=tmp_path / "a.png")
        (figure, panels), png = made[-1], (tmp_path / "a.png").read_bytes()
        assert png.startswith(b"\x89PNG") and figure.get_axes() == panels and figure.get_suptitle()
        assert [int.from_bytes(png[at:at + 4], "big") for at in (16, 20)] == [
            int(160 * inches) for inches in figure.get_size_inches()]
        return panels
    return of


def lines_of(axes) -> dict[str, list[tuple[float, float]]]:
    """Label -> the points; those without a label have matplotlib's own."""
    return {line.get_label(): list(zip(*map(list, line.get_data()))) for line in axes.get_lines()}


def named(axes) -> dict[str, tuple]:
    """What is annotated -> the place that it is said of."""
    return {note.get_text(): tuple(note.xy) for note in axes.texts}


def at_one(axes) -> bool:
    """Whether a line goes across at 1, where nothing is gained."""
    return [(0, 1), (1, 1)] in lines_of(axes).values()


def test_methods_in_a_field(drawn):
    """A round of 2.4 tokens at a speed-up of 1.5 costs 1.6 plain steps, .6 beyond one."""
    rows = [{"drafter": drafter, "draft_model": draft_model, "rule": "token", "temperature": t,
             "acceptance_length": tokens,
             "gamma": gamma, "speedup": gain} for gamma, (drafter, draft_model, t, tokens, gain) in enumerate((
                 ("chain", "gpt", 0.0, 2.4, 1.5), ("lookup", "none", 0.0, 1.8, .9), ("tree", "gpt", 1.0, 2.7, 1.2)), 4)]
    rows.insert(1, rows[0] | {"rule": "block", "speedup": .1})          # another rule than the first is not drawn
    left, right = drawn(of_docs.draw_field, rows, "title")
    assert left.get_title("left") == "T = 0" and right.get_title("left") == "T = 1"
    points = [[(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.get_lines()
               if line.get_marker() == "o" and len(line.get_xdata())] for axes in (left, right)]
    assert points == [[pytest.approx((.6, 2.4)), pytest.approx((1.0, 1.8))], [pytest.approx((1.25, 2.7))]]
    its = named(left)
    assert its["chain 4"] == pytest.approx((.6, 2.4)) and its["lookup 5"] == pytest.approx((1.0, 1.8))
    assert left.get_xlim() == pytest.approx((0, 1.375)) and left.get_ylim() == pytest.approx((.8, 2.97))
    # Who stands on "1.5 times" writes 1.5 times as many tokens as its round costs.
    diagonal = left.get_lines()[2]
    assert list(diagonal.get_xdata()) == pytest.approx([0, 1.375])
    assert list(diagonal.get_ydata()) == pytest.approx([1.5, 1.5 * 2.375])
    assert its["1.5 times"] == pytest.approx((2.97 / 1.5 - 1, 2.97)) and its["1 times"] == pytest.approx((1.375, 2.375))


def test_several_draft_models_in_a_field_are_told_by_their_names(drawn):
    row, = FIELD
    axes, = drawn(of_docs.draw_field, [row, row | {"draft_model": "mlp", "speedup": 1.6},
                                       row | {"draft_model": "none", "drafter": "lookup", "speedup": 1.2}], "title")
    assert {"gpt", "mlp", "lookup 4"} < {*named(axes)} and "chain 4" not in named(axes)


def test_a_name_in_a_field_covers_no_other():
    """Here they would, were each above its point and to the right."""
    figure = Figure()
    axes = figure.subplots()
    of_docs.write_names(figure, [(axes, name, place, "red") for name, place in
                                 (("suffix-tree", (.5, .5)), ("lookup", (.52, .5)), ("medusa", (.51, .49)))])
    boxes = [label.get_window_extent() for label in axes.texts]
    assert [label.get_text() for label in axes.texts] == ["suffix-tree", "lookup", "medusa"]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_gains_in_batches(drawn):
    """Over plain decoding with as many texts: 15 of 10 tokens a second are a gain of 1.5."""
    axes, = drawn(of_docs.draw_batches, SERVED, "title")
    found = lines_of(axes)
    assert found["chain 4"] == [(0, 1.5), (1, 1.3), (2, .8)] and found["by-load"] == [(0, 1.4), (1, 1.35), (2, 1.0)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4", "16"]
    assert axes.get_ylim() == pytest.approx((0, 1.08 * 1.5)) and at_one(axes)


@pytest.fixture
def drawn_from(drawn, tmp_path):
    """drawn_from(picture, rows, *options) -> the panels that the script draws of a file of these rows."""
    def of(picture, rows, *options):
        (tmp_path / "rows.json").write_text(json.dumps(rows))
        return drawn(lambda path: of_docs.main([picture, str(tmp_path / "rows.json"), str(path), *options]))
    return of


def test_the_script_draws_what_a_file_holds(drawn_from):
    axes, = drawn_from("batches", SERVED)
    assert lines_of(axes)["by-load"] == [(0, 1.4), (1, 1.35), (2, 1.0)]
    assert axes.figure.get_suptitle() == "What speculation gains in a batch"
    axes, = drawn_from("field", FIELD, "--title", "cpu, 1 thread")
    assert named(axes)["chain 4"] == pytest.approx((.6, 2.4)) and axes.figure.get_suptitle() == "cpu, 1 thread"
    axes, = drawn_from("field", FIELD)
    assert axes.figure.get_suptitle() == "What a round costs, and the tokens that it writes"


@pytest.mark.parametrize("argv, words", [
    (["field", "nowhere.json", "a.png"], "a file that is there"), (["field", "served.json", "a.svg"], ".png"),
    (["field", "served.json", "nowhere/a.png"], "nowhere/a.png"), (["speed", "served.json", "a.png"], "'speed'"),
    (["field", "served.json"], "OUT.png"), (["field", "served.json", "a.png"], "nanospec bench speed --json"),
    (["batches", "field.json", "a.png"], "nanospec bench serve --json"),
    (["batches", "none.json", "a.png"], "does not hold"), (["batches", "table.json", "a.png"], "does not hold"),
    (["batches", "numbers.json", "a.png"], "does not hold"), (["batches", "words.json", "a.png"], "is no JSON")])
def test_what_cannot_be_drawn_is_refused_in_one_line(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in {"served": json.dumps(SERVED), "field": json.dumps(FIELD), "none": "[]", "numbers": "[1]",
                       "table": json.dumps(SERVED[0]), "words": "rows"}.items():
        (tmp_path / f"{name}.json").write_text(text)
    assert of_docs.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("docs.pictures: ") and err.count("\n") == 1 and words in err
    assert not [*tmp_path.rglob("a.*")]


def test_pictures_of_a_training(monkeypatch, tmp_path):
    """What each look has found: of the pair the four phases' losses, of a draft model how often it is right."""
    made, blank = [], figures.blank
    for module in figures, learning:
        monkeypatch.setattr(module, "blank", lambda *its: made.append(blank(*its)) or made[-1])
    history = [(0, 10, 3.5, 3.25), (0, 20, 2.5, 2.75), (1, 5, 4.5, 4.25), (3, 7, .5, .625)]
    train_tiny.Training.draw(SimpleNamespace(history=history, phases=train_tiny.PHASES, out=tmp_path))
    history = [(0, 100, 9, 8, .5, .4, .3, .2, .1)]
    learning.LearnedTraining.draw(SimpleNamespace(history=history, out=tmp_path, name="mlp"))
    (_, (losses, rejected)), (_, (accepted,)) = made
    points = [[list(zip(*map(list, line.get_data()))) for line in axes.get_lines()] for axes in (losses, rejected)]
    assert points[0] == [[(10, 3.5), (20, 2.5)], [(10, 3.25), (20, 2.75)], [(5, 4.5)], [(5, 4.25)], [], []]
    assert points[1] == [[(7, .5)], [(7, .625)]]
    assert [text.get_text() for text in losses.get_legend().get_texts()] == ["shallow", "target", "draft"]
    assert all(thin.get_linewidth() < thick.get_linewidth() for thin, thick in zip(*[iter(losses.get_lines())] * 2))
    assert [(*map(list, line.get_data()), line.get_label()) for line in accepted.get_lines()] == [
        ([100], [share], f"token {k}") for k, share in enumerate((.5, .4, .3, .2, .1), 1)]
    for name in "loss.png", "mlp.loss.png":
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


# The page

NUMBERS = {"alpha": .5625, "gamma": 3, "c": .125, "v": 1.375, "speedup": 1.4375, "acceptance_length": 2.5,
           "busy": False, "drafter": "chain", "method": "chain 3", "temperature": .7, "setting": "cpu, 1 thread",
           "command": "nanospec demo"}
COINS = [[(.25, .5), (.125, .25)], [(.75, .125), (.375, .9)], [(.5, .75), (.625, .875), (.0625, .625)],
         [(.99, 1.0), (.125, .375)]]
SPENT = [(.031, .011), (.002, .005), (.004, .008), (.001, .003)]        # drafting, and the rest
PLAIN = [.021, .004, .006, .0045, .0072, .005]
RUN = run_of("abc", PLAIN, [ShownRound(done, coins, *spent) for done, coins, spent in zip(ROUNDS, COINS, SPENT)],
             letters, NUMBERS)


@pytest.fixture
def by_nodejs():
    """by_nodejs("...") -> what these lines give back, run after the page's own scripts."""
    if not shutil.which("node"):
        pytest.skip("no node here")
    html = (page.WEB / "page.html").read_text(encoding="utf-8")
    sliders = {name: dict(re.findall(r'(min|max|step)="([\d.]+)"', its))
               for name, its in re.findall(r'<input id="(\w+)" type="range" ([^>]*)>', html)}

    def of(lines: str, run: dict = RUN):
        begin = (f"document.getElementById('run').textContent = {json.dumps(json.dumps(run))};\n"
                 f"for (const [name, its] of Object.entries({json.dumps(sliders)})) "
                   "Object.assign(document.getElementById(name), its);\n")
        source = [(Path(__file__).parent / "dom.js").read_text(), begin,
                  *((page.WEB / name).read_text(encoding="utf-8") for name in page.SCRIPTS),
                  "function texts(it, selector) { return it.querySelectorAll(selector)."
                  "map((x) => x.textContent.replace(/\\s+/g, ' ')); }",
                  f"console.log(JSON.stringify((() => {{ {lines} }})()));"]
        done = subprocess.run(["node", "-e", "\n".join(source)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return of


def test_milliseconds_on_the_page():
    assert [shown["ms"] for shown in RUN["rounds"]] == [[31, 11], [2, 5], [4, 8], [1, 3]]
    assert RUN["plain"] == [21, 4, 6, 4.5, 7.2, 5] and [shown["written"] for shown in RUN["rounds"]] == [3, 1, 4, 2]


SHOWN = """const out = {};
for (const id of ["summary", "said", "text", "lanes-note", "place", "bars-note"]) out[id] = byId(id).textContent;
out.counts = texts(byId("counts"), "dd");
out.nodes = texts(byId("nodes"), "button");
out.bars = byId("bars").children.map((row) => [row.children[0].textContent, ...texts(row, ".number")]);
out.lanes = byId("lanes").children.map((lane) => lane.querySelectorAll(".segment").map((it) =>
  [it.textContent, parseFloat(it.style.left), parseFloat(it.style.width)]));
return out;"""


def test_a_round_on_the_page(by_nodejs):
    """The third: two before it wrote 3 and 1 tokens. Lanes show the rounds from the second on."""
    shown = by_nodejs("showRound(2);" + SHOWN)
    assert shown["summary"] == ("This run: 10 tokens in 4 target calls, 1.44 times as fast as the target alone (chain "
                                "3, temperature 0.7; cpu, 1 thread).")
    assert shown["place"] == "3 of 4" and shown["text"] == "abcabz" + "a" + "z" + "abcz"
    assert shown["said"] == "Round 3: 3 draft tokens, 3 accepted. The bonus token is “z”."
    assert shown["counts"] == ["8", "3", "2.67", "5 of 7"]
    assert shown["nodes"] == ["a coin 0.50 < 0.75 accepted", "b coin 0.63 < 0.88 accepted",
                              "c coin 0.06 < 0.63 accepted", "z bonus, drawn from p_target"]
    assert shown["bars"][0] == ["z", "1.000"]
    # 2 + 5, 4 + 8 and 1 + 3 ms. Plain steps of 4, 6, 4.5 and 7.2 ms fit into 23.
    assert shown["lanes-note"] == "Rounds 2 to 4, 23 ms: 7 tokens. The target alone writes 4 in this time."
    draft, target, alone = shown["lanes"]
    ms = 100 / 23
    assert target == [["+1", pytest.approx(2 * ms), pytest.approx(5 * ms)],
                      ["+4", pytest.approx(11 * ms), pytest.approx(8 * ms)],
                      ["+2", pytest.approx(20 * ms), pytest.approx(3 * ms)]]
    assert [left for _, left, _ in draft] == pytest.approx([part * ms for part in (
        0, 1, 7, 7 + 4 / 3, 7 + 8 / 3, 19, 19.5)])
    assert [width for *_, width in draft] == pytest.approx([part * ms for part in (1, 1, *[4 / 3] * 3, .5, .5)])
    assert [[left, width] for _, left, width in alone] == [pytest.approx([left * ms, width * ms]) for left, width in (
        (0, 4), (4, 6), (10, 4.5), (14.5, 7.2))]


def test_a_rejection_on_the_page(by_nodejs):
    shown = by_nodejs("showRound(1);" + SHOWN)
    assert shown["said"] == ("Round 2: 2 draft tokens, 0 accepted. “a” is rejected: its coin 0.75 is not below 0.13. "
                             "The replacement is “z”.")
    assert shown["counts"] == ["4", "2", "2.00", "2 of 4"]
    assert shown["nodes"] == ["a coin 0.75 ≥ 0.13 rejected", "b never judged", "z replacement, drawn from the residual"]
    assert shown["bars"][:2] == [["a", "0.125", "1.000", "0.000"], ["z", "0.875", "0.000", "1.000"]]
    assert shown["bars-note"] == "Threshold: 0.125 / 1.000, at most 1, is 0.125. The coin fell on 0.750: rejected."
    last = by_nodejs("showRound(3);" + SHOWN)
    assert last["said"].endswith("It is not written: the text ends before it.") and last["counts"] == [
        "10", "4", "2.50", "7 of 9"]


def test_where_it_loses_the_page_says_how_much_slower(by_nodejs):
    slow = RUN | {"numbers": NUMBERS | {"speedup": .8, "busy": True}}
    assert by_nodejs(SHOWN, slow)["summary"].endswith(
        "1.25 times slower than the target alone (chain 3, temperature 0.7; cpu, 1 thread). The machine was busy then, "
        "so its times are rough.")


FIGURES = """const marks = (id, selector, names) => byId(id).querySelectorAll(selector).map((it) =>
  names.map((name) => name === "d" ? it.attributes.d.match(/M([-\\d.]+),([-\\d.]+)/).slice(1).map(Number)
    : Number(it.attributes[name])).flat());
const grid = (id) => byId(id).querySelectorAll(".grid").map((it, i) => [Number(it.attributes.y1),
  Number(byId(id).querySelectorAll(".end")[i].textContent)]);
const out = { verdict: byId("verdict").textContent, expected: byId("expected").textContent,
  speedup: byId("speedup").textContent };
for (const id of ["by-alpha", "by-gamma"]) out[id] = { grid: grid(id), dots: marks(id, ".dot", ["cx", "cy"]),
  measured: marks(id, ".measured", ["d"]), best: marks(id, ".best", ["x1"]), label: byId(id).attributes["aria-label"],
  curves: byId(id).querySelectorAll(".curve").map((it) => it.attributes.points.split(" ").map((at) =>
    at.split(",").map(Number))) };
out.outputs = ["alpha", "gamma", "c", "v"].map((name) => document.querySelector(`output[for="${name}"]`).textContent);
return out;"""
MOVED = "".join(f"byId('{name}').value = {value}; " for name, value in (
    ("alpha", .8), ("gamma", 5), ("c", .25), ("v", 1.75))) + "byId('v').fire('input');"


def in_units(picture: dict, least: float, most: float):
    """(x, y) of a picture -> in the units of its axes."""
    (zero, none), (height, one) = picture["grid"][:2]
    assert none == 0
    return lambda at: (least + (at[0] - 44) / 380 * (most - least), (zero - at[1]) / (zero - height) * one)


def test_the_figures_of_the_page_as_measured(by_nodejs):
    found = by_nodejs(FIGURES)
    tokens, gain = expected_tokens(.5625, 3), speedup(.5625, 3, .125, 1.375)
    assert found["outputs"] == ["0.56", "3", "0.13", "1.38"]
    assert (found["expected"], found["speedup"]) == (f"{tokens:.2f}", f"{gain:.2f}") == ("2.06", "1.18")
    assert found["verdict"].startswith("A round costs as much as 1.75 tokens of the target alone and brings 2.06: "
                                       "speculation wins.")
    at = in_units(found["by-alpha"], 0, 1)
    assert [at(dot) for dot in found["by-alpha"]["dots"]] == [pytest.approx((.5625, tokens)),
                                                             pytest.approx((.5625, gain))]
    assert [at((x + 7, y)) for x, y in found["by-alpha"]["measured"]] == [pytest.approx((.5625, 2.5)),
                                                                         pytest.approx((.5625, 1.4375))]


def test_the_figures_of_the_page_with_sliders_moved(by_nodejs):
    """The marks of what was measured stay where they are: at the run's alpha, not at the slider's."""
    found = by_nodejs(MOVED + FIGURES)
    gain = speedup(.8, 5, .25, 1.75)
    assert found["outputs"] == ["0.80", "5", "0.25", "1.75"]
    assert (found["expected"], found["speedup"]) == ("3.69", "1.23")
    at, picture, tokens = in_units(found["by-alpha"], 0, 1), found["by-alpha"], expected_tokens(.8, 5)
    assert [at((x + 7, y)) for x, y in picture["measured"]] == [pytest.approx((.5625, 2.5)),
                                                               pytest.approx((.5625, 1.4375))]
    assert [at(dot) for dot in picture["dots"]] == [pytest.approx((.8, tokens)), pytest.approx((.8, gain))]
    assert picture["label"].endswith(
        "tokens per target call rise from 1 to 6, the speed-up from 0.33 to 2.00. Measured in this run: alpha 0.56, "
        "2.50 tokens per target call, speed-up 1.44.")
    for curve, value in zip(picture["curves"], (lambda a: expected_tokens(a, 5), lambda a: speedup(a, 5, .25, 1.75))):
        assert len(curve) == 101
        for i, place in enumerate(map(at, curve)):
            assert place == pytest.approx((i / 100, value(i / 100)), abs=.005)
    at, picture = in_units(found["by-gamma"], 1, 16), found["by-gamma"]

    def of(gamma):                                  # every further token adds .15 to a call
        return speedup(.8, gamma, .25, 1 + .15 * gamma)
    best = max(range(1, 17), key=of)
    assert [at(dot) for dot in picture["dots"]] == [pytest.approx((5, tokens)), pytest.approx((5, of(5)))]
    assert at((picture["best"][0][0], 0))[0] == pytest.approx(best) and best != 5
    assert picture["label"].endswith(f"is greatest, {of(best):.2f}, at gamma {best}.")
    assert found["verdict"] == ("A round costs as much as 3.00 tokens of the target alone and brings 3.69: "
                                f"speculation wins. The best gamma here is {best}.")
    for curve, value in zip(picture["curves"], (lambda gamma: expected_tokens(.8, gamma), of)):
        assert [at(place) for place in curve] == [pytest.approx((g, value(g)), abs=.02) for g in range(1, 17)]


def test_one_place_on_the_page(by_nodejs):
    """p_target [.4 .25 .2 .1 .05] and q_draft [.15 .5 .1 .2 .05]: the overlap is .65, what is left [.25 0 .1 0 0]."""
    lines = """return [...["p", "q", "accept", "left", "output"].map((name) => texts(byId(name + "-bars"), ".number")),
        byId("proof").textContent, byId("output-note").textContent];"""
    p, q, accept, left, output, proof, note = by_nodejs(lines)
    assert p == output == ["0.40", "0.25", "0.20", "0.10", "0.05"] and q == ["0.15", "0.50", "0.10", "0.20", "0.05"]
    assert accept == ["0.15", "0.25", "0.10", "0.10", "0.05"] and left == ["0.71", "0.00", "0.29", "0.00", "0.00"]
    assert "accepted with probability beta = 0.65, and replaced with probability 0.35." in proof
    assert note == "accepted + 0.35 · residual; the line is p_target"
    *_, output, proof, note = by_nodejs("byId('mistake').checked = true; showExact();" + lines)
    assert output == ["0.29", "0.34", "0.17", "0.14", "0.07"]
    assert "The output is 0.140 away from p_target" in proof and note.startswith("accepted + 0.35 · p_target")
