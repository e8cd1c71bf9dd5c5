"""Every number that demo, chat, why and a training show, asserted by hand: rounds that nobody played, whose numbers all
differ, and a clock that moves only when a test winds it.
"""

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from nanospec.cli import chat, chosen, demo, why
from nanospec.cli.bench.measure import CallCosts
from nanospec.cli.show.steps import step_text
from nanospec.cli.show.terminal import Played, View
from nanospec.cli.why import Parts
from nanospec.fast.autotune import Tuning
from nanospec.theory import speedup
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
        view.rounds.append(Played(done, (), drafting, seconds - drafting))
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
       "alpha": .5124, "c": .1553, "v": 1.317, "tokens_per_target_call": 2.64, "baseline_tokens_per_s": 1234.4,
       "tokens_per_s": 987.6, "speedup": .7, "predicted_speedup": .936, "temperature": .8, "busy": False}


def described(**more) -> dict[str, str]:
    """The table's first column -> the rest of its line; and all lines after it as "said"."""
    lines = printed(demo.describe(ROW | more, "chain 3", "cpu")).splitlines()
    names = ("alpha", "c", "v", "tokens per target call", "tokens/s, target alone", "tokens/s, speculative", "speed-up")
    found = {name: words(next(line for line in lines if line.startswith(name + " "))[len(name):]) for name in names}
    return found | {"said": words(" ".join(lines[len(names):]))}


