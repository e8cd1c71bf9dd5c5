"""The judge and a server: a small one stands in, sound and faulty, and answers broken in every way."""

import json
import math
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

from nanospec.proof.judge.__main__ import main
from nanospec.proof.judge.abroad import Recomputed
from nanospec.proof.tables import TableModel

P, Q = (TableModel(8, seed, zeros=0).logits.softmax(-1) for seed in (1, 2))       # of the target, of its draft


def completion(body: dict, faulty: bool = False, honest: bool = True) -> dict:
    """`max_tokens` letters, each by the row of P of the letter before it. faulty: the first is the draft's, accepted
    whatever it is. honest: what is reported is P, else what was drawn from.
    """
    made, text, tops = torch.Generator().manual_seed(body["seed"]), [0], []
    for i in range(body["max_tokens"]):
        drawn_from = (Q if faulty and i == 0 else P)[text[-1]]
        row = P[text[-1]] if honest else drawn_from
        text.append(int(torch.multinomial(drawn_from, 1, generator=made)))
        kept = {*row.topk(body.get("logprobs", 1)).indices.tolist(), text[-1]}      # vLLM adds the drawn one
        tops.append({"abcdefgh"[token]: math.log(row[token]) for token in kept})
    letters = ["abcdefgh"[token] for token in text[1:]]
    names = [f"token_id:{token}" for token in text[1:]] if body.get("return_tokens_as_token_ids") else letters
    return {"text": "".join(letters), "logprobs": {"tokens": names, "top_logprobs": tops}}


class Server(HTTPServer):
    """answer(body) -> a choice, or the bytes of the whole reply; or (status, bytes)."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *args):
        """Whoever asked has gone."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        said = self.server.answer(body)
        if isinstance(said, dict):
            said = json.dumps({"choices": [said]}).encode()
        status, said = said if isinstance(said, tuple) else (200, said)
        self.send_response(status)
        self.send_header(*(("Transfer-Encoding", "chunked") if said == b"no chunk\n" else
                           ("Content-Length", str(len(said) + (said == b"cut short")))))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args):
        """Nothing on stderr."""


