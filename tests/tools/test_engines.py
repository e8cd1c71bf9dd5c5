"""The command that judges vLLM on this CPU: with a stand-in for vLLM; and with vLLM where NANOSPEC_ENGINES names it."""

import json
import math
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
import torch

from nanospec.dice import Dice
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.judge import verdict as judge_file
from nanospec.judge.endpoint import EndpointError
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate
from tests.release import engines, vllm_here
from tests.release.engines import main
from tests.tools.right_servers import walked_once
from training import __main__ as training

PAIR = Pair(small_gpt(257, 1, 1, context=128), small_gpt(257, 1, 2, context=128),
            Tokenizer({bytes([b]): b for b in range(256)}))
SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(child.pid).encode())
HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


class VLLM(ThreadingHTTPServer):
    """Answers as vLLM does, with PAIR's target. wrong: it forgets the temperature.  dies: at a temperature below 1."""

    def __init__(self, wrong=False, dies=False):
        self.wrong, self.dies, self.dead, self.drafts = wrong, dies, False, 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.server.dead:
            return
        text = (f'vllm:spec_decode_num_drafts_total{{engine="0"}} {self.server.drafts}.0\n'
                + "".join(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{place}"}} '
                          f"{self.server.drafts * (2 - place)}.0\n" for place in range(2)))
        self.reply(text.encode() if self.path == "/metrics" else b"")

    @torch.inference_mode()
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.dead |= self.server.dies and 0 < body["temperature"] < 1
        if self.server.dead:
            return
        self.server.drafts += 1
        settings = {name: body.get(name) for name in ("temperature", "top_k", "top_p")}
        settings["top_k"] = None if settings["top_k"] == -1 else settings["top_k"]          # as vLLM has it
        if self.server.wrong and settings["temperature"]:
            settings = {"temperature": 0.4}
        ids, new = body["prompt"], body["max_tokens"]
        tokens = list(generate(PAIR.target, ids, new, dice=Dice([body["seed"]]), **settings))
        rows = PAIR.target(torch.tensor([ids + tokens]))[0, len(ids) - 1:-1].log_softmax(-1)
        tops = [{f"token_id:{i}": row[i].item() for i in [token, *row.topk(5).indices.tolist()]}
                for token, row in zip(tokens, rows)]
        assert all(math.isfinite(logprob) for top in tops for logprob in top.values())
        self.reply(json.dumps({"choices": [{"text": "", "logprobs": {
            "tokens": [f"token_id:{token}" for token in tokens], "top_logprobs": tops}}]}).encode())

    def reply(self, said):
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args):
        """Nothing on stderr."""


