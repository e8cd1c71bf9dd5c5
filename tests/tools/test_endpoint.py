"""The judge and a server: a small one stands in, sound and faulty, and answers broken in every way."""

import json
import math
import random
import socket
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch

from nanospec.errors import SEEDS, RequestError
from nanospec.judge import doubts, sequential as looking, witnesses
from nanospec.cli.judge import main
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.given import answers
from nanospec.judge.other_programs import Recomputed
from nanospec.judge.sequential import FALSE_ALARM, LOOKS, looks_at, sequential
from nanospec.judge.verdict import judge
from nanospec.judge.witnesses import against_logprobs, against_plain
from nanospec.proof.stats import Fit
from nanospec.proof.tables import TableModel
from tests.tools.right_servers import running

P, Q = (TableModel(8, seed, zeros=0).logits.softmax(-1).tolist()[:8] for seed in (1, 2))   # target, draft model
LOGITS = torch.tensor(P).log()


def completion(body: dict, faulty: bool = False, honest: bool = True, letters: str = "abcdefgh") -> dict:
    """`max_tokens` letters, each by the distribution in P after the letter before it. faulty: the first is the draft
    model's, accepted whatever it is. honest: what is reported is P, else what was drawn from.
    """
    made, text, tops = random.Random(body["seed"]), [0], []
    names = [f"token_id:{i}" for i in range(8)] if body.get("return_tokens_as_token_ids") else letters
    for i in range(body["max_tokens"]):
        drawn_from = (Q if faulty and i == 0 else P)[text[-1]]
        reported = P[text[-1]] if honest else drawn_from
        text += made.choices(range(8), drawn_from)
        best = sorted(range(8), key=lambda token: -reported[token])[:body.get("logprobs", 1)]
        tops.append({names[token]: math.log(reported[token]) for token in [text[-1], *best]})   # as vLLM orders them
    return {"text": "".join(letters[token] for token in text[1:]),
            "logprobs": {"tokens": [names[token] for token in text[1:]], "top_logprobs": tops}}


NO_CONFIG = SimpleNamespace(config=None)             # a model without special tokens


