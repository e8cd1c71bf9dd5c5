"""Every number that demo, chat, why and a training show, asserted by hand: rounds that nobody played, whose numbers all
differ, and a clock that moves only when a test winds it.
"""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from nanospec.cli import chat, demo, quantities, why
from nanospec.cli.show.steps import step_text
from nanospec.cli.show.terminal import ShownRound, View
from nanospec.cli.why import Parts
from tests.invented import LAST, ROUNDS, Clock, chain, letters


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    return clock


def printed(thing, width: int = 200) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(thing)
    return console.file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


# The terminal

PLAIN = [.02, .01, .014, .011, .0075]                                       # .0625 s for 5 tokens
SPENT = [(.02, .008), (.01, .001), (.012, .005), (.008, .003)]              # .05 s for 10; drafting is part of it


def a_view() -> View:
    view = View("prompt", letters)
    for seconds in PLAIN:
        view.plain.append(LAST)
        view.plain_seconds.append(seconds)
    for done, (seconds, drafting) in zip(ROUNDS, SPENT):
        view.rounds.append(ShownRound(done, (), drafting, seconds - drafting))
    return view


def test_under_both_panels():
    text = printed(a_view().panels(Console(file=StringIO(), width=120)), 120)
    assert re.findall(r"([\d.]+) tokens per target call · ([\d,]+) tokens/s", text) == [("1.00", "80"), ("2.50", "200")]


def test_both_lanes():
    """Two plain steps after the first take 24 ms, on 88 columns. Meanwhile the second and the third round end, after 10
    and 22 ms; drafting ends after 1 and 15. The fourth would end after 30, 3 of which are drafting.
    """
    first, plain, fast, legend = a_view().lanes(Console(file=StringIO(), width=120), calls=2).plain.split("\n")
    assert first == "24 ms, after the prompt was read" and "draft step" in legend
    assert plain == "the target alone " + "▬" * 36 + " " + "▬" * 50 + " " + "   2 tokens"
    assert fast == ("speculative      " + "''  " + "▬" * 32 + " " + "'''" + " " * 15 + "▬" * 25 + " " + " " * 7
                    + "   5 tokens")


def test_the_lanes_tell_draft_steps_apart_unless_no_round_could():
    """A compiled round has no clock in it. One that drafted nothing, among others, is no compiled one."""
    for drafted, words_of in ([0, 0, .002, 0], "a draft step"), ([0] * 4, "or a whole round"):
        view = a_view()
        view.rounds = [it._replace(drafting=drafting) for it, drafting in zip(view.rounds, drafted)]
        assert words_of in view.lanes(Console(file=StringIO(), width=120)).plain.split("\n")[-1]


def test_a_round_step_by_step():
    """A stack's coins stand before the rule's."""
    done = chain([.5, .25], 1)
    text = words(printed(step_text(7, done, [(.9, .99), (.375, .5), (.75, .25)], letters)))
    assert text.startswith("round 7 'a' p_target 0.500 q_draft 1.000 u = 0.38 < 0.50 accepted "
                           "'b' p_target 0.250 q_draft 1.000 u = 0.75 ≥ 0.25 rejected 'z' replacement")
    assert re.search(r"'b' 0.250 █+ 1.000 █+ 0.000", text) and re.search(r"'z' 0.750 █+ 0.000 1.000", text)


# The demo

ROW = {"drafter": "chain", "rule": "token", "gamma": 3, "rounds": 4, "drafted": 11, "accepted": 7, "steps": 2.26,
       "alpha": .5124, "c": .1553, "v": 1.317, "acceptance_length": 2.64, "baseline_tokens_per_s": 1234.4,
       "tokens_per_s": 987.6, "speedup": .7, "predicted_speedup": .936, "temperature": .8, "busy": False}


def described(**more) -> dict[str, str]:
    """The table's first column -> the rest of its line; and all lines after it as "said"."""
    lines = printed(demo.describe(ROW | more, "chain 3", "cpu")).splitlines()
    names = ("alpha", "c", "v", "tokens per target call", "tokens/s, target alone", "tokens/s, speculative", "speed-up")
    found = {name: words(next(line for line in lines if line.startswith(name + " "))[len(name):]) for name in names}
    return found | {"said": words(" ".join(lines[len(names):]))}