@pytest.fixture
def vllm(monkeypatch):
    """vllm(starts, wrong=...) -> the commands with which it is started; the fault is in the first `starts` servers."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(judge_file, "truth_walked", walked_once)
    monkeypatch.setattr(engines, "load_pair", lambda *_, **__: PAIR)
    monkeypatch.setattr(engines, "export", lambda *_: None)
    monkeypatch.setattr(engines, "environment", lambda: Path("python"))
    started = []

    def put(starts=1, **faults):
        @contextmanager
        def running(command, log, extra):
            started.append((list(map(str, command)), extra))
            server = VLLM(**faults if len(started) <= starts else {})
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                server.server_close()
        monkeypatch.setattr(engines, "running", running)
        return started
    return put


def table(capsys, *argv, samples=80):
    code = main(["--new", "2", "--greedy", "8", "--samples", str(samples), "--at-once", "1", *argv])
    lines = capsys.readouterr().out.splitlines()
    return code, [(line[:38].strip(), line[39:51].strip(), line[52:62].strip(), line[63:73].strip(), line[74:])
                  for line in lines[1:]]


def test_a_right_one_is_right_in_every_row(vllm, capsys):
    started = vllm()
    code, rows = table(capsys, "--drafters", "draft_model", samples=40)
    assert code == 0 and [row[1:4] for row in rows] == [
        ("0", "our tokens", "right"), ("0.7, 20, 0.9", "--truth", "right"), ("1", "--truth", "right"),
        ("1", "logprobs", "right")]
    assert rows[0][4].split() == "3 of 3 texts of 8 tokens 3 9 6 3".split()
    assert rows[1][4].split()[-5:] == ["80", "40", "120", "80", "40"]     # tokens; drafts; accepted, and by place
    (command, extra), = started
    config = json.loads(command[command.index("--speculative-config") + 1])
    assert config["method"] == "draft_model" and Path(config["model"]).name == "draft"
    assert Path(command[command.index("--model") + 1]).parent == Path(config["model"]).parent
    assert "PYTHONPATH" not in extra


def test_a_wrong_one_is_called_wrong_and_plain_has_no_drafter(vllm, capsys):
    started = vllm(wrong=True)
    code, rows = table(capsys, "--drafters", "plain")
    assert code == 1 and [row[3] for row in rows] == ["right", "WRONG", "WRONG", "WRONG"]
    assert "--speculative-config" not in started[0][0]


def test_one_that_dies_is_started_again_for_what_is_left(vllm, capsys):
    started = vllm(dies=True)
    code, rows = table(capsys, "--drafters", "ngram", "--mended", samples=40)
    assert code == 0 and [row[3] for row in rows] == ["right", "not judged", "right", "right"]
    assert "it died of this" in rows[1][4] and rows[0][0] == "ngram, mended" and len(started) == 2
    plugin = Path(started[0][1]["PYTHONPATH"])
    assert plugin.name == "mended" and not plugin.exists()              # what was made is gone


@pytest.mark.parametrize("starts, code", [pytest.param(3, 0, marks=pytest.mark.slow), (2, 1)])
def test_planted_faults_must_be_found(vllm, capsys, starts, code):
    """One server for each fault. One in which it changes nothing is not found, and the command fails."""
    started = vllm(starts, wrong=True)
    found, rows = table(capsys, "--drafters", "ngram", "--planted")
    assert found == code and rows.pop()[0] == f"{starts} of 3 planted faults found"
    assert [row[0] for row in rows[::3]] == [f"ngram: {fault}" for fault in vllm_here.FAULTS]
    assert {row[1] for row in rows} == {"0.7, 20, 0.9", "1"}            # greedy texts need no coins
    assert [row[3] for row in rows] == ["WRONG"] * 3 * starts + ["right"] * 3 * (3 - starts)
    assert len(started) == 3 and all(Path(extra["PYTHONPATH"]).name == "mended" for _, extra in started)


def seen_in(sampler, n=4):
    """What vLLM's functions do: how many uniforms are above 0, what a draft token's residual is, a temperature of 2."""
    return (int((sampler.generate_uniform_probs(n, [n], {}, "cpu") > 0).sum()),
            sampler.sample_recovered_tokens(1, [1], None, None, torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]]),
                                            None, "cpu", False).tolist(),
            sampler.apply_sampling_constraints(torch.tensor([2.0]), None, None).tolist(),
            sampler.expand_batch_to_tokens(torch.tensor([0.0, 5.0]), torch.tensor([1, 3]), 3, 0, 1).tolist())


@pytest.mark.parametrize("fault, differs", [("", 3), ("accept-everything", 0), ("residual-is-target", 1),
                                            ("target-unwarped", 2)])
def test_what_the_plugin_does(tmp_path, monkeypatch, fault, differs):
    """On a stand-in for vLLM's module; that its functions are called so, `--planted` on vLLM itself shows."""
    def stand_in():
        return SimpleNamespace(
            generate_uniform_probs=lambda n, *_: torch.full((n,), 0.5),
            sample_recovered_tokens=lambda a, b, c, ids, q_draft, p_target, *_: (p_target - q_draft).clamp(min=0),
            apply_sampling_constraints=lambda logits, *_: logits / 2,
            expand_batch_to_tokens=lambda x, cu, n, *_: torch.full((n,), 7.0))
    sampler = stand_in()
    for name, module in {"vllm": {}, "vllm.v1": {}, "vllm.v1.sample": {"rejection_sampler": sampler}}.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**module))
    assert vllm_here.plugin(tmp_path / "a", fault) == {"PYTHONPATH": str(tmp_path / "a")}
    monkeypatch.syspath_prepend(tmp_path / "a")
    point, = (one for one in entry_points(group="vllm.general_plugins") if one.value == "nanospec_mended:mend")
    monkeypatch.delitem(sys.modules, "nanospec_mended", raising=False)
    point.load()()
    as_it_was, done = seen_in(stand_in()), seen_in(sampler)
    assert [i for i in range(4) if as_it_was[i] != done[i]] == sorted({3, differs}) and done[3] == [1.0, 5.0, 5.0]
    assert (done[0], done[1], done[2])[differs] == (0, [[0.5, 0.5]], [2.0])[differs] if fault else True