class Server(ThreadingHTTPServer):
    """answer(body) -> a choice, or the bytes of the whole reply; or (status, bytes)."""

    request_queue_size = 64             # a connection that does not fit is tried again after a second

    def __init__(self, answer):
        self.answer, self.asked = answer, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *args):
        """Whoever asked has gone."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        if self.headers["Content-Type"] != "application/json":
            return self.send_error(415)                         # as vLLM does
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
    with running(Server) as start:
        yield lambda answer=completion: start(answer)


def faulty(body):
    return completion(body, faulty=True)


def lying(body):
    return completion(body, faulty=True, honest=False)


def run(server, *more, samples=300):
    """With patience, for clocks may run fast."""
    return main(["endpoint", server.url, "--samples", str(samples), "--at-once", "1", "--timeout", "3600", *more])


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
    assert "900 samples" not in out             # it did not take all of them
    assert "of 16 (of the tokens moved, in the order of the logprobs): expected 0.0625, found" in out
    assert run(serve(lying)) == 0               # as the docstring says


def test_two_servers_are_compared(serve, capsys):
    plain = serve()
    assert run(serve(), "--plain", plain.url, "--new", "1", "--temperature", "0.7") == 0     # the same settings to both
    assert "600 samples" in capsys.readouterr().out
    assert {body["seed"] for _, body in plain.asked} == {*range(300, 600)}      # none that the other server was sent
    assert run(serve(faulty), "--plain", plain.url, "--new", "1") == 1
    out = capsys.readouterr().out
    assert out.startswith("WRONG: the texts of the two servers are not of one distribution") and "most off" in out
    assert run(serve(), "--plain", plain.url, "--new", "1", samples=10) == 3


def test_a_server_is_compared_with_its_model(serve, capsys, monkeypatch, tmp_path):
    """By the ids of its tokens; here the model is the table that the server draws from."""
    monkeypatch.setattr("nanospec.cli.judge.load_with_transformers", lambda folder: NO_CONFIG)
    monkeypatch.setattr("nanospec.cli.judge.recomputed", lambda model: Recomputed(
        lambda ids: LOGITS[ids], 8))
    assert run(serve(), "--truth", str(tmp_path), "--new", "1") == 0
    assert "fit the target's distribution" in capsys.readouterr().out
    assert run(serve(faulty), "--truth", str(tmp_path), "--new", "1") == 1
    assert "first token is off" in capsys.readouterr().out
    no_ids = serve(lambda body: completion({**body, "return_tokens_as_token_ids": False}))
    assert run(no_ids, "--truth", str(tmp_path), "--new", "1") == 2 and "--plain" in capsys.readouterr().err
    short = serve(lambda body: completion({**body, "max_tokens": 1}))       # it does not know ignore_eos
    assert run(short, "--truth", str(tmp_path), "--new", "2") == 2
    assert "wrote 1 tokens where 2" in capsys.readouterr().err
    assert run(no_ids, "--truth", str(tmp_path), "--prompt", "a") == 2 and "as --ids" in capsys.readouterr().err


def test_tokens_that_share_a_text_are_told_apart_or_not_judged(serve, capsys):
    """Pieces of one character all have the text "". A right server is not accused for it."""
    assert run(serve(lambda body: completion(body, letters="aa" + "b" * 6))) == 0
    assert "fit the logprobs" in capsys.readouterr().out
    by_text = serve(lambda body: completion({**body, "return_tokens_as_token_ids": False}, letters="aa" + "b" * 6))
    assert run(by_text) == 2
    err = capsys.readouterr().err
    assert "two tokens may have one text: so it cannot be judged" in err and err.count("\n") == 1


def test_ties_are_no_fault_of_a_server(serve, monkeypatch):
    """Of tokens with one probability it names the drawn one first, and some of them are below the five."""
    monkeypatch.setitem(globals(), "P", [[.3, .3] + [.4 / 6] * 6] * 8)
    assert run(serve(), "--new", "6") == 0
    assert run(serve(faulty), "--new", "6") == 1


class Beside(Endpoint):
    """A server without a socket: what it answers is `said` of what it is asked."""

    said = staticmethod(completion)

    def complete(self, seed, **more):
        return self.said({"seed": seed, "max_tokens": self.new, **more})


class BesideFaulty(Beside):
    said = staticmethod(faulty)


class FaultyWithSeeds(BesideFaulty):
    """It keeps the seeds that it is asked with."""

    def __init__(self, *its, **more):
        super().__init__(*its, **more)
        self.seeds = []

    def complete(self, seed, **more):
        self.seeds.append(seed)
        return super().complete(seed, **more)


def verdict_by(witness: str, kind: type, run: int, samples: int = 200):
    """Every run has seeds of its own."""
    server, seed = kind("http://x", [0], 1, {}, at_once=1), 1000 * run
    if witness == "--plain":
        return against_plain(server, Beside("http://y", [0], 1, {}), samples, seed)
    if witness == "--truth":
        return judge(server.ids, {(token,): part for token, part in enumerate(P[0])}, samples=samples, seed=seed,
                     looks=LOOKS)
    return against_logprobs(server, samples, seed)


@pytest.mark.parametrize("witness", ["--plain", "--truth", "logprobs"])
def test_of_25_runs_none_accuses_a_right_server_and_all_find_a_wrong_one(witness):
    """Both rates at full size: python -m tests.proof.itself --servers."""
    right = [verdict_by(witness, Beside, run) for run in range(25)]
    wrong = [verdict_by(witness, BesideFaulty, run) for run in range(25)]
    assert not any(verdict.wrong for verdict in right) and all(verdict.wrong for verdict in wrong)
    assert len({verdict.p_value for verdict in right}) > 12
    fewer = sum(verdict.samples for verdict in wrong) / sum(verdict.samples for verdict in right)
    assert fewer < 0.6                          # it stops as soon as it knows


@pytest.mark.parametrize("witness", ["--plain", "logprobs"])
def test_no_tokens_are_no_task(witness):
    server = Beside("http://x", [0], 0, {})
    with pytest.raises(RequestError, match="^new must be a whole number, 1 or more, got 0"):
        against_plain(server, server, 9, 0) if witness == "--plain" else against_logprobs(server, 9, 0)


@pytest.mark.parametrize("witness", ["--plain", "logprobs"])
def test_the_seeds_of_all_samples_must_have_32_bits(witness):
    """Twice as many as samples: the server beside it has its own. Here 9 would be there, and 18 are not."""
    server = Beside("http://x", [0], 1, {})
    with pytest.raises(RequestError, match="a seed has 32 bits"):
        against_plain(server, server, 9, SEEDS - 10) if witness == "--plain" else against_logprobs(
            server, 9, SEEDS - 10)


@pytest.mark.parametrize("prompt, had", [([4, 1], [4, 1]), ("ab", ())])
def test_another_cause_must_explain_all_samples(prompt, had, monkeypatch):
    """Those too that no verdict needed; each is drawn once. The prompt's tokens count where they are known."""
    heard = []
    monkeypatch.setattr(witnesses, "of_settings", lambda server, drawn, ids: heard.append(
        ([number for number, _ in drawn], ids)))
    server = FaultyWithSeeds("http://x", prompt, 1, {}, at_once=1)
    verdict = against_logprobs(server, 200, 7)
    assert verdict.wrong and verdict.samples < 200
    assert server.seeds == [*range(7, 207)] and heard == [([*range(200)], had)]


