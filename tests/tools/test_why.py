"""`nanospec why`: what a round is made of, and what it advises."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import contents

from nanospec.cli import __main__ as commands
from nanospec.cli import demo, why
from nanospec.cli.quantities import CallCosts
from nanospec.cli.why import Parts
from nanospec.files.model_file import save_model
from nanospec.files.tokenizer import Tokenizer
from nanospec.proof.tables import small_gpt
from nanospec.theory import expected_tokens, speedup
from tests.conftest import priced
from tests.invented import ROUNDS

ROW = {"acceptance_length": 2.5, "steps": 2.0, "c": .25, "v": 1.5, "overhead": 1.25, "drafted": 11, "rounds": 4,
       "gamma": 3, "accepted_lengths": [1, 0, 2, 1]}


def test_the_parts_of_a_row_of_the_bench():
    """Its calls take 2 * .25 + 1.5 = 2 plain steps, a round 1.25 times as long; drafts of 3, 3, 4 and 3 nodes."""
    parts = why.parts_of(ROW, ROUNDS, {3: 1.5, 4: 1.7})
    assert parts == Parts(2.5, 3.25, 2.0, .25, 1.5, .5, 3.75, 3, {3: 1.5, 4: 1.7}, 4) and parts.gain == 1


def test_without_a_draft_model_there_is_no_chain_and_no_alpha():
    """What it brings is counted; with no draft steps, c is nothing that could be changed."""
    parts = why.parts_of(ROW | {"steps": 0.0, "c": 0.0}, ROUNDS, {})
    assert parts.gamma == 0 and parts.of_gammas() == {} and parts.overhead == pytest.approx(.375)
    assert {name for name, limit in parts.needed(1e-9).items() if limit is not None} == {"tokens", "v", "overhead"}
    assert "alpha" not in parts.needed(1)


def test_of_a_tree_the_longest_path_could_be_accepted():
    """3 nodes of 4; and node 0, which is not drafted, of a round without a draft."""
    rounds = [replace(ROUNDS[2], parents=parents) for parents in ([-1, 0, 0, 2], [-1])]
    assert why.parts_of(ROW, rounds[:1], {}).most == 3 and why.parts_of(ROW, rounds, {}).most == 2


GOOD = Parts(tokens=expected_tokens(.7, 4), most=5, steps=4, c=.05, v=1.1, overhead=.05, nodes=5, gamma=4,
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
    loses = bool(parts.gamma) and max(parts.of_gammas().values()) < 1
    assert said.count(". ") == loses and ("plain decoding (no drafts) is best" in said) == loses
    gain = float(said.split("would be ")[1].split()[0])
    best = parts.ideal() | {"gamma": max(parts.of_gammas().values(), default=0)}
    assert gain == pytest.approx(best[first], abs=.005)


def test_what_is_better_than_its_best_already_would_not_gain_by_getting_there():
    """A call on five tokens that is quicker than one on a token, and a round that is quicker than its calls."""
    ideal = replace(GOOD, v=.9, overhead=-.1).ideal()
    assert ideal["v"] == ideal["overhead"] == replace(GOOD, v=.9, overhead=-.1).gain < ideal["tokens"]


def test_of_drafts_that_are_never_accepted_plain_decoding_is_best_and_the_draft_model_comes_first():
    """A shorter draft loses less, .47 instead of .25; of a length that gains nothing it is no advice. Nothing of
    60 drafts is too few to tell: with 2.6 deviations a share up to .1013 could be, and of 62 up to .0983.
    """
    useless = replace(GOOD, tokens=1.0, c=.63, v=1.3, overhead=.18, v_of={1: 1.32, 4: 1.3}, rounds=62)
    assert why.advice(useless) == (
        "As it is, plain decoding (no drafts) is best: no draft length tried gains. Hardly any draft token is accepted "
        "(alpha is 0.00): look at the draft model first, for another tokenizer or template, no training, or wrong "
        "weights (lesson: Good where it matters).")
    for slow in replace(useless, tokens=expected_tokens(.45, 4)), replace(useless, rounds=60):
        assert why.advice(slow).startswith("As it is, plain decoding (no drafts) is best: no draft length tried gains. "
                                           "Too few draft tokens are accepted: alpha is")
    nearly = replace(useless, tokens=expected_tokens(.45, 4), c=.2, overhead=0.0, v_of={1: 1.32, 4: 1.3})
    assert .95 < max(nearly.of_gammas().values()) < 1 and why.advice(nearly).startswith("As it is, plain decoding")
    cheap = why.advice(replace(useless, tokens=expected_tokens(.09, 4), c=.01, overhead=0.0, v_of={1: 1.02, 4: 1.3}))
    assert cheap.startswith("Your drafts are too long: with gamma 1, the speed-up would be 1.06 instead of 0.82")


@pytest.mark.parametrize("measured, said", [(.33, True), (.13, True), (.23, False), (.13, None)])
def test_parts_that_do_not_make_up_what_was_measured_are_said_to_be_unsure(measured, said, capsys):
    """.18 by the parts: 1.83 times less, 1.38 times more, 1.28 times less. None: plain decoding differed, too."""
    parts = replace(GOOD, tokens=1.8, c=1.1, v=2.2, overhead=3.4)
    assert parts.gain == pytest.approx(.18)
    why.show({"alpha_by_position": [.4], "speedup": measured, "busy": said is None, "accepted_lengths": [5, 1]}, parts)
    out = " ".join(capsys.readouterr().out.split())
    words = "These differ more than 1.3 times: this machine was busy, or the text is too short"
    assert (words in out) == bool(said) and ("This machine is busy" in out) == (said is None)


def test_its_lessons_are_there():
    assert {*why.LESSONS.values()} <= {title for _, title, _ in contents()}


@pytest.fixture
def weights(tmp_path, untuned, monkeypatch):
    """A pair of small models that write bytes, for few and short texts."""
    monkeypatch.setattr(why, "TEXTS", 2)
    monkeypatch.setattr(why, "NEW", 12)
    monkeypatch.setattr(why, "TRIED", 3)
    tokenizer = Tokenizer({bytes([b]): b for b in range(256)})
    tokenizer.save(tmp_path / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=64), tmp_path / name, tokenizer)
    return str(tmp_path)


@pytest.mark.parametrize("options", [["--gamma", "2"], ["--drafter", "lookup", "--temperature", "0"],
                                     ["--drafter", "confidence", "--rule", "block"]], ids=" ".join)
def test_the_command(weights, capsys, monkeypatch, options):
    monkeypatch.setattr("nanospec.cli.bench.measure.step_seconds", priced)      # a draft step takes its own time
    argv = ["why", "--weights", weights, "--prompt", "abcabcab", "--device", "cpu", "--threads", "1", *options]
    assert commands.main(argv) == 0
    out, err = capsys.readouterr()
    assert "tokens per target call" in out and "overhead" in out and "for 2" in out and "(lesson:" in out
    assert ("\nalpha" in out) == ("--gamma" in options) and ("\nc " in out) == ("lookup" not in options)
    assert "by these parts" in out and "measured" in out and "measuring" in err and "Traceback" not in err
    assert f"temperature 0, 2 texts of {12 if '--gamma' in options else 20} tokens, three times" in err
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("options, words", [
    (["--gamma", "0"], "--gamma"),
    (["--prompt", "abc", "--gamma", "999"], "a draft of up to 999 tokens exceeds the context of 64"),
    (["--drafter", "tree", "--gamma", "3"], "takes --shape, not --gamma"),
    (["--prompt", "ab" * 40], "context"), (["--draft-model", "mlp"], "mlp"), (["--weights", "nowhere"], "--weights")])
def test_what_cannot_be_measured_is_refused_in_a_line(weights, capsys, options, words):
    assert why.main(["--weights", weights, "--device", "cpu", *options]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1


def test_compiled(weights, capsys, stand_in):
    assert why.main(["--weights", weights, "--prompt", "abcabcab", "--device", "cpu", "--threads", "1", "--gamma", "2",
                     "--compile"]) == 0
    assert "by these parts" in capsys.readouterr().out


ASKED = {"--prompt": "abc", "--draft-model": "mlp", "--drafter": "chain", "--gamma": 2, "--temperature": 1.75,
         "--max-new-tokens": 29, "--threads": 3, "--compile": True, "--measure": True, "--rule": "block", "--top-k": 3,
         "--top-p": 0.9, "--min-p": 0.1, "--seed": 11, "--device": "cpu:0", "--dtype": "float64"}


@pytest.mark.parametrize("of, makes, files", [
    (why, "Prepared", []), (demo, "Demo", ["save", "json", "html", "step"])], ids=["why", "demo"])
def test_all_that_is_asked_for_reaches_what_is_prepared(of, makes, files, weights, monkeypatch):
    """What becomes of it there is seen through the demo."""
    prepared = []
    monkeypatch.setattr(of, makes, lambda args, *_: prepared.append(vars(args)) or 1 / 0)
    argv = [word for option, value in ASKED.items() for word in ([option] if value is True else [option, str(value)])]
    with pytest.raises(ZeroDivisionError):
        of.main(["--weights", weights, *argv])
    found, = prepared
    assert not any(found.pop(name) for name in files)
    assert found.pop("weights").path == Path(weights) and found.pop("shape") is None
    assert {name: str(value) for name, value in found.items()} == {
        option[2:].replace("-", "_"): str(value) for option, value in ASKED.items()}


def test_what_was_prepared_is_what_is_measured(weights, monkeypatch):
    asked = []

    def measured(target, draft_model, prompts, methods, **request):
        asked.append((methods[0].name, prompts, request))
        raise KeyboardInterrupt

    monkeypatch.setattr(why, "measure", measured)
    given = {"--temperature": "1.75", "--top-k": "3", "--top-p": "0.9", "--min-p": "0.1", "--seed": "11",
             "--max-new-tokens": "29", "--gamma": "2", "--rule": "block"}
    argv = [word for option in given.items() for word in option]
    assert why.main(["--weights", weights, "--prompt", "abc", "--device", "cpu", "--threads", "1", *argv]) == 130
    (name, prompts, request), = asked
    assert "2" in name and "block" in name and len(set(map(tuple, prompts))) == 1 and len(prompts) == 2
    assert {key: request[key] for key in ("temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens")} == {
        "temperature": 1.75, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": 11, "max_new_tokens": 29}


def test_the_first_run_which_is_slower_is_not_measured(monkeypatch):
    asked = []
    method = SimpleNamespace(name="m", drafter="lookup", run=lambda *its, **more: asked.append((*its, more)) or [])
    made = SimpleNamespace(setups=[(None, None, "c")], method=lambda *_: method, ids=[7], how="here",
                           request={"temperature": .5, "max_new_tokens": 3, "stop": [1]})
    monkeypatch.setattr(why, "measure", lambda *_, **__: asked.append("measured") or [(ROW, ROUNDS)])
    assert why.run(made)[0] == ROW
    assert asked == [([7], made.request | {"stop": (), "compiler": "c"}), "measured"]


@pytest.mark.parametrize("deepest, gamma, lengths", [
    (None, 9, range(1, 10)), (3, 2, range(1, 4)), (None, 2, range(1, 9))])
def test_calls_are_timed_on_drafts_of_all_lengths_that_could_be_advised(monkeypatch, deepest, gamma, lengths):
    """Up to eight tokens, or what the draft model can draft; and its own length. After the prompt, of three tokens."""
    method = SimpleNamespace(name="m", drafter="chain", gamma=gamma, run=lambda *_, **__: [])
    made = SimpleNamespace(setups=[("t", SimpleNamespace(deepest=deepest), "c")], method=lambda *_: method, how="here",
                           ids=[7, 8, 9], request={"temperature": .5, "max_new_tokens": 3}, sampling={"top_k": 5})
    asked = []
    monkeypatch.setattr(why, "measure", lambda *_, **__: [(ROW, ROUNDS)])
    monkeypatch.setattr(why, "measure_costs", lambda *its, **more: asked.append((*its, more)) or CallCosts(
        .25, {m: 1 + m / 8 for m in its[2]}, 1.0))
    assert why.run(made)[1].v_of == {length: 1 + (length + 1) / 8 for length in lengths}
    assert asked == [("t", None, [length + 1 for length in lengths], 3, {"compiler": "c", "top_k": 5})]


def test_texts_are_measured_to_their_length_and_calls_at_their_temperature(weights, monkeypatch):
    """An end of text would cut some of them."""
    asked = []
    monkeypatch.setattr(why, "measure", lambda *_, **request: asked.append(request["stop"]) or [(ROW, [])])
    monkeypatch.setattr(why, "measure_costs", lambda *_, **more: asked.append(more) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        why.main(["--weights", weights, "--prompt", "abc", "--device", "cpu", "--threads", "1", "--gamma", "2",
                  "--temperature", "1.75", "--top-k", "3", "--top-p", "0.9", "--min-p", "0.1"])
    assert asked == [(), {"compiler": None, "temperature": 1.75, "top_k": 3, "top_p": 0.9, "min_p": 0.1}]


def test_the_shape_that_is_asked_for_is_measured(weights, tmp_path, monkeypatch):
    asked, shape = [], tmp_path / "shape.json"
    shape.write_text("[-1, 0, 0, 1]")
    monkeypatch.setattr(why, "measure", lambda target, draft_model, prompts, methods, **request: asked.append(
        methods[0].make().most) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        why.main(["--weights", weights, "--prompt", "abc", "--device", "cpu", "--threads", "1", "--drafter", "tree",
                  "--shape", str(shape)])
    assert asked == [3]


def test_a_few_rounds_are_measured(monkeypatch):
    """Of 31 tokens each, if all is accepted: more than 12 tokens; of others 64."""
    asked = []
    monkeypatch.setattr(why, "Prepared", lambda *its: asked.append(its[1:]))
    monkeypatch.setattr(why, "run", lambda _: ())
    monkeypatch.setattr(why, "show", lambda: None)
    assert why.main(["--gamma", "30"]) == why.main([]) == 0 and asked == [(124, 4), (64, 4)]


def test_ctrl_c(weights, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(why, "measure", interrupted)
    assert why.main(["--weights", weights, "--prompt", "abc", "--device", "cpu"]) == 130
    assert "Traceback" not in capsys.readouterr().err