def test_the_table_of_the_demo():
    assert described() == {
        "alpha": "0.512 mean of sum min(p_target, q_draft) where the draft was judged",
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
    """A demo whose plain decoding takes PLAIN, and whose rounds take SPENT; and the seed and the device of its dice."""
    def rounds(target, drafter, ids, **request):
        for done, (seconds, drafter.seconds) in zip(ROUNDS, SPENT):
            clock.wind(seconds)
            yield done

    given = []
    monkeypatch.setattr(demo, "speculate", rounds)
    monkeypatch.setattr(demo, "generate", lambda *_, **__: clock.during([LAST] * 5, PLAIN))
    monkeypatch.setattr(demo, "measure_setups", lambda *_, **__: [ROW])
    monkeypatch.setattr(demo, "target_for", lambda target, drafter: target)
    monkeypatch.setattr(demo, "WatchedDice", lambda seeds, device: given.extend([*seeds, device]) or SimpleNamespace(
        coins=[.5]))
    made = demo.Demo.__new__(demo.Demo)
    made.asked = SimpleNamespace(prompt="prompt", rule="token", seed=3, device="cpu", html=None)
    made.target, made.ids, made.request = None, [1], {}
    made.tokenizer = SimpleNamespace(decode=letters)
    made.setups, made.method = [(None, None, None)], lambda *_: SimpleNamespace(make=lambda: SimpleNamespace())
    return made, given


@pytest.mark.parametrize("html", [None, Path("page.html")])
def test_the_demo_tells_drafting_from_the_rest(playing, html):
    """And has every round's coins where there will be a page."""
    made, given = playing
    made.asked.html = html
    view = made.show(Console(file=StringIO()))
    assert view.plain_seconds == pytest.approx(PLAIN) and [it.done for it in view.rounds] == ROUNDS
    assert [it.drafting for it in view.rounds] == pytest.approx([drafting for _, drafting in SPENT])
    assert [it.rest for it in view.rounds] == pytest.approx([seconds - drafting for seconds, drafting in SPENT])
    assert [it.coins for it in view.rounds] == ([[.5]] * 4 if html else [()] * 4)
    assert given == ([3, "cpu"] if html else [])


def test_what_the_demo_measures(playing):
    made, _ = playing
    done = []
    made.method = lambda *pair: SimpleNamespace(run=lambda ids, **_: done.append(ids) or [])
    assert made.measure() is ROW and done == [made.ids]


def test_what_the_demo_shows_while_it_runs(playing, monkeypatch):
    """Where there is a terminal: both panels, as they grow. They go away again."""
    made, _ = playing
    monkeypatch.setattr(demo, "FRAME", -1.0)
    console = Console(file=StringIO(), width=80, height=30, force_terminal=True, legacy_windows=False)
    made.show(console)
    shown = console.file.getvalue()
    assert 0 < shown.index("waiting") < shown.rindex("2.50 tokens per target call")


def test_the_demo_chooses_gamma_by_what_was_measured(playing, monkeypatch):
    """At this alpha, with these costs, of 1, 2 and 3 tokens: v is that of a call on one token more."""
    made, _ = playing
    asked = []
    made.method = lambda *, gamma: SimpleNamespace(run=lambda ids, **_: ROUNDS[:gamma])
    made.draft, made.sampling, made.ids = None, {}, [1] * 17

    def costs(target, draft, sizes, context, **_):
        asked.append((list(sizes), context))
        return CallCosts(.01, {2: 1.2, 3: 1.21, 4: 2.9}, 1.0)

    monkeypatch.setattr(demo, "measure_costs", costs)
    alpha = (.5 + .25 + .125 + .75 + .875 + .625) / 6
    gains = {gamma: speedup(alpha, gamma, .01, v) for gamma, v in ((1, 1.2), (2, 1.21), (3, 2.9))}
    assert made.best(3) == max(gains, key=gains.__getitem__) == 2 and asked == [([2, 3, 4], 17)]


# A conversation

def test_what_an_answer_took(clock, monkeypatch, capsys):
    """10 tokens in 4 calls. After the first round, which read the question, 7 tokens in 1.75 s; after the first plain
    step, 5 with a median of .4 s: 4 tokens a second where plain decoding writes 2.5.
    """
    made = chat.Chat.__new__(chat.Chat)
    made.asked, made.console, made.sampling, made.most, made.turn = SimpleNamespace(
        seed=5, rule="token"), Console(file=StringIO()), {}, 10, 0
    made.told, made.messages, made.template = "", [], lambda messages: "told"
    made.tokenizer = SimpleNamespace(decode=letters, ends={0}, encode_special=lambda text: [1, 2, 3])
    made.talk = SimpleNamespace(ids=[], context=200, left=31, go_back=lambda tokens: None,
                                reply=lambda *_, **__: clock.during(ROUNDS, [9, .5, 1, .25]),
                                plain_steps=lambda steps, **_: clock.during(range(steps), [7, .2, 1, .4, 2, .3]))
    made.ask("why?")
    err = capsys.readouterr().err
    assert words(err) == ("cut at 10 tokens; 2.50 tokens per target call, 4.0 tokens/s; plain decoding writes 2.5 "
                          "here: 1.60 times as fast 31 of 200 tokens are left in this conversation; /new begins anew")
    made.talk.left, made.most = 40, 11                                                  # a fifth, and not cut
    made.ask("why?")
    err = capsys.readouterr().err
    assert err.startswith("2.50 tokens per target call") and "are left" not in err and made.turn == 2
    made.talk.ids = []
    made.most = 198
    made.ask("why?")
    assert "an answer may take 198 tokens, and of 200 197 are left after" in words(capsys.readouterr().err)


def test_the_greeting(capsys):
    made = chat.Chat.__new__(chat.Chat)
    made.asked, made.name, made.how, made.method = SimpleNamespace(temperature=.7), "it", "cpu, int8", "hybrid 16"
    for terminal, legend in (True, "accepted replacement bonus written without a draft"), (False, ""):
        made.console = Console(file=StringIO(), width=80, force_terminal=terminal, no_color=False, color_system=None)
        made.greet()
        assert words(made.console.file.getvalue()) == legend
        assert capsys.readouterr().err.splitlines() == [
            "it: cpu, int8; hybrid 16, temperature 0.7",
            "Ctrl-C ends an answer, /new begins anew, Ctrl-D or /quit ends the conversation"]


def test_what_a_conversation_runs_in(monkeypatch):
    """Data types are compared by a step on one token and one on five, each timed twice after a warm-up."""
    asked, tuned = [], []
    monkeypatch.setattr(chat, "step_seconds", lambda *its, **more: asked.append((*its, more)) or its[1])
    monkeypatch.setattr(chat, "fastest", lambda model, dtypes, threads, seconds, turns: (
        turns == 1 and threads == () and seconds(model) == 6 and Tuning(torch.bfloat16, 3, 1)))
    monkeypatch.setattr(chat, "set_up", lambda model, tuning: tuned.append((model, tuning)))
    monkeypatch.setattr(chat, "described", lambda model: "bfloat16")
    monkeypatch.setattr(chat.torch, "get_num_threads", lambda: 3)
    target = SimpleNamespace(device=torch.device("cpu"))
    assert chat.tuned(SimpleNamespace(target=target, draft="draft"), "auto",
                      lambda what, find: what == "tuning" and find()) == "cpu, bfloat16, 3 threads"
    assert asked == [(target, tokens, {"repeats": 2, "warm_up": 1}) for tokens in (1, 5)]
    assert tuned == [(target, Tuning(torch.bfloat16, 3, 1)), ("draft", Tuning(torch.bfloat16, 3, 1))]
    monkeypatch.setattr(chat.torch, "get_num_threads", lambda: 1)
    assert chat.tuned(SimpleNamespace(target=target, draft=None), "auto",
                      lambda what, find: ("bfloat16", 1, 0)) == "cpu, bfloat16, 1 thread"
    assert tuned[2:] == [(target, Tuning(torch.bfloat16, 1, 0))]


# Why

PARTS = Parts(tokens=2.5, most=4, steps=2.7, c=.1, v=1.21, overhead=.2, rows=3.7, gamma=3, v_of={3: 1.21})


def test_the_table_of_why(capsys):
    """A round takes .27 + 1.21 + .2 = 1.68 target steps. For 1, .82 more may be taken; for 2, .43 fewer."""
    why.show({"alpha_by_position": [.61, .52, .43], "speedup": 1.374, "busy": True}, PARTS)
    out = capsys.readouterr().out
    lines = [words(line) for line in out.splitlines()]
    for line in ("here for 1 for 2", "tokens per target call 2.50 ≥ 1.68 ≥ 3.36 of 4 if all were accepted",
                 "alpha 0.69 ≥ 0.44 ≥ 0.90 by position: 0.61 0.52 0.43",
                 "c 0.10 ≤ 0.40 — a draft step / a target step",
                 "v(3.7) 1.21 ≤ 2.03 — a target call on 3.7 tokens / on one",
                 "overhead 0.20 ≤ 1.02 — beyond its calls, in target steps"):
        assert line in lines, (line, lines)
    assert "speed-up: 1.49 by these parts, 1.37 measured, where reading the prompt counts" in words(out)
    assert "This machine is busy" in out
    assert "if all were, the speed-up would be 2.38 instead of 1.49" in why.advice(PARTS)


@pytest.mark.parametrize("drafter", ["chain", "suffix"])
def test_what_why_measures(monkeypatch, capsys, drafter):
    """Four texts with seeds of their own, by the bench's measure; of a chain also other lengths, up to 8, and its own.
    The first text is a warm-up. Of 124 tokens that are wanted after a prompt of 17 the context leaves 100.
    """
    row = {"tokens_per_target_call": 2.5, "steps": 2.0, "c": .25, "v": 1.5, "overhead": 1.25, "drafted": 11,
           "rounds": 4, "gamma": 30}
    done, target = [], SimpleNamespace(config=SimpleNamespace(context=17 + 100))
    tokenizer = SimpleNamespace(begin=[0], encode=lambda text: [1] * 16, ends={9})

    def method_of(*its, gamma, **more):
        return SimpleNamespace(name=f"{drafter} {gamma}", drafter=drafter, gamma=gamma, its=(*its, more),
                               run=lambda ids, **request: done.append(((*its, more), ids, request)) or [])

    def measure(target, draft, prompts, methods, **request):
        done.append((target, draft, prompts, [method.its for method in methods], request))
        return [(row, ROUNDS)]

    monkeypatch.setattr(chosen, "read_pair", lambda *its: done.append(its) or (target, "draft", tokenizer))
    monkeypatch.setattr(chosen, "method_of", method_of)
    monkeypatch.setattr(chosen, "check_request", lambda *its, **more: done.append((its, more)))
    monkeypatch.setattr(chosen, "setups_of", lambda *its: done.append(its) or (
        [("eager", "its draft", None), ("compiled", "its copy", "compiler")], "this; compiled: that"))
    monkeypatch.setattr(chosen, "options_of", lambda *its, **more: done.append((its, more)) or {"costs": 0})
    monkeypatch.setattr(why, "longest_chain", lambda draft, most: draft == "its copy" and most)
    monkeypatch.setattr(why, "measure", measure)
    monkeypatch.setattr(why, "measure_costs", lambda *its, **more: done.append((its, more)) or CallCosts(
        0, {size: 1 + size / 8 for size in its[2]}, 1.0))
    asked = SimpleNamespace(weights="it", device="cpu", draft="gpt", prompt="prompt", temperature=.7, top_k=5, top_p=.9,
                            gamma=30, shape=None, max_new_tokens=None, drafter=drafter, rule="block", seed=8,
                            dtype="auto", threads=3, compile=True)
    found, parts = why.run(chosen.Chosen(asked, 124, 4))
    sampling, ids = {"temperature": .7, "top_k": 5, "top_p": .9}, [0] + [1] * 16
    request = {"max_new_tokens": 100, "seed": 8, **sampling}
    measured = request | {"stop": (), "compiler": "compiler"}
    method = ("compiled", "its copy", drafter, "block", {"costs": 0})
    assert done[:6] == [
        ("it", "cpu", "gpt"), ((target, ids), {"rows": 31, "stop": {9}, **request}),
        (target, "draft", "auto", 3, True), ((target, "draft", [ids], [drafter], {}, 30), sampling),
        (method, ids, measured), ("compiled", "its copy", [ids] * 4, [method], measured)]
    assert found is row and f"that; {drafter} 30, temperature 0.7, 4 texts of 100 tokens" in capsys.readouterr().err
    if drafter == "chain":
        sizes = [2, 3, 4, 5, 6, 7, 8, 9, 31]
        assert done[6:] == [(("compiled", None, sizes, 17), {"compiler": "compiler", **sampling})]
        assert parts.gamma == 30 and parts.v_of == {gamma: 1 + (gamma + 1) / 8 for gamma in (*range(1, 9), 30)}
    else:
        assert done[6:] == [] and parts.gamma == 0
    asked.max_new_tokens = 70
    assert chosen.Chosen(asked, 124, 4).request["max_new_tokens"] == 70
