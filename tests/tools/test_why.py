"""`nanospec why`: what a round is made of, by a clock that moves only when a model is called; and what it advises."""

from dataclasses import replace

import pytest
from kit import contents

from nanospec.cli import __main__ as commands
from nanospec.cli import why
from nanospec.cli.bench import parts as measuring
from nanospec.cli.bench.parts import Found, Parts, longest, parts_of
from nanospec.cli.quantities import spread
from nanospec.files.checkpoint import save_model
from nanospec.files.tokenizer import Tokenizer
from nanospec.methods import index
from nanospec.methods.index import method_of
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.speculate import speculate, verify
from nanospec.theory import expected_tokens, speedup

STEP, DRAFT, MORE, REST = 0.01, 0.002, 0.0005, 0.001        # seconds: of calls, of a token more, of a round's rest


class Timed(TableModel):
    """A table whose calls take time by a clock that nothing else moves."""

    def __init__(self, clock, seconds, *table):
        super().__init__(*table)
        self.clock, self.seconds = clock, seconds

    def __call__(self, tokens, *args, **kwargs):
        self.clock[0] += self.seconds + MORE * (tokens.shape[1] - 1) * (self.seconds == STEP)
        return super().__call__(tokens, *args, **kwargs)


@pytest.fixture
def pair(monkeypatch):
    """Two tables, and a rule "token" that takes time, too."""
    clock = [0.0]

    def rule(draft, p_target, dice):
        clock[0] += REST
        return verify(draft, p_target, dice)

    monkeypatch.setattr("nanospec.fast.clock.perf_counter", lambda: clock[0])
    monkeypatch.setitem(index.RULES, "token", rule)
    return Timed(clock, STEP, 5, 8), Timed(clock, DRAFT, 5, 58)


def test_by_such_a_clock_every_part_is_what_it_takes(pair):
    found = parts_of(*pair, method_of(*pair, gamma=3), [1, 2], 0, 4, max_new_tokens=24, temperature=2.0)
    parts = found.parts
    assert (parts.gamma, parts.most, parts.rows, parts.steps) == (3, 4, 4, 3)
    assert [parts.c, parts.v, parts.overhead] == pytest.approx([.2, 1.15, .1])
    assert parts.v_of == pytest.approx({gamma: 1 + .05 * gamma for gamma in range(1, 9)})
    a, b, c = found.alphas
    assert parts.tokens == pytest.approx(1 + a + a * b + a * b * c)
    assert parts.gain == pytest.approx(parts.tokens / 1.85)
    assert found.expected == pytest.approx([parts.gain] * 4) and spread(found.measured) < 1e-9 and not found.busy
    counts = []
    for seed in range(4):
        done = speculate(pair[0], method_of(*pair, gamma=3).make(), [1, 2], 24, 2.0, seed=seed)
        counts += [len(each.path) + 1 for each in list(done)[1:]]
    assert found.measured == pytest.approx([sum(counts) / len(counts) / 1.85] * 4)
    assert 0 < found.luck < .5 and found.apart < found.noise == pytest.approx(found.luck)


def test_without_a_draft_model_all_but_the_call_is_overhead(pair):
    """And it is no chain: what it brings is counted, and no alpha is asked for."""
    found = parts_of(pair[0], None, method_of(pair[0], None, "suffix", gamma=3), [1, 2] * 4, 0, 1, max_new_tokens=24)
    parts = found.parts
    assert parts.steps == parts.gamma == parts.c == found.luck == 0 and parts.of_gammas() == {}
    assert parts.overhead == pytest.approx(.1) and parts.v == pytest.approx(1 + .05 * (parts.rows - 1))
    assert {name for name, limit in parts.needed(1e-9).items() if limit is not None} == {"tokens", "v", "overhead"}
    assert "alpha" not in parts.needed(1) and parts.gain == pytest.approx(found.measured[0])


GOOD = Parts(tokens=expected_tokens(.7, 4), most=5, steps=4, c=.05, v=1.1, overhead=.05, rows=5, gamma=4,
             v_of={gamma: 1 + gamma / 40 for gamma in range(1, 9)})


@pytest.mark.parametrize("gain", [.5, 1, 1.9, 2.2])
def test_with_what_is_needed_the_speed_up_is_reached(gain):
    """Each part alone, by theory's own formula."""
    assert GOOD.gain == pytest.approx(speedup(.7, 4, .05, 1.15)) and GOOD.alpha == pytest.approx(.7)
    limits = GOOD.needed(gain)
    reached = {name: replace(GOOD, **{name: limit}).gain for name, limit in limits.items()
               if limit is not None and name != "alpha"}
    assert reached == pytest.approx(dict.fromkeys(reached, gain)) and "tokens" in reached
    assert speedup(limits["alpha"], 4, .05, 1.15) == pytest.approx(gain) or gain == .5
    assert all((limit is None) == (GOOD.ideal()[name] < gain) for name, limit in limits.items() if name != "alpha")