@pytest.fixture
def serve(monkeypatch):
    """serve(answer) -> a server that runs."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(answer=completion):
        servers.append(Server(answer))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return servers[-1]
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def faulty(body):
    return completion(body, faulty=True)


def lying(body):
    return completion(body, faulty=True, honest=False)


def run(server, *more, samples=300):
    return main(["endpoint", server.url, "--samples", str(samples), *more])


def test_a_sound_server_draws_from_what_it_reports(serve, capsys):
    server = serve()
    assert run(server, "--model", "tiny") == 0
    out = capsys.readouterr().out
    assert "its tokens fit the logprobs that it reports" in out and "900 samples" in out
    path, body = server.asked[7]
    assert path == "/v1/completions" and body["seed"] == 7 and body["model"] == "tiny" and body["prompt"] == [0]
    assert body["logprobs"] == 5 and body["max_tokens"] == 3 and body["ignore_eos"] is True


def test_a_faulty_server_is_seen_by_its_own_logprobs_and_a_lying_one_is_not(serve, capsys):
    assert run(serve(faulty), "--prompt", "a") == 1
    out = capsys.readouterr().out
    assert out.startswith("WRONG: its tokens do not fit the logprobs") and "To send upstream" in out
    assert "of 16 (of the tokens moved, in the order of the logprobs): expected 0.0625, found" in out
    assert run(serve(lying)) == 0               # as the docstring says


def test_two_servers_are_compared(serve, capsys):
    plain = serve()
    assert run(serve(), "--plain", plain.url, "--new", "1", "--temperature", "0.7") == 0     # the same settings to both
    assert "600 samples" in capsys.readouterr().out
    assert run(serve(lying), "--plain", plain.url, "--new", "1") == 1
    out = capsys.readouterr().out
    assert out.startswith("WRONG: the texts of the two servers are not of one distribution") and "most off" in out
    seeds = [body["seed"] for _, body in plain.asked]
    assert seeds == [*range(300, 600)] * 2      # none that the other server was sent
    assert run(serve(), "--plain", plain.url, "--new", "1", samples=10) == 3


def test_a_server_is_compared_with_its_model(serve, capsys, monkeypatch, tmp_path):
    """By the ids of its tokens; here the model is the table that the server draws from."""
    monkeypatch.setattr("nanospec.proof.judge.__main__.load_theirs", lambda folder: None)
    monkeypatch.setattr("nanospec.proof.judge.__main__.recomputed", lambda model: Recomputed(
        lambda ids: P[ids].log(), 8))
    assert run(serve(), "--truth", str(tmp_path), "--new", "1") == 0
    assert "fit the target's distribution" in capsys.readouterr().out
    assert run(serve(lying), "--truth", str(tmp_path), "--new", "1") == 1
    assert "first token is off" in capsys.readouterr().out
    no_ids = serve(lambda body: completion({**body, "return_tokens_as_token_ids": False}))
    assert run(no_ids, "--truth", str(tmp_path)) == 2 and "--plain" in capsys.readouterr().err
    assert run(no_ids, "--truth", str(tmp_path), "--prompt", "a") == 2 and "as --ids" in capsys.readouterr().err


def logprobs(change):
    """A reply whose logprobs were changed."""
    return lambda body: (lambda choice: {**choice, "logprobs": change(choice["logprobs"])})(completion(body))


@pytest.mark.parametrize("answer, said", [
    (lambda body: (404, b"no such\nmodel \x1b[2J"), "answered 404: no such model"),
    (lambda body: (500, b""), "answered 500"), (lambda body: (500, b"no chunk\n"), "broke off"),
    (lambda body: b"<html>", "something else than a completion: <html>"), (lambda body: b"{}", "something else"),
    (lambda body: b'{"choices": []}', "something else"), (lambda body: b'{"choices": [{"text": 3}]}', "something else"),
    (lambda body: b"[" * 100_000, "something else"), (lambda body: b"\xff\xfe", "something else"),
    (lambda body: b"cut short", "broke off"), (lambda body: {"text": "abc"}, "gives no logprobs"),
    (logprobs(lambda said: None), "gives no logprobs"), (logprobs(lambda said: {**said, "tokens": []}), "no logprobs"),
    (logprobs(lambda said: {**said, "top_logprobs": said["top_logprobs"][1:]}), "no logprobs"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"a": 0.0, "b": 0.0}] * 3}), "add up to 2"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"a": "x"}] * 3}), "no logprobs"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"a": math.nan}] * 3}), "add up to nan")],
    ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_reply_is_one_line(serve, answer, said, capsys):
    assert run(serve(answer)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and "\x1b" not in err


def test_a_server_that_is_slow_or_not_there_is_one_line(serve, capsys):
    done = threading.Event()
    assert run(serve(lambda body: done.wait(20) or b""), "--timeout", "0.2") == 2
    done.set()
    assert "did not answer within 0.2 seconds" in capsys.readouterr().err
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert main(["endpoint", f"http://127.0.0.1:{free.getsockname()[1]}"]) == 2
    err = capsys.readouterr().err
    assert "nobody answers at" in err and err.count("\n") == 1


@pytest.mark.parametrize("argv, said", [
    (["file:///etc/passwd"], "begins with http"), ([""], "begins with http"), (["http://["], "broke off"),
    (["http://x", "--plain", "ftp://y"], "begins with http"), (["http://x", "--temperature", "0.5"], "temperature 1"),
    (["http://x", "--top-k", "3"], "temperature 1"), (["http://x", "--prompt", "a", "--ids", "1"], "not both"),
    (["http://x", "--timeout", "0"], "--timeout"), (["http://x", "--samples", "-1"], "samples must be"),
    (["http://x", "--seed", str(2 ** 64)], "64 bits")], ids=str)
def test_what_a_server_cannot_be_asked_is_refused_in_one_line(argv, said, capsys):
    assert main(["endpoint", *argv]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