def test_all_samples_are_asked_for_before_a_model_accuses(monkeypatch):
    """Each once, and of all of them the causes are looked for, with what was asked for."""
    heard = []
    for name in "of_words", "of_prompt":
        monkeypatch.setattr(doubts, name, lambda *_: None)
    monkeypatch.setattr(witnesses, "of_settings", lambda server, drawn, ids: heard.append((len(drawn), ids)))
    monkeypatch.setattr(doubts, "of_precision", lambda server, target, ids, replies, settings: heard.append(
        (len(replies), ids, settings["top_k"])))
    server = FaultyWithSeeds("http://x", [0], 1, {"top_k": 8}, at_once=1)
    verdict = witnesses.against_model(server, Recomputed(lambda ids: LOGITS[ids], 8), [0], 200, 7)
    assert verdict.wrong and verdict.samples < 200
    assert server.seeds == [*range(7, 207)] and heard == [(200, [0]), (200, [0], 8)]


def test_a_model_must_have_the_tokens_that_were_not_drawn_too():
    class Other(Beside):
        said = staticmethod(lambda body: {"text": "b", "logprobs": {
            "tokens": ["token_id:1"], "top_logprobs": [{"token_id:1": -0.5, "token_id:9": -1.5}]}})

    with pytest.raises(EndpointError, match="names token 9, the model in the folder has 0 to 7"):
        witnesses.against_model(Other("http://x", [0], 1, {}, at_once=1), Recomputed(lambda ids: LOGITS[ids], 8), [0],
                                5, 0)


def test_looks_share_the_false_alarms():
    """As sequential.py says; the first one that is sure is the last; at_once changes nothing but the time."""
    assert looks_at(2_000, 1) == [(2_000, FALSE_ALARM)]
    for samples in 1, 3, 2_000:
        sizes, bars = zip(*looks_at(samples, LOOKS))
        assert sizes[-1] == samples and list(sizes) == sorted({*sizes}) and bars[-1] in (FALSE_ALARM, FALSE_ALARM / 2)
        assert len(bars) == 1 or sum(bars[:-1]) == pytest.approx(FALSE_ALARM / 10)
    asked = []

    def fit_of(drawn):
        return Fit(0.0 if len(drawn) > 100 else 1.0, 1, 0.0, len(drawn))

    for at_once in 1, 5:
        asked.clear()
        drawn, _, bar = sequential(lambda i: asked.append(i) or i, 1_000, fit_of, at_once=at_once)
        assert drawn == [*range(125)] and bar == FALSE_ALARM / 40 and len(asked) <= 125 + 2 * at_once
    (_, least), *_ = looks_at(1_000, LOOKS)             # a p-value of just the bar is not below it
    assert sequential(lambda i: i, 1_000, lambda drawn: Fit(least, 1, 0.0, len(drawn)))[0] == [*range(1_000)]
    begun = threading.Barrier(4)                # it would wait forever if there were not four at once
    assert sequential(lambda i: begun.wait(20), 64, fit_of, at_once=4)[0]


def test_what_pearson_alone_calls_wrong_is_settled_first(monkeypatch):
    """At each look, against its own bar; and what was settled is what is returned."""
    asked = []
    monkeypatch.setattr(looking, "settled", lambda fit, bar: asked.append((fit.samples, fit.p_value, bar)) or replace(
        fit, p_value=0.25))
    drawn, fit, bar = sequential(lambda i: i, 8, lambda drawn: Fit(1e-9, 1, 0.0, len(drawn)), looks=2)
    assert fit.p_value == 0.25 and drawn == [*range(8)] and bar == FALSE_ALARM / 2
    assert asked == [(4, 1e-9, FALSE_ALARM / 10), (8, 1e-9, FALSE_ALARM / 2)]