@pytest.mark.parametrize("change, first, words", [
    ({}, "tokens", "Too few draft tokens are accepted: alpha is 0.70"),
    ({"c": 3.0, "v_of": {4: 1.1}}, "c", "Your draft model is too slow: c is 3.00"),
    ({"v": 6.0, "v_of": {4: 6.0}}, "v", "one on 5 tokens takes 6.00 times as long"),
    ({"overhead": 4.0, "v_of": {4: 1.1}}, "overhead", "A round takes 4.00 target steps besides"),
    ({"c": .4}, "gamma", "Your drafts are too long: with gamma 2,"),
    ({"tokens": expected_tokens(.95, 4), "c": .01}, "gamma", "Your drafts are too short: with gamma 8,"),
    ({"gamma": 0, "v_of": {}, "tokens": 1.5}, "tokens", "a round brings 1.50 tokens"),
], ids=lambda value: value if isinstance(value, str) and " " not in value else "")
def test_it_names_what_would_gain_most(change, first, words):
    parts = replace(GOOD, **change)
    said = why.advice(parts)
    assert words in said and said.endswith(f"instead of {parts.gain:.2f} (lesson: {why.LESSONS[first]}).")
    assert said.count(". ") == 0, "one sentence"
    gain = float(said.split("would be ")[1].split()[0])
    best = parts.ideal() | {"gamma": max(parts.of_gammas().values(), default=0)}
    assert gain == pytest.approx(best[first], abs=.005)


def test_its_lessons_are_there():
    assert {*why.LESSONS.values()} <= {title for _, title, _ in contents()}


def test_whether_both_speed_ups_agree():
    near, far = ([GOOD.gain * times] * 8 for times in (1.02, 1.5))
    assert "they agree within" in why.verdict(Found(GOOD, [.7], near, near, .05))
    assert "33% apart, they differ by more than the noise" in why.verdict(Found(GOOD, [.7], far, far, .05))
    assert "busy" in why.verdict(Found(GOOD, [.7], near, near, .05, busy=True))
    assert spread([1, 2, 3, 4, 5]) == 1 and spread([2]) == 0
    assert longest([-1, 0, 0, 2]) == 3 and longest([-1]) == 1


@pytest.fixture
def weights(tmp_path, untuned, monkeypatch):
    """A pair of small models that write bytes, for few and short texts."""
    monkeypatch.setattr(why, "TURNS", 2)
    monkeypatch.setattr(why, "NEW", 12)
    tokenizer = Tokenizer({bytes([b]): b for b in range(256)})
    tokenizer.save(tmp_path / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=64), tmp_path / name, tokenizer)
    return str(tmp_path)


@pytest.mark.parametrize("options", [["--gamma", "2"], ["--drafter", "lookup", "--temperature", "0"],
                                     ["--drafter", "confidence", "--rule", "block"]], ids=" ".join)
def test_the_command(weights, capsys, options):
    argv = ["why", "--weights", weights, "--prompt", "abcabcab", "--device", "cpu", "--threads", "1", *options]
    assert commands.main(argv) == 0
    out, err = capsys.readouterr()
    assert "tokens per target call" in out and "overhead" in out and "for 2" in out and "(lesson:" in out
    assert ("\nalpha" in out) == ("--gamma" in options) and ("\nc " in out) == ("lookup" not in options)
    assert "expected" in out and "measured" in out and "measuring" in err and "Traceback" not in err
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("options, words", [
    (["--gamma", "0"], "--gamma"), (["--gamma", "999"], "--gamma 999 is too many here"),
    (["--drafter", "tree", "--gamma", "3"], "takes no --gamma"),
    (["--prompt", "ab" * 40], "context"), (["--draft", "mlp"], "mlp"), (["--weights", "nowhere"], "--weights")])
def test_what_cannot_be_measured_is_refused_in_a_line(weights, capsys, options, words):
    assert why.main(["--weights", weights, "--device", "cpu", *options]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1


def test_ctrl_c(weights, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "generate", interrupted)
    assert why.main(["--weights", weights, "--prompt", "abc", "--device", "cpu"]) == 130
    assert "Traceback" not in capsys.readouterr().err
