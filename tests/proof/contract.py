"""The contract: what every drafter and rule goes through, by its name in methods/index.py. A new one needs a line
there, and no check of its own to be exact, to stop where it should, and to bear what a batch does to it.

A walk is blind to randomness that is used again, to padding that only a wider tree reaches, to a stop that only another
loop has. So each of these is a part here: every part takes a drafter's name and a rule's, and returns what a check
returns (checks.py). What no part can see: two errors that cancel, a bug of torch's own, rounding in low precision.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product

import torch

from nanospec.dice import Dice
from nanospec.draft import Drafter
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, RULES, Entry, Method, Options, method_of
from nanospec.probs import Sampling
from nanospec.proof.stats import goodness_of_fit
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import target_distribution
from nanospec.serving.server import Server
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill, until
from tests.proof.checks import DRAFT_MODEL4, GPT4, GPT_DRAFT_MODEL4, TABLE4
from tests.proof.compare import Batch, Found, Off, caches, greedy, prompts_of, ragged, rounds, together, worst
from tests.proof.handover import Ledger, only_these_are_random

# Block verification of a tree is traversal, so by its own name traversal has only the chain to judge.
PAIRS = [(name, rule) for name, rule in product(DRAFTERS, RULES) if rule != "traversal" or name == "chain"]
# They draft with a GPT. A chain and a tree of every learned draft model go through those parts that depend on who says
# what may come next.
OF_MODELS = [(f"{name} of {model}", "token") for model in LEARNED for name in ("chain", "tree")]
TABLE, DRAFT_MODEL = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)
TIED, TIED_DRAFT_MODEL = TableModel(3, 3, ties=True), TableModel(3, 4, ties=True)
LONG, LONG_DRAFT_MODEL = small_gpt(4, 3, 5, context=128), small_gpt(4, 1, 6, context=128)
SHORT, SHORT_DRAFT_MODEL = small_gpt(4, 3, 5, context=32), small_gpt(4, 1, 6, context=32)
OF_THE_DRAFTER = {"same_greedy", "stops", "real_dice", "long_caches", "alone", "second_request", "shrinking_text",
                  "foreign_vocabulary"}
# A rule sees the draft alone. One drafter for each kind: drawn, a tree, at times nothing, copied and a tree.
SHAPES = ("chain", "tree", "goodput", "suffix-tree")
BY_COMPANY = {name for name, entry in DRAFTERS.items() if entry.looks_around}
# A draft as large as it likes, and those of which more is drawn than others draw.
MANY_PATHS = {name for name, entry in DRAFTERS.items() if not entry.takes} | {"independent", "stack"}
FALSE_ALARM = 1e-5              # of `real_dice`, of which there is one for every pair

SMALL = {"gamma": 2, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2})}       # goodput stops early at times
# Nodes at depth 6, children of a younger sibling's child, more nodes than any default.
LARGE = {"gamma": 7, "topology": [-1, 0, 0, 0, 1, 1, 2, 4, 4, 5, 7, 7, 9, 10, 10, 13]}


def entry_of(name: str) -> Entry:
    return DRAFTERS[name.split(" of ")[0]]


def draft_model_of(name: str, target, draft_model):
    """What this name drafts with: "tree of mlp", a small MLP speculator for that target; "tree", `draft_model`."""
    model = name.partition(" of ")[2]
    return small_learned(model, target) if model else draft_model


def drafter_of(name: str, target, draft_model, **setting) -> Drafter:
    return entry_of(name).make(draft_model_of(name, target, draft_model), Options(**setting))


def method_by(name: str, rule: str, target, draft_model, **setting) -> Method:
    return method_of(target, draft_model_of(name, target, draft_model), name.split(" of ")[0], rule, **setting)


def exact(name: str, rule: str) -> Found:
    """Two rounds or more, walked: the distribution of the text is the target's."""
    learned = " of " in name                                # nothing is impossible in a learned one: more paths
    return rounds(TABLE, method_by(name, rule, TABLE, DRAFT_MODEL, **SMALL).run, [1, 0, 1, 2, 1],
                  2 if learned or name in MANY_PATHS else 3, temperature=0.7, top_k=2 if learned else None)


