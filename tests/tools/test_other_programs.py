"""The judge abroad: transformers' own speculation as it is, and with bugs planted in it; functions by their names."""

import re
import sys
from contextlib import nullcontext
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import PairError, RequestError
from nanospec.probs import residual
from nanospec.judge.sampler import walked
from nanospec.judge import verdict as judge_file
from nanospec.cli.judge import main, parser, report
from nanospec.judge.other_programs import (SECONDS, SINGLE, error_in_a_line, load_with_transformers, model_of,
                                          of_transformers, recomputed)
from nanospec.judge.verdict import Verdict, judge
from nanospec.proof.stats import Off
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution
from nanospec.judge import known_bugs as samplers
from nanospec.judge.known_bugs import OF_A_CHAIN

COOL = {"temperature": 0.7, "top_k": 2}
FEW = ("accept-everything", "residual-is-target", "ratio-flipped", "bonus-unwarped")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No walk is given up because the machine is busy; one is walked a second time, and no more. None is too long, and
    one run says so as well as many.
    """
    monkeypatch.setattr("nanospec.judge.sampler.DESCENTS", 1)
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: walked(sampler, 1e9, again=1))


@pytest.fixture(scope="module")
def hf(transformers):
    """A target and a draft model of 8 tokens, another pair of 32: random Llamas in float64, the second a noisy copy."""
    pairs = []
    with torch.random.fork_rng(devices=[]):
        for vocab_size in 8, 32:
            torch.manual_seed(2)
            target = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                vocab_size=vocab_size, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, bos_token_id=None,
                eos_token_id=2))
            for weight in target.parameters():
                weight.data *= 20.0 if weight.dim() == 2 else 1.0
            draft_model = deepcopy(target)
            torch.manual_seed(9)
            for weight in draft_model.parameters():
                weight.data += 0.12 * torch.randn_like(weight) if weight.dim() == 2 else 0.0
            pairs += [target.double().eval(), draft_model.double().eval()]
    return pairs


def verdict_on(target, draft_model=None, ids=(1, 4), new=3, gamma=2, samples=40, lookup=None, **settings):
    sampler = of_transformers(target, ids, new, draft_model, gamma, lookup, **settings)
    return judge(sampler, recomputed(target), draft_model and recomputed(draft_model), ids, new, gamma, samples,
                 tolerance=SINGLE, **settings)


def test_what_it_is_compared_with_is_the_models_own(hf):
    """By hand: softmax of the two greatest logits over 0.7, a plain call for every text, multiplied."""
    target = hf[0]
    truth = target_distribution(recomputed(target), [1, 4], 2, **COOL)
    by_hand = {}
    with torch.inference_mode():
        for a in range(8):
            first = target(torch.tensor([[1, 4]])).logits[0, -1]
            second = target(torch.tensor([[1, 4, a]])).logits[0, -1]
            for b in range(8):
                by_hand[a, b] = 1.0
                for logits, token in (first, a), (second, b):
                    best = logits.sort(descending=True).values[:2]
                    by_hand[a, b] *= float(logits[token] >= best[1]) * float(
                        (logits[token] / 0.7).exp() / (best / 0.7).exp().sum())
    assert distance(truth, by_hand)[1] < 1e-12 and len(truth) == 4


@pytest.mark.parametrize("settings, how", [
    ({}, {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None}),
    ({"temperature": .7, "top_k": 3, "top_p": .9, "min_p": .1},
     {"temperature": .7, "top_k": 3, "top_p": .9, "min_p": .1}),
    ({"lookup": 6}, {"prompt_lookup_num_tokens": 6, "max_new_tokens": 8})])
def test_what_it_is_asked_for(hf, monkeypatch, settings, how):
    """Its own default of fifty tokens is never meant."""
    asked = []
    target = hf[0]
    monkeypatch.setattr(type(target), "generate", lambda self, prompt, generation_config, **_: asked.append(
        generation_config) or torch.zeros(1, 4))
    of_transformers(target, [1, 4], 2, **settings)(Dice([5]))
    assert {name: getattr(asked[0], name) for name in how} == how and asked[0].do_sample


def test_how_far_it_goes_and_how_it_drafts(hf, monkeypatch):
    """Two tokens after two. A round may write three more, and each one drafts so many, however unsure it is."""
    asked, (target, draft_model) = {}, hf[:2]
    monkeypatch.setattr(type(target), "generate", lambda self, prompt, **more: (
        asked.update(more) or torch.tensor([[1, 4, 5, 6, 7]])))
    assert of_transformers(target, [1, 4], 2, draft_model, gamma=3)(Dice([5])).tolist() == [5, 6]
    how = asked["assistant_model"].generation_config
    assert (how.num_assistant_tokens, how.assistant_confidence_threshold) == (3, 0.0)
    assert how.num_assistant_tokens_schedule == "constant" and asked["generation_config"].max_new_tokens == 5
    assert [bool(asked["stopping_criteria"](torch.zeros(1, length), None)) for length in (3, 4)] == [False, True]
    assert asked["attention_mask"].tolist() == [[1, 1]] and asked["generation_config"].pad_token_id == 0


def test_a_folder_is_read_in_single_precision_and_nothing_is_fetched(transformers, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    heard, model = [], SimpleNamespace(eval=lambda: "ready")
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained",
                        lambda folder, **how: heard.append((folder, how)) or model)
    assert load_with_transformers(tmp_path) == "ready"
    assert heard == [(tmp_path, {"dtype": torch.float32, "local_files_only": True})]


def test_what_transformers_cannot_read_is_a_line(transformers, tmp_path, monkeypatch):
    def fails(folder, **how):
        raise KeyError("an architecture\nof 2031")

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fails)
    with pytest.raises(PairError, match="^transformers cannot read .*: .*architecture") as said:
        load_with_transformers(tmp_path)
    assert "\n" not in str(said.value)


def test_its_assisted_generation_is_right_every_path_walked(hf):
    verdict = verdict_on(*hf[:2], new=2, **COOL)
    assert not verdict.wrong and verdict.distance < 1e-6 and verdict.p_value > 0.001


def test_it_divides_the_drafts_logits_by_the_temperature_twice(hf, monkeypatch):
    """Found in 5.23, and still there in 5.24. The text stays exact, because what is drawn from is what is reported."""
    import transformers
    from transformers.generation import utils
    if not transformers.__version__.startswith(("5.23.", "5.24.")):
        pytest.skip(f"found in transformers 5.23 and 5.24, this is {transformers.__version__}")
    reports = []
    monkeypatch.setattr(utils, "_speculative_sampling", lambda ids, q_logits, *rest, real=utils._speculative_sampling,
                        **more: reports.append(q_logits[0, 0].double()) or real(ids, q_logits, *rest, **more))
    of_transformers(hf[0], [1, 4], 2, hf[1], temperature=0.7)(Dice([0]))
    logits = recomputed(hf[1])(torch.tensor([[1, 4]]))[0, -1]
    assert torch.allclose(reports[0], logits / 0.7 / 0.7, atol=1e-4)


@pytest.mark.slow
def test_its_assisted_generation_is_right_at_temperature_1(hf):
    """One round walked; and texts of a larger vocabulary, token by token."""
    verdict = verdict_on(*hf[:2], new=1, gamma=1, samples=10)
    assert not verdict.wrong and verdict.distance < 1e-6
    verdict = verdict_on(*hf[2:], new=16, gamma=3, samples=25)
    assert not verdict.wrong and verdict.samples == 400 and verdict.visible < .3


@pytest.mark.slow
def test_its_prompt_lookup_is_right(hf, monkeypatch):
    """Walked, after a prompt in which there is something to copy: some calls read several tokens at once."""
    calls, prompt = [], (7, 3, 7, 3, 7)
    hook = hf[0].register_forward_pre_hook(lambda model, args, kwargs: calls.append(
        kwargs["input_ids"].shape[1] if kwargs.get("input_ids") is not None else 0), with_kwargs=True)
    verdict = verdict_on(hf[0], ids=prompt, lookup=2, **COOL)
    hook.remove()
    assert not verdict.wrong and verdict.distance < 1e-6
    assert calls.count(len(prompt) + 2) > 40                    # the prompt and two draft tokens, in a sampler's call


def test_plain_generate_is_right_and_temperature_0_too(hf):
    assert verdict_on(hf[0], **COOL).distance < 1e-6
    greedy = verdict_on(*hf[:2], temperature=0, samples=10)
    assert not greedy.wrong and greedy.most_off.expected == greedy.most_off.found == 1


def test_chance_is_given_back(hf):
    """The same seed, the same text; and torch's own generator is where it was."""
    sampler, before = of_transformers(hf[0], [1, 4], 8), torch.get_rng_state()
    texts = [sampler(Dice([seed])).tolist() for seed in (3, 4, 3)]
    assert texts[0] == texts[2] != texts[1] and torch.equal(torch.get_rng_state(), before)
    assert hf[0].generation_config.eos_token_id == 2            # what the model was configured with stays


