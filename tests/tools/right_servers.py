"""Servers that are right, in many configurations, and some that are wrong: what the judge is tried on.

A configuration is a dictionary; what it does not say is as in USUAL. The model is a table in which every context has a
distribution of its own, so whoever reads another prompt writes from another distribution.
"""

import json
import math
import random
import threading
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import product

from nanospec.errors import NanospecError
from nanospec.judge.endpoint import Endpoint
from nanospec.judge.sampler import truth_walked
from nanospec.judge.witnesses import against_logprobs, against_model, against_plain
from nanospec.proof.tables import TableModel

V, END, BOS = 8, 7, 6
MODEL, DRAFT_MODEL = TableModel(V, 1, zeros=0), TableModel(V, 2, zeros=0)
PROMPT = [3, 1, 4]
for model in MODEL, DRAFT_MODEL:
    model.logits *= 2.5
NAMES = ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty")
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
           "presence_penalty": 0.0}
USUAL = {
    "defaults": {},             # what it fills in for what a request leaves out
    "ignores": (),              # parameters that it does not know
    "declines": (),             # words that it answers with `status`
    "status": 400,              # or 0: it hangs up
    "lowest": -1,               # of top_k: what is below is declined
    "reads": lambda ids: ids,   # the prompt, as it reads it
    "counts": True,             # usage, or None, or a number that is added to what it read
    "ends": "goes on",          # after an end of text; or "never ends", "stops", "stops silently", "stops, says why"
    "most": 99,                 # tokens of a reply
    "reports": "raw",           # or "processed"
    "digits": None,             # to which a logprob is rounded
    "shape": "drawn added",     # or "drawn last", "not added", "many", "capped"
    "names": "ids",             # or "texts", "others" of a larger model
    "logprobs": True,           # whether it has any
    "text": lambda text, prompt: text,
    "noise": 0.0,               # of its logits, as of another precision
    "noisy from": 0,            # how many tokens were written before it has any
    "echo": False,              # the prompt's last token is in front of its own, and counted
    "speculates": None}         # a bug


@cache
def distribution_after(model, context):
    return tuple(model.logits[model._hash(context)].softmax(-1).tolist())


def processed(probs, asked, context, prompt):
    """As SGLang: penalties, temperature, top-k, top-p, min-p. (vLLM takes min-p before top-k.)"""
    logits = [math.log(part) for part in probs]
    for token in {*context}:
        logits[token] *= asked["repetition_penalty"] if logits[token] < 0 else 1 / asked["repetition_penalty"]
    for token in {*context[len(prompt):]}:
        logits[token] -= asked["presence_penalty"]
    if asked["temperature"] == 0:
        return tuple(float(token == max(range(V), key=lambda one: logits[one])) for token in range(V))
    weights = [math.exp(logit / asked["temperature"]) for logit in logits]
    order = sorted(range(V), key=lambda token: -weights[token])
    kept = order[:asked["top_k"]] if asked["top_k"] > 0 else order
    total, nucleus = 0.0, []
    for token in kept:
        if total < asked["top_p"] * sum(weights[one] for one in kept):
            nucleus.append(token)
            total += weights[token]
    kept = {token for token in nucleus if weights[token] >= asked["min_p"] * weights[order[0]]}
    total = sum(weights[token] for token in kept)
    return tuple(weights[token] / total if token in kept else 0.0 for token in range(V))


def drawn(dice, probs):
    return dice.choices(range(V), probs)[0]


def speculated(bug, dice, p, q, place, before):
    """A token by Leviathan's rule with a bug in it. p: of the target, q: of the draft model, warped both."""
    if bug == "the node before" and place:
        return drawn(dice, before)
    if bug == "the bonus token is the draft model's" and place % 2:
        return drawn(dice, q)
    token = drawn(dice, q)
    coin, ratio = dice.random(), p[token] / q[token] if q[token] else 1.0
    if bug == "all is accepted" or coin < (1 / ratio if bug == "the ratio upside down" and ratio else ratio):
        return token
    left = [max(0.0, a - b) for a, b in zip(p, q)]
    if bug == "replaced from the target" or sum(left) == 0:
        left = p
    if bug == "replaced by the likeliest":
        return max(range(V), key=lambda one: left[one])
    return drawn(dice, left)