def batch(name: str, rule: str) -> Found:
    """Two texts of different lengths, each with a draft and settings of its own, walked together."""
    small = SMALL | {"gamma": 1, "topology": [-1, 0, 0]}
    learned = " of " in name
    many = learned or name in MANY_PATHS or entry_of(name).takes == "shape"
    return ragged(TABLE, drafter_of(name, TABLE, DRAFT_MODEL, **small), [[1, 2, 1], [0, 2, 1, 1, 0]], 2, RULES[rule],
                  [{"temperature": 0.7, "top_k": 2 if learned else None}, {"temperature": 0} if many else {"top_k": 2}])


def settings(name: str, rule: str) -> Found:
    """Temperature, top-k, top-p and stop together, on tables with ties, walked. The chain goes through all of them."""
    every = list(product((0, 0.7, 1.3), (None, 2), (None, 0.6), ((), (0, 2))))
    some = [(0, None, None, (0, 2)), (0, 2, 0.6, ()), (0.7, 2, 0.6, ()), (1.3, None, 0.8, (0,))]
    return worst(rounds(TIED, method_by(name, rule, TIED, TIED_DRAFT_MODEL, **SMALL).run, [1, 0, 1], 2,
                        temperature=temperature, top_k=top_k, top_p=top_p, stop=stop)
                 for temperature, top_k, top_p, stop in (every if (name, rule) == ("chain", "token") else some))


def same_greedy(name: str, rule: str) -> Found:
    """Temperature 0, a GPT in float64: token for token what greedy decoding writes."""
    runs = [method_by(name, rule, GPT4, GPT_DRAFT_MODEL4, **setting).run for setting in (SMALL, {"gamma": 5})]
    return greedy(GPT4, runs, prompts_of(4, 4, 8), 8)


def stops(name: str, rule: str) -> Found:
    """A stop token, a limit, and both on the same token: they cut the text and change nothing before."""
    wrong = count = 0
    for seed, temperature in enumerate((0, 0.7)):
        run = method_by(name, rule, TABLE4, DRAFT_MODEL4, **SMALL).run
        request = {"ids": [2, 1, 2, 1], "temperature": temperature, "seed": seed}
        whole = tokens_of(run(max_new_tokens=12, **request))
        for stop in ((0,), (1,), (3, 2)):
            cut, _ = until(whole, stop)
            for new in {1, len(cut) - 1, len(cut), len(cut) + 1} & set(range(1, 13)):
                done = list(run(max_new_tokens=new, stop=stop, **request))
                wrong += tokens_of(done) != cut[:new] or any(not round_.emitted for round_ in done)
                count += 1
    return count, float(wrong), float(wrong)


def uniforms(name: str, rule: str) -> Found:
    """No uniform is handed out twice, no round takes more than it may, and all chance comes from the dice."""
    wrong = count = 0
    for target, draft_model, setting in ((TABLE, DRAFT_MODEL, SMALL), (TABLE4, DRAFT_MODEL4, LARGE)):
        drafter = drafter_of(name, target, draft_model, **setting)
        dice = Ledger([5])
        with only_these_are_random(dice):
            done = list(speculate(target, drafter, [1, 0, 1], 20, 0.9, dice=dice, rule=RULES[rule]))
        most = len(done) * (drafter.uniforms + drafter.most + 1)
        least = sum(len(round_.tokens) for round_ in done) if rule == "token" else len(done)
        wrong += len(dice.handed) - len(set(dice.handed)) + (not least <= len(dice.handed) <= most)
        count += len(dice.handed)
    return count, float(wrong), float(wrong)


def real_dice(name: str, rule: str, texts: int = 1_000) -> Found:
    """Seeds 0 to `texts`, as rows of one batch: the joint distribution of 3 tokens, by chi-square. A right pair fails
    once in 100,000 sets of seeds, and the seeds are fixed. It sees what is .14 off in total variation, 99 times of 100.
    """
    drawn = together(TABLE, drafter_of(name, TABLE, DRAFT_MODEL, **SMALL), [[1, 0, 1]] * texts, 3, Dice(range(texts)),
                     Sampling(1.2), RULES[rule])
    fit = goodness_of_fit(Counter(map(tuple, drawn)), target_distribution(TABLE, [1, 0, 1], 3, temperature=1.2))
    bad = float(fit.p_value < FALSE_ALARM)
    return Off.at((texts, bad, bad), f"{texts} texts after [1, 0, 1] do not fit, p {fit.p_value:.1g}")