def with_a_bug(replacement):
    """transformers' _speculative_sampling, short, with other odds of a replacement: (p_target, q_draft) -> (1, V)."""
    def speculative(ids, candidate_logits, length, new_logits, *more, **named):
        q_draft, p_target, drafted = candidate_logits.softmax(-1), new_logits.softmax(-1), ids[0, -length:]
        ratio = (p_target[:, :length] / q_draft)[0, torch.arange(length), drafted]
        accepted = (torch.rand_like(ratio) <= ratio).long().cumprod(-1).sum()
        left = replacement(p_target[:, accepted], q_draft[:, accepted]) if accepted < length else p_target[:, accepted]
        return torch.cat([drafted[None, :accepted], torch.multinomial(left, num_samples=1)], 1), accepted
    return speculative


def test_a_bug_planted_in_transformers_is_named(hf, monkeypatch, tmp_path, capsys):
    """By the command, on folders: the verdict, the name, and what to send. Without the bug it is right."""
    from transformers.generation import utils
    monkeypatch.setattr(samplers, "OF_A_CHAIN", [bug for bug in OF_A_CHAIN if bug.name in FEW])
    for name, model in zip(("target", "draft"), hf):
        model.save_pretrained(tmp_path / name)
    argv = ["transformers", str(tmp_path / "target"), "--assistant", str(tmp_path / "draft"), "--ids", "1", "4",
            "--new", "2", "--samples", "20", "--top-k", "2", "--gamma",
            "1"]
    monkeypatch.setattr(utils, "_speculative_sampling", with_a_bug(residual))
    assert main(argv) == 0 and "every path walked" in capsys.readouterr().out
    monkeypatch.setattr(utils, "_speculative_sampling", with_a_bug(lambda p_target, q_draft: p_target))
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert out.startswith("WRONG: its distribution, walked") and "the distribution of residual-is-target." in out
    sent = out[out.index("To send upstream"):]
    assert "transformers 5" in sent and "--gamma 1" in sent and "top_k 2" in sent and "most off     (" in sent
    assert "judge transformers " + str(tmp_path / "target") in sent