def test_what_it_starts_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "server.py").write_text(SERVER)
    with vllm_here.running([sys.executable, tmp_path / "server.py"], tmp_path / "log", {}, patience=60) as url:
        child = int(urlopen(url).read())
        os.kill(child, 0)                                               # it is there
    state = Path(f"/proc/{child}/stat")
    while state.exists() and state.read_text().split()[2] != "Z":       # it was told to; if not, this waits forever
        sleep(0.05)
    with pytest.raises(EndpointError, match="vLLM did not start: ValueError: no"), vllm_here.running(
            [sys.executable, "-c", "raise ValueError('no')"], tmp_path / "log", {}):
        raise AssertionError
    with pytest.raises(EndpointError, match="did not start within 0.1 seconds"), vllm_here.running(
            [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", {}, patience=0.1):
        raise AssertionError


def test_an_environment_is_made_once_and_whole(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(vllm_here.venv, "create", lambda folder, with_pip: (folder / "bin").mkdir(parents=True))
    monkeypatch.setattr(vllm_here.subprocess, "run", lambda argv, check: ran.append(argv[4:]))
    for _ in range(2):
        assert vllm_here.environment(tmp_path / "vllm") == tmp_path / "vllm" / "bin" / "python"
    assert [argv[1] for argv in ran] == ["install", "uninstall"] and ran[0][2:] == list(vllm_here.PACKAGES)
    assert capsys.readouterr().err.count("\n") == 1

    def failed(argv, check):
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(vllm_here.subprocess, "run", failed)
    with pytest.raises(EndpointError, match="no environment with vLLM"):
        vllm_here.environment(tmp_path / "other")
    assert not (tmp_path / "other" / "made").exists()                   # the next time it is made anew


@pytest.mark.parametrize("argv, said", [
    (["--drafters", "medusa"], "--drafters are plain"),
    (["--drafters", "plain", "--planted"], "--drafters are draft_model"), (["--at-once", "0"], "at-once"),
    (["--samples", "0"], "samples"), (["--weights", "nowhere"], "nowhere")])
def test_what_it_is_not_told_is_one_line(argv, said, capsys):
    assert main([*argv]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


needs_vllm = pytest.mark.skipif(
    not (vllm_here.HERE / "vllm" / "made").exists() or "NANOSPEC_ENGINES" not in os.environ,
    reason="NANOSPEC_ENGINES names no folder with an environment of vLLM: minutes, and 4 GB")


@needs_vllm
def test_vllm_itself(capsys):
    assert main(["--drafters", "plain", "--samples", "100", "--new", "4"]) == 0
    assert capsys.readouterr().out.count(" right ") == 4


@needs_vllm
def test_our_head_is_accepted_in_vllm_at_each_place_as_here(tmp_path, monkeypatch):
    """EAGLE-3 after a short training, on three greedy texts; vLLM's first token comes from the prompt, without a draft.
    """
    assert training.main(["eagle3", "--steps", "60", "--out", str(tmp_path)]) == 0
    target, head, tokenizer = load_pair(tmp_path, draft_model="eagle3")
    ours = [0] * 4
    for text in engines.PROMPTS:
        ids = tokenizer.begin + tokenizer.encode(text)
        ids += generate(target, ids, 1, temperature=0)
        for done in speculate(target, ModelDrafter(head, 4), ids, 63, temperature=0):
            for place in range(min(len(done.path), len(done.emitted))):     # vLLM does not count what a limit cuts off
                ours[place] += 1
    monkeypatch.setattr(engines, "SETTINGS", engines.SETTINGS[:1])
    row, = engines.engines(SimpleNamespace(weights=tmp_path, drafters=["eagle3"], planted=False, mended=False,
                                           greedy=64))
    assert row.right and row.accepted == ours and ours[1] > 5