def long_caches(name: str, rule: str) -> Found:
    """Deep and wide drafts up to the end of the context: p_target and q_draft of every node = recomputed ones. What a
    cache does far into a text, a chain and a tree of the GPT show for all, by the drafters' own rule.
    """
    far = name in ("chain", "tree") and rule == "token"
    target, gpt = (LONG, LONG_DRAFT_MODEL) if far else (SHORT, SHORT_DRAFT_MODEL)
    drafter, prompts, entry = drafter_of(name, target, gpt, **LARGE), prompts_of(4, 1, 9), entry_of(name)
    draft_model = draft_model_of(name, target, gpt) if entry.needs_draft_model else None
    return caches(target, draft_model, drafter, prompts, target.config.context - max(map(len, prompts)), RULES[rule],
                  copies=not entry.needs_draft_model or entry.remembers, best=drafter.uniforms == 0,
                  must_see=lambda done: len(done.path) > 1, temperature=0.8)


def alone(name: str, rule: str) -> Found:
    """Requests that come and go in the rows of a server, one of them read in pieces while another writes, are written
    as if each were alone: the same tokens, round by round (BY_COMPANY: in other rounds). At temperature 0; where drafts
    have one shape, with real dice too.
    """
    wrong = count = 0
    asked: list[tuple[list[int], int, dict]] = [
        ([2, 1, 3], 8, {}), ([0, 1, 0, 1, 2, 2], 5, {"top_k": 3}), ([3, 3, 0, 1] * 17, 8, {"top_p": 0.9}),
        ([1], 5, {"top_k": 2, "top_p": 0.95, "min_p": 0.4})]              # no two have the same settings
    for temperature in (0, 0.8) if entry_of(name).kind.fixed else (0,):
        drafter = drafter_of(name, GPT4, GPT_DRAFT_MODEL4, **SMALL)
        server = Server(GPT4, drafter, rows=2, rule=RULES[rule])
        requests = [server.submit(ids, max_new_tokens=new, temperature=temperature * (1 + seed / 4), seed=seed, **its)
                    for seed, (ids, new, its) in enumerate(asked)]
        wrote: list[list[list[int]]] = [[] for _ in requests]
        while not all(request.done for request in requests):
            before = [len(request.tokens) for request in requests]
            server.step()
            for rounds_, request, start in zip(wrote, requests, before):
                rounds_ += [request.tokens[start:]] * (len(request.tokens) > start)
        for seed, ((ids, new, its), rounds_) in enumerate(zip(asked, wrote)):
            run = method_by(name, rule, GPT4, GPT_DRAFT_MODEL4, **SMALL).run
            one = [done.emitted for done in run(ids, max_new_tokens=new, temperature=temperature * (1 + seed / 4),
                                                seed=seed, **its)]
            wrong += sum(one, []) != sum(rounds_, []) if name in BY_COMPANY else one != rounds_
            count += 1
    return count, float(wrong), float(wrong)


def second_request(name: str, rule: str) -> Found:
    """The same drafter writes a second text as a new one would."""
    run, used = method_by(name, rule, GPT4, GPT_DRAFT_MODEL4, **SMALL).run, drafter_of(name, GPT4, GPT_DRAFT_MODEL4,
                                                                                       **SMALL)
    for count, ids in enumerate(([0, 1, 2, 0, 1], [2], [1, 2, 3, 0, 1, 2, 2, 3])):
        both = [[(done.tokens, done.emitted, done.q_draft.tolist())
                 for done in run_again(ids, max_new_tokens=8, temperature=0.8, seed=count)]
                for run_again in (lambda ids, **request: speculate(GPT4, used, ids, rule=RULES[rule], **request), run)]
        if both[0] != both[1]:
            return Off.at((3, 1.0, 1.0), f"after {ids}, its text number {count + 1}, it drafts as after no new one")
    return 3, 0.0, 0.0


