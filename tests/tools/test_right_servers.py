"""The judge never calls a right server wrong, however it is configured; and wrong ones it does. And a server may answer
anything at all.
"""

import json
import re
import socket
import ssl
import threading
import time
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.proof import stats
from nanospec.judge import defaults, doubts, replies as bounded, verdict as judge_file
from nanospec.cli.judge import main
from nanospec.judge.replies import on_this_machine
from nanospec.judge.endpoint import OFF, Endpoint, EndpointError
from nanospec.judge.given import answers
from nanospec.judge.other_programs import Recomputed, special_tokens
from nanospec.judge.places import place_of, places_of
from nanospec.judge.witnesses import against_logprobs
from tests.sentences import sentences
from tests.tools.rare_servers import RARE
from tests.tools.right_servers import (BUGS, KINDS, LINES, MODEL, NAMES, PROMPT, WITNESSES, Beside, Made,
                                       configurations, endpoint, running, told, walked_once)

JUDGE = Path(defaults.__file__).parent
DOC = Path(__file__).parents[2] / "docs" / "JUDGE.md"
ENOUGH, PARTS = 2 * len(KINDS) * len(WITNESSES), 6
# What is said of a server that is not judged: the cause.
READS = r"tokens in (the|a) prompt|another prompt|reads the prompt"
CAUSES = {
    "fills in": "sampling parameter of its own|do not take the same parameters|answered 400|ignores|takes no",
    "puts BOS": READS, "has a chat": READS, "merges": READS, "drops": READS, "writes the": READS,
    "two of": "reports 2 of 5", "the drawn token as": "but for the last", "no logprobs": "gives no logprobs",
    "tokens by": "by their ids", "one token": "1 tokens where 2", "stops at": "wrote 1 tokens|ended a text",
    "stops there": "wrote 1 tokens|stop at an end", "never": "never writes", "texts without": "blanks",
    "logits in": "precision", "other weights": "other weights", "knows none": "takes no", "refuses all": "answered 422"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A tenth of the right samples that settle a p-value: the claim holds for any number. And the model's distribution
    after a prompt is walked once.
    """
    monkeypatch.setattr(stats, "STRANGE", 1)
    monkeypatch.setattr(judge_file, "truth_walked", walked_once)
    stats._of_right_samples.cache_clear()
    yield
    stats._of_right_samples.cache_clear()


def says_why(kind, config, sentence):
    causes = [cause for begins, cause in CAUSES.items() if kind.startswith(begins)]
    causes += ["but for the last"] * (config.get("shape") == "drawn last") + ["one refuses"] * ("declines" in config)
    return any(re.search(cause, sentence) for cause in causes) and "\n" not in sentence


@pytest.mark.parametrize("part", range(PARTS))
def test_no_right_server_is_called_wrong(part):
    made = configurations(ENOUGH)
    assert len(made) > 200
    for kind, config, witness, settings, plain, prompt in made[part::PARTS]:
        outcome, sentence = told(config, witness, settings, plain=plain, prompt=prompt)
        assert outcome == "right" or outcome == "not judged" and says_why(kind, config, sentence), (
            outcome, sentence, kind, config, witness, settings, plain, prompt)


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_servers_are_called_wrong(bug):
    """By each witness; also where they fill in what they are not asked for."""
    for witness in WITNESSES:
        for config in {}, {"defaults": {"top_p": 0.8}, "lowest": 0, "declines": ("mirostat",)}:
            samples = 800 if bug == "replaced from the target" else 200         # it is the least off
            assert told(config | {"speculates": bug}, witness, samples=samples)[0] == "WRONG", (witness, config)


def test_the_table_of_the_page_and_every_sentence_of_the_judge():
    """docs/JUDGE.md has each kind in a line, with what each witness says; the other server is a usual one. And for
    each sentence that can be said of a server there is one here, or in RARE, of which it is true.
    """
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOC.read_text().splitlines()
             if line.startswith("| ") and line.count("|") == 5]
    said = {line[0]: line[1:] for line in lines}
    found = {kind: said[line] for line, kinds in LINES.items() for kind in kinds}
    judged = {kind: [told(config, witness, plain={}) for witness in WITNESSES] for kind, config in KINDS.items()}
    verdicts = {kind: [outcome for outcome, _ in of_kind] for kind, of_kind in judged.items()}
    assert verdicts.pop("other weights") == ["not judged", "not judged", "right"]   # right by what it reports alone
    assert found == verdicts
    rare = [(told(config, witness, **asked), words) for config, witness, asked, words in RARE]
    assert [] == [(said, words) for said, words in rare if said[0] != "not judged" or words not in said[1]]
    texts = [text for of_kind in [*judged.values(), [said for said, _ in rare]] for _, text in of_kind]
    for url, given in (("ftp://x", {}), ("http://[", {}), ("http://x", {"timeout": 0}), ("http://x", {"at_once": 0})):
        with pytest.raises(RequestError) as refused:
            Endpoint(url, [0], 1, {}, **given)
        texts.append(str(refused.value))
    assert [] == [words for name in ("doubts", "defaults", "places", "endpoint")
                  for words in sentences(JUDGE / f"{name}.py") if not re.search(words, "\n".join(texts))]


@pytest.mark.slow
def test_the_example_of_the_page_is_right_every_path_walked(capsys):
    code, = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.S)
    exec(code, {})
    assert "every path walked, its distribution is the target's" in capsys.readouterr().out


@pytest.mark.parametrize("settings, tried", [
    ({"temperature": 1, "top_k": None, "top_p": 1.0, "min_p": 0}, []), ({"top_k": 1, "min_p": None}, ["top_k"]),
    ({"temperature": 0.7, "top_p": 0.9, "min_p": 1.0}, ["temperature", "top_p", "min_p"])])
def test_what_turns_nothing_on_is_not_tried(monkeypatch, settings, tried):
    asked, found = SimpleNamespace(settings=settings), []
    monkeypatch.setattr(doubts, "takes", lambda server, name, seed: found.append((server, name, seed)) or True)
    doubts.of_words(asked, 5)
    assert found == [(asked, name, 5) for name in tried]


# What is asked

def test_a_request_leaves_nothing_out_that_a_server_could_fill_in():
    """Every word turns something off, but those that were asked for; a word that is refused is left out, and said."""
    # The min_p that was asked for is what turns it off.
    server = endpoint({"lowest": 0, "declines": ("min_p",), "status": 422}, {"top_p": 0.9, "min_p": 0}, PROMPT, 2)
    server.complete(7)
    asked = server.way.asked[-1]
    server.complete(8)
    assert server.declined == ["min_p"] and "min_p" not in server.way.asked[-1]
    assert asked["top_k"] == server.way.asked[-1]["top_k"] == 0 and server.way.asked[-1]["top_p"] == 0.9
    assert {*OFF} - {*server.way.asked[-1]} == {"min_p"}
    assert {*NAMES} <= {*OFF} and OFF["top_k"] == (-1, 0)


def test_what_turns_a_parameter_off():
    """Who multiplies or cuts by a share, by 1; who adds, or has a chance, by 0; and a few flags."""
    factors = "top_p", "typical_p", "repetition_penalty", "repeat_penalty"
    sums = ("min_p", "xtc_probability", "presence_penalty", "frequency_penalty", "dry_multiplier", "mirostat",
            "dynatemp_range")
    flags = {"ignore_eos": True, "echo": False, "stream": False, "skip_special_tokens": False, "n": 1}
    server = endpoint({}, {}, PROMPT, 2)
    server.complete(7)
    assert server.declined == [] and server.way.asked == [{
        "prompt": PROMPT, "max_tokens": 2, "seed": 7, **dict.fromkeys(factors, 1), **dict.fromkeys(sums, 0), **flags,
        "top_n_sigma": -1, "top_k": -1}]


@pytest.mark.parametrize("status, refused", [(400, True), (422, True), (500, True), (501, True), (404, False),
                                             (503, False)])
def test_by_which_answers_a_word_is_refused(status, refused):
    """Any other is the server's last word: it is not asked again."""
    server = endpoint({"declines": ("mirostat",), "status": status}, {}, PROMPT, 2)
    with nullcontext() if refused else pytest.raises(EndpointError, match=f"answered {status}"):
        server.complete(7)
    assert server.declined == (["mirostat"] if refused else None) and (len(server.way.asked) == 1) != refused


@pytest.mark.parametrize("url", ["http://a:1/b", "http://a:1/b/", "http://a:1/b/v1", "http://a:1/b/v1/"])
def test_at_which_address_a_server_is_asked(url):
    assert Endpoint(url, PROMPT, 2, {}).where == "http://a:1/b/v1/completions"


def test_all_that_a_reply_says_has_one_time(monkeypatch):
    """5 seconds: after one of them the next byte has four, and half a second before the end only that."""
    now, given = iter([10.0, 11.0, 14.5, 15.0]), []
    monkeypatch.setattr(bounded, "perf_counter", now.__next__)
    sock = SimpleNamespace(gettimeout=lambda: 5.0, settimeout=given.append)
    reply = bounded.Bounded(SimpleNamespace(readinto=lambda buffer: 3, close=lambda: None), sock)
    assert [reply.readinto(bytearray(9)) for _ in range(2)] == [3, 3] and given == [4.0, 0.5]
    with pytest.raises(TimeoutError, match="still answering after 5 seconds"):
        reply.readinto(bytearray(9))


def test_a_reply_may_have_as_many_bytes_as_are_allowed(monkeypatch):
    """Seven, and not one more; usually as many as docs/JUDGE.md says."""
    page = (JUDGE.parents[1] / "docs" / "JUDGE.md").read_text()
    assert f"{bounded.MOST_BYTES / 2 ** 20:g} MiB at most" in page
    monkeypatch.setattr(bounded, "MOST_BYTES", 7)
    sock, sizes = SimpleNamespace(gettimeout=lambda: 3600.0, settimeout=lambda seconds: None), iter([4, 3, 0, 1])
    closed = []
    reply = bounded.Bounded(SimpleNamespace(readinto=lambda buffer: next(sizes), close=lambda: closed.append(1)), sock)
    assert [reply.readinto(bytearray(9)) for _ in range(3)] == [4, 3, 0]
    with pytest.raises(OSError, match="more than 7 bytes"):
        reply.readinto(bytearray(9))
    reply.close()                                       # and gives the socket back
    assert closed and reply.closed


def test_what_a_server_takes_is_found_out_once_for_all_prompts():
    """The word that it refuses stands in its first request, and once alone."""
    server = endpoint({"declines": ("min_p",), "names": "texts"}, {"temperature": 0}, PROMPT, 2)
    assert len(answers(server, [PROMPT, [4, 1], [2, 2, 5]])) == 3
    assert ["min_p" in asked for asked in server.way.asked].count(True) == 2
    assert [asked["prompt"] for asked in server.way.asked][-1] == [2, 2, 5]


@pytest.mark.parametrize("error, times", [(ConnectionResetError, 2), (TimeoutError, 1)])
def test_a_dead_server_is_asked_once(error, times):
    """Those that wait for the first answer do not fail one after the other, each after its own timeout. Who hangs up
    may do so at a word: so it is asked with the words that turn something off, and without.
    """
    asked = []

    def post(url, body, timeout):
        asked.append(timeout)
        raise error("it hung up")

    server = Endpoint("http://made.up", PROMPT, 2, {})
    server.way = SimpleNamespace(post=post, through="")
    for _ in range(3):
        with pytest.raises(EndpointError, match="hung up"):
            server.complete(7)
    assert len(asked) == times


def test_it_finds_out_once_what_is_taken(serve, capsys):
    server = serve(Made(declines=("xtc_probability", "typical_p")))
    assert run(server, "--at-once", "4") == 0
    assert "It was asked without typical_p, xtc_probability, which it refuses." in capsys.readouterr().out
    assert len(server.asked) < 150 + len(OFF) + 5


# A server by a socket

class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64

    def __init__(self, made):
        self.made, self.asked = made, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        status, said = self.server.made.answer(body)
        said = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args):
        """Nothing on stderr."""