def test_what_is_said_while_one_waits(monkeypatch):
    """At the first look and at the second; the third is not needed. The bar moves with each sample."""
    said, stepped = [], []
    monkeypatch.setattr(looking, "announced", lambda words, at_once, steps: (
        said.append((words, steps)) or nullcontext(lambda: stepped.append(1))))
    drawn, _, _ = sequential(lambda i: i, 1_000, lambda drawn: Fit(float(len(drawn) < 500), 1, 0.0, len(drawn)), 3)
    assert drawn == [*range(500)]
    assert said == [(f"drawing samples {numbers} of at most 1,000", 250) for numbers in ("1 to 250", "251 to 500")]
    assert len(stepped) == 500


def test_who_waits_for_a_silent_server_can_leave():
    """An interruption while two wait is heard at once, and no other request begins. Nor does the program wait."""
    begun, silent = [], threading.Event()

    def interrupted():
        raise KeyboardInterrupt

    def draw(number):
        begun.append(threading.current_thread().daemon)
        return silent.wait(60) if number > 2 else number

    with pytest.raises(KeyboardInterrupt):
        looking.drawn_by(draw, range(9), 2, interrupted)
    silent.set()
    assert len(begun) <= 5 and all(begun)               # three that answer, and two that wait


def test_whatever_ends_a_thread_ends_the_wait():
    def draw(number):
        raise SystemExit(f"at {number}")

    ended = []
    waiting = threading.Thread(target=lambda: ended.append(pytest.raises(SystemExit, looking.drawn_by, draw, [4], 1)),
                               daemon=True)
    waiting.start()
    waiting.join(60)
    assert ended


def test_a_parameter_that_is_tried_goes_before_the_one_that_is_asked_for():
    endpoint, sent = Endpoint("http://made.up", [1, 2], 3, {"top_k": 5}), []
    endpoint.way = SimpleNamespace(through="", post=lambda where, data, timeout: sent.append(json.loads(data)) or (
        200, b'{"choices": [{"text": "a"}]}'))
    for more in {}, {"top_k": 1, "seed": 8}:
        endpoint._ask({"n": 1}, 7, more)
    assert [(asked["top_k"], asked["seed"], asked["n"], asked["prompt"]) for asked in sent] == [
        (5, 7, 1, [1, 2]), (1, 8, 1, [1, 2])]


@pytest.mark.parametrize("ids", ["a text", [1, 2]])
def test_a_parameter_is_taken_if_the_first_token_is_the_same_with_every_seed(ids):
    """Two dozen seeds, each once."""
    def takes(reply) -> tuple[bool, list]:
        asked = []
        server = SimpleNamespace(prompt=ids, complete=lambda seed, **more: asked.append((seed, more)) or {
            "text": reply(seed)})
        return doubts.takes(server, "top_k", 7), asked

    taken, asked = takes(lambda seed: "same")
    assert taken and [seed for seed, _ in asked] == [*range(7, 31)]
    assert all(more["top_k"] == 1 and more["max_tokens"] == 1 for _, more in asked)
    assert not takes(lambda seed: "other" if seed == 30 else "same")[0]


def test_a_reply_has_as_many_tokens_as_this_request_asked_for():
    endpoint = Endpoint("http://made.up", [1, 2], 3, {})
    endpoint.way = SimpleNamespace(through="", post=lambda *its: (
        200, b'{"choices": [{"text": "a"}], "usage": {"completion_tokens": 5}}'))
    assert endpoint._ask({}, 7, {"max_tokens": 5}) == {"text": "a"}
    with pytest.raises(EndpointError, match="says that it wrote 5 tokens where 3 and ignore_eos were asked for"):
        endpoint._ask({}, 7, {})


@pytest.mark.parametrize("written, ended, says", [
    (3, "length", True), (3, None, True), (None, "length", True), (None, None, False)])
def test_a_length_is_said_by_a_number_or_by_how_a_text_ended(written, ended, says):
    endpoint = Endpoint("http://made.up", [1, 2], 3, {})
    for again in (written, ended), (3, "length"):               # of one that does not say it no other does
        endpoint._look_at_length({"text": "a", "finish_reason": again[1]}, {"completion_tokens": again[0]}, 3)
    assert endpoint.says_length == says