def shrinking_text(name: str, rule: str) -> Found:
    """Tokens are taken back and another one is written, as a drafter's own drafter sees it: what is drafted then is
    drafted after the text as it is. Some learn from earlier rounds how much to draft, or what. All cases are rows of
    one batch, unless those would look at each other.
    """
    cases = [*product(range(1, 5), range(4))]               # how many are taken back, what is written
    batches = [[case] for case in cases] if name in BY_COMPANY else [cases]
    return worst(taken_back(name, rule, of_rows) for of_rows in batches)


def taken_back(name: str, rule: str, cases: list[tuple[int, int]]) -> Found:
    """`shrinking_text` of a batch with one row for each of these cases."""
    drafter, fresh = (drafter_of(name, GPT4, GPT_DRAFT_MODEL4, **SMALL) for _ in range(2))
    batch, sampling = Batch(GPT4, drafter, [[2, 1, 3, 2, 1]] * len(cases), 60), Sampling(1.5)
    dice = Dice(range(7, 7 + len(cases)))
    for _ in range(4):
        batch.round(dice, sampling, RULES[rule])
    back, new = torch.tensor(cases).T
    batch.text.length -= back
    batch.text.commit(new[:, None], 1)
    again = Text(batch.text.ids(), 60, 4)
    fresh.begin(again)
    fresh.read(again, range(len(cases)), prefill(GPT4, again, drafter.layers)[1])
    drafts = []
    for who, what in ((drafter, batch.text), (fresh, again)):
        dice = Dice(range(100, 100 + len(cases)))
        dice.refill(drafter.uniforms + drafter.most + 1)
        drafts.append(who.propose(what, sampling, dice, 80))
    ours, theirs = drafts
    n, learns = min(draft.tokens.shape[1] for draft in drafts), entry_of(name).learns
    off = (ours.tokens[:, 0] != theirs.tokens[:, 0]).double()
    if learns != "tokens":
        both = ours.exist[:, :n] & theirs.exist[:, :n]
        apart = (ours.q_draft[:, :n] - theirs.q_draft[:, :n]).abs().amax(-1)
        off += torch.where(both | (not learns), apart, 0.0).amax(-1)
    if not learns:
        off += ours.exist.sum(-1) != theirs.exist.sum(-1)
    error, b = off.max(0)
    return Off.at((len(cases), float(error), float(error)), f"{int(back[b])} tokens were taken back, and {int(new[b])} "
                  f"was written, {again.ids()[b]}: it drafts {ours.tokens[b, 1:].tolist()}, and a new one "
                  f"{theirs.tokens[b, 1:].tolist()}")


def foreign_vocabulary(name: str, rule: str) -> Found:
    """A draft model of another vocabulary is refused before it drafts; a drafter without one does not mind."""
    other = small_gpt(7, 1, 1)
    try:
        method = method_of(GPT4, draft_model_of(name, other, other), name.split(" of ")[0], rule, **SMALL)
        done = tokens_of(method.run([1, 2], max_new_tokens=6, temperature=0))
    except RequestError as error:
        wrong = "vocabulary" not in str(error)
    else:
        wrong = done != list(generate(GPT4, [1, 2], 6, 0))
    return 1, float(wrong), float(wrong)


def pairs_of(part: str, quick: bool = False) -> list[tuple[str, str]]:
    """Who goes through this part: (drafter, rule). quick: without those that repeat what others show: a drafter's own
    doings under another rule, a rule with a draft of a shape that it has seen, a learned model's tree where its chain
    shows as much. They are looked at before a release.
    """
    pairs = PAIRS + OF_MODELS * (part not in ("settings", "stops", "uniforms", "real_dice"))
    enough = ("chain", "lookup", "tree") if part in OF_THE_DRAFTER else SHAPES
    trees = part in ("batch", "long_caches")
    return [(name, rule) for name, rule in pairs
            if not quick or (rule != "block" or name in enough) and (trees or not name.startswith("tree of "))]


CONTRACT: dict[str, Callable[[str, str], Found]] = {part.__name__: part for part in (
    exact, batch, settings, same_greedy, stops, uniforms, real_dice, long_caches, alone, second_request, shrinking_text,
    foreign_vocabulary)}
