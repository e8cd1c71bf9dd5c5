"""demo and bench with a target that has no draft model: the default drafter, a line that says so, what is refused."""

import json

import pytest

from nanospec.cli import demo
from nanospec.cli.bench import command as bench
from nanospec.cli.bench import measure
from nanospec.files.gguf import load_gguf
from nanospec.generate import generate
from nanospec.methods.index import WITHOUT_DRAFT_MODEL
from tests.small_gguf import write

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
WITHOUT = "a.gguf comes without a draft model: {} suffix, which copies from the text"
NEEDS = f"needs a draft model, and there is none beside this target: {', '.join(WITHOUT_DRAFT_MODEL)} need none"


@pytest.fixture
def alone(tmp_path, monkeypatch):
    monkeypatch.setattr("nanospec.cli.bench.prompts.read_texts", lambda: ([], ["abc " * 200]))
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_: "")
    monkeypatch.setattr("nanospec.cli.prepared.tuned", lambda *_: "")
    monkeypatch.setattr(measure, "step_seconds", lambda model, tokens=1, *_, **__: 1e-3 * tokens)
    write(tmp_path / "a.gguf")
    return tmp_path / "a.gguf"


@pytest.mark.parametrize("drafter", [None, *WITHOUT_DRAFT_MODEL])
def test_demo(alone, capsys, drafter):
    named = ["--drafter", drafter] if drafter else []
    json_file = alone.with_suffix(".json")
    assert demo.main(["--weights", str(alone), "--prompt", "the the the", "--device", "cpu", "--temperature", "0",
                      "--max-new-tokens", "16", "--json", str(json_file), *named]) == 0
    out, err = capsys.readouterr()
    assert (WITHOUT.format("--drafter") in err) == (drafter is None)
    row, (target, tokenizer) = json.loads(json_file.read_text()), load_gguf(alone)
    plain = list(generate(target, tokenizer.encode("the the the"), 16, temperature=0, stop=tokenizer.ends))
    assert row["drafter"] == (drafter or "suffix") and row["text"] == tokenizer.decode(plain)
    assert row["c"] == 0 and row["alpha"] >= 0 and "tokens per target call" in out


def test_bench(alone, capsys, tmp_path):
    argv = ["--weights", str(alone), "--device", "cpu", "--prompts", "1", "--temperatures", "0", "--gammas", "2",
            "--max-new-tokens", "4", "--json", str(tmp_path / "a.json")]
    for drafters, names in ([], ["suffix"]), (["--drafters", "all"], WITHOUT_DRAFT_MODEL):
        assert bench.main([*argv, *drafters]) == 0
        rows = json.loads((tmp_path / "a.json").read_text())
        assert [row["drafter"] for row in rows] == names and {row["draft_model"] for row in rows} == {"none"}
        assert (WITHOUT.format("--drafters") in capsys.readouterr().err) == (not drafters)
    assert bench.main(["serve", "--weights", str(alone), "--device", "cpu", "--rows", "1", "--drafters", "lookup",
                       "--gamma", "2", "--max-new-tokens", "2"]) == 0
    assert "lookup 2" in capsys.readouterr().out


@pytest.mark.parametrize("main, argv, words", [
    (demo.main, ["--drafter", "chain"], f"--drafter chain {NEEDS}"), (demo.main, ["--compile"], "--compile"),
    (demo.main, ["--draft-model", "mlp"], "holds no mlp.pt"),
    (bench.main, ["speed", "--drafters", "lookup", "hybrid"], f"--drafters hybrid {NEEDS}"),
    (bench.main, ["serve"], f"--drafters chain {NEEDS}")])
def test_what_needs_a_draft_model_is_refused_before_a_weight_is_read(alone, monkeypatch, capsys, main, argv, words):
    monkeypatch.setattr("nanospec.files.gguf.load_weights", lambda *_: pytest.fail("weights were read"))
    name, *options = [""] * (main is demo.main) + argv
    assert main([*filter(None, [name]), "--weights", str(alone), "--device", "cpu", *options]) == 2
    out, err = capsys.readouterr()
    *notes, line = err.splitlines()
    assert words in line and not out and len(notes) <= 1 and all("without a draft model" in said for said in notes)