def test_a_prompt_has_as_many_tokens_as_the_last_number_that_was_said():
    endpoint, said = Endpoint("http://made.up", [1, 2], 3, {}), []
    for usage in None, [7], "7", 7, {"prompt_tokens": 7}, {"prompt_tokens": "9"}, {"prompt_tokens": 8}, {}:
        endpoint._look_at_length({"text": "a"}, usage, 3)
        said.append(endpoint.prompt_tokens)
    assert said == [None] * 4 + [7, 7, 8, 8]


@pytest.mark.parametrize("ended", ["stop", "eos_token", "abort"])
def test_a_text_that_ended_in_any_other_way_is_not_judged(ended):
    endpoint = Endpoint("http://made.up", [1, 2], 3, {})
    with pytest.raises(EndpointError, match=f"ended a text by '{ended}' where 3 tokens"):
        endpoint._look_at_length({"text": "a", "finish_reason": ended}, None, 3)


def test_three_tokens_may_have_three_thousand_characters():
    endpoint = Endpoint("http://made.up", [1, 2], 3, {})
    endpoint._look_at_length({"text": "a" * 3_000}, None, 3)
    with pytest.raises(EndpointError, match="wrote 3,001 characters where 3 tokens"):
        endpoint._look_at_length({"text": "a" * 3_001}, None, 3)


def test_if_no_thread_more_can_be_started_the_others_begin_no_other(monkeypatch):
    begun, started, start = [], [], threading.Thread.start

    def few(thread):
        started.append(thread)
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    def draw(number):
        begun.append(number)
        time.sleep(0.01)

    monkeypatch.setattr(threading.Thread, "start", few)
    with pytest.raises(RuntimeError, match="new thread"):
        looking.drawn_by(draw, range(1_000), 9)
    for thread in started[:2]:
        thread.join()
    assert len(begun) < 1_000


def test_every_witness_asks_as_many_at_once_as_was_asked_for(monkeypatch):
    heard, server = [], Endpoint("http://made.up", [1], 2, {}, at_once=3)
    for name in "sequential", "judge":
        monkeypatch.setattr(witnesses, name, lambda *_, at_once=1, **__: heard.append(at_once) or 1 / 0)
    for ask in (lambda: against_plain(server, server, 9, 0), lambda: against_logprobs(server, 9, 0),
                lambda: witnesses.against_model(server, TableModel(3, 1), [1], 9, 0)):
        with pytest.raises(ZeroDivisionError):
            ask()
    assert heard == [3, 3, 3]


def test_prompts_are_asked_as_many_at_once_as_was_asked_for():
    """Three wait for one another."""
    begun = threading.Barrier(3)

    class Waits(Endpoint):
        def complete(self, seed, **more):
            return {}

        def ids(self, dice):
            begun.wait(20)
            return self.prompt

    assert answers(Waits("http://made.up", [1], 2, {}, at_once=3), [[5], [7], [4]]) == [[5], [7], [4]]


def test_many_at_once_are_in_order():
    assert looking.drawn_by(lambda number: number ** 2, range(9), 2) == [number ** 2 for number in range(9)]


def test_replies_come_in_the_order_of_their_requests():
    """The second of two ends first."""
    ended = threading.Event()
    assert looking.drawn_by(lambda number: ended.set() or "second" if number == 7 else ended.wait(60) and "first",
                            [3, 7], 2) == ["first", "second"]


def test_one_answer_that_fails_ends_the_rest(serve, capsys):
    server = serve(lambda body: (500, b"full") if body["seed"] == 20 else completion(body))
    assert run(server, "--at-once", "8", samples=5_000) == 2 and "answered 500" in capsys.readouterr().err
    assert len(server.asked) < 60


def logprobs(change):
    """A reply whose logprobs were changed."""
    return lambda body: (lambda choice: {**choice, "logprobs": change(choice["logprobs"])})(completion(body))