@pytest.fixture
def serve():
    with running(Server) as start:
        yield start


def run(server, *more, samples=150):
    return main(["endpoint", server.url, "--samples", str(samples), "--new", "2", "--timeout", "3600", "--ids",
                 *map(str, PROMPT), *more])


def test_a_server_with_defaults_by_the_command(serve, capsys, monkeypatch, tmp_path):
    """Of a generation_config.json, and a folder that has them too; a wrong one is still wrong."""
    monkeypatch.setattr("nanospec.cli.judge.load_with_transformers",
                        lambda folder: SimpleNamespace(config=SimpleNamespace(eos_token_id=[7, 5], bos_token_id=6)))
    monkeypatch.setattr("nanospec.cli.judge.recomputed", lambda model: MODEL)
    filled = {"defaults": {"top_p": 0.8, "top_k": 3}}
    assert run(serve(Made(**filled))) == 0
    assert run(serve(Made(**filled)), "--truth", str(tmp_path), samples=300) == 0
    assert run(serve(Made(**filled, speculates="all is accepted"))) == 1
    capsys.readouterr()
    assert run(serve(Made(reads=lambda ids: [6, *ids], counts=None)), "--truth", str(tmp_path), samples=300) == 2
    assert "reads the prompt with token 6 in front" in capsys.readouterr().err