@pytest.mark.slow
def test_a_bug_that_cannot_be_walked_is_seen_by_its_samples(hf, monkeypatch):
    """A larger vocabulary, token by token; the replacement is the likeliest token."""
    from transformers.generation import utils
    monkeypatch.setattr(utils, "_speculative_sampling", with_a_bug(
        lambda p_target, q_draft: torch.nn.functional.one_hot(residual(p_target, q_draft).argmax(-1), 32).double()))
    verdict = verdict_on(*hf[2:], new=16, gamma=3, samples=15)
    assert verdict.wrong and verdict.distance is None and verdict.most_off.expected == 1 / 16


@pytest.mark.parametrize("argv, said", [
    (["FOLDER", "--samples", "0"], "samples must be"), (["FOLDER", "--samples", "x"], "invalid int"),
    (["FOLDER", "--gamma", "0"], "gamma must be at least 1"), (["FOLDER", "--gamma", "100000"], "at most 4095"),
    (["FOLDER", "--new", "0"], "new must be"), (["FOLDER", "--seed", "-99999999999999999999"], "32 bits"),
    (["FOLDER", "--temperature", "nan"], "temperature must be"), (["FOLDER", "--top-k", "0"], "top_k must be"),
    (["FOLDER", "--top-p", "2"], "top_p must"), (["FOLDER", "--min-p", "2"], "min_p must"),
    (["FOLDER", "--lookup", "0"], "--lookup must be"), (["FOLDER", "--lookup", "1"], "no config.json"),
    (["FOLDER", "--lookup", "1", "--assistant", "FOLDER"], "not allowed with"), (["FOLDER"], "no config.json"), ([],
     "required")], ids=str)