@pytest.mark.parametrize("answer, said", [
    (lambda body: (404, b"no such\nmodel \x1b[2J"), "answered 404, without a completion: no such model"),
    (lambda body: (401, b"no"), "answered 401, without a completion (it asks for a key): no"),
    (lambda body: (307, b"there"), "(it names another address: give that one): there"),
    (lambda body: (500, b""), "answered 500"), (lambda body: (500, b"no chunk\n"), "did not answer in full"),
    (lambda body: b"<html>", "answered 200, without a completion: <html>"),
    (lambda body: b"{}", "without a completion"), (lambda body: b'{"choices": []}', "without a completion"),
    (lambda body: b'{"choices": [{"text": 3}]}', "without a completion"),
    (lambda body: b"[" * 100_000, "without a completion"), (lambda body: b"\xff\xfe", "without a completion"),
    (lambda body: b"cut short", "did not answer in full: IncompleteRead"),
    *((lambda body, count=count: json.dumps({"choices": [completion(body)], "usage": {"completion_tokens": count}})
       .encode(), f"wrote {count} tokens where 3") for count in (2, 4)),
    (lambda body: {"text": "abc"}, "gives no logprobs"), (logprobs(lambda said: None), "gives no logprobs"),
    (logprobs(lambda said: {**said, "tokens": []}), "wrote 0 tokens where 3"),
    (logprobs(lambda said: {**said, "top_logprobs": said["top_logprobs"][1:]}), "reports on 2"),
    (logprobs(lambda said: {name: part[1:] for name, part in said.items()}), "wrote 2 tokens where 3"),
    (logprobs(lambda said: {**said, "tokens": ["a", *said["tokens"][1:]]}), "two tokens may have one text"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"a": -9.0}, *said["top_logprobs"][1:]]}), "may have one text"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": 0.0, "token_id:2": 0.0}] * 3}), "add up to 2"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": -1.0}] * 3}), "reports 1 of 5 probabilities"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": "x"}] * 3}), "no logprobs"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": math.nan}] * 3}), "add up to nan"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": 999.0}] * 3}), "no logprobs"),
    (logprobs(lambda said: {**said, "top_logprobs": [{f"token_id:1{i}": -2.0 for i in range(6)}] * 3}), "for the last"),
    *((logprobs(lambda said, name=name: {**said, "tokens": [f"token_id:{name}"] * 3}), "no logprobs")
      for name in ("x", "", " 1", "--1", "1_0", "\u0663", "1" * 41)),
    (logprobs(lambda said: {**said, "tokens": dict.fromkeys(("token_id:1", "token_id:2", "token_id:0"))}), "no lists"),
    (logprobs(lambda said: {**said, "top_logprobs": [{"token_id:1": False}] * 3}), "logprob False"),
    (logprobs(lambda said: {**said, "top_logprobs": [{f"token_id:1{i}": -99.0 for i in range(5)}] * 3}), "add up to"),
    *((logprobs(lambda said, odd=odd: {
        "tokens": ["token_id:9"] * 3,
        "top_logprobs": [{"token_id:9": odd, **{f"token_id:1{i}": -2.0 for i in range(5)}}] * 3}), "add up to")
      for odd in (math.nan, 5.0)),
    (lambda body: completion(body) | {"text": "a" * 4_000}, "wrote 4,000 characters where 3 tokens")],
    ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_reply_is_one_line(serve, answer, said, capsys):
    assert run(serve(answer)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and "\x1b" not in err


def test_a_server_that_is_slow_or_not_there_is_one_line(serve, capsys):
    done = threading.Event()
    assert run(serve(lambda body: done.wait(20) or b""), "--timeout", "0.2") == 2
    done.set()
    assert "did not answer in full: timed out" in capsys.readouterr().err
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert main(["endpoint", f"http://127.0.0.1:{free.getsockname()[1]}"]) == 2
    err = capsys.readouterr().err
    assert "did not answer in full: [Errno" in err and err.count("\n") == 1


@pytest.mark.parametrize("argv, said", [
    (["file:///etc/passwd"], "begins with http"), ([""], "begins with http"), (["http://["], "is no address"),
    (["http://x", "--plain", "ftp://y"], "begins with http"), (["http://x", "--temperature", "0.5"], "temperature 1"),
    (["http://x", "--top-k", "3"], "temperature 1"), (["http://x", "--prompt", "a", "--ids", "1"], "not both"),
    (["http://x", "--prompt", "", "--ids", "1"], "not both"),
    (["http://x", "--timeout", "0"], "timeout must be more than 0"),
    (["http://x", "--at-once", "0"], "at_once must be more than 0"),
    (["http://x", "--samples", "-1"], "samples must be"), (["http://x", "--seed", str(2 ** 64)], "32 bits")], ids=str)
def test_what_a_server_cannot_be_asked_is_refused_in_one_line(argv, said, capsys):
    assert main(["endpoint", *argv]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