BUGS = ("all is accepted", "the ratio upside down", "replaced from the target", "replaced by the likeliest",
        "the node before", "the bonus token is the draft model's", "temperature of 2", "one seed for all")


class Made:
    """A server of this configuration. answer(body) -> (status, what it says)."""

    def __init__(self, **config):
        self.is_, self.known = USUAL | config, {}

    def answer(self, body):
        its = self.is_
        if its["declines"] and {*its["declines"]} & {*body} or body.get("top_k", 0) < its["lowest"]:
            return its["status"], {"error": "unknown field"}
        asked = NEUTRAL | its["defaults"] | {name: body[name] for name in NEUTRAL
                                             if body.get(name) is not None and name not in its["ignores"]}
        prompt = body["prompt"] if isinstance(body["prompt"], list) else [ord(one) % 5 for one in body["prompt"]]
        context, tokens, tops = [*its["reads"](prompt)], [], []
        read = len(context)
        seed = 0 if its["speculates"] == "one seed for all" else body["seed"]
        dice, before, ended = random.Random(seed), None, "length"
        for place in range(min(body["max_tokens"], its["most"]) - its["echo"]):
            probs, p, q = self.distributions(context, asked, prompt)
            if its["speculates"] == "temperature of 2":
                tokens.append(drawn(dice, q))
            elif its["speculates"]:
                tokens.append(speculated(its["speculates"], dice, p, q, place, before))
            else:
                tokens.append(drawn(dice, p))
            before = p
            tops.append(self.top(probs if its["reports"] == "raw" else p, tokens[-1], body.get("logprobs") or 0))
            context.append(tokens[-1])
            if tokens[-1] == END and its["ends"].startswith("stops"):
                ended = "stop"
                break
        if its["echo"]:
            tokens, tops = [prompt[-1], *tokens], [{self.name(prompt[-1]): 0.0}, *tops]
        return 200, self.said(body, prompt, read, tokens, tops, ended)

    def said(self, body, prompt, read, tokens, tops, ended):
        its = self.is_
        shown = tokens[:-1] if ended == "stop" else tokens
        choice = {"text": its["text"]("".join("abcdef <"[token] for token in shown), body["prompt"])}
        if its["logprobs"] and body.get("logprobs") is not None:
            choice["logprobs"] = {"tokens": [self.name(token) for token in tokens], "top_logprobs": tops}
        if its["counts"] is None or its["ends"] == "stops silently":
            return {"choices": [choice]}
        if its["ends"] == "stops, says why":
            return {"choices": [choice | {"finish_reason": ended}]}
        counts = {"prompt_tokens": read + its["counts"] - 1, "completion_tokens": len(tokens)}
        return {"choices": [choice | {"finish_reason": ended}], "usage": counts}

    def distributions(self, context, asked, prompt):
        """The model's probabilities, those that are drawn from, and those that a bug needs besides: the draft model's,
        or at twice the temperature. Noise is the same for a context at any time.
        """
        key = (*context, *asked.values())
        if key not in self.known:
            probs = distribution_after(MODEL, tuple(context))
            if self.is_["noise"] and len(context) - len(prompt) >= self.is_["noisy from"]:
                noise = random.Random(repr([round(part, 6) for part in probs]))
                probs = [part * math.exp(noise.gauss(0, self.is_["noise"])) for part in probs]
                probs = tuple(part / sum(probs) for part in probs)
            left = [*probs[:END], 1e-30] if self.is_["ends"] == "never ends" else probs
            hot = self.is_["speculates"] == "temperature of 2"
            besides = (probs, asked | {"temperature": 2 * asked["temperature"]}) if hot else (
                distribution_after(DRAFT_MODEL, tuple(context)), asked)
            self.known[key] = (probs, processed(left, asked, context, prompt),
                               self.is_["speculates"] and processed(*besides, context, prompt))
        return self.known[key]

    def name(self, token):
        names = {"ids": f"token_id:{token}", "others": f"token_id:{token + 1}", "texts": "xy"[token % 2]}
        return names[self.is_["names"]]

    @lru_cache(maxsize=1024)
    def top(self, probs, token, top):
        shape = self.is_["shape"]
        best = sorted((one for one in range(V) if probs[one] > 0), key=lambda one: -probs[one])[:min(top, 5)]
        if shape == "many":
            best = sorted(range(V), key=lambda one: -probs[one])
        if shape == "capped":
            best = best[:2]
        if shape == "drawn last" and token not in best:
            best = [*best[:-1], token]
        if shape == "drawn added":
            best = [token, *best]
        digits = self.is_["digits"]
        return {self.name(one): round(math.log(max(probs[one], 1e-30)), digits) if digits else
                math.log(max(probs[one], 1e-30)) for one in best}