def test_special_tokens_are_named_in_either_config():
    model = SimpleNamespace(config=SimpleNamespace(bos_token_id=1, eos_token_id=[2, 3], pad_token_id=None),
                            generation_config=SimpleNamespace(eos_token_id=4))
    assert special_tokens(model) == [1, 2, 3, 4]


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(serve, capsys, monkeypatch):
    """Nor for what no_proxy names, and one for http is not asked for what is at an https address."""
    proxy = serve(SimpleNamespace(answer=lambda body: (503, {"error": "no such host"})))
    for name in "http_proxy", "HTTP_PROXY":
        monkeypatch.setenv(name, proxy.url)
    for name in "no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY":
        monkeypatch.delenv(name, raising=False)
    assert run(serve(Made())) == 0 and proxy.asked == []
    capsys.readouterr()
    assert main(["endpoint", "http://far.invalid"]) == 2
    assert "answered 503 (asked through the proxy that the environment names)" in capsys.readouterr().err
    monkeypatch.setenv("no_proxy", "near.invalid")
    assert ["proxy" in bounded.Way(url).through for url in (
        "http://far.invalid", "http://near.invalid", "https://far.invalid", "http://localhost:1")] == [
            True, False, False, False]
    assert [on_this_machine(host) for host in ("localhost", "a.localhost", "127.1.2.3", "::1", "0.0.0.0", "10.0.0.1",
                                               "far.invalid", "")] == [True] * 5 + [False] * 3