def test_what_transformers_cannot_be_asked_is_refused_in_one_line(argv, said, transformers, tmp_path, capsys):
    assert refused(["transformers", *(str(tmp_path) if part == "FOLDER" else part for part in argv)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def refused(argv) -> int:
    """The exit code."""
    try:
        return main(argv)
    except SystemExit as left:
        return left.code


def test_without_transformers_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["transformers", str(tmp_path)]) == 2
    assert "pip install -e '.[hf]'" in capsys.readouterr().err


# Functions by their names

MODULE = """
import torch

WEIGHTS = torch.tensor([[[.5, .3, .2], [.2, .2, .6], [.1, .8, .1]], [[.2, .5, .3], [.4, .4, .2], [.3, .3, .4]]])
made = torch.Generator().manual_seed(1)


def target(tokens):
    return WEIGHTS[0].log()[tokens]


def draft(tokens):
    return WEIGHTS[1].log()[tokens]


def right(dice):
    tokens = [0]
    for _ in range(2):
        if hasattr(dice, "generators"):
            dice.refill(1)
        tokens.append(int(dice.pick(WEIGHTS[0][tokens[-1:]])))
    return tokens[1:]


def own_chance(dice):
    tokens = [0]
    for _ in range(2):
        tokens.append(int(torch.multinomial(WEIGHTS[0][tokens[-1]], 1, generator=made)))
    return torch.tensor([tokens[1:]])


def replaced_from_the_target(dice):
    tokens = [0]
    while len(tokens) < 3:
        if hasattr(dice, "generators"):
            dice.refill(3)
        p, q = WEIGHTS[:, tokens[-1:]]
        x = dice.pick(q)
        if dice.flip((p / q)[:, x]):
            tokens += [int(x), int(dice.pick(WEIGHTS[0][x]))]
        else:
            tokens.append(int(dice.pick(p)))
    return tokens[1:3]


def flat(tokens):
    return WEIGHTS[0].log()[tokens][..., 0]


def broken(dice):
    return 1 // 0


def leaving(dice):
    raise SystemExit(0)


DISTRIBUTION = {(0,): .5, (1,): .5}
NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The name of a fresh module in the folder that the judge is called in."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def judged(mine, sampler, target="target", *more):
    return refused(["function", f"{mine}:{sampler}", "--target", f"{mine}:{target}", "--new", "2", "--samples", "300",
                    *more])


def test_functions_are_judged(mine, capsys):
    assert judged(mine, "right") == 0 and "every path walked" in capsys.readouterr().out
    assert judged(mine, "own_chance") == 0 and "could not be walked" in capsys.readouterr().out
    assert judged(mine, "own_chance", "target", "--samples", "10") == 3
    assert capsys.readouterr().out.startswith("No verdict")
    assert judged(mine, "own_chance", "target", "--temperature", "0.3") == 1
    out = capsys.readouterr().out
    assert out.startswith("WRONG: its samples") and "300 samples, p = " in out and "judge function mine" in out


def test_a_bug_of_a_function_is_named(mine, capsys, monkeypatch):
    monkeypatch.setattr(samplers, "OF_A_CHAIN", [bug for bug in OF_A_CHAIN if bug.name in FEW])
    assert judged(mine, "replaced_from_the_target", "target", "--draft-model", f"{mine}:draft", "--gamma", "1",
                  "--new", "1") == 1
    assert "2 tokens where 1 were asked" in capsys.readouterr().out
    assert judged(mine, "replaced_from_the_target", "target", "--draft-model", f"{mine}:draft", "--gamma", "1") == 1
    assert "It has the distribution of residual-is-target." in capsys.readouterr().out


@pytest.mark.parametrize("sampler, target, said", [
    ("leaving", "target", "the sampler ends the program: SystemExit(0)"),
    ("right", "leaving", "cannot be judged: SystemExit"),
    ("broken", "target", "cannot be judged: ZeroDivisionError"), ("none", "target", "has no attribute 'none'"),
    ("NUMBER", "target", "'int' object is not callable"), ("right", "NUMBER", "'int' object is not callable"),
    ("right", "none", "has no attribute 'none'"), ("right", "broken", "ZeroDivisionError"),
    ("right", "flat", "logits (1, T, V) for tokens (1, T), this one for 1 tokens (1, 1)"),
    ("own_chance", "DISTRIBUTION", "2 tokens where 1")])
def test_what_is_no_function_is_refused_in_one_line(mine, sampler, target, said, capsys):
    code = judged(mine, sampler, target)
    told = capsys.readouterr()
    assert said in told.out + told.err and code == (1 if "tokens where" in said else 2)
    assert told.err.count("\n") == (code == 2)


@pytest.mark.parametrize("shape, refused", [((1, 2, 5), False), ((2, 2, 5), True), ((1, 1, 5), True), ((1, 5), True),
                                            ((1, 2, 5, 1), True)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_target_says_what_comes_after_each_token(shape, refused, wrapped):
    """Of both, and not of the last alone."""
    def target(tokens):
        logits = torch.zeros(shape)
        return SimpleNamespace(logits=logits) if wrapped else logits

    said = f"logits (1, T, V) for tokens (1, T), this one for 2 tokens {shape}"
    with pytest.raises(RequestError, match=re.escape(said)) if refused else nullcontext():
        made = model_of(target, [3, 4])
        assert made.config.vocab_size == 5 and made.config.context == 2 ** 20
    own = TableModel(3, 1)
    assert model_of(own, [1]) is own


def test_a_model_of_transformers_is_asked_without_a_cache_and_within_its_context():
    class Model:
        device = "cpu"

        def __init__(self, **config):
            self.config, self.asked = SimpleNamespace(vocab_size=5, **config), []

        def __call__(self, tokens, **more):
            self.asked.append(more)
            return SimpleNamespace(logits=torch.ones(*tokens.shape, 5))

    short, unknown = Model(max_position_embeddings=9), Model()
    assert [recomputed(model).config.context for model in (short, unknown)] == [9, 2 ** 20]
    assert recomputed(short)(torch.tensor([[1, 2]])).tolist() == [[[1.0] * 5] * 2]
    assert short.asked == [{"use_cache": False}]


def test_a_module_that_is_not_there_is_named(capsys):
    assert refused(["function", "no_such_module:f", "--target", "x:y"]) == 2
    assert "'no_such_module:f' cannot be judged: ModuleNotFoundError" in capsys.readouterr().err
    for name in "nothing", "json:", ":dumps", ":", "":
        assert refused(["function", name, "--target", "x:y"]) == 2
        assert f"judge: {name!r} cannot be judged: " in capsys.readouterr().err


def test_a_module_of_ones_own_goes_before_another_of_its_name(mine, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "colorsys", None)      # so that Python's own is back afterwards, if it was there
    del sys.modules["colorsys"]
    (tmp_path / "colorsys.py").write_text(MODULE)
    assert judged("colorsys", "broken") == 2 and "ZeroDivisionError" in capsys.readouterr().err


def test_a_module_that_ends_the_program_when_it_is_imported_is_no_verdict(mine, tmp_path, capsys):
    (tmp_path / f"{mine}.py").write_text("import sys\nsys.exit(0)")
    assert judged(mine, "right") == 2 and "cannot be judged: SystemExit" in capsys.readouterr().err


def test_a_target_of_probabilities_is_refused(mine, tmp_path, capsys):
    (tmp_path / f"{mine}.py").write_text(MODULE + "\n\ndef probs(tokens):\n    return WEIGHTS[0][tokens]\n")
    assert judged(mine, "right", "probs") == 2
    assert "the target returns probabilities" in capsys.readouterr().err


@pytest.mark.parametrize("off, status", [(1e-4, 1), (1e-7, 0)])
def test_what_single_precision_does_not_explain_is_wrong(mine, off, status, tmp_path):
    """No samples would show it; and what rounding may do is right."""
    right = MODULE[MODULE.index("def right"):MODULE.index("def own_chance")]
    nearly = right.replace("[tokens[-1:]]", f"[tokens[-1:]] + torch.tensor([{off}, -{off}, 0])")
    (tmp_path / f"{mine}.py").write_text(f"{MODULE}\n\n{nearly}")
    assert judged(mine, "right") == status


def test_somebody_elses_error_in_a_line(mine):
    """With the file and the line where it rose; one that has not risen has none."""
    sys.path.insert(0, "")                                      # as the judge does
    with pytest.raises(ZeroDivisionError) as failed:
        import_module(mine).broken(None)
    line = MODULE[:MODULE.index("1 // 0")].count("\n") + 1
    assert error_in_a_line(failed.value) == (f"ZeroDivisionError: integer division or modulo by zero ({mine}.py, line "
                                             f"{line})")
    assert error_in_a_line(ValueError("a\nb")) == "ValueError: a b"


OFTEN = {"new": 3, "samples": 2_000}


@pytest.mark.parametrize("kind, given, usual", [
    ("transformers", ["FOLDER"], {**OFTEN, "gamma": 2}), ("endpoint", ["URL"], {**OFTEN, "at-once": 8, "timeout": 60}),
    ("function", ["a:b", "--target", "a:c"], {**OFTEN, "gamma": 2})])
def test_the_help_names_the_defaults(kind, given, usual, capsys):
    refused([kind, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    options = vars(parser().parse_args([kind, *given]))
    for name, number in usual.items():
        its, _, _ = said.rpartition(f"--{name} ")[2].partition(" --")
        assert its.endswith(f"default: {number:,}") and options[name.replace("-", "_")] == number
    assert [options[name] for name in ("seed", "temperature", "top_k", "top_p", "min_p")] == [0, 1, None, None, None]


# What the command is told, each value unlike the defaults and all others, reaches whoever judges

IDS = ["--ids", "3", "1"]
ASKED = "--new 4 --samples 70 --seed 8 --temperature 0.6 --top-k 5 --top-p 0.9 --min-p 0.2".split()
SETTINGS = {"temperature": .6, "top_k": 5, "top_p": .9, "min_p": .2}
TOLD = SETTINGS | {"ids": [3, 1], "new": 4, "samples": 70, "seed": 8, "gamma": 6, "tolerance": SINGLE,
                   "seconds": SECONDS}
SERVER = 4, SETTINGS, "tiny", 7.5, 11, {}
ON_IT = ["--model", "tiny", "--timeout", "7.5", "--at-once", "11"]
CALLED = ("judge", "of_transformers", "recomputed", "load_with_transformers", "model_of", "special_tokens", "Endpoint",
          "against_plain", "against_logprobs", "against_model")


class Call(tuple):
    """The name of what was called, and what with. As a verdict it is right."""

    wrong, decided, declined = False, True, ()


def opened(name):
    return "load_with_transformers", Path(name), {}


def read(name):
    return "recomputed", opened(name), {}


@pytest.mark.parametrize("argv, heard", [
    (["function", "a:own", "--target", "a:big", "--draft-model", "a:small", "--gamma", "6"],
     ("judge", "a:own", ("model_of", "a:big", [3, 1], {}), ("model_of", "a:small", [3, 1], {}), TOLD)),
    (["transformers", "big", "--assistant", "small", "--gamma", "6"],
     ("judge", ("of_transformers", opened("big"), [3, 1], 4, opened("small"), 6, None, SETTINGS), read("big"),
      read("small"), TOLD)),
    (["transformers", "big", "--lookup", "2", "--gamma", "6"],
     ("judge", ("of_transformers", opened("big"), [3, 1], 4, None, 6, 2, SETTINGS), read("big"), None, TOLD)),
    (["endpoint", "http://a", *ON_IT], ("against_logprobs", ("Endpoint", "http://a", [3, 1], *SERVER), 70, 8, {})),
    *((["endpoint", "http://a", *ON_IT, "--prompt", prompt],
       ("against_logprobs", ("Endpoint", "http://a", prompt, *SERVER), 70, 8, {})) for prompt in ("a b", "")),
    (["endpoint", "http://a", *ON_IT, "--plain", "http://b"],
     ("against_plain", *(("Endpoint", f"http://{name}", [3, 1], *SERVER) for name in "ab"), 70, 8, {})),
    (["endpoint", "http://a", *ON_IT, "--truth", "big"],
     ("against_model", ("Endpoint", "http://a", [3, 1], *SERVER), read("big"), [3, 1], 70, 8,
      ("special_tokens", opened("big"), {}), {}))], ids=lambda value: value[0])
def test_all_that_the_command_is_told_is_judged(argv, heard, monkeypatch):
    calls = []
    for name in CALLED:
        monkeypatch.setattr(f"nanospec.cli.judge.{name}", lambda *its, name=name, **more: (
            calls.append(Call((name, *its, more))) or calls[-1]))
    monkeypatch.setattr("nanospec.cli.judge.resolve_name", lambda name: name)
    assert main([*argv, *ASKED, *IDS * ("--prompt" not in argv)]) == 0 and calls[-1] == heard


def test_what_is_sent_upstream_by_hand():
    verdict = Verdict(True, "off", 1e-9, 70, 0.1, most_off=Off((3, 1), 0.25, 0.5))
    asked = SimpleNamespace(kind="function", temperature=0.6, top_k=5, top_p=0.9, min_p=0.2, new=4, seed=8)
    assert report(verdict, ["function", "a b"], asked).splitlines()[1:] == [
        "  again        nanospec judge function 'a b'",
        "  settings     temperature 0.6, top_k 5, top_p 0.9, min_p 0.2, 4 new tokens, seeds from 8",
        "  most off     (3, 1): expected 0.25, found 0.5"]
    verdict.most_off, verdict.unit = Off(0, 0.0625, 0.125), "of its own"
    assert report(verdict, [], asked).endswith("  most off     part 1 of 16 (of its own): expected 0.0625, found 0.125")