def test_the_table_of_the_demo():
    assert described() == {
        "alpha": "0.512 mean of sum min(p_target, q_draft) where a draft token was judged",
        "c": "0.155 one draft step / one target step",
        "v": "1.317 one target call on 3.75 tokens / on one",                           # 11 in 4 rounds, and 1
        "tokens per target call": "2.64 1.91 by Eq. 1; 7 of 11 draft tokens accepted",
        "tokens/s, target alone": "1,234 cpu", "tokens/s, speculative": "988 chain 3, temperature 0.8",
        "speed-up": "0.70 0.94 predicted: tokens per call / (gamma c + v)",
        "said": "Speculation loses here: 1.43 times slower. A round takes as long as 3.77 tokens of the target alone "
                "and brings 2.64. `nanospec why` names what to change first."}


def test_the_table_of_the_demo_where_it_wins_or_drafts_no_chain_or_ran_twice():
    found = described(speedup=1.3, drafter="lookup", baseline_tokens_per_s_eager=71.6, tokens_per_s_eager=82.4)
    assert found["said"] == "Speculation wins here: 1.30 times as fast."
    assert found["tokens per target call"] == "2.64 7 of 11 draft tokens accepted"
    assert found["speed-up"] == "1.30 0.94 predicted: tokens per call / (2.26 c + v)"
    assert found["tokens/s, target alone"] == "1,234 cpu; compiled, and 72 eagerly"
    assert found["tokens/s, speculative"] == "988 chain 3, temperature 0.8; compiled, and 82 eagerly"


@pytest.fixture
def playing(clock, monkeypatch):
    """A demo whose plain decoding takes PLAIN, and whose rounds take SPENT."""
    def rounds(target, drafter, ids, **request):
        for done, (seconds, drafter.seconds) in zip(ROUNDS, SPENT):
            clock.wind(seconds)
            yield done

    monkeypatch.setattr(demo, "speculate", rounds)
    monkeypatch.setattr(demo, "generate", lambda *_, **__: clock.during([LAST] * 5, PLAIN))
    monkeypatch.setattr(demo, "WatchedDice", lambda seeds, device: SimpleNamespace(coins=[*seeds, device]))
    made = demo.Demo.__new__(demo.Demo)
    made.args = SimpleNamespace(prompt="prompt", rule="token", seed=3, device="cpu", html=None, measure=False)
    made.target, made.ids, made.request = None, [1], {"max_new_tokens": 5}
    made.tokenizer = SimpleNamespace(decode=letters)
    made.warmed = []
    made.setups, made.method = [(None, None, None)], lambda *_: SimpleNamespace(
        make=lambda: SimpleNamespace(), run=lambda ids, **request: made.warmed.append((clock(), ids, request)) or [])
    return made


@pytest.mark.parametrize("html, asked, few", [(None, 5, 5), (Path("page.html"), 50, 16)])
def test_the_demo_tells_drafting_from_the_rest(playing, html, asked, few):
    """And has every round's coins where there will be a page. It runs the last of its setups."""
    playing.args.html, playing.request = html, {"max_new_tokens": asked}
    playing.setups.insert(0, ("eagerly", "eagerly", "eagerly"))
    view = playing.show(Console(file=StringIO()))
    # Once before everything, a few tokens, or less where less was asked for.
    assert playing.warmed == [(0, [1], {"max_new_tokens": few, "compiler": None})]
    assert view.plain_seconds == pytest.approx(PLAIN) and [it.done for it in view.rounds] == ROUNDS
    assert [it.drafting for it in view.rounds] == pytest.approx([drafting for _, drafting in SPENT])
    assert [it.rest for it in view.rounds] == pytest.approx([seconds - drafting for seconds, drafting in SPENT])
    assert [it.coins for it in view.rounds] == ([[3, "cpu"]] * 4 if html else [()] * 4)


@pytest.mark.parametrize("careful, turns", [(False, 3), (True, 5)])
def test_what_was_watched_is_the_first_of_the_turns(playing, monkeypatch, careful, turns):
    """5 tokens in .0625 s, and rounds with their drafting."""
    asked = []
    monkeypatch.setattr(demo, "measure_setups", lambda *its, **more: asked.append(more) or [ROW])
    playing.args.measure = careful
    assert playing.measure(a_view()) is ROW
    (plain, rounds, took), = [more["seen"] for more in asked]
    assert plain == pytest.approx(80) and rounds == [[ROUNDS]] and asked[0]["repeats"] == turns
    assert took[0][0] == pytest.approx([.02, .01, .012, .008])


def test_what_the_demo_shows_while_it_runs(playing, monkeypatch):
    """Where there is a terminal: both panels, as they grow. They go away again."""
    monkeypatch.setattr(demo, "FRAME", -1.0)
    console = Console(file=StringIO(), width=80, height=30, force_terminal=True, legacy_windows=False)
    playing.show(console)
    shown = console.file.getvalue()
    assert 0 < shown.index("waiting") < shown.rindex("2.50 tokens per target call")