# A server that answers anything

def bytes_of(lines):
    """serve these bytes to whoever asks, one after the other; an iterator may have no end."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection):
        with connection:
            connection.recv(65536)
            try:
                for part in lines():
                    connection.sendall(part)
            except OSError:
                pass                    # whoever asked has gone

    def accept():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listening


def endless(part, pause=0.0, head=b""):
    def lines():
        yield head
        while True:
            time.sleep(pause)
            yield part
    return lines


OK = b"HTTP/1.1 200 OK\r\n"
LONG = b"x" * 65536


@pytest.mark.parametrize("lines, said", [
    (endless(LONG, head=OK + b"\r\n"), "more than 100,000 bytes"),
    (endless(LONG, head=OK + b"Content-Length: 3000000000\r\n\r\n"), "more than 100,000 bytes"),
    (endless(b"x", 0.1, OK + b"\r\n"), "still answering after 0.5 seconds|timed out"),
    (endless(b"X: y\r\n", 0.1, OK), "still answering after 0.5 seconds|timed out"),
    (endless(b"HTTP/1.1 100 Continue\r\n\r\n", 0.05), "still answering after 0.5 seconds|timed out"),
    (endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 999), "more than 100,000 bytes"),
    (endless(LONG, head=OK), "more than 100,000 bytes|line"),
    (endless(LONG, head=OK + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n"), "more than 100,000 bytes"),
    (lambda: [OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nxxxxx"], "did not answer in full"),
    (lambda: [OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"F" * 60000 + b"\r\n"], "did not answer in full"),
    (lambda: [OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}"], "answered 200|did not answer"),
    (lambda: [b"HTTP/1.1 307 Go\r\nLocation: http://far.invalid/\r\nContent-Length: 0\r\n\r\n"], "answered 307"),
    (lambda: [b"\x00\xff" * 99], "did not answer in full"), (lambda: [b""], "did not answer in full")])
def test_what_a_server_answers_is_bounded(lines, said, capsys, monkeypatch):
    monkeypatch.setattr(bounded, "MOST_BYTES", 100_000)
    began, patience = time.perf_counter(), "0.5" if "0.5 seconds" in said else "3600"
    with bytes_of(lines) as listening:
        assert main(["endpoint", f"http://127.0.0.1:{listening.getsockname()[1]}", "--timeout", patience]) == 2
    err = capsys.readouterr().err
    assert re.search(said, err) and err.count("\n") == 1 and time.perf_counter() - began < 20


def test_what_is_answered_by_https_is_bounded_too(capsys, monkeypatch):
    """The bytes themselves, as if they had been deciphered."""
    monkeypatch.setattr(bounded, "MOST_BYTES", 100_000)
    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", lambda self, plain, **_: plain)
    with bytes_of(lambda: [OK + b"\r\n", *[LONG] * 999]) as listening:
        assert main(["endpoint", f"https://127.0.0.1:{listening.getsockname()[1]}", "--timeout", "3600"]) == 2
    assert "more than 100,000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["token_id:8", "token_id:-1", f"token_id:{10 ** 30}"])
@pytest.mark.parametrize("new", [1, 3])
def test_a_token_that_the_model_does_not_have_is_a_sentence(token, new, capsys, monkeypatch, tmp_path, serve):
    monkeypatch.setattr("nanospec.cli.judge.load_with_transformers",
                        lambda folder: SimpleNamespace(config=None))
    monkeypatch.setattr("nanospec.cli.judge.recomputed", lambda model: Recomputed(MODEL, 8))
    made = Made()
    made.name = lambda one: token
    assert run(serve(made), "--truth", str(tmp_path), "--new", str(new)) == 2
    err = capsys.readouterr().err
    assert "the model in the folder has 0 to 7" in err and err.count("\n") == 1


@pytest.mark.parametrize("given", [{"timeout": float("inf")}, {"timeout": float("nan")}, {"timeout": 1e9},
                                   {"timeout": 86_401}, {"at_once": 257}, {"at_once": 10 ** 9}], ids=str)
def test_no_request_waits_for_ever(given):
    with pytest.raises(RequestError, match=f"{[*given][0]} must be more than 0"):
        Endpoint("http://x", [0], 1, {}, **given)


def test_the_longest_wait_and_the_most_requests_at_once_are_allowed():
    server = Endpoint("http://x", [0], 1, {}, timeout=86_400, at_once=256)
    assert (server.timeout, server.at_once) == (86_400, 256)


@pytest.mark.parametrize("given, words", [
    ({"timeout": "3"}, "timeout must be a number"), ({"at_once": 1.5}, "at_once must be a whole number"),
    ({"prompt": None}, "the prompt must be a list of token ids"), ({"prompt": {1}}, "the prompt must be a list"),
    ({"url": None}, "begins with http")], ids=str)
def test_what_is_no_request_is_refused(given, words):
    with pytest.raises(RequestError, match=words):
        Endpoint(**{"url": "http://x", "prompt": [0], "new": 1, "settings": {}} | given)


# What the judge draws itself

def test_a_server_that_draws_as_we_do_shares_no_uniforms_with_the_judge():
    """It takes the first uniforms of torch's generator with the request's seed."""
    class Ours(Made):
        def answer(self, body):
            dice = Dice([body["seed"]])
            dice.refill(body["max_tokens"])
            self.uniforms = iter(dice.u[0].tolist())
            return super().answer(body)

    def drawn(dice, row):
        u, token = next(made.uniforms), 0
        while u >= row[token] and token < len(row) - 1:
            u, token = u - row[token], token + 1
        return token

    made = Ours()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.tools.right_servers.drawn", drawn)
        for seed in 0, 10 ** 9:
            server = Endpoint("http://made.up", PROMPT, 2, {}, at_once=1)
            server.way = Beside(made)
            assert against_logprobs(server, 1_500, seed).p_value > 0.001


def test_what_a_parameter_of_its_own_leaves():
    """By hand: tokens 0, 1 and 2 are known, of .5, .3 and .1; the rest is .1. Tokens 0 and 1 come in their proportions,
    and 2 never, as with a min_p. Of as many samples without a gap nothing is explained.
    """
    place = [defaults.Place(token, [0, 1, 2], token, [.5, .3, .1, .1]) for token in (0, 1, 2, 3)]
    cut = [(i, [place[0 if i % 8 < 5 else 1]]) for i in range(160)]
    leaves = defaults.narrowest(cut)
    assert leaves(place[0], set()) == [True, True, False] and defaults.explains(cut, [], leaves)
    whole = [(i, [place[0 if i % 10 < 5 else 1 if i % 10 < 8 else i % 10 - 6]]) for i in range(160)]
    assert defaults.narrowest(whole)(place[0], set()) == [True, True, True]
    assert not defaults.explains(whole, [], leaves) and not defaults.explains(whole, [], defaults.narrowest(whole))
    # Each limit comes from another place: top_k from the flat one, top_p and min_p from the steep one.
    flat, steep = (defaults.Place(cell, [0, 1, 2, 3, 4], cell, row) for cell, row in (
        (2, [.2, .2, .2, .2, .2, 0]), (1, [.6, .1, .1, .1, .1, 0])))
    other = defaults.Place(0, [0, 1, 2, 3], 0, [.4, .3, .2, .1, 0])
    assert defaults.narrowest([(0, [flat, steep])])(other, set()) == [True, True, False, False]
    least = defaults.narrowest([(0, [defaults.Place(0, [0, 1, 2, 3], 0, [.4, .3, .2, .1, 0])]),
                                (1, [defaults.Place(2, [0, 1, 2, 3], 2, [.5, .24, .2, .06, 0])])])
    assert least(defaults.Place(0, [0, 1, 2], 0, [.8, .1, .1, 0]), set()) == [True, False, False]       # min_p is .4
    # One of the others is at most as likely as the last that is known: no min_p that leaves it leaves less than these.
    rare = [defaults.Place(token, [0, 1, 2], cell, [.5, .3, .15, .05]) for token, cell in ((0, 0), (9, 3))]
    for places in rare, rare[1:]:
        assert defaults.narrowest([(0, places)])(rare[0], set()) == [True, True, True]
    odd = [(i, [place[i % 2]]) for i in range(160)]             # half and half are not 5 to 3
    assert not defaults.explains(odd, [], defaults.narrowest(odd))
    assert defaults.never(cut) == [2] and defaults.never(whole) == [] and defaults.unseen(place[0], {1}) == [
        True, False, True]


def test_the_likeliest_of_what_is_reported_are_known():
    """Of two that are as likely the one of the lesser number."""
    found = place_of(3, {3: .25, 7: .5, 1: .125, 2: .125}, 3)
    assert (found.known, found.row, found.cell) == ([7, 3, 1], [.5, .25, .125, .125], 1)
    assert place_of(3, {3: .5, 7: .505}, 3).row == [.505, .5, 0, 0]             # rounded, they may be more than 1


def test_what_a_model_says_of_each_token_is_after_what_was_asked_for(monkeypatch):
    """Of the two likeliest of three tokens, after a temperature, and of the third alone."""
    monkeypatch.setattr("nanospec.judge.places.BELOW", 2)
    found = places_of(MODEL, [3, 2], [1, 4], {"temperature": .5, "top_k": 3})
    for place, text in zip(found, ([3, 2], [3, 2, 1]), strict=True):
        best = MODEL(torch.tensor([text]))[0, -1].topk(3)
        assert place.known == best.indices[:2].tolist()
        assert place.row == pytest.approx((best.values / .5).softmax(0).tolist())
        assert place.cell == ([*place.known, place.token].index(place.token))
    assert [place.token for place in found] == [1, 4]


def test_how_many_tokens_of_its_own_are_left_and_how_many_never_come():
    """The second of four equal ones is the last that came: top_k is 2. Two that never come may be ends of text, three
    are too many; ten times is often.
    """
    leaves = defaults.narrowest([(0, [defaults.Place(1, [0, 1, 2, 3], 1, [.25, .25, .25, .25, 0])])])
    assert leaves(defaults.Place(0, [0, 1, 2, 3], 0, [.1, .1, .1, .1, .6]), set()) == [True, True, False, False]
    for known, row, gone in ([7, 5, 3], [.5, .25, .25, 0], [5, 3]), ([7, 5, 3, 1], [.25, .25, .25, .25, 0], []):
        assert defaults.never([(0, [defaults.Place(7, known, 0, row)] * 60)]) == gone
    for times, gone in (20, [5]), (19, []):
        assert defaults.never([(0, [defaults.Place(7, [7, 5], 0, [.5, .5, 0])] * times)]) == gone


def test_the_last_of_the_likeliest_is_one_of_the_others_with_what_ties_with_it():
    """4 and 6 have .125, as has what lies beyond them. 8 and 2 stay what they are."""
    for cell, found in enumerate([0, 1, 4, 4, 4]):
        place = doubts.above_the_last(defaults.Place(9, [8, 2, 4, 6], cell, [.375, .25, .125, .125, .125]))
        assert place == defaults.Place(9, [8, 2], found, [.375, .25, 0, 0, .375])


def test_where_a_text_repeats_the_end_of_a_prompt():
    """Or all of it, up to 40 characters; here from the b on. One character will do."""
    long = "a" + "b" * 40
    assert [doubts.begins(text, prompt) for prompt, text in (
        ("abc", "abcd"), ("abc", "c"), ("c", "cd"), (long, long[1:]), ("abc", "abd"), ("c", ""), (long, long))] == [
            True, True, True, True, False, False, False]


@pytest.mark.parametrize("context, said", [(5, "reads the prompt twice"), (4, "another prompt, other weights")])
def test_no_server_reads_a_prompt_that_leaves_no_room_for_a_token(context, said, monkeypatch):
    monkeypatch.setattr(doubts, "apart", lambda place, target, read, settings: float(read != [1, 2, 1, 2]))
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=3, context=context))
    with pytest.raises(EndpointError, match=said):
        doubts.of_prompt(Endpoint("http://x", [1, 2], 1, {}), target, [1, 2], {0: 1.0}, {})


@pytest.mark.parametrize("token, special, said", [
    (63, [], "with token 63 in front"), (64, [], "another prompt"), (64, [64], "with token 64 in front")])
def test_which_tokens_may_stand_in_front_of_a_prompt(token, special, said, monkeypatch):
    monkeypatch.setattr(doubts, "apart", lambda place, target, read, settings: float(read != [token, 1, 2]))
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=100, context=9))
    with pytest.raises(EndpointError, match=said):
        doubts.of_prompt(Endpoint("http://x", [1, 2], 1, {}), target, [1, 2], {0: 1.0}, {}, special)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("by, name", [
    *(("takes", name) for name in ("temperature", "top_k", "top_p", "min_p")),
    *(("changes", f"{kind}_penalty") for kind in ("repetition", "repeat", "presence", "frequency"))])
def test_two_servers_of_which_one_alone_takes_a_parameter_are_not_compared(by, name, which, monkeypatch):
    servers = [SimpleNamespace(prompt_tokens=3, declined=[], prompt="", says_length=True) for _ in range(2)]
    for asked in "report", "of_itself", "takes", "changes":
        monkeypatch.setattr(doubts, asked, lambda *_: None)
    monkeypatch.setattr(doubts, by, lambda server, asked, seed: asked == name and server is servers[which])
    with pytest.raises(EndpointError, match=f"do not take the same parameters: .*{name}"):
        doubts.of_two(*servers, [("a", "b")] * 99, 0)


def test_a_penalty_is_on_all_that_was_written_before():
    """By hand: tokens 0 and 1, of .5 each. The second of a text is never the first one's."""
    place = [defaults.Place(token, [0, 1], token, [.5, .5, 0.0]) for token in (0, 1)]
    penalised = [(i, [place[i % 2], place[1 - i % 2]]) for i in range(80)]
    assert defaults.explains(penalised, [], defaults.unseen)
    assert not defaults.explains([(i, [place[i % 2], place[i // 2 % 2]]) for i in range(80)], [], defaults.unseen)


@pytest.mark.parametrize("off, apart", [(.012, True), (.008, False)])
def test_two_reports_of_one_distribution_are_no_hundredth_apart(monkeypatch, off, apart):
    """Over the tokens that both name: of several that are as likely each may name another as the last."""
    servers = [SimpleNamespace(prompt_tokens=None, declined=[], prompt="", says_length=True, report={
        "a": .5 + more, "b": .4 - more, "cd"[more > 0]: .1}) for more in (0, off)]
    monkeypatch.setattr(doubts, "report", lambda server, seed: server.report)
    for name in "takes", "changes", "of_itself":
        monkeypatch.setattr(doubts, name, lambda *_: False)
    with pytest.raises(EndpointError, match="first token what is 0.012 apart") if apart else nullcontext():
        doubts.of_two(*servers, [("a", "b")] * 99, 0)


@pytest.mark.parametrize("one, other, says, said", [
    ("d", "e", (True, True), None), ("bd", "be", (True, True), None), ("d", "fe", (True, True), None),
    ("bd", "e", (True, True), "one repeats the end of the prompt"), ("d", "e", (False, False), None),
    ("d", "fe", (True, False), "do not say how many tokens they wrote")])
def test_where_the_texts_of_two_servers_begin_and_how_long_they_are(one, other, says, said, monkeypatch):
    """After "cab". The first reports on its first token, and the other does not."""
    servers = [SimpleNamespace(prompt_tokens=3, declined=[], prompt="cab", says_length=its, report=report)
               for its, report in zip(says, ({"a": .5, "b": .25}, None))]
    monkeypatch.setattr(doubts, "report", lambda server, seed: server.report)
    for name in "takes", "changes", "of_itself":
        monkeypatch.setattr(doubts, name, lambda *_: False)
    with pytest.raises(EndpointError, match=said) if said else nullcontext():
        doubts.of_two(*servers, [(one, other)] * 99, 0)


@pytest.mark.parametrize("declined, pairs, said", [
    (([], ["min_p"]), [("d", "e")], "one refuses none, the other min_p"),
    ((["top_k", "n"], ["min_p"]), [("d", "e")], "one refuses top_k, n, the other min_p"),
    (([], []), [("d", "d "), ("e", "e\n")], "but for blanks at their ends"),
    (([], []), [("d", " d"), ("e", "\ne")], "but for blanks at their ends"),
    (([], []), [("bd", "e"), ("d", "e")], None)])
def test_what_two_servers_refuse_and_leave_out_of_their_texts(declined, pairs, said, monkeypatch):
    """That a few texts begin as the prompt "cab" ends is chance."""
    servers = [SimpleNamespace(prompt_tokens=3, declined=its, prompt="cab", says_length=True) for its in declined]
    for name in "takes", "changes", "of_itself", "report":
        monkeypatch.setattr(doubts, name, lambda *_: None)
    with pytest.raises(EndpointError, match=said) if said else nullcontext():
        doubts.of_two(*servers, pairs * 99, 0)


def test_a_penalty_is_taken_if_it_changes_the_text_at_temperature_0():
    def complete(seed, **more):
        if "repeat_penalty" in more:
            raise EndpointError("it knows no such word")
        return {"text": "xyx" if more.get("presence_penalty") == 2 else "xxx"}

    server = SimpleNamespace(new=3, complete=complete)
    assert [doubts.changes(server, name, 5) for name in (
        "presence_penalty", "frequency_penalty", "repeat_penalty")] == [True, False, False]


def test_two_reports_are_compared_by_the_ids_of_tokens():
    """Several may have one text."""
    asked, reply = [], {"logprobs": {"top_logprobs": [{"token_id:3": 0.0}]}}
    server = SimpleNamespace(complete=lambda seed, **more: asked.append((seed, more)) or reply)
    assert doubts.report(server, 7) == {"token_id:3": 1.0}
    assert asked == [(7, {"logprobs": 5, "return_tokens_as_token_ids": True})]


def test_its_own_defaults_are_looked_for_with_all_that_turns_them_off(monkeypatch):
    """What it was asked with and refused before, as part of other settings, is asked anew."""
    asked = []

    def reported(server, seed):
        asked.append((server.settings, server.declined, seed))
        raise EndpointError("it reports none")

    monkeypatch.setattr(doubts, "reported", reported)
    monkeypatch.setattr(doubts, "CONTROL", 1)
    server = Endpoint("http://127.0.0.1:1", [1], 2, {"top_k": 3}, at_once=1)
    server.declined = ["min_p"]
    doubts.of_itself(server, 5)
    assert asked == [({}, None, 5)] and (server.settings, server.declined) == ({"top_k": 3}, ["min_p"])


@pytest.mark.parametrize("prompt, had", [([4, 1], [4, 1]), ("ab", ())])
def test_its_own_penalty_may_be_on_the_prompt_if_its_tokens_are_known(prompt, had, monkeypatch):
    asked = []
    monkeypatch.setattr(doubts, "reported", lambda server, seed: [seed])
    monkeypatch.setattr(doubts, "CONTROL", 2)
    monkeypatch.setattr(doubts, "of_settings", lambda server, drawn, ids: asked.append((drawn, ids)))
    doubts.of_itself(Endpoint("http://x", prompt, 3, {}, at_once=1), 5)
    assert asked == [([(0, [5]), (1, [6])], had)]