class Beside:
    """Stands in for the way to a server: no socket, the same bytes."""

    through = ""

    def __init__(self, made):
        self.made, self.asked = made, []

    def post(self, url, body, timeout):
        body = json.loads(body)
        self.asked.append(body)
        status, said = self.made.answer(body)
        if not status:
            raise ConnectionResetError("it hung up")
        return status, json.dumps(said).encode()


def endpoint(config, settings, prompt, new):
    server = Endpoint("http://made.up", prompt, new, settings, at_once=1)
    server.way = Beside(Made(**config))
    return server


def told(config, witness, settings=None, samples=None, new=2, seed=0, plain=None, prompt=None):
    """(outcome, the sentence): "right", "WRONG", "few" or "not judged". plain: of the other server, None for the same
    configuration without speculation.
    """
    prompt, settings, samples = prompt or PROMPT, settings or {}, samples or SAMPLES[witness]
    server = endpoint(config, settings, prompt, new)
    try:
        if witness == "plain":
            other = endpoint(config | {"speculates": None} if plain is None else plain, settings, prompt, new)
            verdict = against_plain(server, other, samples, seed)
        elif witness == "truth":
            verdict = against_model(server, MODEL, prompt, samples, seed, [BOS, END])
        else:
            verdict = against_logprobs(server, samples, seed)
    except NanospecError as error:
        return "not judged", str(error)
    return "WRONG" if verdict.wrong else "right" if verdict.decided else "few", verdict.why


@cache
def truth_after(target, ids, new, *settings):
    return truth_walked(target, ids, new, **dict(settings))


def walked_once(target, ids, new, **settings):
    """Stands in for truth_walked: many servers are judged by one distribution."""
    return truth_after(target, tuple(ids), new, *settings.items())


SAMPLES = {"plain": 400, "truth": 300, "logprobs": 150}
WITNESSES = (*SAMPLES,)
# What makes a server look wrong that samples rightly: by the words of the table in docs/JUDGE.md.
KINDS = {
    "nothing": {},
    "fills in top_p 0.8 and top_k 3": {"defaults": {"top_p": .8, "top_k": 3}},
    "fills in min_p 0.3": {"defaults": {"min_p": .3}},
    "fills in penalties": {"defaults": {"repetition_penalty": 1.5, "presence_penalty": .5}},
    "fills in top_k 3, takes no -1": {"defaults": {"top_k": 3}, "lowest": 0},
    "fills in top_k 3, and refuses the word": {"defaults": {"top_k": 3}, "declines": ("top_k",)},
    "fills in top_p 0.7, and hangs up at the word": {"defaults": {"top_p": .7}, "declines": ("top_p",), "status": 0},
    "fills in top_p 0.7, and ignores the word": {"defaults": {"top_p": .7}, "ignores": ("top_p",)},
    "fills in min_p 0.4, and ignores the word": {"defaults": {"min_p": .4}, "ignores": ("min_p",)},
    "fills in a penalty, and ignores the word": {"defaults": {"repetition_penalty": 2.0},
                                                 "ignores": ("repetition_penalty",)},
    "knows none of these words": {"ignores": NAMES},
    "refuses all of them": {"declines": NAMES, "status": 422},
    "puts BOS in front": {"reads": lambda ids: [BOS, *ids]},
    "puts BOS in front twice": {"reads": lambda ids: [BOS, BOS, *ids]},
    "puts BOS in front, and counts nothing": {"reads": lambda ids: [BOS, *ids], "counts": None},
    "has a chat template": {"reads": lambda ids: [5, 6, *ids, 6, 5]},
    "has a chat template, and counts nothing": {"reads": lambda ids: [5, 6, *ids, 6, 5], "counts": None},
    "merges the prompt's last two tokens": {"reads": lambda ids: [*ids[:-2], 5]},
    "merges them, and counts nothing": {"reads": lambda ids: [*ids[:-2], 5], "counts": None},
    "drops the prompt's last token, counts it": {"reads": lambda ids: ids[:-1], "counts": 2},
    "writes the prompt's last token in front": {"echo": True},
    "logprobs after what it was asked for": {"reports": "processed"},
    "logprobs of two digits": {"digits": 2},
    "two of five logprobs": {"shape": "capped"},
    "all logprobs": {"shape": "many"},
    "the drawn token as the last of five": {"shape": "drawn last"},
    "the drawn token not among them": {"shape": "not added"},
    "no logprobs": {"logprobs": False},
    "tokens by their texts": {"names": "texts"},
    "one token at most": {"most": 1},
    "stops at an end of text": {"ends": "stops"},
    "stops there, and does not say so": {"ends": "stops silently"},
    "never writes an end of text": {"ends": "never ends"},
    "texts without blanks at their ends": {"text": lambda text, prompt: text.strip()},
    "logits in low precision": {"noise": .15},
    "other weights": {"noise": 1.5},
}
SETTINGS = ({}, {"temperature": 0.7}, {"temperature": 0.8, "top_k": 5, "min_p": 0.2}, {"top_p": 0.9})