@pytest.mark.parametrize("width, height, lines", [(120, 20, 16), (80, 20, 6), (80, 8, 3)])
def test_what_the_demo_shows_while_it_runs_fits_the_window(playing, monkeypatch, width, height, lines):
    """Two panels of 6 lines one above the other, each with two of frame."""
    heard = set()
    monkeypatch.setattr(demo, "FRAME", -1.0)
    monkeypatch.setattr(View, "panels", lambda view, console, most: heard.add(most) or "")
    playing.show(Console(file=StringIO(), width=width, height=height, force_terminal=True, legacy_windows=False))
    assert heard == {lines}


# A conversation

def test_what_an_answer_took(clock, monkeypatch, capsys):
    """10 tokens in 4 calls. After the first round, which read the question, 7 tokens in 1.75 s; after the first plain
    step, 5 with a median of .4 s: 4 tokens a second where plain decoding writes 2.5. Its steps take .2 to 2 s. Of the
    answer's three runs of 8 tokens none has stood in it before, or two if it is told so.
    """
    made = chat.Chat.__new__(chat.Chat)
    made.args, made.console, made.sampling, made.most, made.turn = SimpleNamespace(
        rule="token"), Console(file=StringIO()), {}, 10, 0
    made.seed = 5
    made.told, made.messages, made.template = "", [], lambda messages: "told"
    made.tokenizer = SimpleNamespace(decode=letters, ends={0}, encode_special=lambda text: [1, 2, 3])
    made.talk = SimpleNamespace(ids=[], context=200, left=31, go_back=lambda tokens: None,
                                reply=lambda *_, **__: clock.during(ROUNDS, [9, .5, 1, .25]),
                                plain_steps=lambda steps, **_: clock.during(range(steps), [7, .2, 1, .4, 2, .3]))
    made.ask("why?")
    err = capsys.readouterr().err
    assert words(err) == ("cut at 10 tokens; 2.50 tokens per target call, 4.0 tokens/s; plain decoding writes 2.5 "
                          "here: 1.60 times as fast (0.80 to 8.00 by its single steps) 31 of 200 tokens are left in "
                          "this conversation; /new begins anew")
    monkeypatch.setattr(quantities, "repeated", lambda tokens: 2 / 3)
    made.talk.left, made.most = 40, 11                                                  # a fifth, and not cut
    made.ask("why?")
    err = capsys.readouterr().err
    assert words(err).endswith("by its single steps); the answer repeats itself: 67% of its runs of 8 tokens stood in "
                               "it before")
    assert err.startswith("2.50 tokens per target call") and "are left" not in err and made.turn == 2
    made.talk.ids = []
    made.most = 198
    made.ask("why?")
    assert "an answer may take 198 tokens, and of 200 197 are left after" in words(capsys.readouterr().err)


# Why

PARTS = Parts(tokens=2.5, most=4, steps=2.7, c=.1, v=1.21, overhead=.2, nodes=3.7, gamma=3, v_of={3: 1.21})


def test_the_table_of_why(capsys):
    """A round takes .27 + 1.21 + .2 = 1.68 target steps. For 1, .82 more may be taken; for 2, .43 fewer."""
    why.show({"alpha_by_position": [.61, .52, .43], "speedup": 1.374, "busy": True, "accepted_lengths": [5, 1, 4]},
             PARTS)
    out = capsys.readouterr().out
    lines = [words(line) for line in out.splitlines()]
    for line in ("here for 1 for 2",
                 "acceptance length 2.50 ≥ 1.68 ≥ 3.36 tokens per target call, of 4 if all were accepted",
                 "draft tokens accepted in a round: 0: 50% 1: 10% 2: 40%",
                 "alpha 0.69 ≥ 0.44 ≥ 0.90 by position: 0.61 0.52 0.43",
                 "c 0.10 ≤ 0.40 — a draft step / a target step",
                 "v(3.7) 1.21 ≤ 2.03 — a target call on 3.7 tokens / on one",
                 "overhead 0.20 ≤ 1.02 — beyond its calls, in target steps"):
        assert line in lines, (line, lines)
    assert "speed-up: 1.49 by these parts, 1.37 measured, where reading the prompt counts" in words(out)
    assert "This machine is busy" in out
    assert "if all were, the speed-up would be 2.38 instead of 1.49" in why.advice(PARTS)
    why.show({"alpha_by_position": [.61], "speedup": 1, "busy": False, "accepted_lengths": [1]}, replace(PARTS, c=.4))
    out = words(capsys.readouterr().out)
    assert "alpha 0.69 ≥ 0.72 — by position" in out                 # if all were accepted: 4 / (3 * .4 + 1.21 + .2)