def configurations(count):
    """(kind, config, witness, settings, plain, prompt), seeded. The other server is usual, or of the same kind."""
    chance, made = random.Random(63), []
    every = [*product(KINDS, WITNESSES)]
    for number in range(count):
        kind, witness = every[number % len(every)]
        config = dict(KINDS[kind])
        for name, values in {"reports": ("raw", "processed"), "digits": (None, 3, 4),
                             "shape": ("drawn added", "not added", "drawn last"), "counts": (True, None),
                             "lowest": (-1, 0), "declines": ((), ("mirostat",), ("min_p", "typical_p"))}.items():
            if name not in config and chance.random() < .3:
                config[name] = chance.choice(values)
        settings = chance.choice(SETTINGS) if witness != "logprobs" else {}
        settings = {name: value for name, value in settings.items() if name not in config.get("declines", ())}
        prompt = [chance.randrange(5) for _ in range(chance.randint(2, 5))]
        made.append((kind, config, witness, settings, chance.choice([None, {}]), prompt))
    return made


@contextmanager
def running(kind):
    """start(*its): a socketserver of this kind that answers, in a thread, until the end."""
    servers = []

    def start(*its):
        servers.append(kind(*its))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return servers[-1]
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


# The lines of the table in docs/JUDGE.md, and the kinds that each is about.
LINES = {
    "nothing; or fills in top_p, top_k, min_p or penalties, and takes the words that turn them off":
        ["nothing", "fills in top_p 0.8 and top_k 3", "fills in min_p 0.3", "fills in penalties"],
    "fills in top_k 3, and takes no -1": ["fills in top_k 3, takes no -1"],
    "knows none of these words, or refuses all of them, and fills in nothing":
        ["knows none of these words", "refuses all of them"],
    "fills in a cut (top_k, top_p, min_p), and refuses the word, hangs up at it or ignores it":
        ["fills in top_k 3, and refuses the word", "fills in top_p 0.7, and hangs up at the word",
         "fills in top_p 0.7, and ignores the word", "fills in min_p 0.4, and ignores the word"],
    "fills in a penalty, and ignores the word": ["fills in a penalty, and ignores the word"],
    "puts BOS in front, once or twice, or has a chat template; and counts these tokens or not":
        ["puts BOS in front", "puts BOS in front twice", "puts BOS in front, and counts nothing",
         "has a chat template", "has a chat template, and counts nothing"],
    "merges the prompt's last two tokens, or drops the last one":
        ["merges the prompt's last two tokens", "merges them, and counts nothing",
         "drops the prompt's last token, counts it"],
    "writes the prompt's last token in front of its text": ["writes the prompt's last token in front"],
    "reports logprobs of two digits, of all tokens, after cuts; the drawn token last or not among them":
        ["logprobs after what it was asked for", "logprobs of two digits", "all logprobs",
         "the drawn token as the last of five", "the drawn token not among them"],
    "reports two of the five logprobs that it is asked for": ["two of five logprobs"],
    "reports no logprobs, or tokens by their texts": ["no logprobs", "tokens by their texts"],
    "writes one token at most": ["one token at most"],
    "stops at an end of text, whether it says so or not, or never writes one":
        ["stops at an end of text", "stops there, and does not say so", "never writes an end of text"],
    "cuts blanks at the ends of texts": ["texts without blanks at their ends"],
    "computes logits in low precision": ["logits in low precision"]}
